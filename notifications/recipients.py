"""Recipients: channel-qualified addresses in one normal form.

`mail:ann@example.com`, `webhook:https://ci.example.com/x`, `slack:C0123ABCD` (a channel's id),
`swarm:review-123`, `swarm:change-123`, `<code host>:owner/repository#12` (on GitLab `!12`), and
`<code host>-review:owner/repository#12` for inline comments.

The recipient is part of a delivery's key, so equal recipients must be equal texts: everything is
normalised first. The messages of ValueError are shown to callers of the API.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from django.core.exceptions import ValidationError
from django.core.validators import EmailValidator

from criticizer.codehosts.registry import HOSTS, sign_of
from notifications import webhook_address

MAX_RECIPIENTS = 100  # of one review
MAX_LENGTH = 500  # of the whole text; the column holds 512
_MAX_MAIL = 254  # RFC 5321, 4.5.3.1.3 less the angle brackets
_MAX_LOCAL_PART = 64
_SLACK_ID = re.compile(r"[CGD][A-Z0-9]{6,20}")
_PULL_REQUESTS = {
    host: re.compile(rf"({kind.repositories.in_ids})[#{sign_of(host)}]0*([1-9][0-9]{{0,9}})")
    for host, kind in HOSTS.items()
}
_SWARM_TOPIC = re.compile(r"(review|change)s?[-/]0*([1-9][0-9]{0,9})")

_valid_mail = EmailValidator(allowlist=["localhost"])


def normalise(text: str) -> str:
    """Return the recipient as `channel:address` in its one normal form.

    A bare address means `mail:`. Raises ValueError with a sentence for the user.
    """
    text = text.strip(" ")
    if not text:
        raise ValueError(
            "A recipient is empty. Write mail:<address>, webhook:<URL>, slack:<channel id>"
            " or swarm:review-<number>."
        )
    if any(not character.isprintable() for character in text):
        raise ValueError("A recipient contains control characters. Remove them.")
    if len(text) > MAX_LENGTH:
        raise ValueError(f"A recipient is longer than {MAX_LENGTH} characters. Shorten it.")
    channel, separator, address = text.partition(":")
    if not separator:
        channel, address = "mail", text
    channel = channel.lower()
    normal = _CHANNELS.get(channel)
    if normal is None:
        known = ", ".join(CHANNELS)
        hint = f" Write webhook:{text} for a webhook." if channel in {"http", "https"} else ""
        raise ValueError(f"The channel {channel[:32]!r} is unknown. Known channels: {known}.{hint}")
    recipient = f"{channel}:{normal(address)}"
    if len(recipient) > MAX_LENGTH:
        raise ValueError(f"A recipient is longer than {MAX_LENGTH} characters. Shorten it.")
    return recipient


def require_few_hosts(recipients: Iterable[str], limit: int) -> None:
    """Raise ValueError when recipients name webhooks on more than `limit` hosts (G136).

    The recipients are normalised.
    """
    found = len(webhook_address.hosts(recipients))
    if found > limit:
        raise ValueError(
            f"The recipients name webhooks on {found} hosts. One review may notify {limit}"
            " (WEBHOOK_HOSTS_PER_REQUEST). Name fewer, or one that passes the message on."
        )


def split(recipient: str) -> tuple[str, str]:
    """Return (channel, address) of a normalised recipient. Raises ValueError for any other text."""
    channel, separator, address = recipient.partition(":")
    if not separator or not address or channel not in _CHANNELS:
        raise ValueError(f"Not a normalised recipient. Known channels: {', '.join(CHANNELS)}.")
    return channel, address


def inline_channel(host: str) -> str:
    """Return the channel of inline comments on a code host's pull requests."""
    return f"{host}-review"


def inline_recipient(changelist_id: str) -> str:
    """Return the recipient of inline comments on a pull request: that of its summary is its id."""
    host, _, place = changelist_id.partition(":")
    return f"{inline_channel(host)}:{place}"


def example_pull_request(channel: str) -> str:
    """Return an address of a code host's channel, as an example."""
    return f"acme/website{sign_of(_HOST_OF[channel])}12"


