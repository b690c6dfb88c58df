"""Preferences of recipients: severity threshold, mute, digest interval (guarantee G59).

A recipient who is not notified for one of these reasons gets no delivery row and is not required for the
job's success; the job's events record it. A message that already has its row is sent all the same.
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

NO_END = datetime(9999, 12, 31, tzinfo=UTC)  # `muted_until` of a mute without an end
URGENT = SEVERITIES[0]  # sent at once, never in a digest
MUTED, BELOW_THRESHOLD = "muted", "below_threshold"


@dataclass(frozen=True, slots=True)
class Preference:
    """Preferences of one recipient.

    `threshold` is one of `Threshold`; `muted_until` is aware, and None when not muted now. `digest_minutes`:
    reviews that end within this time are sent in one mail; 0: each at once.
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
    """Per recipient: why no message is sent, or the interval of the digest it goes into."""

    unwanted: dict[str, str]
    digest_minutes: dict[str, int]


def mute(recipient: str, until: datetime | None, actor: str, reason: str = "") -> None:
    """Send `recipient` nothing before `until`, an aware time; None: until it is unmuted.

    Raises ValueError for an invalid recipient.
    """
    _save(recipient, actor, reason, muted_until=until or NO_END)


def unmute(recipient: str, actor: str, reason: str = "") -> None:
    """Notify `recipient` again. Raises ValueError for an invalid recipient."""
    _save(recipient, actor, reason, muted_until=None)


def set_threshold(recipient: str, threshold: str, actor: str) -> None:
    """Notify `recipient` only of reviews with such a finding or a worse one.

    Raises ValueError for an unknown threshold or an invalid recipient.
    """
    _save(recipient, actor, "", threshold=Threshold(threshold).value)


def set_digest(recipient: str, minutes: int, actor: str, reason: str = "") -> None:
    """Send `recipient` one mail for the reviews that end within this time; 0: no digest.

    Deliveries that are already waiting stay in their digest. Raises ValueError for minutes that cannot be
    chosen, and for a recipient that is invalid or not a mail address.
    """
    name = normalise(recipient)
    if minutes not in DigestMinutes.values:
        raise ValueError(
            f"A digest interval is {', '.join(map(str, DigestMinutes.values[1:]))} minutes, or 0 for none."
        )
    if minutes and split(name)[0] != "mail":
        raise ValueError("Only mail has digests. Leave the interval at 0: a message for each review at once.")
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


def apply_preferences(worst: Mapping[str, str]) -> AppliedPreferences:
    """Apply the recipients' preferences to a review's messages; one query.

    `worst`: recipient -> severity of the worst finding in their message, or "". A critical one is sent at
    once and alone.
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
    # An unknown severity must not suppress a message.
    return severity != "" and (
        severity not in SEVERITIES or SEVERITIES.index(severity) <= SEVERITIES.index(threshold)
    )


def _save(recipient: str, actor: str, reason: str, **values: object) -> None:
    name = normalise(recipient)
    if not actor.strip():
        raise ValueError("An actor is required: it is saved in the history.")
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
