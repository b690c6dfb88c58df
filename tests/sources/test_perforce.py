from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from criticizer.redaction import redact
from criticizer.resilience.failures import ErrorClass, Failure, PermanentFailure, RetryableFailure
from reviews.sources.base import Action, ChangeStatus, FileChange, SkipReason
from reviews.sources.perforce.client import P4Client, validate_port
from reviews.sources.perforce.source import PerforceSource
from tests.fakes.p4.server import (
    BAD_PORT,
    CONNECTION_REFUSED,
    UNKNOWN_HOST,
    FakeDepot,
    FakeFile,
    added,
    deleted,
    edited,
    moved,
    purged,
)

A = "//depot/main/a.c"
B = "//depot/main/b.c"


@pytest.fixture
def depot(tmp_path: Path) -> FakeDepot:
    return FakeDepot(tmp_path)


def source(depot: FakeDepot, **config: object) -> PerforceSource:
    return PerforceSource(depot.config(**config))


def read(depot: FakeDepot, change: str, max_bytes: int = 1_000_000) -> dict[str, FileChange]:
    p4 = source(depot)
    return {file.path: file for file in p4.read(p4.describe(change).files, max_bytes=max_bytes)}


def describe_failure(depot: FakeDepot, change: str, **config: object) -> Failure:
    with pytest.raises(Failure) as caught:
        source(depot, **config).describe(change)
    return caught.value


# The child process


