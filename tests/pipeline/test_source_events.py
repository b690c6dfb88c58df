"""The event ledger and the debounce: no event is lost, and the newest content wins."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.db.models import QuerySet

from criticizer.db import prepared
from criticizer.models import OutboxMessage
from criticizer.queue import outbox
from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure, RetryableFailure
from reviews import pipeline
from reviews.intake import review_requests, source_events
from reviews.intake.source_events import Entry, Event, Kind, Origin, Outcome
from reviews.models import Attempt, ReviewJob, SourceEvent, StageRun
from reviews.pipeline import Due, StageClaim, executor
from reviews.pipeline.executor import Written
from reviews.states import JobStatus
from tests import scripted
from tests.beside import Beside

pytestmark = pytest.mark.django_db(transaction=True)  # now() stands still inside one transaction
Work = Callable[[], int]

DOWN = RetryableFailure(ErrorClass.UPSTREAM_UNAVAILABLE, Component.SOURCE, "503")


def shelve(change: str = "12345", server: str = "main") -> Entry:
    return source_events.receive(Event(Kind.SHELVE, change, server))


def submit(change: str = "12345", server: str = "main") -> Entry:
    return source_events.receive(Event(Kind.CHANGE, change, server))


def found(kind: SourceEvent.Kind, change: str = "12345", key: str = "k") -> Entry | None:
    with transaction.atomic():
        return source_events.find(Event(kind, change, "polled", version_key=key))


def rows() -> list[tuple[str, str, int | None]]:
    return list(SourceEvent.objects.order_by("id").values_list("origin", "outcome", "job_id"))


def due_in() -> int:
    """Return how many seconds after it was made the one message is due."""
    (message,) = OutboxMessage.objects.all()
    return round((message.available_at - message.created_at).total_seconds())


def has_read(key: str) -> Callable[[StageClaim], Written]:
    """Return a fetch that finds content with this key."""

    def run(claim: StageClaim) -> Written:
        return lambda: ReviewJob.objects.filter(pk=claim.job_id).update(version_key=key) and None

    return run


# -- debounce ----------------------------------------------------------------------------------


def test_shelves_within_the_minute_are_one_job(work: Work, make_due: Callable[[], None]) -> None:
    first = shelve()
    assert due_in() == 60
    others = [shelve() for _ in range(3)]
    assert rows() == [
        ("trigger", "created", first.job_id),
        *[("trigger", "joined", first.job_id)] * 3,
    ]
    assert {entry.job_id for entry in others} == {first.job_id}
    assert due_in() == 60  # the first event counts: a shelf that changes all day is read all the same
    assert work() == 0
    make_due()
    work()
    assert ReviewJob.objects.get().status == JobStatus.SUCCEEDED
    assert [call[0] for call in scripted.CALLS] == ["fetch", "llm", "notify"]


def test_the_wait_is_shown_and_scaled(settings: Any) -> None:
    settings.RETRY_TIME_SCALE = 0.1
    shelve()
    assert due_in() == 6
    run = StageRun.objects.get(stage="fetch")
    assert run.next_attempt_at == OutboxMessage.objects.get().available_at


def test_a_lost_message_does_not_end_the_wait() -> None:
    shelve()
    due = OutboxMessage.objects.get().available_at
    OutboxMessage.objects.all().delete()
    pipeline.sweep()
    assert OutboxMessage.objects.get().available_at == due


def test_without_debounce_a_shelf_is_due_at_once(settings: Any) -> None:
    settings.SHELVE_DEBOUNCE_SECONDS = 0
    shelve()
    assert due_in() == 0
    assert StageRun.objects.get(stage="fetch").next_attempt_at is None


def test_a_submit_is_due_at_once_and_ends_the_wait_of_its_shelf(work: Work) -> None:
    shelf = shelve()
    submitted = submit()
    assert ReviewJob.objects.get(pk=shelf.job_id).status == JobStatus.SUPERSEDED
    assert due_in() == 0
    work()
    assert ReviewJob.objects.get(pk=submitted.job_id).status == JobStatus.SUCCEEDED


def test_a_fetch_that_failed_and_waits_is_joined(work: Work, make_due: Callable[[], None]) -> None:
    scripted.SCRIPT["fetch"].append(DOWN)
    first = shelve()
    make_due()
    work()
    assert StageRun.objects.get(stage="fetch").status == "retry_wait"
    assert shelve() == Entry(first.job_id, Outcome.JOINED)
    make_due()
    work()
    assert ReviewJob.objects.get().status == JobStatus.SUCCEEDED


def test_an_event_while_the_shelf_is_read_supersedes_that(make_due: Callable[[], None]) -> None:
    first = shelve()
    make_due()
    (message,) = outbox.claim("stages", 1)
    assert pipeline.claim(Due(message.id, message.aggregate_id, message.lease_token), "w") is not None
    second = shelve()
    assert (second.outcome, ReviewJob.objects.get(pk=first.job_id).status) == ("created", "superseded")
    assert Attempt.objects.get().outcome != "failed"  # no failure, no budget
    assert due_in() == 60
    assert shelve() == Entry(second.job_id, Outcome.JOINED)


def test_a_shelf_whose_job_died_is_a_new_version(work: Work, make_due: Callable[[], None]) -> None:
    scripted.SCRIPT["fetch"].append(PermanentFailure(ErrorClass.NOT_FOUND, Component.SOURCE, "gone"))
    first = shelve()
    make_due()
    work()
    second = shelve()
    assert (second.outcome, second.job_id != first.job_id) == (Outcome.CREATED, True)
    assert ReviewJob.objects.get(pk=second.job_id).review_version == 2


def test_an_event_does_not_join_a_request_of_the_api(post: Callable[..., Any]) -> None:
    """Its recipients are others: joining would tell nobody of ours."""
    requested = post(recipients=("mail:bob@example.com",))
    event = shelve()
    assert event.job_id != requested.job_id
    assert ReviewJob.objects.get(pk=event.job_id).review_version == 2


# -- the moment between waiting and reading ----------------------------------------------------


@contextmanager
def leased_fetch() -> Iterator[Due]:
    prepared.rows("UPDATE outbox_messages SET available_at = now()")
    (message,) = outbox.claim("stages", 1)
    yield Due(message.id, message.aggregate_id, message.lease_token)


def test_an_event_waits_for_a_claim_that_came_first_and_is_not_joined_to_it() -> None:
    first = shelve()
    with leased_fetch() as due, transaction.atomic():
        assert pipeline.claim(due, "worker") is not None
        event = Beside(shelve)
        assert event.is_blocked()  # nobody knows yet whether the claim will be committed
    event.join()
    assert isinstance(event.result, Entry)
    assert (event.result.outcome, event.result.job_id != first.job_id) == (Outcome.CREATED, True)


def test_an_event_joins_when_the_claim_before_it_is_rolled_back() -> None:
    first = shelve()
    with leased_fetch() as due, transaction.atomic():
        assert pipeline.claim(due, "worker") is not None
        event = Beside(shelve)
        assert event.is_blocked()
        transaction.set_rollback(True)
    event.join()
    assert event.result == Entry(first.job_id, Outcome.JOINED)


def test_a_claim_waits_for_an_event_that_came_first() -> None:
    first = shelve()
    with leased_fetch() as due:
        with transaction.atomic():
            assert shelve() == Entry(first.job_id, Outcome.JOINED)
            claim = Beside(lambda: pipeline.claim(due, "worker"))
            assert claim.is_blocked()  # it reads the server only after the event is written
        claim.join()
    assert isinstance(claim.result, StageClaim)
    assert claim.result.job_id == first.job_id


class Shelf:
    """The content that the server holds under one number."""

    lock = threading.Lock()
    content = 0


def read_shelf(claim: StageClaim) -> Written:
    with Shelf.lock:
        seen = Shelf.content
    return lambda: ReviewJob.objects.filter(pk=claim.job_id).update(version_key=str(seen)) and None


@pytest.mark.parametrize("debounce", [pytest.param(0, marks=pytest.mark.long), 0.05])
def test_in_a_storm_of_shelves_the_newest_content_is_read_last(settings: Any, debounce: float) -> None:
    settings.SHELVE_DEBOUNCE_SECONDS = debounce
    settings.STAGES = {**scripted.STAGES, "fetch": ("tests.pipeline.test_source_events.read_shelf", "stages")}
    Shelf.content = 0
    told = threading.Event()

    def users() -> list[Entry]:
        entries = []
        for _ in range(15):
            with Shelf.lock:
                Shelf.content += 1  # p4d commits the shelf before its trigger runs
            entries.append(shelve())
        return entries

    def worker() -> None:
        while not told.is_set() or OutboxMessage.objects.exists():
            for message in outbox.claim("stages", 2):
                executor.run_stage(message.id, message.aggregate_id, message.lease_token)

    workers = [Beside(worker) for _ in range(2)]
    people = [Beside(users) for _ in range(3)]
    for person in people:
        person.join()
    told.set()
    for one in workers:
        one.join()
    entries = [entry for person in people for entry in person.result]
    assert [one.result for one in workers] == [None, None]
    newest = ReviewJob.objects.order_by("-review_version")[0]
    assert (newest.status, newest.version_key) == (JobStatus.SUCCEEDED, "45")
    assert {job.status for job in ReviewJob.objects.all()} <= {JobStatus.SUCCEEDED, JobStatus.SUPERSEDED}
    outcomes = Counter(entry.outcome for entry in entries)
    assert outcomes[Outcome.CREATED] == ReviewJob.objects.count()
    assert outcomes[Outcome.CREATED] + outcomes[Outcome.JOINED] == 45 == SourceEvent.objects.count()


def test_concurrent_events_of_one_submit_make_one_job_and_one_row() -> None:
    together = [Beside(submit) for _ in range(10)]
    for one in together:
        one.join()
    assert Counter(one.result.outcome for one in together) == {Outcome.CREATED: 1, Outcome.SEEN_BEFORE: 9}
    row = SourceEvent.objects.get()
    assert (row.repeats, row.job_id) == (9, ReviewJob.objects.get().pk)


# -- the poll and the triggers, in either order ------------------------------------------------


def test_a_trigger_that_comes_after_the_poll_finds_its_job() -> None:
    polled = found(Kind.CHANGE)
    assert polled is not None
    assert polled.outcome is Outcome.FOUND_BY_POLL
    late = submit(server="another-name")  # the poll need not know what the trigger calls the server
    assert (late.job_id, late.outcome, late.found_late) == (polled.job_id, Outcome.SEEN_BEFORE, True)
    assert submit(server="another-name").job_id == polled.job_id
    assert rows() == [
        ("poll", "found_by_poll", polled.job_id),
        ("trigger", "seen_before", polled.job_id),
    ]


def test_a_poll_that_comes_after_the_trigger_finds_nothing() -> None:
    submit()
    assert found(Kind.CHANGE) is None
    assert len(rows()) == 1


def test_a_trigger_and_the_poll_at_once_make_one_job() -> None:
    for number in range(5):
        change = str(100 + number)
        both = [
            Beside(lambda change=change: submit(change)),
            Beside(lambda change=change: found(Kind.CHANGE, change)),
        ]
        for one in both:
            one.join()
        assert not any(isinstance(one.result, Exception) for one in both)
        assert ReviewJob.objects.filter(changelist_id=change).count() == 1


def test_a_request_of_the_api_that_read_the_same_content_covers_a_submit(
    post: Callable[..., Any], work: Work
) -> None:
    scripted.SCRIPT["fetch"].append(has_read("k"))
    requested = post()
    work()
    assert found(Kind.CHANGE) == Entry(requested.job_id, Outcome.SEEN_BEFORE)
    assert found(Kind.CHANGE) is None  # written once, not at every poll
    assert rows() == [("poll", "seen_before", requested.job_id)]


def test_the_review_of_a_shelf_does_not_cover_its_submit(work: Work, make_due: Callable[[], None]) -> None:
    scripted.SCRIPT["fetch"].append(has_read("k"))
    shelve()
    make_due()
    work()
    polled = found(Kind.CHANGE)
    assert polled is not None
    assert (polled.outcome, ReviewJob.objects.get(pk=polled.job_id).review_version) == ("found_by_poll", 2)


def test_a_shelf_that_will_be_read_is_not_missing_and_is_compared_again() -> None:
    shelve()
    assert found(Kind.SHELVE) is None
    assert ReviewJob.objects.count() == 1


@pytest.mark.parametrize(("key", "outcome"), [("k", Outcome.SEEN_BEFORE), ("other", Outcome.FOUND_BY_POLL)])
def test_a_shelf_that_was_read_is_compared_by_content(
    work: Work, make_due: Callable[[], None], key: str, outcome: str
) -> None:
    scripted.SCRIPT["fetch"].append(has_read("k"))
    first = shelve()
    make_due()
    work()
    entry = found(Kind.SHELVE, key=key)
    assert entry is not None
    assert entry.outcome == outcome
    assert (entry.job_id == first.job_id) == (key == "k")


def test_the_first_trigger_after_the_poll_means_the_same_shelf(
    settings: Any, work: Work, make_due: Callable[[], None]
) -> None:
    scripted.SCRIPT["fetch"].append(has_read("k"))
    polled = found(Kind.SHELVE)
    assert polled is not None
    make_due()
    work()
    late = shelve()
    assert (late.job_id, late.outcome, late.found_late) == (polled.job_id, Outcome.SEEN_BEFORE, True)
    # Were it a newer shelf after all, the poll would see another content, and nobody missed an event.
    newer = found(Kind.SHELVE, key="newer")
    assert newer is not None
    assert newer.outcome is Outcome.CREATED
    make_due()
    work()
    # The trigger after that is a new event.
    assert shelve().outcome is Outcome.SEEN_BEFORE
    settings.SOURCE_POLL_SECONDS = 0  # nobody compares: an event is never taken for an old one
    assert shelve().outcome is Outcome.CREATED


def test_a_trigger_joins_what_the_poll_found_while_it_waits() -> None:
    polled = found(Kind.SHELVE)
    assert polled is not None
    assert shelve() == Entry(polled.job_id, Outcome.JOINED)


def test_poll_does_not_repeat_a_job_that_failed_before_it_read(
    work: Work, make_due: Callable[[], None]
) -> None:
    scripted.SCRIPT["fetch"].append(PermanentFailure(ErrorClass.PATH_DENIED, Component.INTERNAL, "outside"))
    shelve()
    make_due()
    work()
    assert found(Kind.SHELVE) is None
    assert ReviewJob.objects.count() == 1


def test_commit_is_reviewed_once_by_api_and_poll(post: Callable[..., Any]) -> None:
    commit = f"git:app@{'1' * 40}"
    requested = post(changelist=commit)
    assert found(Kind.COMMIT, commit) == Entry(requested.job_id, Outcome.SEEN_BEFORE)
    assert ReviewJob.objects.count() == 1


# -- the rows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Kind.SHELVE, Kind.CHANGE, Kind.COMMIT])
def test_a_review_of_another_change_with_the_name_of_an_event_hides_no_change(
    kind: Kind, post: Callable[..., Any]
) -> None:
    changelist = f"git:demo@{'a' * 40}" if kind is Kind.COMMIT else "12345"
    event = Event(kind, changelist, "main")
    squatter = post(source_events.idempotency_key(event, 1), "777")
    entry = source_events.receive(event)
    assert entry.job_id not in (None, squatter.job_id)
    assert ReviewJob.objects.get(pk=entry.job_id).changelist_id == changelist
    again = source_events.receive(event)
    assert (again.job_id, ReviewJob.objects.filter(changelist_id=changelist).count()) == (entry.job_id, 1)


def test_job_and_row_are_written_together_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(SourceEvent.objects, "create", lambda **row: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            shelve()
    assert (ReviewJob.objects.count(), OutboxMessage.objects.count()) == (0, 0)
    shelve()
    assert (ReviewJob.objects.count(), SourceEvent.objects.count()) == (1, 1)


def test_version_taken_by_another_request_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    newest = review_requests.newest_version
    looks = iter([True, False, False])

    def raced(jobs: QuerySet[ReviewJob]) -> int:
        version = newest(jobs)
        if next(looks):
            review_requests.request_review(review_requests.ReviewRequest("api", "12345", version + 1))
        return version

    monkeypatch.setattr(review_requests, "newest_version", raced)
    entry = submit()
    assert ReviewJob.objects.get(pk=entry.job_id).review_version == 2


def test_rows_older_than_thirty_days_are_deleted_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        submit(str(100 + number))
    prepared.rows("UPDATE source_events SET received_at = now() - interval '31 days'")
    submit("200")
    monkeypatch.setattr(source_events, "_DELETE_BATCH", 2)
    assert [source_events.delete_expired() for _ in range(3)] == [2, 1, 0]
    assert SourceEvent.objects.get().changelist_id == "200"
    # What is told once more after that finds its job by the key, and is written anew.
    again = submit("100")
    assert again.outcome is Outcome.SEEN_BEFORE
    assert ReviewJob.objects.count() == 4
    assert SourceEvent.objects.count() == 2


def test_the_origin_of_an_event_is_written() -> None:
    submit("1")
    found(Kind.CHANGE, "2")
    origins = dict(SourceEvent.objects.values_list("changelist_id", "origin"))
    assert origins == {"1": Origin.TRIGGER, "2": Origin.POLL}


def test_only_source_events_writes_events() -> None:
    root = Path(source_events.__file__).parents[1]
    writes = re.compile(
        r"(INSERT INTO|UPDATE|DELETE FROM) source_events"
        r"|(?<!class )\bSourceEvent(\(|\.objects\.(create|bulk|up))"
    )
    writers = [path for path in root.rglob("*.py") if writes.search(path.read_text())]
    assert [path.name for path in writers] == ["source_events.py"]


# -- deadlines ---------------------------------------------------------------------------------


def test_the_deadline_is_that_of_the_kind_then_of_the_source(settings: Any) -> None:
    settings.REVIEW_SLA_SECONDS = {"": 1200, "shelved": 600, "perforce": 700, "github": 300}
    ids = [shelve().job_id, submit("12346").job_id]
    jobs = [ReviewJob.objects.get(pk=job_id) for job_id in ids]
    assert [(job.deadline_at - job.created_at).total_seconds() for job in jobs] == [600.0, 700.0]
    names = ("12345", "git:app@" + "a" * 40, "github:acme/app#7")
    assert [pipeline.deadline_seconds(name) for name in names] == [700, 1200, 300]
