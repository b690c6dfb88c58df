"""Which provider sends mail: the one place of the rule behind MAIL_PROVIDER."""

from __future__ import annotations

from django.conf import settings

MAILDIR = "maildir"


def provider() -> str:
    """Return "smtp", "maildir", "resend" or "postmark", as the settings have it now.

    Without MAIL_PROVIDER it is SMTP where SMTP_HOST is set, else the maildir. That what a provider
    needs is set too is seen to at start (`settings`).
    """
    named: str = settings.MAIL_PROVIDER
    return named or ("smtp" if settings.SMTP_HOST else MAILDIR)
