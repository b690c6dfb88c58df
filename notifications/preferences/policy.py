"""What recipients want to be told: nothing below a severity, nothing until a time, several in one mail.

A recipient whom a review is not told to for one of these reasons has no delivery row and is not
required for the job's success; the job's events say who and why. A message that has its row
already is sent all the same: what was promised is not taken back half-way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pghistory
import structlog
from django.db.models.functions import Now
from django.utils import timezone

from notifications.models.preferences import RecipientPreference
from notifications.recipients import normalise, split
from notifications.rendering.report import SEVERITIES

log = structlog.get_logger(__name__)

Threshold = RecipientPreference.Threshold
DigestMinutes = RecipientPreference.DigestMinutes

NO_END = datetime(9999, 12, 31, tzinfo=UTC)  # `muted_until` of those who are muted without an end
URGENT = SEVERITIES[0]  # a finding of it is not kept for a digest
MUTED, BELOW_THRESHOLD = "muted", "below_threshold"


@dataclass(frozen=True, slots=True)
class Preference:
    """`threshold` is one of `Threshold`; `muted_until` is aware, and None when not muted now.

    `digest_minutes`: reviews that end within so many are told in one mail; 0: each at once.
    """

    recipient: str
    threshold: str = Threshold.EVERYTHING.value
    muted_until: datetime | None = None
    digest_minutes: int = 0

    @property
    def is_muted_for_ever(self) -> bool:
        return self.muted_until is not None and self.muted_until >= NO_END


@dataclass(frozen=True, slots=True)
class AppliedPreferences:
    """By recipient: why no message is wanted, and of how many minutes the digest is that it is kept for."""

    unwanted: dict[str, str]
    digest_minutes: dict[str, int]


def mute(recipient: str, until: datetime | None, actor: str, reason: str = "") -> None:
    """Tell `recipient` nothing until then; None means until somebody unmutes it.

    `until` is aware. `actor` is who decided, `reason` why, both for the history. Repeating it
    changes nothing more.

    Raises ValueError for a text that is no recipient.
    """
    _save(recipient, actor, reason, muted_until=until or NO_END)


def unmute(recipient: str, actor: str, reason: str = "") -> None:
    """Tell `recipient` again. Raises ValueError for a text that is no recipient."""
    _save(recipient, actor, reason, muted_until=None)


def set_threshold(recipient: str, threshold: str, actor: str) -> None:
    """Tell `recipient` only of reviews with such a finding or a worse one.

    Raises ValueError for an unknown threshold and for a text that is no recipient.
    """
    _save(recipient, actor, "", threshold=Threshold(threshold).value)


def set_digest(recipient: str, minutes: int, actor: str, reason: str = "") -> None:
    """Tell `recipient` of all reviews that end within so many minutes in one mail; 0: of each at once.

    What waits already is told as it was promised. Raises ValueError for minutes that cannot be chosen,
    for a recipient that is not a mail address, and for a text that is no recipient.
    """
    name = normalise(recipient)
    if minutes not in DigestMinutes.values:
        raise ValueError(
            f"A digest is of {', '.join(map(str, DigestMinutes.values[1:]))} minutes, or 0 for none."
        )
    if minutes and split(name)[0] != "mail":
        raise ValueError("Only mail has digests: leave it at 0, a message for each review at once.")
    _save(name, actor, reason, digest_minutes=minutes)


def preference_of(recipient: str) -> Preference:
    """Return what one recipient wants now."""
    return preferences_of([recipient])[recipient]


def preferences_of(recipients: Collection[str]) -> dict[str, Preference]:
    """Return what each recipient wants now, by recipient; one query."""
    wanted = {recipient: Preference(recipient) for recipient in recipients}
    now = timezone.now()
    for row in RecipientPreference.objects.filter(recipient__in=wanted):
        until = row.muted_until if row.muted_until is not None and row.muted_until > now else None
        wanted[row.recipient] = Preference(row.recipient, row.threshold, until, row.digest_minutes)
    return wanted


def unwanted(worst: Mapping[str, str]) -> dict[str, str]:
    """Return who does not want a message, and why: MUTED or BELOW_THRESHOLD.

    `worst` gives, by recipient, the severity of the worst finding they would read of, or "".
    """
    return apply_preferences(worst).unwanted


def apply_preferences(worst: Mapping[str, str]) -> AppliedPreferences:
    """Return what becomes of a review's messages; one query.

    `worst` gives, by recipient, the severity of the worst finding they would read of, or "". One that
    is critical is told at once and alone: nobody wants to hear of it later.
    """
    found = AppliedPreferences({}, {})
    for recipient, preference in preferences_of(worst).items():
        if preference.muted_until is not None:
            found.unwanted[recipient] = MUTED
        elif not _reaches(worst[recipient], preference.threshold):
            found.unwanted[recipient] = BELOW_THRESHOLD
        elif preference.digest_minutes and worst[recipient] != URGENT:
            found.digest_minutes[recipient] = preference.digest_minutes
    return found


def _reaches(severity: str, threshold: str) -> bool:
    if threshold == Threshold.EVERYTHING:
        return True
    # A severity nobody knows is not a reason to keep silent.
    return severity != "" and (
        severity not in SEVERITIES or SEVERITIES.index(severity) <= SEVERITIES.index(threshold)
    )


def _save(recipient: str, actor: str, reason: str, **values: object) -> None:
    name = normalise(recipient)
    if not actor.strip():
        raise ValueError("Say who decides this: it is kept.")
    with pghistory.context(actor=actor[:255]):
        RecipientPreference.objects.update_or_create(
            recipient=name,
            defaults={
                **values,
                "actor": actor[:255],
                "reason": reason.strip()[:255],
                "updated_at": Now(),
            },
        )
    log.info("preference_changed", changed=sorted(values))
