"""What a notification provider speaks. One small file per provider.

Adapters import no models and no settings. `send` is called at most once per attempt, with
every retry of the client library switched off, and raises `criticizer.failures` classes
with `Place.PROVIDER`:

- RetryableFailure: it is certain that nothing was sent (DNS, refused connection, 429).
- PermanentFailure: it is certain that nothing was sent and repeating cannot help.
- UncertainFailure: the provider may have accepted the message. A provider that deduplicates
  or can be asked gives the class of what it saw (NETWORK_TIMEOUT, UPSTREAM_INTERNAL): the
  message is repeated or looked up. Any other gives DELIVERY_UNCERTAIN: an operator decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol
from uuid import UUID

# In a failure's context: it is about this recipient alone (greylisting) and opens no circuit.
ABOUT_RECIPIENT = "about_recipient"


@dataclass(frozen=True, slots=True)
class Message:
    """A frozen message. The same bytes and the same token on every attempt (004, 6.4).

    `address` has no channel prefix. `payload` is the machine-readable form for webhooks:
    JSON of strings, whole numbers, booleans and None only, so that it survives storage as it is.
    """

    token: UUID
    address: str
    subject: str
    text: str
    html: str
    payload: dict[str, object]
    thread: str  # groups the messages of one changelist: In-Reply-To and References
    created_at_epoch: int  # seconds; the mail's Date, so that every attempt has the same bytes


class Evidence(StrEnum):
    """What a look-up can say."""

    FOUND = "found"
    ABSENT = "absent"  # proof, not mere silence
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class LookUp:
    evidence: Evidence
    notification_id: str = ""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What decides between resend, look-up and hold after an ambiguous attempt.

    `deduplicates`: repeating the same bytes with the same key cannot reach the recipient
    twice. `can_look_up`: `look_up` can answer FOUND or ABSENT.
    """

    deduplicates: bool
    can_look_up: bool


class Provider(Protocol):
    name: str
    capabilities: Capabilities

    def send(self, message: Message) -> str:
        """Send one message to one recipient and return the provider's id (never empty)."""
        ...

    def look_up(self, message: Message, notification_id: str) -> LookUp:
        """Say whether a message was accepted; `notification_id` may be empty.

        Never sends. Raises RetryableFailure when the question could not be asked.
        """
        ...
