"""Meaning of Perforce's messages: one table, matched on the stable part of each text.

Servers may be localised or of another version, so a text that matches no row is judged by its
generic code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

from criticizer.resilience.failures import ErrorClass, Failure
from reviews.sources.failures import permanent, retryable
from reviews.sources.paths import printable, storable
from reviews.sources.perforce.records import Message


class Outcome(StrEnum):
    TRANSIENT = "transient"  # the same command may succeed later
    PAUSE = "pause"  # no command on this server succeeds until an operator acts
    SPLIT = "split"  # the same command never succeeds; a smaller one may
    PERMANENT = "permanent"  # this file or this command will never succeed
    EMPTY = "empty"  # a normal answer with a meaning


class Meaning(StrEnum):
    """Meaning of an empty answer."""

    NONE = ""
    UNKNOWN_CHANGE = "unknown_change"
    DENIED = "denied"
    MISSING = "missing"
    UNTRANSLATABLE = "untranslatable"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Reaction to a message. `detail` is a sentence for operators, `context` small facts."""

    outcome: Outcome
    error_class: ErrorClass
    detail: str
    meaning: Meaning = Meaning.NONE
    retry_after_seconds: float | None = None
    context: dict[str, object] = field(default_factory=dict)

    def failure(self, server_text: str = "", **context: object) -> Failure:
        """Return this verdict as a failure; a pause is marked in its context."""
        facts: dict[str, object] = {**self.context, **context, "outcome": str(self.outcome)}
        if server_text:
            facts["server_message"] = printable(storable(server_text.strip().replace("\n", " / ")), 300)
        if self.outcome is Outcome.PAUSE:
            facts["pause"] = True
        if self.outcome is Outcome.TRANSIENT:
            return retryable(self.error_class, self.detail, self.retry_after_seconds, **facts)
        return permanent(self.error_class, self.detail, **facts)


_E = ErrorClass
_T, _P, _S, _N, _0 = Outcome.TRANSIENT, Outcome.PAUSE, Outcome.SPLIT, Outcome.PERMANENT, Outcome.EMPTY

_UNREACHABLE = Verdict(_T, _E.NETWORK_UNREACHABLE, "the Perforce server cannot be reached")
_LOGIN = Verdict(_P, _E.AUTH_DENIED, "log the service account in again: its ticket or password is not valid")
_CHARSET = Verdict(_P, _E.CONFIG_INVALID, "the character set does not fit the server: restart after a change")
_LIMIT = Verdict(
    _S, _E.CONFIG_INVALID, "the command is over a limit of the account's group: raise its limits"
)
_OUR_BUG = Verdict(_N, _E.INTERNAL_BUG, "Perforce did not accept the form of our command")
_DAMAGED = Verdict(
    _N, _E.NOT_FOUND, "the depot has lost the content of this file: tell the Perforce administrator"
)
_DENIED = Verdict(_0, _E.PERMISSION_DENIED, "the service account may not read this file", Meaning.DENIED)
_MISSING = Verdict(_0, _E.NOT_FOUND, "the server has no such file revision", Meaning.MISSING)

