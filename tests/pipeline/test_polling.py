"""The poll: what no trigger told becomes a job exactly once."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection
from structlog.testing import capture_logs

from criticizer.db import prepared
from criticizer.models import OutboxMessage
from criticizer.queue import advisory_locks, outbox
from criticizer.queue.advisory_locks import Lock
from criticizer.queue.broker import OutboxBroker
from criticizer.resilience import gate
from criticizer.resilience.failures import DependencyUnavailable
from reviews import tasks
from reviews.intake import polling, source_events
from reviews.intake import streams as watching
from reviews.intake.polling import PollReport
from reviews.intake.source_events import Event, Kind, Outcome
from reviews.models import AllowListEntry, ReviewJob, SourceEvent, SourcePosition
from reviews.pipeline import executor
from reviews.sources.perforce.source import PerforceSource
from tests import scripted
from tests.fakes.p4.server import CONNECTION_REFUSED, FakeDepot, added
from tests.pipeline.test_source_events import Beside
from tests.sources.gitrepo import GitRepo

pytestmark = pytest.mark.django_db(transaction=True)

SUBMITTED, SHELVED = "perforce submitted", "perforce shelved"


@pytest.fixture(autouse=True)
def _poll(settings: Any, tmp_path: Path) -> None:
    settings.GIT_REPOSITORIES = {"demo": tmp_path / "repo"}
    settings.CHANGE_SOURCES = ["perforce", "git"]
    settings.DEFAULT_RECIPIENTS = ["team@example.com"]
    settings.DEPOT_ALLOW_LIST = ["//depot/main/...", "-//depot/main/secret/...", "//demo/..."]
    settings.P4PORT = ""
    settings.GIT_WATCH = []
    gate.forget()


@pytest.fixture
def depot(settings: Any, tmp_path: Path) -> FakeDepot:
    """A server that was polled once, so that everything after this is new."""
    made = FakeDepot(tmp_path)
    settings.DATA_DIR = tmp_path
    settings.P4PORT, settings.P4USER = "127.0.0.1:1666", "criticizer"
    settings.P4_EXECUTABLE = str(made.executable)
    submit(made, "first")
    poll()
    return made


@pytest.fixture
def repo(settings: Any, tmp_path: Path) -> GitRepo:
    made = GitRepo(tmp_path / "repo")
    settings.GIT_WATCH = [("demo", "main")]
    made.commit_files({"a": "first\n"})
    poll()
    return made


def submit(depot: FakeDepot, name: str, directory: str = "main") -> str:
    return depot.submit(added(f"//depot/{directory}/{name}", f"{name}\n"))


def poll(*, dry: bool = False) -> dict[str, PollReport]:
    reports = polling.run(dry=dry)
    assert reports is not None
    assert not [report.problem for report in reports if report.problem]
    return {report.stream: report for report in reports}


def told(kind: SourceEvent.Kind, change: str, server: str = "main") -> int:
    job = source_events.receive(Event(kind, change, server)).job_id
    assert job is not None
    return job


def missing(report: PollReport) -> list[str]:
    return [event.changelist_id for event, _ in report.missing]


# -- submits -----------------------------------------------------------------------------------


def test_submit_without_a_trigger_becomes_a_job_exactly_once(depot: FakeDepot) -> None:
    announced, lost = submit(depot, "a"), submit(depot, "b")
    told(Kind.CHANGE, announced)
    with capture_logs() as logs:
        assert missing(poll()[SUBMITTED]) == [lost]
    job = ReviewJob.objects.get(changelist_id=lost)
    assert [entry for entry in logs if entry["event"] == "poll_found_missing"] == [
        {
            "event": "poll_found_missing", "kind": "change-commit", "changelist": lost, "job": job.pk,
            "log_level": "warning",
        }
    ]  # fmt: skip
    assert (job.recipients, job.requested_by) == (["mail:team@example.com"], "poll")
    assert job.idempotency_key == f"perforce:fake:change-commit:{lost}"  # the key of the trigger's event
    row = SourceEvent.objects.get(changelist_id=lost)
    assert (row.origin, row.outcome, row.job, row.server) == ("poll", "found_by_poll", job, "fake")
    assert len(row.version_key) == 64
    assert (poll()[SUBMITTED].missing, poll()[SUBMITTED].missing) == ([], [])
    assert ReviewJob.objects.count() == 2
    # A trigger that was spooled meanwhile finds it, whatever it calls the server.
    assert told(Kind.CHANGE, lost, "main") == told(Kind.CHANGE, lost, "fake") == job.pk
    assert SourcePosition.objects.get(stream=SUBMITTED).missing == 1


def test_first_poll_reviews_nothing_old(depot: FakeDepot) -> None:
    assert not ReviewJob.objects.exists()
    assert SourcePosition.objects.get(stream=SUBMITTED).place == "101"


def test_backfill_is_bounded(settings: Any, depot: FakeDepot) -> None:
    numbers = [submit(depot, name) for name in "abc"]
    SourcePosition.objects.all().delete()
    settings.SOURCE_POLL_BACKFILL = 2
    assert missing(poll()[SUBMITTED]) == numbers[1:]
    assert missing(poll()[SUBMITTED]) == []


def test_first_poll_starts_at_the_newest_trigger(depot: FakeDepot) -> None:
    numbers = [submit(depot, name) for name in "abc"]
    SourcePosition.objects.all().delete()
    told(Kind.CHANGE, numbers[0])
    assert missing(poll()[SUBMITTED]) == numbers[1:]


@pytest.mark.long
def test_a_submit_that_ended_after_a_later_one_is_found(depot: FakeDepot) -> None:
    """Numbers are given when a submit begins: a long one ends below what was looked at."""
    depot.skip_numbers(10)
    later = submit(depot, "later")
    told(Kind.CHANGE, later)
    poll()
    depot._next_change = int(later) - 5
    early = submit(depot, "early")
    assert missing(poll()[SUBMITTED]) == [early]


def test_submits_below_the_first_position_are_not_reviewed(depot: FakeDepot) -> None:
    depot._next_change = 50
    submit(depot, "old")
    assert missing(poll()[SUBMITTED]) == []


def test_only_what_the_allow_list_includes_is_polled(settings: Any, depot: FakeDepot) -> None:
    AllowListEntry.objects.create(kind="exclude", pattern="//depot/main/quiet/...", reason="test")
    inside = submit(depot, "a")
    for directory in ("other", "main/secret", "main/quiet"):
        submit(depot, "b", directory)
    assert missing(poll()[SUBMITTED]) == [inside]
    (path,) = {call.argv[-1] for call in depot.calls("changes") if "submitted" in call.argv}
    assert path == "//depot/main/..."  # neither excluded lines nor those of repositories


def test_a_run_is_bounded_and_the_next_goes_on(depot: FakeDepot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "PER_RUN", 4)
    monkeypatch.setattr(watching, "PER_STEP", 2)
    monkeypatch.setattr(watching, "LOOK_BACK", 1)
    numbers = [submit(depot, f"f{n}") for n in range(7)]
    first = poll()[SUBMITTED]
    assert (missing(first), first.is_partial) == (numbers[:4], True)
    found = missing(first)
    for _ in range(3):
        found += missing(poll()[SUBMITTED])
    assert found == numbers
    assert ReviewJob.objects.count() == 7


def test_a_run_that_dies_between_two_steps_loses_and_repeats_nothing(
    depot: FakeDepot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "PER_STEP", 2)
    numbers = [submit(depot, f"f{n}") for n in range(5)]
    find, calls = source_events.find, iter(range(100))

    def dies(event: Event) -> Any:
        entry = find(event)
        if next(calls) == 3:  # in the middle of the second step
            raise DatabaseError("lost")
        return entry

    with monkeypatch.context() as patch:
        patch.setattr(source_events, "find", dies)
        with pytest.raises(DatabaseError):
            polling.run()
    assert SourcePosition.objects.get(stream=SUBMITTED).place == numbers[1]
    assert ReviewJob.objects.count() == 2
    assert missing(poll()[SUBMITTED]) == numbers[2:]
    assert ReviewJob.objects.count() == 5


def test_concurrent_runs_poll_once(depot: FakeDepot) -> None:
    submit(depot, "a")
    with advisory_locks.held(Lock.SOURCE_POLL) as is_mine:
        assert is_mine
        other = Beside(polling.run)
        other.join()
    assert other.result is None
    assert not ReviewJob.objects.exists()
    assert len(poll()[SUBMITTED].missing) == 1


def test_a_run_whose_lock_was_lost_with_its_connection_records_nothing_twice(
    depot: FakeDepot, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = submit(depot, "a")
    next_step, others = polling._next_step, []

    def overtaken(stream: Any, steps: Any) -> Any:
        step = next_step(stream, steps)
        if step is not None and step.events and not others:
            prepared.value("SELECT pg_advisory_unlock(%(lock)s)", {"lock": Lock.SOURCE_POLL.value})
            others.append(Beside(polling.run))
            others[0].join()
        return step

    monkeypatch.setattr(polling, "_next_step", overtaken)
    reports = polling.run()
    assert reports is not None
    assert [report.problem for report in reports if report.stream == SUBMITTED] == [
        "another run recorded this stream first"
    ]
    assert [job.changelist_id for job in ReviewJob.objects.all()] == [lost]


# -- shelves -----------------------------------------------------------------------------------


def shelf(depot: FakeDepot, content: str, change: str | None = None, directory: str = "main") -> str:
    return depot.shelve(added(f"//depot/{directory}/s", content), change=change)


def test_shelf_without_a_trigger_becomes_a_job_once(depot: FakeDepot) -> None:
    lost = shelf(depot, "1\n")
    assert missing(poll()[SHELVED]) == [lost]
    assert missing(poll()[SHELVED]) == []
    job = ReviewJob.objects.get()
    assert OutboxMessage.objects.get().available_at > job.created_at  # it waits as it would for a trigger
    assert told(Kind.SHELVE, lost) == job.pk


def test_a_shelf_that_was_shelved_again_is_found_by_its_content(depot: FakeDepot) -> None:
    change = shelf(depot, "1\n")
    job = told(Kind.SHELVE, change)
    assert missing(poll()[SHELVED]) == []
    read(job, depot, change)
    assert missing(poll()[SHELVED]) == []
    shelf(depot, "2\n", change)
    assert missing(poll()[SHELVED]) == [change]
    assert ReviewJob.objects.order_by("-id")[0].review_version == 2
    assert missing(poll()[SHELVED]) == []


def read(job: int, depot: FakeDepot, change: str) -> None:
    """Let the job have read what is shelved now."""
    (event,) = watching.ShelvedChanges().events(Kind.SHELVE, [int(change)])
    ReviewJob.objects.filter(pk=job).update(version_key=event.version_key)


@pytest.mark.long
def test_a_shelf_that_changed_while_its_job_read_it_is_compared_again(depot: FakeDepot) -> None:
    change = shelf(depot, "1\n")
    job = told(Kind.SHELVE, change)
    (old,) = watching.ShelvedChanges().events(Kind.SHELVE, [int(change)])
    shelf(depot, "2\n", change)
    assert missing(poll()[SHELVED]) == []  # the job may read it still
    ReviewJob.objects.filter(pk=job).update(version_key=old.version_key)  # it did not
    assert missing(poll()[SHELVED]) == [change]


@pytest.mark.long
def test_shelves_older_than_the_poll_are_remembered_and_not_reviewed(depot: FakeDepot) -> None:
    SourcePosition.objects.all().delete()
    change = shelf(depot, "1\n")
    assert missing(poll()[SHELVED]) == []
    assert missing(poll()[SHELVED]) == []
    shelf(depot, "2\n", change)
    assert missing(poll()[SHELVED]) == [change]


@pytest.mark.long
def test_an_old_shelf_that_comes_into_view_is_not_news(
    depot: FakeDepot, monkeypatch: pytest.MonkeyPatch
) -> None:
    SourcePosition.objects.all().delete()
    monkeypatch.setattr(watching, "SHELVES", 1)
    shelf(depot, "old\n")
    newer = shelf(depot, "newer\n")
    poll()
    depot.submit_shelf(newer)
    assert missing(poll()[SHELVED]) == []
    assert missing(poll()[SUBMITTED]) == []  # the poll of submits has seen it


@pytest.mark.long
def test_old_shelf_is_polled_for_days_after_its_trigger(
    depot: FakeDepot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "SHELVES", 1)
    change = shelf(depot, "1\n")
    read(told(Kind.SHELVE, change), depot, change)
    poll()
    told(Kind.SHELVE, shelf(depot, "newer\n"))
    poll()
    shelf(depot, "2\n", change)
    assert missing(poll()[SHELVED]) == [change]


@pytest.mark.long
def test_a_shelf_below_the_newest_ones_is_compared_from_its_first_trigger_on(
    depot: FakeDepot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "SHELVES", 1)
    old = shelf(depot, "1\n")
    shelf(depot, "newer\n")
    poll()
    SourcePosition.objects.filter(stream=SHELVED).update(
        state={"keys": {}, "lowest": int(old) + 1}  # the old one was never in view
    )
    read(told(Kind.SHELVE, old), depot, old)
    shelf(depot, "2\n", old)
    assert old in missing(poll()[SHELVED])


@pytest.mark.long
def test_first_poll_that_dies_does_not_make_old_shelves_news(
    depot: FakeDepot, monkeypatch: pytest.MonkeyPatch
) -> None:
    SourcePosition.objects.all().delete()
    monkeypatch.setattr(watching, "PER_STEP", 1)
    for content in "abc":
        shelf(depot, content)
    depot.misbehave("describe", contains="-S", skip=1, replace=True, stderr=CONNECTION_REFUSED, exit=1)
    reports = {report.stream: report for report in polling.run() or []}
    assert "NETWORK_UNREACHABLE" in reports[SHELVED].problem
    assert missing(poll()[SHELVED]) == []
    lost = shelf(depot, "d")
    assert missing(poll()[SHELVED]) == [lost]


@pytest.mark.long
def test_shelves_with_a_trigger_are_compared_from_the_first_poll_on(depot: FakeDepot) -> None:
    SourcePosition.objects.all().delete()
    change = shelf(depot, "1\n")
    read(told(Kind.SHELVE, change), depot, change)
    shelf(depot, "2\n", change)
    assert missing(poll()[SHELVED]) == [change]


def test_shelves_outside_the_allow_list_are_ignored(depot: FakeDepot) -> None:
    shelf(depot, "1\n", directory="other")
    assert missing(poll()[SHELVED]) == []


@pytest.mark.long
def test_a_trigger_the_poll_took_for_late_makes_the_poll_compare_now(depot: FakeDepot) -> None:
    from reviews.api import perforce_triggers  # the trigger's entry point

    change = shelf(depot, "1\n")
    poll()
    job = ReviewJob.objects.get()
    read(job.pk, depot, change)
    ReviewJob.objects.filter(pk=job.pk).update(status="cancelled", finished_at=job.created_at)
    polling.ensure()
    OutboxMessage.objects.filter(message_type="poll_sources").update(available_at="2100-01-01 00:00:00+00:00")
    shelf(depot, "2\n", change)
    assert perforce_triggers.request_from_event(
        "shelve-commit", int(change), "main", recipients=(), requested_by="key:ci"
    ) == (job.pk, True)
    messages = outbox.claim("stages", 10)
    assert [message.message_type for message in messages] == ["poll_sources"]
    assert missing(poll()[SHELVED]) == []  # a trigger told of it, after all
    assert ReviewJob.objects.order_by("-id")[0].review_version == 2


@pytest.mark.long
def test_a_job_keeps_the_key_of_the_content_it_read(settings: Any, depot: FakeDepot) -> None:
    settings.STAGES = {**scripted.STAGES, "fetch": ("reviews.stages.fetch.run", "stages")}
    change = shelf(depot, "1\n")
    assert missing(poll()[SHELVED]) == [change]
    prepared.rows("UPDATE outbox_messages SET available_at = now()")
    (message,) = outbox.claim("stages", 1)
    executor.run_stage(message.id, message.aggregate_id, message.lease_token)
    job = ReviewJob.objects.get()
    assert (job.status, job.version_key) == ("succeeded", SourceEvent.objects.get().version_key)
    SourcePosition.objects.filter(stream=SHELVED).update(state={"keys": {}, "lowest": 0})
    assert missing(poll()[SHELVED]) == []  # nothing but the job's key says that this was read
    shelf(depot, "2\n", change)
    assert missing(poll()[SHELVED]) == [change]


@pytest.mark.long
def test_a_shelf_replaced_while_it_is_read_is_read_again_and_keeps_the_newest_key(
    settings: Any, depot: FakeDepot, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.STAGES = {**scripted.STAGES, "fetch": ("reviews.stages.fetch.run", "stages")}
    settings.SHELVE_DEBOUNCE_SECONDS = 0
    change = shelf(depot, "1\n")
    told(Kind.SHELVE, change)
    printed, contents = PerforceSource.read, iter(["2\n", "3\n"])

    def replaced_meanwhile(source: Any, files: Any, **more: Any) -> Any:
        found = printed(source, files, **more)
        if (content := next(contents, None)) is not None:
            shelf(depot, content, change)
        return found

    monkeypatch.setattr(PerforceSource, "read", replaced_meanwhile)
    (message,) = outbox.claim("stages", 1)
    executor.run_stage(message.id, message.aggregate_id, message.lease_token)
    job = ReviewJob.objects.get()
    (newest,) = watching.ShelvedChanges().events(Kind.SHELVE, [int(change)])
    assert (job.status, job.version_key) == ("succeeded", newest.version_key)
    assert missing(poll()[SHELVED]) == []


# -- commits -----------------------------------------------------------------------------------


def test_new_commits_of_a_watched_branch_become_jobs_once(repo: GitRepo) -> None:
    shas = [repo.commit_files({"a": f"{n}\n"}) for n in range(3)]
    assert missing(poll()["git demo main"]) == [f"git:demo@{sha}" for sha in shas]
    assert missing(poll()["git demo main"]) == []
    job = ReviewJob.objects.get(changelist_id=f"git:demo@{shas[0]}")
    assert (job.recipients, job.review_version) == (["mail:team@example.com"], 1)
    assert SourceEvent.objects.filter(event="git-commit", server="demo").count() == 3


@pytest.mark.long
def test_commits_older_than_the_poll_are_not_reviewed_without_backfill(settings: Any, repo: GitRepo) -> None:
    shas = [repo.git("rev-parse", "HEAD"), *[repo.commit_files({"a": f"{n}\n"}) for n in range(3)]]
    SourcePosition.objects.all().delete()
    assert missing(poll()["git demo main"]) == []
    SourcePosition.objects.all().delete()
    settings.SOURCE_POLL_BACKFILL = 2
    assert missing(poll()["git demo main"]) == [f"git:demo@{sha}" for sha in shas[-2:]]


@pytest.mark.long
def test_a_commit_that_was_asked_for_is_not_missing(repo: GitRepo, post: Any) -> None:
    sha = repo.commit_files({"a": "2\n"})
    post(changelist=f"git:demo@{sha}")
    assert missing(poll()["git demo main"]) == []
    assert ReviewJob.objects.count() == 1


@pytest.mark.long
def test_a_branch_that_was_rewritten_goes_on_from_its_new_head(repo: GitRepo) -> None:
    start = repo.git("rev-parse", "HEAD")
    repo.commit_files({"a": "2\n"})
    poll()
    repo.git("reset", "-q", "--hard", start)
    other = repo.commit_files({"a": "3\n"})
    assert missing(poll()["git demo main"]) == [f"git:demo@{other}"]


def test_lost_history_is_logged_and_skipped(repo: GitRepo) -> None:
    prepared.rows("UPDATE source_positions SET place = %(sha)s", {"sha": "1" * 40})
    with capture_logs() as logs:
        assert missing(poll()["git demo main"]) == []
    assert [entry["stream"] for entry in logs if entry["event"] == "poll_position_lost"] == ["git demo main"]
    sha = repo.commit_files({"a": "2\n"})
    assert missing(poll()["git demo main"]) == [f"git:demo@{sha}"]


def test_commits_outside_the_allow_list_are_left_out(settings: Any, repo: GitRepo) -> None:
    settings.DEPOT_ALLOW_LIST = ["//demo/src/..."]
    repo.commit_files({"docs/a": "1\n"})
    inside = repo.commit_files({"src/a": "1\n"})
    assert missing(poll()["git demo main"]) == [f"git:demo@{inside}"]


# -- trouble -----------------------------------------------------------------------------------


def test_unavailable_server_stops_only_its_streams_and_is_shown(depot: FakeDepot, repo: GitRepo) -> None:
    lost, commit = submit(depot, "a"), repo.commit_files({"a": "2\n"})
    depot.misbehave("*", times=99, replace=True, stderr=CONNECTION_REFUSED, exit=1)
    reports = {report.stream: report for report in polling.run() or []}
    assert "NETWORK_UNREACHABLE" in reports[SUBMITTED].problem
    assert "NETWORK_UNREACHABLE" in SourcePosition.objects.get(stream=SUBMITTED).problem
    assert missing(reports["git demo main"]) == [f"git:demo@{commit}"]
    depot.recover()
    gate.forget()
    assert missing(poll()[SUBMITTED]) == [lost]
    assert SourcePosition.objects.get(stream=SUBMITTED).problem == ""


def test_stream_that_is_not_configured_any_more_has_no_problem(settings: Any, depot: FakeDepot) -> None:
    depot.misbehave("*", times=99, replace=True, stderr=CONNECTION_REFUSED, exit=1)
    polling.run()
    SourcePosition.objects.create(stream="github acme/web", problem="of another poll")
    polling.ensure()
    assert SourcePosition.objects.get(stream=SUBMITTED).problem
    settings.CHANGE_SOURCES = ("git",)
    polling.ensure()
    assert not SourcePosition.objects.filter(stream__startswith="perforce ").exclude(problem="").exists()
    assert SourcePosition.objects.get(stream="github acme/web").problem


def test_an_open_circuit_skips_the_server_without_a_command(
    depot: FakeDepot, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = submit(depot, "a")
    before = len(depot.calls())

    def is_open(name: str) -> Any:
        raise DependencyUnavailable(name, 30.0, "It failed too often and gets a rest.")

    with monkeypatch.context() as patch:
        patch.setattr(gate, "guarded", is_open)
        polling.ensure()
        run_due()
    assert len(depot.calls()) == before
    message = OutboxMessage.objects.get()
    assert message.waiting_for == "p4:127.0.0.1:1666"  # woken when the circuit closes
    assert missing(poll()[SUBMITTED]) == [lost]


@pytest.mark.long
def test_a_change_whose_listing_is_too_large_does_not_hide_the_others(
    depot: FakeDepot, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = [submit(depot, name) for name in "abc"]
    depot.misbehave("describe", contains=f" {numbers[1]}", times=99, replace=True, messages=["too_many_rows"])
    assert missing(poll()[SUBMITTED]) == numbers
    assert SourceEvent.objects.get(changelist_id=numbers[1]).version_key == ""


# -- the clock ---------------------------------------------------------------------------------


def run_due() -> list[str]:
    """Do what a worker does with the messages that are due; return their types."""
    messages = outbox.claim("stages", 10)
    for message in messages:
        assert message.message_type == "poll_sources"
        tasks.poll_sources(message.id, message.aggregate_id, str(message.lease_token))
    return [message.message_type for message in messages]


def test_the_message_is_made_once_and_is_due_again_after_each_run(depot: FakeDepot) -> None:
    polling.ensure()
    polling.ensure()
    lost = submit(depot, "a")
    assert run_due() == ["poll_sources"]
    assert ReviewJob.objects.get().changelist_id == lost
    message = OutboxMessage.objects.get(message_type="poll_sources")
    assert (message.lease_token, message.started_at) == (None, None)
    seconds = prepared.value(
        "SELECT extract(epoch FROM available_at - now())::float8 FROM outbox_messages"
        " WHERE message_type = 'poll_sources'"
    )
    assert 290 < seconds <= 300
    polling.ensure()
    assert OutboxMessage.objects.get(message_type="poll_sources").pk == message.pk


@pytest.mark.long
def test_partial_run_continues_at_once(depot: FakeDepot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "PER_RUN", 1)
    monkeypatch.setattr(watching, "PER_STEP", 1)
    submit(depot, "a")
    polling.ensure()
    run_due()
    seconds = prepared.value(
        "SELECT extract(epoch FROM available_at - now())::float8 FROM outbox_messages"
        " WHERE message_type = 'poll_sources'"
    )
    assert seconds <= 1


def test_switched_off_there_is_no_message(settings: Any, depot: FakeDepot) -> None:
    polling.ensure()
    settings.SOURCE_POLL_SECONDS = 0
    polling.ensure()
    assert not OutboxMessage.objects.exists()


def test_nothing_to_poll_means_no_message() -> None:
    polling.ensure()
    assert not OutboxMessage.objects.exists()


def test_a_worker_that_lost_its_lease_does_nothing(depot: FakeDepot) -> None:
    submit(depot, "a")
    polling.ensure()
    (message,) = outbox.claim("stages", 1)
    prepared.rows("UPDATE outbox_messages SET lease_token = gen_random_uuid()")
    tasks.poll_sources(message.id, message.aggregate_id, str(message.lease_token))
    assert not ReviewJob.objects.exists()


def test_a_run_that_fails_raises_nothing_and_keeps_its_message(
    depot: FakeDepot, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = submit(depot, "a")
    polling.ensure()
    with monkeypatch.context() as patch:
        patch.setattr(watching, "streams", lambda: 1 / 0)
        run_due()
    assert OutboxMessage.objects.get().lease_token is not None  # due again when the lease has run out
    prepared.rows("UPDATE outbox_messages SET available_at = now()")
    run_due()
    assert ReviewJob.objects.get().changelist_id == lost


def test_the_broker_makes_each_message_the_task_of_its_type(depot: FakeDepot, post: Any) -> None:
    from django_q.signing import SignedPackage

    polling.ensure()
    post()
    broker = OutboxBroker("stages")
    try:
        packages = [SignedPackage.loads(task) for _, task in broker._take()]
    finally:
        broker._disconnect()
    assert {package["func"] for package in packages} == {
        "reviews.tasks.poll_sources",
        "reviews.tasks.run_stage",
    }


# -- the command -------------------------------------------------------------------------------


def command(*arguments: str) -> str:
    out = StringIO()
    call_command("poll_sources", *arguments, stdout=out)
    return out.getvalue()


@pytest.mark.long
def test_the_command_prints_the_difference(depot: FakeDepot) -> None:
    lost, shelved = submit(depot, "a"), shelf(depot, "1\n")
    dry = command("--dry-run")
    assert f"missing: change-commit {lost} (no job yet)" in dry
    assert f"missing: shelve-commit {shelved} (no job yet)" in dry
    assert (ReviewJob.objects.count(), SourceEvent.objects.count()) == (0, 0)
    assert SourcePosition.objects.get(stream=SUBMITTED).place == "101"
    done = command()
    job = ReviewJob.objects.get(changelist_id=lost)
    assert f"missing: change-commit {lost} (job {job.pk})" in done
    assert "0 missing" in command()


def test_command_reports_the_problem_of_a_stream(depot: FakeDepot, settings: Any) -> None:
    depot.misbehave("changes", times=2, replace=True, stderr=CONNECTION_REFUSED, exit=1)
    with pytest.raises(CommandError, match="not every source"):
        command()
    settings.P4PORT = ""
    with pytest.raises(CommandError, match="nothing to poll"):
        command()
    connection.close()


@pytest.mark.long
def test_events_found_by_the_poll_are_marked(depot: FakeDepot) -> None:
    submit(depot, "a")
    told(Kind.CHANGE, submit(depot, "b"))
    poll()
    outcomes = SourceEvent.objects.order_by("id").values_list("outcome", flat=True)
    assert sorted(outcomes) == sorted([Outcome.CREATED, Outcome.FOUND_BY_POLL])
