"""What a notification provider speaks. One small file per provider.

Adapters import no models and no settings. `send` is called at most once per attempt, with
every retry of the client library switched off, and raises `criticizer.resilience.failures` classes
with `Component.PROVIDER`:

- RetryableFailure: it is certain that nothing was sent (DNS, refused connection, 429).
- PermanentFailure: it is certain that nothing was sent and repeating cannot help.
- UncertainFailure: the provider may have accepted the message. What the provider's
  `capabilities` promise decides what is next: the same message again, a look-up, or an operator.

`capabilities` say what is true of the provider, not what to do:
`notifications.delivery.uncertainty_policy` decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Protocol, runtime_checkable
from uuid import UUID

# In a failure's context: it is about this recipient alone (greylisting) and opens no circuit.
ABOUT_RECIPIENT = "about_recipient"


@dataclass(frozen=True, slots=True)
class Message:
    """A frozen message. The same bytes and the same token on every attempt (004, 6.4).

    `address` has no channel prefix. `payload` is the machine-readable form for webhooks and
    for formatting in channels that are not mail: JSON of strings, whole numbers, booleans and
    None only, so that it survives storage as it is.
    """

    token: UUID
    address: str
    subject: str
    text: str
    html: str
    payload: dict[str, object]
    thread: str  # groups the messages of one changelist: In-Reply-To and References
    created_at_epoch: int  # seconds; the mail's Date, so that every attempt has the same bytes
    unsubscribe_url: str = ""  # for List-Unsubscribe and a link; empty: none
    answers: UUID | None = None  # the token of the earlier version's message, for References
    # One sentence, set when an operator resends what may have arrived already; shown to the
    # recipient. It is the only thing that changes a message after it was frozen.
    repeat_notice: str = ""


class Evidence(StrEnum):
    """What a look-up can say."""

    FOUND = "found"
    ABSENT = "absent"  # proof, not mere silence
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class LookUp:
    evidence: Evidence
    notification_id: str = ""
    detail: str = ""  # one phrase for the history: why it is UNKNOWN, what was seen


@dataclass(frozen=True, slots=True)
class Question:
    """Was this message accepted? `notification_id` is what the provider called it, or empty."""

    message: Message
    notification_id: str
    attempted_at_epoch: float  # seconds; start of the first attempt that may have been accepted


class LookUpBy(StrEnum):
    """What `look_up` can search by."""

    ID = "id"  # the provider's own id, known only where an attempt was answered
    KEY = "key"  # our token


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a provider can promise; decides between resend, look-up and hold.

    `key_window_seconds`: the same bytes with the same key are one message for this long after
    the first attempt; inf by contract for ever; 0 for a provider without a key.
    `settle_seconds`: before the first look. `looks`: that many, `look_spacing_seconds` apart,
    must all say ABSENT before absence is evidence. `retention_seconds`: older than this,
    absence proves nothing. `resends_after_absence`: automatic resends on evidence of absence;
    None is any number, for a server whose answer is authoritative.
    """

    key_window_seconds: float = 0.0
    look_up: frozenset[LookUpBy] = frozenset()
    settle_seconds: float = 0.0
    looks: int = 1
    look_spacing_seconds: float = 0.0
    retention_seconds: float = inf
    resends_after_absence: int | None = 1
    recipients_delete: bool = False  # what they delete is gone: absence says nothing once it was accepted
    looks_elsewhere: bool = False  # look-ups go to another server than sends: a circuit of their own
    absence: str = ""  # what proves absence, one phrase for the table in the docs
    max_bytes: int | None = None  # of one message as sent
    batch: int = 1  # messages a call


class Provider(Protocol):
    """`name` is kept with each delivery and another name's "absent" is not believed.

    So a provider that looks elsewhere, or not at all, by its configuration has another name.
    """

    name: str
    capabilities: Capabilities

    def send(self, message: Message) -> str:
        """Send one message to one recipient and return the provider's id (never empty)."""
        ...

    def look_up(self, question: Question) -> LookUp:
        """Say whether a message was accepted.

        Never sends and never waits for an index to settle. ABSENT only on proof, including
        proof that what was searched is alive. Raises RetryableFailure when the question could
        not be asked; a PermanentFailure when it never can be.
        """
        ...

    def probe(self) -> str:
        """Check configuration and credentials without sending anything.

        Returns one plain sentence of what works. Raises `Failure` with a plain diagnosis.
        """
        ...


@runtime_checkable
class DiffersByRecipient(Protocol):
    """A provider whose promises depend on whom it sends to."""

    def capabilities_for(self, address: str) -> Capabilities:
        """Return what holds for one recipient (without its channel)."""
        ...


def capabilities_for(provider: Provider, address: str) -> Capabilities:
    """Return what `provider` promises for the recipient `address` (without its channel)."""
    if isinstance(provider, DiffersByRecipient):
        return provider.capabilities_for(address)
    return provider.capabilities