# The first match decides: causes stand before the sentence that introduces all of them.
_ROWS: tuple[tuple[str, Verdict], ...] = (
    (r"P4PORT IDENTIFICATION HAS CHANGED",
     Verdict(_P, _E.AUTH_DENIED,
             "the server's TLS key has changed: compare its fingerprint with the administrator",
             context={"security_alert": "server_identity_changed"})),
    (r"authenticity of '.*' can't be established",
     Verdict(_P, _E.CONFIG_INVALID, "the server's TLS key is not trusted: install it by p4 trust -i")),
    (r"certificate date range invalid|chain failed validation",
     Verdict(_P, _E.CONFIG_INVALID, "the server's TLS certificate is not valid")),
    (r"TCP port number .* is out of range",
     Verdict(_P, _E.CONFIG_INVALID, "the port in P4PORT is not valid")),
    (r"Failed client connect, server using SSL",
     Verdict(_P, _E.CONFIG_INVALID, "the server speaks TLS: put ssl: in front of P4PORT")),
    (r"Name or service not known|host unknown|No such host is known|Temporary failure in name resolution",
     Verdict(_T, _E.NETWORK_UNREACHABLE, "P4PORT names no known host", context={"pause_after": 3})),
    (r"SSL connect to .* (?:timed out|failed)",
     Verdict(_T, _E.NETWORK_UNREACHABLE, "the TLS connection failed", context={"pause_after": 3})),
    (r"receive exceeded maximum configured duration|Connection timed out",
     Verdict(_T, _E.NETWORK_TIMEOUT, "the connection to the server timed out")),
    (r"(?:TCP|SSL) (?:receive|send) failed|Connection reset|Partner exited unexpectedly"
     r"|partial message read|Connect to server failed|TCP connect to .* failed", _UNREACHABLE),
    (r"Proxy unable to communicate|Replica access to P4TARGET server failed",
     Verdict(_T, _E.UPSTREAM_UNAVAILABLE, "a proxy or replica cannot reach the main server")),
    (r"Perforce password \(P4PASSWD\)|session has expired|session was logged out|password has expired"
     r"|Password must be set|Password not allowed|Password invalid|Single sign-on on client failed", _LOGIN),
    (r"Multi.?factor authentication required",
     Verdict(_P, _E.AUTH_DENIED, "the server asks for a second factor: run p4 login2")),
    (r"Access for user .* has not been enabled",
     Verdict(_P, _E.PERMISSION_DENIED, "the protections table does not know the service account")),
    (r"User \S+ doesn't exist", Verdict(_P, _E.AUTH_DENIED, "the server does not know the user in P4USER")),
    (r"Unicode server permits only|Unicode clients require|Unknown P4CHARSET", _CHARSET),
    (r"application .* has been blocked|Client is too old",
     Verdict(_P, _E.PERMISSION_DENIED, "the server refuses this program or its version")),
    (r"License expired|license (?:is invalid|has expired|limit)",
     Verdict(_P, _E.PERMISSION_DENIED, "the server's licence does not allow the command")),
    (r"maintenance mode",
     Verdict(_T, _E.UPSTREAM_UNAVAILABLE, "the server is in maintenance mode", retry_after_seconds=120)),
    (r"maximum of \d+ simultaneous commands|configured to run a maximum of",
     Verdict(_T, _E.RATE_LIMITED, "the server runs as many commands as it may: lower the concurrency")),
    (r"The filesystem .* has only .* free",
     Verdict(_T, _E.UPSTREAM_UNAVAILABLE, "the server's disk is full", retry_after_seconds=60)),
    (r"Request too large for server memory",
     Verdict(_T, _E.UPSTREAM_UNAVAILABLE, "the server lacks memory for the command",
             retry_after_seconds=30)),
    (r"terminated by 'p4 monitor terminate'|Command has been cancell?ed",
     Verdict(_T, _E.UPSTREAM_UNAVAILABLE, "an administrator ended the command", retry_after_seconds=60,
             context={"attempt_limit": 2})),
    (r"Request too large \(over|Too many rows scanned|Operation took too long|Too much memory used", _LIMIT),
    (r"MapCheck rejected too many rows|Excessive combinations of wildcard", _OUR_BUG),
    (r"no such changelist",
     Verdict(_0, _E.NOT_FOUND, "the server does not know this changelist", Meaning.UNKNOWN_CHANGE)),
    (r"Change \S+ unknown", Verdict(_N, _E.NOT_FOUND, "the server does not know this changelist")),
    (r"Invalid changelist", _OUR_BUG),
    (r"You don't have permission for this operation",
     Verdict(_N, _E.PERMISSION_DENIED, "the service account lacks the right to run this command")),
    (r"access denied|no permission for operation on file", _DENIED),
    (r"no such file\(s\)|no file\(s\) at that (?:revision|changelist)|no revision\(s\)", _MISSING),
    (r"not in client view|must create client|Client '.*' (?:unknown|can only be used)", _OUR_BUG),
    (r"Translation of file content failed",
     Verdict(_0, _E.SCHEMA_INVALID, "the server cannot translate it to UTF-8", Meaning.UNTRANSLATABLE)),
    (r"is missing from the metadata|open for read: .*No such file|Librarian checkout", _DAMAGED),
    (r"No Translation for parameter",
     Verdict(_N, _E.SCHEMA_INVALID, "a field of the answer cannot be translated to UTF-8")),
    (r"Unknown command|^Usage: |Invalid option", _OUR_BUG),
)  # fmt: skip
_PATTERNS = tuple((re.compile(pattern, re.IGNORECASE | re.MULTILINE), verdict) for pattern, verdict in _ROWS)

_UNKNOWN_EMPTY = Verdict(_0, _E.NOT_FOUND, "the server has no answer to that", Meaning.NOTHING)
_UNKNOWN_FAULT = Verdict(
    _T, _E.UPSTREAM_INTERNAL, "the server reported a fault of its own", context={"attempt_limit": 3}
)
_UNKNOWN = Verdict(_N, _E.SCHEMA_INVALID, "the server refused the command with a message we do not know")
_BY_GENERIC = {
    2: Verdict(_N, _E.NOT_FOUND, "the server does not know what was asked for"),
    6: Verdict(_N, _E.PERMISSION_DENIED, "the server does not permit the command to the service account"),
    33: _UNKNOWN_FAULT,
    34: _UNKNOWN_FAULT,
    35: _UNKNOWN_FAULT,
    36: Verdict(_N, _E.CONFIG_INVALID, "the server or the account is not configured for the command"),
    38: _UNREACHABLE,
    39: _LIMIT,
}


# A path ends at its revision: neither # nor @ can stand in it.
_PATH_AND_REVISION = re.compile(r"//[^#@]*[#@]=?\d+")


def _without_paths(line: str) -> str:
    """Return a message's line without depot paths.

    Whoever may add a file chooses its name: one called `Connect to server failed` must not read
    as an outage.
    """
    line = line.strip()
    if line.startswith("//"):
        return line.rpartition(" - ")[2]
    return _PATH_AND_REVISION.sub("", line).partition("//")[0]


def verdict_of_text(text: str) -> Verdict | None:
    """Return the verdict on a message of which only the text is known, or None if it is unknown."""
    stable = "\n".join(map(_without_paths, text.splitlines()))
    return next((verdict for pattern, verdict in _PATTERNS if pattern.search(stable)), None)


def verdict_of(message: Message) -> Verdict:
    """Return the verdict on a message by its text, else by its generic code."""
    known = verdict_of_text(message.text)
    if known is not None:
        return known
    if message.severity <= 2:
        return _UNKNOWN_EMPTY
    return _BY_GENERIC.get(message.generic, _UNKNOWN)


def verdict_of_stderr(text: str) -> Verdict | None:
    """Return the verdict on text that `p4` wrote beside its records: connection failures do so."""
    known = verdict_of_text(text)
    if known is None and "Perforce client error" in text:
        return _UNREACHABLE
    return known
