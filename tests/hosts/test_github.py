"""GitHub's webhooks: whose they are, and what each event and action asks for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from criticizer.codehosts.events import (
    HostEvent,
    Ignored,
    InstallationChanged,
    NotAuthentic,
    Noted,
    RepositoriesRemoved,
    RepositoryRenamed,
    Rerun,
    Stopped,
    Unreadable,
    Wanted,
)
from criticizer.codehosts.github.webhooks import Webhooks
from tests.hosts import deliveries
from tests.hosts.deliveries import APP_ID, HEAD, check, comment, installation, pull_request, repository

HOST = Webhooks(["newest", "It's a Secret to Everybody", "clé"], APP_ID)
EVERYBODY = (
    b"Hello, World!",
    "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
)
UNICODE = (
    '{"title":"naïve 🌈"}'.encode(),
    "sha256=f8683f4e3d504546f97629598ea8dd7d996b26c197f546d7270425ff085a9436",
)
# What a verifier that parses first and writes the JSON again would compute.
REWRITTEN = "sha256=a09bb7896db6dde48be74d7ac19962e9268346390707a2650270a7caead6917b"


def asked(event: str, content: dict[str, Any], host: Webhooks = HOST) -> Any:
    return host.event({"X-GitHub-Event": event}, content).asked


def refuses(body: bytes, headers: dict[str, str], host: Webhooks = HOST) -> bool:
    try:
        host.authenticate(headers, body)
    except NotAuthentic as error:
        return str(error) == ""
    return False


@pytest.mark.parametrize(("body", "signature"), [EVERYBODY, UNICODE])
def test_signatures_of_the_bytes_are_accepted_under_each_secret(body: bytes, signature: str) -> None:
    HOST.authenticate({"X-Hub-Signature-256": signature}, body)
    assert refuses(body, {"X-Hub-Signature-256": signature}, Webhooks(["newest"]))


def test_every_other_signature_is_refused_without_a_word() -> None:
    body, good = EVERYBODY
    given: list[dict[str, str]] = [
        {},
        {"X-Hub-Signature-256": ""},
        {"X-Hub-Signature": "sha1=" + "0" * 40},
        {"X-Hub-Signature-256": "sha1=" + good.removeprefix("sha256=")[:40]},
        *({"X-Hub-Signature-256": value} for value in (
            good.upper(), "sha256=" + good.removeprefix("sha256=").upper(), good[:-1], good + "0",
            good.removeprefix("sha256="), f" {good}", good.replace("=", ":"), "sha256=", "sha256=é",
            "sha256=\udcff", REWRITTEN,
        )),
    ]  # fmt: skip
    assert [one for one in given if not refuses(body, one)] == []
    assert refuses(UNICODE[0], {"X-Hub-Signature-256": REWRITTEN})
    assert refuses(body + b"\n", {"X-Hub-Signature-256": good})


@pytest.mark.parametrize("secrets", [[], [""]])
def test_without_a_secret_nothing_is_authentic(secrets: list[str]) -> None:
    body = b"{}"
    assert refuses(body, {"X-Hub-Signature-256": deliveries.signature(body, "")}, Webhooks(secrets))


def test_each_action_of_a_pull_request_asks_for_what_it_means() -> None:
    for action in ("opened", "reopened", "ready_for_review", "synchronize"):
        found = asked("pull_request", pull_request(action))
        assert isinstance(found, Wanted), action
        assert (found.pull.head_sha, found.pull.base_ref, found.pull.number) == (HEAD, "main", 7)
        assert found.is_opening == (action in ("reopened", "ready_for_review"))
    rebased = {**pull_request("edited"), "changes": {"base": {"ref": {"from": "old"}}}}
    assert isinstance(asked("pull_request", rebased), Wanted)
    retitled = {**pull_request("edited"), "changes": {"title": {"from": "old"}}}
    assert isinstance(asked("pull_request", retitled), Ignored)
    assert isinstance(asked("pull_request", pull_request("synchronize", draft=True)), Noted)
    assert isinstance(asked("pull_request", pull_request("synchronize", state="closed")), Noted)
    for action, state in (("closed", "closed"), ("converted_to_draft", "draft")):
        found = asked("pull_request", pull_request(action))
        assert (type(found), found.pull.state) == (Stopped, state)
    merged = asked("pull_request", pull_request("closed", merged=True))
    assert merged.pull.state == "merged"
    for action in ("labeled", "assigned", "locked", "enqueued", "auto_merge_enabled", "review_requested"):
        assert isinstance(asked("pull_request", pull_request(action)), Ignored), action


def test_only_our_own_checks_are_run_again() -> None:
    for kind in ("check_run", "check_suite"):
        assert asked(kind, check(kind)) == Rerun(None, HEAD)
        assert asked(kind, check(kind, numbers=(7,))) == Rerun(7, HEAD)
        assert asked(kind, check(kind, numbers=(7, 8))) == Rerun(None, HEAD)
        # A fork's own pull request, of the same head.
        shared = check(kind, numbers=(7, 12))
        for one, repository_of_it in zip(shared[kind]["pull_requests"], (500, 900), strict=True):
            one["base"] = {"repo": {"id": repository_of_it}}
        assert asked(kind, shared) == Rerun(7, HEAD)
        shared[kind]["pull_requests"].pop(0)
        assert asked(kind, shared) == Rerun(None, HEAD)
        assert isinstance(asked(kind, check(kind, app=98)), Ignored)
        assert isinstance(asked(kind, check(kind), Webhooks(["x"])), Ignored)  # our App's number is not set
        assert isinstance(asked(kind, {**check(kind), "action": "completed"}), Ignored)
    button = {**check(), "action": "requested_action"}
    assert asked("check_run", {**button, "requested_action": {"identifier": "rerun"}}) == Rerun(None, HEAD)
    assert isinstance(asked("check_run", {**button, "requested_action": {"identifier": "fix"}}), Ignored)


def test_commands_count_only_from_people_with_rights() -> None:
    assert asked("issue_comment", comment()) == Rerun(7, comment=1)
    assert asked("issue_comment", comment("  /review \r\nplease")) == Rerun(7, comment=1)
    for association in ("OWNER", "COLLABORATOR"):
        assert asked("issue_comment", comment(association=association)) == Rerun(7, comment=1)
    ignored = [
        *(comment(association=one) for one in ("CONTRIBUTOR", "FIRST_TIMER", "NONE", "member", "")),
        *(comment(body) for body in ("review", "/reviews", "please /review", "> /review", "/review now", "")),
        comment(sender="Bot"),
        {**comment(), "comment": {**comment()["comment"], "performed_via_github_app": {"id": 99}}},
        comment(pull_request=None),
        comment(state="closed"),
        {**comment(), "action": "edited"},
    ]
    assert [one for one in ignored if not isinstance(asked("issue_comment", one), Ignored)] == []


def test_installations_and_repositories_are_followed() -> None:
    statuses = {"created": "active", "suspend": "suspended", "unsuspend": "active", "deleted": "deleted"}
    for action, status in statuses.items():
        found = asked("installation", installation(action))
        assert (type(found), found.status, found.account) == (InstallationChanged, status, "Acme")
    for event, action in (
        ("installation", "new_permissions_accepted"),
        ("installation_repositories", "added"),
    ):
        found = asked(event, installation(action))
        assert (type(found), found.status) == (InstallationChanged, "")  # as it was: what may go on is tried
    assert isinstance(asked("installation", installation("renamed")), Ignored)
    removed = {**installation("removed"), "repositories_removed": [{"id": 500}, {"id": 501}]}
    assert asked("installation_repositories", removed).numbers == (500, 501)
    for action in ("archived", "deleted"):
        assert asked("repository", repository(action)).numbers == (500,)
    for action in ("renamed", "transferred"):
        assert isinstance(asked("repository", repository(action, "Acme/Site")), RepositoryRenamed)
    for event, action in (("repository", "edited"), ("ping", ""), ("push", ""), ("star", "created")):
        assert isinstance(asked(event, {"action": action}), Ignored)


def test_recorded_payloads_are_read_and_only_those_that_ask_are_followed() -> None:
    """Whatever is in them; where the recordings are not at hand, the made ones above have to do."""
    kinds: dict[type, set[str]] = {}
    if not (payloads := deliveries.recorded()):
        pytest.skip("the recorded webhooks are not here")
    for event, content in payloads:
        found = Webhooks(["x"], "1").event({"X-GitHub-Event": event}, content)
        assert isinstance(found, HostEvent)
        kinds.setdefault(type(found.asked), set()).add(found.name)
    if kinds:
        assert kinds[Wanted] == {
            f"pull_request.{action}" for action in ("opened", "reopened", "ready_for_review", "synchronize")
        }
        assert kinds[Stopped] == {"pull_request.closed", "pull_request.converted_to_draft"}
        assert kinds.keys() <= {
            *(Wanted, Stopped, Ignored, InstallationChanged, RepositoriesRemoved, RepositoryRenamed, Rerun)
        }


@pytest.mark.parametrize(
    ("event", "content", "field"),
    [
        ("", {}, "X-GitHub-Event"),
        ("pull_request", {}, "action"),
        ("pull_request", {"action": ["opened"]}, "action"),
        ("pull_request", {"action": "opened"}, "pull_request.state"),
        ("pull_request", pull_request(head="main"), "pull_request.head.sha"),
        ("pull_request", pull_request(head="A" * 40), "pull_request.head.sha"),
        ("pull_request", pull_request(number=True), "number"),
        ("pull_request", pull_request(number=2**31), "number"),
        ("pull_request", pull_request(base_ref="a b"), "pull_request.base.ref"),
        ("pull_request", pull_request(base_ref="a..b"), "pull_request.base.ref"),
        ("pull_request", pull_request(base_ref="x:refs/heads/y"), "pull_request.base.ref"),
        ("pull_request", pull_request(base_ref="a\ud800"), "pull_request.base.ref"),
        ("pull_request", pull_request(updated_at="2026-01-31T12:00:00"), "pull_request.updated_at"),
        ("pull_request", pull_request(updated_at="9999-12-31T23:59:59-23:59"), "pull_request.updated_at"),
        ("pull_request", pull_request(updated_at="0001-01-01T00:00:00+23:59"), "pull_request.updated_at"),
        ("pull_request", pull_request(updated_at="3026-01-31T12:00:00Z"), "pull_request.updated_at"),
        ("pull_request", pull_request(draft="no"), "pull_request.draft"),
        ("pull_request", pull_request(repository={"id": 1, "full_name": "../x"}), "repository.full_name"),
        ("pull_request", pull_request(repository={"id": 1, "full_name": "a/b/c"}), "repository.full_name"),
        ("pull_request", pull_request(repository={"id": 1.5, "full_name": "a/b"}), "repository.id"),
        ("pull_request", {**pull_request(), "installation": {"id": -1}}, "installation.id"),
        ("installation", {"action": "deleted"}, "installation.id"),
    ],
)
def test_a_field_of_another_form_is_named(event: str, content: dict[str, Any], field: str) -> None:
    with pytest.raises(Unreadable) as raised:
        HOST.event({"X-GitHub-Event": event}, json.loads(json.dumps(content)))
    assert raised.value.field == field
