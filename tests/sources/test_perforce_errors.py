from __future__ import annotations

import json
from pathlib import Path

import pytest

from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure, RetryableFailure
from reviews.sources.perforce.errors import Meaning, Outcome, verdict_of, verdict_of_stderr, verdict_of_text
from reviews.sources.perforce.records import Message
from tests.fakes.p4.server import BAD_PORT, CONNECTION_REFUSED, UNKNOWN_HOST

MESSAGES = json.loads((Path(__file__).parents[1] / "fakes/p4/messages.json").read_text())
EXPECTED = {
    "no_such_changelist": (Outcome.EMPTY, ErrorClass.NOT_FOUND, Meaning.UNKNOWN_CHANGE),
    "change_unknown": (Outcome.PERMANENT, ErrorClass.NOT_FOUND, Meaning.NONE),
    "no_such_file": (Outcome.EMPTY, ErrorClass.NOT_FOUND, Meaning.MISSING),
    "no_file_at_revision": (Outcome.EMPTY, ErrorClass.NOT_FOUND, Meaning.MISSING),
    "no_file_at_changelist": (Outcome.EMPTY, ErrorClass.NOT_FOUND, Meaning.MISSING),
    "denied": (Outcome.EMPTY, ErrorClass.PERMISSION_DENIED, Meaning.DENIED),
    "untranslatable": (Outcome.EMPTY, ErrorClass.SCHEMA_INVALID, Meaning.UNTRANSLATABLE),
    "password_unset": (Outcome.PAUSE, ErrorClass.AUTH_DENIED, Meaning.NONE),
    "session_expired": (Outcome.PAUSE, ErrorClass.AUTH_DENIED, Meaning.NONE),
    "no_protections": (Outcome.PAUSE, ErrorClass.PERMISSION_DENIED, Meaning.NONE),
    "second_factor": (Outcome.PAUSE, ErrorClass.AUTH_DENIED, Meaning.NONE),
    "unicode_server": (Outcome.PAUSE, ErrorClass.CONFIG_INVALID, Meaning.NONE),
    "unicode_client": (Outcome.PAUSE, ErrorClass.CONFIG_INVALID, Meaning.NONE),
    "blocked": (Outcome.PAUSE, ErrorClass.PERMISSION_DENIED, Meaning.NONE),
    "busy": (Outcome.TRANSIENT, ErrorClass.RATE_LIMITED, Meaning.NONE),
    "maintenance": (Outcome.TRANSIENT, ErrorClass.UPSTREAM_UNAVAILABLE, Meaning.NONE),
    "too_many_rows": (Outcome.SPLIT, ErrorClass.CONFIG_INVALID, Meaning.NONE),
    "monitor_terminated": (Outcome.TRANSIENT, ErrorClass.UPSTREAM_UNAVAILABLE, Meaning.NONE),
    "partner_exited": (Outcome.TRANSIENT, ErrorClass.NETWORK_UNREACHABLE, Meaning.NONE),
    "receive_timeout": (Outcome.TRANSIENT, ErrorClass.NETWORK_TIMEOUT, Meaning.NONE),
    "ssl_receive": (Outcome.TRANSIENT, ErrorClass.NETWORK_TIMEOUT, Meaning.NONE),
    "no_permission": (Outcome.PERMANENT, ErrorClass.PERMISSION_DENIED, Meaning.NONE),
    "unknown_command": (Outcome.PERMANENT, ErrorClass.INTERNAL_BUG, Meaning.NONE),
    "unknown_client": (Outcome.PERMANENT, ErrorClass.INTERNAL_BUG, Meaning.NONE),
    "identity_changed": (Outcome.PAUSE, ErrorClass.AUTH_DENIED, Meaning.NONE),
    # Unknown texts are judged by their generic code.
    "foreign_comm": (Outcome.TRANSIENT, ErrorClass.NETWORK_UNREACHABLE, Meaning.NONE),
    "foreign_fault": (Outcome.TRANSIENT, ErrorClass.UPSTREAM_INTERNAL, Meaning.NONE),
    "foreign_empty": (Outcome.EMPTY, ErrorClass.NOT_FOUND, Meaning.NOTHING),
    "foreign_usage": (Outcome.PERMANENT, ErrorClass.SCHEMA_INVALID, Meaning.NONE),
}


def test_every_message_of_the_stand_in_has_an_expectation_and_an_origin() -> None:
    assert EXPECTED.keys() == MESSAGES.keys()
    for message in MESSAGES.values():
        assert message["origin"].partition(":")[0] in ("captured", "documented", "constructed")


@pytest.mark.parametrize("name", EXPECTED)
def test_messages_are_classified(name: str) -> None:
    known = MESSAGES[name]
    text = known["text"].format(path="//depot/main/a - b.c#3", number=7)
    verdict = verdict_of(Message(text + "\n", known["severity"], known["generic"]))
    assert (verdict.outcome, verdict.error_class, verdict.meaning) == EXPECTED[name]


