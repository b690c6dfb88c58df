"""The interface of notification providers; each provider is one module.

Providers import no models and no settings. `send` is called at most once per attempt, without retries of
a client library, and raises (see `providers.failures`):

- RetryableFailure: certainly nothing was sent (DNS, refused connection, 429).
- PermanentFailure: certainly nothing was sent, and repeating cannot help.
- UncertainFailure: the provider may have accepted the message.

`capabilities` state facts about the provider; `notifications.delivery.uncertainty_policy` decides what
follows from them after an UncertainFailure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Protocol, runtime_checkable
from uuid import UUID

# In a failure's context: it concerns this recipient alone (greylisting) and opens no circuit.
ABOUT_RECIPIENT = "about_recipient"


@dataclass(frozen=True, slots=True)
class Message:
    """A frozen message: the same bytes and the same token on every attempt (guarantee G48).

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
    # One sentence for the recipient, set when an operator resends what may have arrived. Nothing else
    # changes in a frozen message.
    repeat_notice: str = ""


class Evidence(StrEnum):
    """The answer of a look-up."""

    FOUND = "found"
    ABSENT = "absent"  # proof, not mere silence
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class LookUp:
    evidence: Evidence
    notification_id: str = ""
    detail: str = ""  # for the history: why it is UNKNOWN, what was found


@dataclass(frozen=True, slots=True)
class Question:
    """The question whether a message was accepted.

    `notification_id` is the provider's id, or empty.
    """

    message: Message
    notification_id: str
    attempted_at_epoch: float  # seconds; start of the first attempt that may have been accepted


class LookUpBy(StrEnum):
    """The keys that `look_up` can search by."""

    ID = "id"  # the provider's own id, known only after an answered attempt
    KEY = "key"  # our token


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The promises of a provider; they decide between resend, look-up and hold.

    `key_window_seconds`: the same bytes with the same key are one message for this long after the first
    attempt; inf: for ever, by contract; 0: no key. `settle_seconds`: wait before the first look-up.
    `looks`: number of look-ups, `look_spacing_seconds` apart, that must all say ABSENT before absence is
    evidence. `retention_seconds`: absence of older messages proves nothing. `resends_after_absence`:
    automatic resends on evidence of absence; None: any number, for an authoritative server.
    """

    key_window_seconds: float = 0.0
    look_up: frozenset[LookUpBy] = frozenset()
    settle_seconds: float = 0.0
    looks: int = 1
    look_spacing_seconds: float = 0.0
    retention_seconds: float = inf
    resends_after_absence: int | None = 1
    recipients_delete: bool = False  # recipients may delete messages: absence after acceptance proves nothing
    looks_elsewhere: bool = False  # look-ups use another server, with a circuit of its own
    absence: str = ""  # proof of absence, for the table in the docs
    max_bytes: int | None = None  # of one message as sent


class Provider(Protocol):
    """Adapter that sends messages over one channel.

    `name` is stored with each delivery; "absent" from another name proves nothing. So a provider whose
    look-ups depend on its configuration has a name per configuration.
    """

    name: str
    capabilities: Capabilities

    def send(self, message: Message) -> str:
        """Send one message to one recipient and return the provider's id (never empty)."""
        ...

    def look_up(self, question: Question) -> LookUp:
        """Look up whether a message was accepted.

        Never sends and never waits for an index to settle. ABSENT only on proof, including proof that
        what was searched is up to date. Raises RetryableFailure when the provider could not be asked,
        PermanentFailure when it never can be.
        """
        ...

    def probe(self) -> str:
        """Check configuration and credentials without sending anything.

        Returns one sentence about what works. Raises `Failure`.
        """
        ...


@runtime_checkable
class DiffersByRecipient(Protocol):
    """A provider whose capabilities depend on the recipient."""

    def capabilities_for(self, address: str) -> Capabilities:
        """Return the capabilities for one recipient (without its channel)."""
        ...


def capabilities_for(provider: Provider, address: str) -> Capabilities:
    """Return the provider's capabilities for the recipient `address` (without its channel)."""
    if isinstance(provider, DiffersByRecipient):
        return provider.capabilities_for(address)
    return provider.capabilities