def host_of(recipient: str) -> str:
    """Return the code host on whose pull request a recipient is; "" for any other."""
    return _HOST_OF.get(recipient.partition(":")[0], "")


def is_required(recipient: str) -> bool:
    """Return whether a job succeeds only when this normalised recipient was notified."""
    return recipient.partition(":")[0] not in OPTIONAL_CHANNELS


def _mail(address: str) -> str:
    if any(character in address for character in '<>"(),;:\\[] '):
        raise ValueError(
            "A mail recipient must be the bare address, without a display name, quotes or brackets:"
            " mail:ann@example.com."
        )
    local_part, separator, domain = address.rpartition("@")
    if not separator:
        raise ValueError("A mail recipient lacks its domain. Write mail:ann@example.com.")
    normal = f"{local_part}@{webhook_address.host_name(domain)}"
    if len(local_part) > _MAX_LOCAL_PART or len(normal) > _MAX_MAIL:
        raise ValueError(
            f"A mail address may have {_MAX_MAIL} characters, {_MAX_LOCAL_PART} of them before the @."
            " Shorten it."
        )
    try:
        _valid_mail(normal)
    except ValidationError:
        raise ValueError("A mail address is not valid. Write it as mail:ann@example.com.") from None
    return normal


def _webhook(address: str) -> str:
    return str(webhook_address.parse(address))


def _slack(address: str) -> str:
    # A channel's name, in lower case, may be given to another channel; its id, in capitals, never.
    if _SLACK_ID.fullmatch(address):
        return address
    if re.fullmatch(r"[UW][A-Z0-9]{6,20}", address):
        raise ValueError("A Slack recipient must be a channel, not a person. Write slack:C0123ABCD.")
    raise ValueError(
        "A Slack recipient is a channel's id, not its name: C or G and capitals and digits, at the end of"
        " the channel's details in Slack. Write slack:C0123ABCD."
    )


def _swarm(address: str) -> str:
    found = _SWARM_TOPIC.fullmatch(address.lower())
    if found is None:
        raise ValueError(
            "A Swarm recipient is a review or a change by its number."
            " Write swarm:review-123 or swarm:change-123."
        )
    return f"{found[1]}-{int(found[2])}"


def _pull_request(channel: str, address: str, host: str) -> str:
    found, sign = _PULL_REQUESTS[host].fullmatch(address.lower()), sign_of(host)
    if found is None:
        raise ValueError(
            f"A {channel} recipient names a pull request. Write {channel}:owner/repository{sign}12."
        )
    return f"{found[1]}{sign}{int(found[2])}"


# Of summaries, and of inline comments.
_HOST_OF = {channel: host for host in HOSTS for channel in (host, inline_channel(host))}
HOST_CHANNELS = tuple(_HOST_OF)
# Recipients whose messages no review waits for, nor fails without.
OPTIONAL_CHANNELS = tuple(map(inline_channel, HOSTS))
_CHANNELS: Mapping[str, Callable[[str], str]] = {
    "mail": _mail,
    "webhook": _webhook,
    "slack": _slack,
    "swarm": _swarm,
    **{channel: partial(_pull_request, channel, host=host) for channel, host in _HOST_OF.items()},
}
CHANNELS = tuple(_CHANNELS)
# The variables that configure a channel: all of them are needed.
VARIABLES = {
    "slack": ("SLACK_BOT_TOKEN",),
    "swarm": ("SWARM_URL", "SWARM_USER", "SWARM_TICKET"),
    **{host: kind.credentials for host, kind in HOSTS.items()},
}


def variables_of(channel: str) -> str:
    """Return the variables that configure a channel, in words; "" where it needs none."""
    *first, last = VARIABLES.get(_HOST_OF.get(channel, channel)) or ("",)
    return f"{', '.join(first)} and {last}" if first else last


def missing_provider_reason(channel: str, problem: str = "") -> str:
    """Return why nothing can be sent to a channel, and what to set.

    `problem`: what is wrong with its settings, where it is configured.
    """
    if problem:
        return f"the provider of {channel} recipients cannot be made: {problem}"
    variables = variables_of(channel)
    return f"no provider is configured for {channel} recipients" + (f": set {variables}" if variables else "")
