"""The mail provider in use."""

from __future__ import annotations

from django.conf import settings

MAILDIR = "maildir"


def provider() -> str:
    """Return "smtp", "maildir", "resend" or "postmark", from the settings.

    Without MAIL_PROVIDER it is SMTP where SMTP_HOST is set, otherwise the maildir.
    """
    named: str = settings.MAIL_PROVIDER
    return named or ("smtp" if settings.SMTP_HOST else MAILDIR)
