"""The stage notify with short patience and, for some addresses, the other mail provider.

An installation has one mail provider. The drill has two, so that the one that can be asked
(maildir) and the one that cannot (SMTP) are broken in the same run: addresses of `SMTP_DOMAIN`
go through SMTP. Everything else is the product's own stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from benchmarks.drill_schedule import SMTP_DOMAIN
from notifications import config
from notifications.providers.base import Provider
from reviews.models import ReviewJob
from reviews.pipeline import StageClaim
from reviews.pipeline.executor import Written
from reviews.stages import notify as real

PATIENCE_SECONDS = 2.0  # the product waits half a minute; a drill has less time


@cache
def _built() -> Mapping[bool, Mapping[str, Provider]]:
    """Return the providers without and with SMTP."""
    ours = config.from_settings()
    webhook = replace(ours.webhook, total_timeout_seconds=PATIENCE_SECONDS)
    assert ours.smtp is not None
    smtp = replace(ours.smtp, read_timeout_seconds=PATIENCE_SECONDS, final_timeout_seconds=PATIENCE_SECONDS)
    return {
        False: config.build(replace(ours, webhook=webhook, smtp=None))[0],
        True: config.build(replace(ours, webhook=webhook, smtp=smtp))[0],
    }


class _Chosen:
    """Stand-in for `notifications.config` in the stage."""

    def __init__(self, *, has_smtp: bool) -> None:
        self._has_smtp = has_smtp

    def providers(self) -> Mapping[str, Provider]:
        return _built()[self._has_smtp]


def notify(claim: StageClaim) -> Written:
    """Run the real stage with the providers for its recipients.

    A worker of this queue runs one stage at a time, so the stage's configuration may be replaced.
    """
    recipients = ReviewJob.objects.values_list("recipients", flat=True).get(pk=claim.job_id)
    has_smtp = any(recipient.endswith(f"@{SMTP_DOMAIN}") for recipient in recipients)
    real.config = _Chosen(has_smtp=has_smtp)  # type: ignore[assignment,attr-defined]
    return real.run(claim)