# origin: documented, message catalogue 2026.1
@pytest.mark.parametrize(
    ("text", "outcome", "error_class"),
    [
        ("TCP receive failed.\nread: socket: Connection reset by peer", "transient", "NETWORK_UNREACHABLE"),
        ("SSL connect to ssl:depot:1666 timed out.", "transient", "NETWORK_UNREACHABLE"),
        ("Failed client connect, server using SSL.", "pause", "CONFIG_INVALID"),
        ("The authenticity of '10.0.0.1:1666' can't be established,", "pause", "CONFIG_INVALID"),
        ("Certificate date range invalid.", "pause", "CONFIG_INVALID"),
        ("Proxy unable to communicate with remote server.", "transient", "UPSTREAM_UNAVAILABLE"),
        ("Your session was logged out, please login again.", "pause", "AUTH_DENIED"),
        ("Your password has expired, please change your password.", "pause", "AUTH_DENIED"),
        ("User criticizer doesn't exist.", "pause", "AUTH_DENIED"),
        ("Client is too old to use this server.", "pause", "PERMISSION_DENIED"),
        ("License expired.", "pause", "PERMISSION_DENIED"),
        ("Request too large for server memory (try later?).", "transient", "UPSTREAM_UNAVAILABLE"),
        (
            "The filesystem 'P4ROOT' has only 98.1M free, but the server configuration requires at least"
            " 250M available.",
            "transient",
            "UPSTREAM_UNAVAILABLE",
        ),
        ("Command has been cancelled, terminating request.", "transient", "UPSTREAM_UNAVAILABLE"),
        ("Request too large (over 1000); see 'p4 help maxresults'.", "split", "CONFIG_INVALID"),
        ("Operation took too long (over 30 seconds); see 'p4 help maxlocktime'.", "split", "CONFIG_INVALID"),
        ("Change 7 unknown.", "permanent", "NOT_FOUND"),
        ("Invalid changelist number 'x'.", "permanent", "INTERNAL_BUG"),
        ("//depot/a - no permission for operation on file(s).", "empty", "PERMISSION_DENIED"),
        ("//depot/a - file(s) not in client view.", "permanent", "INTERNAL_BUG"),
        ("Revision //depot/a#3 is missing from the metadata.", "permanent", "NOT_FOUND"),
        ("open for read: /p4/a,v: No such file or directory", "permanent", "NOT_FOUND"),
        ("PERFORCE PASSWORD (P4PASSWD) INVALID OR UNSET.", "pause", "AUTH_DENIED"),
    ],
)
def test_texts_alone_are_classified(text: str, outcome: str, error_class: str) -> None:
    verdict = verdict_of_text(text)
    assert verdict is not None
    assert (verdict.outcome, verdict.error_class) == (outcome, error_class)


@pytest.mark.parametrize(
    ("text", "outcome", "error_class", "context"),
    [
        (CONNECTION_REFUSED, Outcome.TRANSIENT, ErrorClass.NETWORK_UNREACHABLE, {}),
        (UNKNOWN_HOST, Outcome.TRANSIENT, ErrorClass.NETWORK_UNREACHABLE, {"pause_after": 3}),
        (BAD_PORT, Outcome.PAUSE, ErrorClass.CONFIG_INVALID, {}),
        ("Perforce client error:\n\tsomething new\n", Outcome.TRANSIENT, ErrorClass.NETWORK_UNREACHABLE, {}),
    ],
)
def test_connection_failures_are_classified_by_cause(
    text: str, outcome: Outcome, error_class: ErrorClass, context: dict[str, object]
) -> None:
    verdict = verdict_of_stderr(text)
    assert verdict is not None
    assert (verdict.outcome, verdict.error_class, verdict.context) == (outcome, error_class, context)


@pytest.mark.parametrize(
    "name",
    [
        "Connect to server failed",
        "P4PORT IDENTIFICATION HAS CHANGED",
        "a - Your session has expired.c",
        "access denied",
    ],
)
@pytest.mark.parametrize("suffix", ["#3 - no such file(s).", "@=12 - no file(s) at that changelist number."])
def test_the_name_of_a_file_cannot_pose_as_another_message(name: str, suffix: str) -> None:
    verdict = verdict_of(Message(f"//depot/main/{name}{suffix}\n", 2, 17))
    assert verdict.meaning is Meaning.MISSING
    inside = verdict_of(Message(f"Revision //depot/main/{name}#3 is missing from the metadata.", 4, 33))
    assert inside.outcome is Outcome.PERMANENT


def test_a_pause_is_permanent_for_the_job_and_says_so_to_the_circuit() -> None:
    failure = verdict_of(Message("Your session has expired, please login again.", 3, 4)).failure("x\ny")
    assert isinstance(failure, PermanentFailure)
    assert failure.context["pause"] is True
    assert failure.context["server_message"] == "x / y"
    assert failure.component is Component.SOURCE


def test_a_transient_message_is_retryable_and_may_ask_for_patience() -> None:
    failure = verdict_of(Message("Server is in maintenance mode.", 3, 1)).failure()
    assert isinstance(failure, RetryableFailure)
    assert failure.retry_after_seconds == 120
    assert "pause" not in failure.context
