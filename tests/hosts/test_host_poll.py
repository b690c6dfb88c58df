"""Webhooks that GitHub never delivers again are found by asking, once, within its limits."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from criticizer.db import prepared
from criticizer.queue import outbox
from criticizer.queue.lease_renewer import LeaseRenewer
from criticizer.resilience import gate
from reviews import tasks
from reviews.intake import host_poll
from reviews.models import HostChange, HostDelivery, ReviewJob, SourcePosition
from reviews.states import JobStatus
from tests.fakes.github import APP_ID as FAKE_APP
from tests.fakes.github import SLUG, Act, GitHubServer, Pull, private_key
from tests.hosts import deliveries
from tests.hosts.conftest import Send

pytestmark = pytest.mark.django_db
NEW, NEWER = "c" * 40, "d" * 40
LIST = "GET /repos/acme/web/pulls"


@pytest.fixture
def github(settings: Any) -> Iterator[GitHubServer]:
    with GitHubServer() as server:
        server.add("acme/web").pulls.clear()
        settings.GITHUB_API_URL, settings.GITHUB_APP_SLUG = server.url, SLUG
        settings.GITHUB_APP_ID, settings.GITHUB_PRIVATE_KEY = str(FAKE_APP), (private_key(),)
        settings.GITHUB_REPOSITORIES = ["acme/web", "acme/lib-*"]
        settings.RATE_LIMITS = {"github": 1000.0}
        settings.RETRY_TIME_SCALE = 0.001
        gate.forget()
        yield server
        assert server.faults == []
    gate.forget()


def pulls(github: GitHubServer) -> dict[int, Pull]:
    return github.repos["acme/web"].pulls


def payload(github: GitHubServer, action: str = "opened", number: int = 7, **changes: Any) -> Any:
    """Return the webhook of a pull request as the double has it."""
    repo, pull = github.repos["acme/web"], pulls(github)[number]
    named = {"id": repo.number, "full_name": "acme/web"}
    made = deliveries.pull_request(action, head=pull.head, number=number, repository=named, **changes)
    made["pull_request"]["updated_at"] = pull.updated_at
    return made


def heads() -> list[tuple[str, str]]:
    found = ReviewJob.objects.order_by("pk").values_list("host_version__head_sha", "status")
    return [(sha, status) for sha, status in found]


def test_a_pull_request_whose_webhook_was_lost_is_found_once(github: GitHubServer, send: Send) -> None:
    pulls(github)[7] = Pull(NEW)
    assert host_poll.run() == 1
    assert heads() == [(NEW, JobStatus.QUEUED)]
    assert host_poll.run() == 0
    job = ReviewJob.objects.get()
    # Its webhook comes after all.
    assert send("pull_request", payload(github)) == (200, {"job": job.pk, "duplicate": True})
    assert heads() == [(NEW, JobStatus.QUEUED)]
    position = SourcePosition.objects.get(stream="github acme/web")
    assert (position.missing, position.problem) == (1, "")


def test_a_lost_push_and_a_lost_reopening_are_found(github: GitHubServer, send: Send) -> None:
    pulls(github)[7] = Pull(NEW)
    assert send("pull_request", payload(github))[0] == 202
    assert host_poll.run() == 0
    pulls(github)[7] = Pull(NEWER, updated_at="2026-01-31T12:05:00Z")
    assert host_poll.run() == 1
    assert heads() == [(NEW, JobStatus.SUPERSEDED), (NEWER, JobStatus.QUEUED)]
    pulls(github)[7].updated_at = "2026-01-31T12:06:00Z"
    send("pull_request", payload(github, "closed"))
    assert heads()[1][1] == JobStatus.CANCELLED
    pulls(github)[7].updated_at = "2026-01-31T12:07:00Z"
    assert host_poll.run() == 1
    assert heads()[2] == (NEWER, JobStatus.QUEUED)


def test_what_is_known_to_be_later_is_not_taken_back(github: GitHubServer, send: Send) -> None:
    pulls(github)[7] = Pull(NEW)
    send("pull_request", payload(github))
    HostChange.objects.update(head_sha=NEWER, reported_at=timezone.now())  # its webhook overtook the list
    assert host_poll.run() == 0
    assert len(heads()) == 1


def test_drafts_are_known_and_not_reviewed(github: GitHubServer) -> None:
    pulls(github)[7] = Pull(NEW, is_draft=True)
    for _ in range(3):
        assert host_poll.run() == 0
    assert HostChange.objects.get().state == "draft"
    assert HostDelivery.objects.count() == 1
    assert heads() == []


def test_all_pages_of_open_pull_requests_are_read(github: GitHubServer) -> None:
    github.page = 2
    pulls(github).update({number: Pull(f"{number:040x}") for number in range(1, 6)})
    pulls(github)[9] = Pull("9" * 40, state="closed")
    assert host_poll.run() == 5
    assert github.count("GET", "/repos/acme/web/pulls") == 3


def test_repositories_that_events_named_are_asked_and_others_are_not(
    github: GitHubServer, send: Send, settings: Any
) -> None:
    for name in ("acme/lib-a", "acme/other"):
        repo = github.add(name, {3: Pull(NEW)})
        send("star", {"action": "created", "repository": {"id": repo.number, "full_name": name}})
    host_poll.run()
    assert github.count("GET", "/repos/acme/lib-a/pulls") == 1
    assert github.count("GET", "/repos/acme/other/.*") == 0
    assert heads() == [(NEW, JobStatus.QUEUED)]
    settings.GITHUB_REPOSITORIES = ["acme/other"]
    assert host_poll.run() == 1


def test_nothing_begins_in_an_archived_repository(github: GitHubServer, send: Send) -> None:
    pulls(github)[7] = Pull(NEW)
    assert send("pull_request", payload(github))[0] == 202
    HostChange.objects.update(state="removed")
    github.repos["acme/web"].is_archived = True
    pulls(github)[7].updated_at = "2026-01-31T13:00:00Z"
    assert host_poll.run() == 0
    assert HostChange.objects.get().state == "removed"
    assert len(heads()) == 1


def test_a_renamed_repository_is_asked_by_its_newest_name(github: GitHubServer, send: Send) -> None:
    for name in ("acme/lib-old", "acme/lib-new"):
        send("star", {"action": "created", "repository": {"id": 77, "full_name": name}})
    repo = github.add("acme/lib-new", {3: Pull(NEW)})
    repo.number = 77
    assert host_poll.run() == 1
    assert github.count("GET", "/repos/acme/lib-old/.*") == 0


def test_what_is_polled_no_longer_has_no_problem(github: GitHubServer, settings: Any) -> None:
    github.repos["acme/web"].is_hidden = True
    host_poll.run()
    assert SourcePosition.objects.get(stream="github acme/web").problem
    settings.GITHUB_REPOSITORIES = ["acme/lib-*"]
    host_poll.run()
    assert SourcePosition.objects.get(stream="github acme/web").problem == ""


def test_a_limit_is_waited_for_and_the_next_run_finds_it(github: GitHubServer, settings: Any) -> None:
    settings.RETRY_TIME_SCALE = 1
    pulls(github)[7] = Pull(NEW)
    github.script(Act(keep=False, status=403, headers={"retry-after": "600"}), on=LIST)
    assert host_poll.run() == 0
    assert "waiting" in SourcePosition.objects.get(stream="github acme/web").problem
    asked = github.count("GET", "/repos/acme/web/pulls")
    assert host_poll.run() == 0
    assert github.count("GET", "/repos/acme/web/pulls") == asked
    prepared.rows("DELETE FROM paces")
    gate.forget()
    assert host_poll.run() == 1


def test_a_repository_that_refuses_does_not_stop_the_others(github: GitHubServer, settings: Any) -> None:
    settings.GITHUB_REPOSITORIES = ["acme/web", "acme/gone"]
    pulls(github)[7] = Pull(NEW)
    assert host_poll.run() == 1
    assert "NOT_FOUND" in SourcePosition.objects.get(stream="github acme/gone").problem


# -- failed deliveries ---------------------------------------------------------------------------


def failed(number: int, guid: str, hours: float = 1.0) -> dict[str, Any]:
    at = datetime.now(UTC) - timedelta(hours=hours)
    return {"id": number, "guid": guid, "delivered_at": at.isoformat(), "status": "failure"}


def test_a_webhook_that_met_a_server_that_was_down_is_delivered_again(
    github: GitHubServer, send: Send
) -> None:
    pulls(github)[7] = Pull(NEW)
    github.deliveries = [failed(11, "guid-1")]
    asked: list[int] = []
    github.deliver_again = asked.append
    github.script(Act(keep=False, status=502), on=LIST)  # found by the delivery alone
    host_poll.run()
    assert (asked, heads()) == ([11], [])
    assert send("pull_request", payload(github), delivery="guid-1")[0] == 202
    assert heads() == [(NEW, JobStatus.QUEUED)]
    host_poll.run()  # and then by its head as well
    assert (asked, len(heads())) == ([11], 1)


def test_only_recent_unknown_and_not_hopeless_deliveries_are_asked_for(
    github: GitHubServer, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    send("ping", {"zen": "…"}, delivery="known")
    github.page = 4
    github.deliveries = [
        failed(1, "known"),
        failed(2, "new", 2),
        *[failed(number, "hopeless", 3) for number in (3, 4, 5)],
        failed(6, "new", 4),
        {**failed(7, "fine"), "status": "success"},
        failed(8, "old", 73),
    ]
    asked: list[int] = []
    github.deliver_again = asked.append
    host_poll.run()
    assert asked == [2]
    github.deliveries = [failed(number, f"guid-{number}") for number in range(20, 40)]
    monkeypatch.setattr(host_poll, "MAX_AGAIN", 3)
    host_poll.run()
    assert asked == [2, 20, 21, 22]


@pytest.mark.long
def test_a_limit_on_deliveries_stops_asking(github: GitHubServer, settings: Any) -> None:
    settings.RETRY_TIME_SCALE = 1
    github.deliveries = [failed(number, f"guid-{number}") for number in range(5)]
    limit = Act(keep=False, status=403, headers={"retry-after": "600"})
    github.script(Act(), limit, on="POST /app/hook/deliveries")
    host_poll.run()
    assert github.count("POST", "/app/hook/deliveries/.*") == 2
    called = github.count("GET", "/app/hook/deliveries")
    host_poll.run()
    assert github.count("GET", "/app/hook/deliveries") == called
    assert "waiting" in SourcePosition.objects.get(stream="github failed webhooks").problem


def test_the_clock_runs_where_an_app_is_configured(
    github: GitHubServer, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A heartbeat's own connection would outlive the database.
    monkeypatch.setattr(tasks, "LEASE_RENEWER", LeaseRenewer(lambda held: held))
    pulls(github)[7] = Pull(NEW)
    host_poll.ensure()
    (message,) = outbox.claim("stages", 10)
    assert (message.message_type, message.message_type in settings.TASKS) == ("poll_hosts", True)
    tasks.poll_hosts(message.id, 0, str(message.lease_token))
    assert heads() == [(NEW, JobStatus.QUEUED)]
    tasks.poll_hosts(message.id, 0, str(message.lease_token))  # a duplicate is refused
    settings.GITHUB_PRIVATE_KEY = ()
    host_poll.ensure()
    assert host_poll.run() == 0