def test_the_child_gets_exactly_the_documented_environment(
    depot: FakeDepot, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("P4DIFF", "planted")
    monkeypatch.setenv("P4PASSWD", "planted")
    change = depot.submit(edited(A, "1\n", "2\n"))
    source(depot, tickets_files=[tmp_path / "tickets"], trust_file=tmp_path / "trust").describe(change)
    home = str(depot.directory / "home")
    for call in depot.calls():
        environment = {name: value for name, value in call.environment.items() if name != "LC_CTYPE"}
        assert environment == {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/opt/perforce/bin",
            "LANG": "C.UTF-8",
            "HOME": home,
            "PWD": home,
            "P4PORT": "127.0.0.1:1666",
            "P4USER": "criticizer",
            "P4CLIENT": "criticizer-no-client",
            "P4CONFIG": "",
            "P4ENVIRO": "/dev/null",
            "P4TICKETS": str(tmp_path / "tickets"),
            "P4TRUST": str(tmp_path / "trust"),
        }
        assert call.cwd == home
    assert (depot.directory / "home").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("command", ["describe", "print"])
def test_the_next_ticket_is_used_when_the_first_is_refused_and_remembered(
    depot: FakeDepot, tmp_path: Path, command: str
) -> None:
    first, second = tmp_path / "tickets", tmp_path / "next"
    second.write_text(f"localhost:1666=robot:{'5E' * 16}\n")
    change = depot.submit(added(A, "1\n"))
    depot.misbehave(command, messages=["session_expired"])
    reading = source(depot, tickets_files=[first, second])
    reading.describe(change)
    (file,) = reading.read(reading.describe(change).files, max_bytes=1_000)
    assert file.new_text == "1\n"
    used = [call.environment["P4TICKETS"] for call in depot.calls()]
    refused = used.index(str(second))
    assert set(used[:refused]) == {str(first)}
    assert set(used[refused:]) == {str(second)}
    assert "5E5E" not in redact(f"p4 said {'5E' * 16}").text  # a ticket of today is known
    depot.misbehave("describe", times=2, messages=["session_expired"])
    with pytest.raises(PermanentFailure) as refusal:
        reading.describe(change)
    assert refusal.value.error_class is ErrorClass.AUTH_DENIED


def test_the_commands_are_these_and_no_others(depot: FakeDepot) -> None:
    change = depot.submit(edited(A, "1\n", "2\n"), added(B, "b\n"))
    read(depot, change)
    assert [call.argv for call in depot.calls()] == [
        ["-V"],
        ["-zprog=criticizer", "-ztag", "-Mj", "info"],
        ["-zprog=criticizer", "-ztag", "-Mj", "describe", "-s", change],
        ["-zprog=criticizer", "print", "-q", f"{A}#1"],
        ["-zprog=criticizer", "print", "-q", f"{A}#2"],
        ["-zprog=criticizer", "print", "-q", f"{B}#1"],
    ]


@pytest.mark.parametrize("info_needs_charset", [False, True])
def test_a_unicode_server_is_spoken_to_in_utf8(tmp_path: Path, info_needs_charset: bool) -> None:
    depot = FakeDepot(tmp_path, unicode=True, info_needs_charset=info_needs_charset)
    change = depot.submit(added(A, "é\n", type="unicode"))
    assert read(depot, change)[A].new_text == "é\n"
    assert depot.calls("print")[0].environment["P4CHARSET"] == "utf8"


def test_a_server_that_becomes_unicode_is_asked_again(depot: FakeDepot) -> None:
    change = depot.submit(added(A, "1\n"))
    p4 = source(depot)
    p4.describe(change)
    depot.scenario["unicode"] = True
    depot.scenario["info"]["unicode"] = "enabled"
    depot.recover()
    with pytest.raises(PermanentFailure) as caught:
        p4.describe(change)
    assert caught.value.error_class is ErrorClass.CONFIG_INVALID
    assert len(p4.describe(change).files) == 1


@pytest.mark.parametrize(
    ("handling", "sensitive"), [("sensitive", True), ("insensitive", False), ("hybrid", False)]
)
def test_the_server_says_how_names_compare(tmp_path: Path, handling: str, sensitive: bool) -> None:
    assert source(FakeDepot(tmp_path, case_handling=handling)).case_sensitive is sensitive


@pytest.mark.parametrize(
    ("version", "works"), [("2016.2", False), ("2017.1", True), ("2024.1.PREP-TEST", True)]
)
def test_a_program_without_json_records_is_refused_politely(
    tmp_path: Path, version: str, works: bool
) -> None:
    depot = FakeDepot(tmp_path, client_version=version)
    change = depot.submit(added(A, "1\n"))
    if works:
        assert source(depot).describe(change).files
    else:
        failure = describe_failure(depot, change)
        assert failure.error_class is ErrorClass.CONFIG_INVALID
        assert "too old" in failure.detail


@pytest.mark.parametrize(
    "port",
    [
        "1666",
        "depot:1666",
        "tcp:depot:1666",
        "ssl:depot.example.com:1666",
        "ssl64:[::1]:1666",
        "tcp4:10.0.0.1:1",
    ],
)
def test_network_addresses_are_ports(port: str) -> None:
    assert validate_port(port) == port


@pytest.mark.parametrize(
    "port",
    ["", "rsh:p4d -i", "rsh:sh -c id", "RSH:p4d", "jsh:x", "depot", "depot:", "depot:0", "depot:70000",
     "a b:1666", "depot:1666\n", "-x:1666 -y", "$(id):1666", "ssl:rsh:1666:1"],
)  # fmt: skip
def test_everything_else_is_refused_because_it_may_run_a_command(depot: FakeDepot, port: str) -> None:
    with pytest.raises(ValueError, match="P4PORT"):
        validate_port(port)
    with pytest.raises(PermanentFailure) as caught:
        P4Client(depot.config(port=port))
    assert caught.value.error_class is ErrorClass.CONFIG_INVALID


def test_a_private_server_is_for_tests_that_ask_for_it() -> None:
    assert validate_port("rsh:p4d -i", allow_rsh=True) == "rsh:p4d -i"


@pytest.mark.parametrize("user", ["", "-P", "a b", "a@b", "a#1", "*"])
def test_a_user_name_cannot_be_a_flag(depot: FakeDepot, user: str) -> None:
    with pytest.raises(PermanentFailure, match="P4USER"):
        P4Client(depot.config(user=user))


# Listing


def test_the_header_of_a_submitted_changelist(depot: FakeDepot) -> None:
    description = '... fake field\nÜber \x01 "quotes"\n'
    change = depot.submit(edited(A, "1\n", "2\n"), user="bob", description=description)
    listed = source(depot).describe(change)
    assert (listed.changelist_id, listed.author, listed.status) == (change, "bob", ChangeStatus.SUBMITTED)
    assert listed.description == description
    assert listed.created_at_epoch == 1790849023


def test_the_sides_of_submitted_files(depot: FakeDepot) -> None:
    change = depot.submit(
        edited(A, "1\n", "2\n"), added("//depot/n", "n\n"), deleted("//depot/d", "d\n"), purged("//depot/p")
    )
    sides = {
        file.path: (file.action, file.old_revision, file.new_revision)
        for file in source(depot).describe(change).files
    }
    assert sides == {
        A: (Action.EDIT, "#1", "#2"),
        "//depot/n": (Action.ADD, None, "#1"),
        "//depot/d": (Action.DELETE, "#1", None),
        "//depot/p": (Action.EDIT, None, None),
    }


def test_the_sides_of_shelved_files(depot: FakeDepot) -> None:
    change = depot.shelve(edited(A, "1\n", "2\n"), added("//depot/n", "n\n"), deleted("//depot/d", "d\n"))
    listed = source(depot).describe(change)
    assert listed.status is ChangeStatus.SHELVED
    sides = {file.path: (file.action, file.old_revision, file.new_revision) for file in listed.files}
    assert sides == {
        A: (Action.EDIT, "#1", f"@={change}"),
        "//depot/n": (Action.ADD, None, f"@={change}"),
        "//depot/d": (Action.DELETE, "#1", None),
    }
    files = read(depot, change)
    assert (files[A].old_text, files[A].new_text) == ("1\n", "2\n")


def test_an_add_over_a_deleted_file_has_no_old_side(depot: FakeDepot) -> None:
    depot.submit(added(A, "1\n"))
    depot.submit(deleted(A, "1\n"))
    (file,) = source(depot).describe(depot.submit(added(A, "3\n"))).files
    assert (file.old_revision, file.new_revision) == (None, "#3")


def test_an_edit_of_a_revision_that_is_gone_is_shown_as_new(depot: FakeDepot) -> None:
    change = depot.submit(edited(A, "1\n", "2\n"))
    depot.forget(f"{A}#1")
    file = read(depot, change)[A]
    assert (file.old_text, file.new_text, file.skipped) == ("", "2\n", None)
    assert "old side" in file.skip_detail


def test_more_than_ten_files_keep_their_own_fields(depot: FakeDepot) -> None:
    change = depot.submit(*(added(f"//depot/f{n}", f"{n}\n") for n in range(12)))
    assert {path: file.new_text for path, file in read(depot, change).items()} == {
        f"//depot/f{n}": f"{n}\n" for n in range(12)
    }


def test_an_unknown_action_is_an_edit_and_is_logged(depot: FakeDepot) -> None:
    change = depot.submit(FakeFile(A, "transmogrify", b"1\n", b"2\n"))
    with capture_logs() as logs:
        (file,) = source(depot).describe(change).files
    assert file.action is Action.EDIT
    assert any(log["event"] == "unknown_perforce_action" for log in logs)


def test_a_pending_changelist_without_a_shelf_says_that_nothing_is_shelved(depot: FakeDepot) -> None:
    change = depot.pending(edited(A, "1\n", "2\n"))
    failure = describe_failure(depot, change)
    assert failure.error_class is ErrorClass.NOT_FOUND
    assert "nothing is shelved" in failure.detail
    depot.shelve(edited(A, "1\n", "2\n"), change=change)
    assert source(depot).describe(change).status is ChangeStatus.SHELVED


def test_a_changelist_with_no_visible_files_is_not_reviewed_as_empty(depot: FakeDepot) -> None:
    assert describe_failure(depot, depot.submit()).error_class is ErrorClass.NOT_FOUND


def test_an_unknown_changelist_is_not_found_or_on_a_replica_asked_for_again(depot: FakeDepot) -> None:
    failure = describe_failure(depot, "4711")
    assert isinstance(failure, PermanentFailure)
    assert failure.error_class is ErrorClass.NOT_FOUND
    lagging = describe_failure(depot, "4711", replica=True)
    assert isinstance(lagging, RetryableFailure)
    assert lagging.retry_after_seconds == 30


@pytest.mark.parametrize("given", ["", "0", "12 -f", "-a", "12\n", "//depot/...", "git:app@" + "1" * 40])
def test_only_numbers_reach_the_command_line(depot: FakeDepot, given: str) -> None:
    assert describe_failure(depot, given).error_class is ErrorClass.NOT_FOUND
    assert depot.calls() == []


def test_the_version_key_follows_the_content_of_a_shelf(depot: FakeDepot) -> None:
    change = depot.shelve(edited(A, "1\n", "2\n"), added(B, "b\n"))
    first = source(depot).describe(change).version_key
    depot.shelve(added(B, "b\n"), edited(A, "1\n", "2\n"), change=change)
    assert source(depot).describe(change).version_key == first
    depot.shelve(edited(A, "1\n", "3\n"), added(B, "b\n"), change=change)
    assert source(depot).describe(change).version_key != first


# Renames


@pytest.mark.parametrize("how", ["submit", "shelve"])
def test_a_move_is_one_file_with_both_names(depot: FakeDepot, how: str) -> None:
    change = getattr(depot, how)(moved(A, B, "old\n", "new\n"), edited("//depot/x", "1\n", "2\n"))
    files = read(depot, change)
    assert files.keys() == {B, "//depot/x"}
    assert (files[B].action, files[B].old_path) == (Action.RENAME, A)
    assert (files[B].old_text, files[B].new_text) == ("old\n", "new\n")


def test_all_moves_of_a_changelist_are_asked_for_at_once(depot: FakeDepot) -> None:
    change = depot.submit(*(moved(f"//depot/a{n}", f"//depot/b{n}", f"{n}\n") for n in range(5)))
    assert all(file.skipped is SkipReason.IDENTICAL for file in read(depot, change).values())
    (call,) = depot.calls("filelog")
    assert call.argv[-2:] == ["filelog", "-m1"]
    assert call.stdin == [f"//depot/b{n}#1" for n in range(5)]


def test_an_older_server_costs_no_rename_where_names_tell(tmp_path: Path) -> None:
    depot = FakeDepot(tmp_path, tells_shelved_moves=False)
    change = depot.shelve(
        moved("//depot/old/a.c", "//depot/new/a.c", "a\n"), moved("//depot/old/b.c", "//depot/new/c.c", "b\n")
    )
    files = {file.path: file for file in source(depot).describe(change).files}
    assert files["//depot/new/a.c"].old_path == "//depot/old/a.c"
    assert files["//depot/new/c.c"].action is Action.ADD
    assert files["//depot/old/b.c"].action is Action.DELETE


def test_a_server_that_refuses_the_rename_question_costs_only_the_renames(depot: FakeDepot) -> None:
    change = depot.submit(moved("//depot/a", "//depot/b", "x\n"))
    depot.misbehave("filelog", messages=["too_many_rows"], exit=1)
    listed = source(depot).describe(change)
    assert {file.action for file in listed.files} == {Action.ADD, Action.DELETE}
    assert source(depot).describe(change).files[0].action is Action.RENAME


def test_a_server_that_is_away_at_the_rename_question_is_retried(depot: FakeDepot) -> None:
    change = depot.submit(moved("//depot/a", "//depot/b", "x\n"))
    depot.misbehave("filelog", stderr=CONNECTION_REFUSED, exit=1)
    assert isinstance(describe_failure(depot, change), RetryableFailure)


def test_path_with_wildcards_is_never_an_argument(depot: FakeDepot) -> None:
    change = depot.submit(moved("//depot/a", "//depot/...", "x\n"))
    source(depot).describe(change)
    assert depot.calls("filelog") == []


# Content


def test_types_that_hold_no_text_are_not_printed(depot: FakeDepot) -> None:
    change = depot.submit(
        added("//depot/x.png", b"\0", type="binary"),
        added("//depot/apple", b"\0", type="apple"),
        added("//depot/trigger", "x\n", type="text+X"),
        purged("//depot/gone"),
    )
    files = read(depot, change)
    assert {path: file.skipped for path, file in files.items()} == {
        "//depot/x.png": SkipReason.BINARY,
        "//depot/apple": SkipReason.BINARY,
        "//depot/trigger": SkipReason.UNREADABLE,
        "//depot/gone": SkipReason.UNREADABLE,
    }
    assert depot.calls("print") == []


def test_a_file_named_like_text_is_read_although_it_is_stored_as_binary(depot: FakeDepot) -> None:
    change = depot.submit(added("//depot/x.c", "text\n", type="ubinary"))
    assert read(depot, change)["//depot/x.c"].new_text == "text\n"


def test_a_link_shows_its_target(depot: FakeDepot) -> None:
    change = depot.submit(edited("//depot/link", "a/b\n", "/etc/passwd\n", type="symlink"))
    file = read(depot, change)["//depot/link"]
    assert (file.skipped, file.skip_detail) == (SkipReason.SYMLINK, "link target a/b → /etc/passwd")


def test_a_large_file_is_not_printed_and_a_large_old_side_is_cut(depot: FakeDepot) -> None:
    change = depot.submit(added("//depot/big", "x" * 5000), edited("//depot/shrunk", "x" * 5000, "y\n"))
    files = read(depot, change, max_bytes=1000)
    assert {file.skipped for file in files.values()} == {SkipReason.TOO_LARGE}
    assert [call.argv[-1] for call in depot.calls("print")] == ["//depot/shrunk#1"]


def test_keywords_are_collapsed_on_both_sides(depot: FakeDepot) -> None:
    change = depot.submit(
        edited(A, "$Id: //a#1 $\nx\n", "$Id: //a#2 $\ny\n", type="text+k"),
        edited(B, "$Id: //b#1 $\n", "$Id: //b#2 $\n", type="ktext"),
    )
    files = read(depot, change)
    assert (files[A].old_text, files[A].new_text) == ("$Id$\nx\n", "$Id$\ny\n")
    assert files[B].skipped is SkipReason.IDENTICAL


def test_encodings_come_from_the_bytes(depot: FakeDepot) -> None:
    change = depot.submit(
        added("//depot/latin", b"caf\xe9\n"),
        added("//depot/utf16", "é\r\n".encode("utf-16"), type="utf16"),
        added("//depot/notext", b"\0\1\2"),
    )
    files = read(depot, change)
    assert (files["//depot/latin"].new_text, files["//depot/latin"].encoding) == ("café\n", "cp1252")
    assert (files["//depot/utf16"].new_text, files["//depot/utf16"].encoding) == ("é\n", "utf-16")
    assert files["//depot/notext"].skipped is SkipReason.BINARY


def test_encoded_paths_go_back_as_they_came(depot: FakeDepot) -> None:
    path = "//depot/C%23/a%2540b %2A"
    change = depot.submit(edited(path, "1\n", "2\n"))
    assert read(depot, change)[path].new_text == "2\n"
    assert depot.calls("print")[0].argv[-1] == f"{path}#1"


def test_files_the_server_keeps_back_are_listed_with_the_reason(depot: FakeDepot) -> None:
    change = depot.submit(
        edited(A, "1\n", "2\n"), edited(B, "1\n", "2\n"), added("//depot/u", "x\n", type="unicode")
    )
    depot.deny(A)
    depot.cannot_translate("//depot/u")
    files = read(depot, change)
    assert files[A].skipped is SkipReason.DENIED
    assert files["//depot/u"].skipped is SkipReason.BINARY
    assert files[B].new_text == "2\n"


def test_a_new_side_that_is_gone_makes_its_file_unreadable(depot: FakeDepot) -> None:
    change = depot.shelve(edited(A, "1\n", "2\n"))
    depot.forget(f"{A}@={change}")
    assert read(depot, change)[A].skipped is SkipReason.UNREADABLE


def test_an_empty_file_is_a_file(depot: FakeDepot) -> None:
    file = read(depot, depot.submit(added(A, "")))[A]
    assert (file.new_text, file.skipped) == ("", None)


# Failures, each with its recovery


@pytest.mark.parametrize(
    ("fault", "kind", "error_class"),
    [
        ({"stderr": CONNECTION_REFUSED, "exit": 1}, RetryableFailure, ErrorClass.NETWORK_UNREACHABLE),
        ({"stderr": UNKNOWN_HOST, "exit": 1}, RetryableFailure, ErrorClass.NETWORK_UNREACHABLE),
        ({"stderr": BAD_PORT, "exit": 1}, PermanentFailure, ErrorClass.CONFIG_INVALID),
        ({"kill_after": 40}, RetryableFailure, ErrorClass.UPSTREAM_UNAVAILABLE),
        ({"kill_after": 0}, RetryableFailure, ErrorClass.UPSTREAM_UNAVAILABLE),
        ({"stdout": '{"change":"101","us', "exit": 0}, RetryableFailure, ErrorClass.UPSTREAM_UNAVAILABLE),
        ({"stdout": "Change 101 by ann\n", "exit": 0}, PermanentFailure, ErrorClass.SCHEMA_INVALID),
        ({"stdout": "", "exit": 1}, PermanentFailure, ErrorClass.SCHEMA_INVALID),
        ({"stdout": "", "exit": 0}, PermanentFailure, ErrorClass.SCHEMA_INVALID),
        ({"stdout": '{"change":"999"}\n', "exit": 0}, PermanentFailure, ErrorClass.SCHEMA_INVALID),
        ({"messages": ["session_expired"], "exit": 0}, PermanentFailure, ErrorClass.AUTH_DENIED),
        ({"messages": ["session_expired"], "exit": 1}, PermanentFailure, ErrorClass.AUTH_DENIED),
        ({"messages": ["no_permission"], "exit": 1}, PermanentFailure, ErrorClass.PERMISSION_DENIED),
        ({"messages": ["busy"], "exit": 1}, RetryableFailure, ErrorClass.RATE_LIMITED),
        ({"messages": ["partner_exited"], "exit": 1}, RetryableFailure, ErrorClass.NETWORK_UNREACHABLE),
        ({"messages": ["too_many_rows"], "exit": 1}, PermanentFailure, ErrorClass.CONFIG_INVALID),
        ({"messages": ["foreign_fault"], "exit": 1}, RetryableFailure, ErrorClass.UPSTREAM_INTERNAL),
        ({"messages": ["denied"], "exit": 0}, PermanentFailure, ErrorClass.SCHEMA_INVALID),
    ],
)  # fmt: skip
def test_a_describe_that_fails_is_classified_and_the_next_one_works(
    depot: FakeDepot, fault: dict[str, object], kind: type[Failure], error_class: ErrorClass
) -> None:
    change = depot.submit(edited(A, "1\n", "2\n"))
    depot.misbehave("describe", **fault)
    p4 = source(depot)
    with pytest.raises(kind) as caught:
        p4.describe(change)
    assert caught.value.error_class is error_class
    assert len(p4.describe(change).files) == 1


@pytest.mark.parametrize(
    ("fault", "kind", "error_class"),
    [
        ({"stderr": CONNECTION_REFUSED, "exit": 1}, RetryableFailure, ErrorClass.NETWORK_UNREACHABLE),
        ({"kill_after": 1}, RetryableFailure, ErrorClass.UPSTREAM_UNAVAILABLE),
        ({"messages": ["session_expired"], "exit": 1}, PermanentFailure, ErrorClass.AUTH_DENIED),
    ],
)
def test_a_print_that_fails_is_classified_and_the_next_one_works(
    depot: FakeDepot, fault: dict[str, object], kind: type[Failure], error_class: ErrorClass
) -> None:
    change = depot.submit(added(A, "some text\n"))
    depot.misbehave("print", **fault)
    with pytest.raises(kind) as caught:
        read(depot, change)
    assert caught.value.error_class is error_class
    assert read(depot, change)[A].new_text == "some text\n"


def test_parts_of_a_file_never_pass_for_the_whole(depot: FakeDepot) -> None:
    change = depot.submit(added(A, "some text\n"))
    depot.misbehave("print", stdout="some", stderr="an unknown message\n", exit=1)
    assert read(depot, change)[A].skipped is SkipReason.UNREADABLE


def test_a_pause_tells_the_circuit_and_a_changed_identity_tells_security(depot: FakeDepot) -> None:
    change = depot.submit(added(A, "1\n"))
    depot.misbehave("describe", messages=["identity_changed"], exit=1)
    with capture_logs() as logs:
        failure = describe_failure(depot, change)
    assert failure.context["pause"] is True
    assert [log["kind"] for log in logs if log["event"] == "security_event"] == ["server_identity_changed"]


@pytest.mark.parametrize(
    ("server_down", "error_class"),
    [(False, ErrorClass.NETWORK_TIMEOUT), (True, ErrorClass.NETWORK_UNREACHABLE)],
)
def test_timeout_distinguishes_a_slow_command_from_a_silent_server(
    depot: FakeDepot, server_down: bool, error_class: ErrorClass
) -> None:
    change = depot.submit(added(A, "1\n"))
    p4 = source(depot, describe_timeout_seconds=0.5)
    p4.check_health()
    assert p4.case_sensitive
    depot.misbehave("describe", hang=True)
    if server_down:
        depot.misbehave("info", stderr=CONNECTION_REFUSED, exit=1)
    with pytest.raises(RetryableFailure) as caught:
        p4.describe(change)
    assert caught.value.error_class is error_class
    assert caught.value.context["server_alive"] is not server_down
    assert depot.calls()[-1].argv[-2:] == ["info", "-s"]


def test_a_listing_without_end_is_stopped(depot: FakeDepot) -> None:
    change = depot.submit(added(A, "1\n"))
    depot.misbehave("describe", huge=3_000_000)
    failure = describe_failure(depot, change, max_listing_bytes=1_000_000)
    assert failure.error_class is ErrorClass.POLICY_REJECTED


def test_a_file_larger_than_the_server_said_is_stopped(depot: FakeDepot) -> None:
    change = depot.submit(added(A, "1\n"))
    depot.misbehave("print", huge=3_000_000)
    assert read(depot, change)[A].skipped is SkipReason.TOO_LARGE


@pytest.mark.parametrize("exit_code", [0, 1])
def test_health_check_raises_the_servers_failure(tmp_path: Path, exit_code: int) -> None:
    depot = FakeDepot(tmp_path, exit_on_failure=exit_code)
    depot.misbehave("info", messages=["maintenance"])
    p4 = source(depot)
    with pytest.raises(RetryableFailure):
        p4.check_health()
    p4.check_health()


def test_nothing_of_the_depot_is_logged(depot: FakeDepot) -> None:
    change = depot.submit(
        edited("//depot/planted-name", "planted-old\n", "planted-new\n"), description="planted-text"
    )
    with capture_logs() as logs:
        read(depot, change)
    assert logs
    assert "planted" not in repr(logs)
