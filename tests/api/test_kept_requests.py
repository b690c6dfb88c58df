"""Requests that were accepted, and whose rows a promoted database lacks (guarantee G493)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog
from django.db import OperationalError, connection, transaction
from django.db.models.functions import Now

from criticizer.db import timeline
from criticizer.models import OutboxMessage
from deadletters.models import OperatorAlert
from reviews.intake import kept_requests
from reviews.intake.review_requests import Overtaken
from reviews.models import ReviewJob, SourceEvent, StageRun
from reviews.web import rerun
from tests import factories
from tests.api.conftest import ApiClient, review
from tests.beside import session

pytestmark = pytest.mark.django_db(transaction=True)

URL, EVENTS = "/api/v1/reviews/", "/api/v1/triggers/perforce/"
Promote = Callable[[int], None]


@pytest.fixture
def promote(monkeypatch: pytest.MonkeyPatch) -> Promote:
    """Put the database on a timeline, as the web server's thread sees it next."""

    def to(number: int) -> None:
        monkeypatch.setattr(timeline, "read", lambda: (number, 7))
        kept_requests.look()

    to(1)
    return to


def lose(*jobs: int) -> None:
    """Take the rows of reviews away, as a standby lacks them: no trigger and no cascade runs."""
    queries = (
        "DELETE FROM outbox_messages m USING stage_runs s WHERE m.aggregate_id = s.id AND s.job_id = ANY(%s)",
        "DELETE FROM stage_runs WHERE job_id = ANY(%s)",
        "DELETE FROM source_events WHERE job_id = ANY(%s)",
        "DELETE FROM jobs WHERE id = ANY(%s)",
    )
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        for query in queries:
            cursor.execute(query, [list(jobs)])


def post(trigger: ApiClient, key: str, changelist: str, status: int = 201, **fields: object) -> int:
    answer: Any = trigger.post_json(URL, review(idempotency_key=key, changelist_id=changelist, **fields))
    assert answer.status_code == status, answer.content
    return int(answer.json()["id"])


def alerted() -> list[str]:
    return list(
        OperatorAlert.objects.filter(kind="requests_lost").order_by("pk").values_list("text", flat=True)
    )


def test_accepted_requests_that_a_promotion_lost_are_made_again_and_named(
    trigger: ApiClient, promote: Promote
) -> None:
    kept, lost = post(trigger, "k1", "101"), post(trigger, "k2", "102")
    lose(lost)
    promote(2)
    job = ReviewJob.objects.get(idempotency_key="k2")
    assert (job.changelist_id, job.recipients) == ("102", review()["recipients"])
    assert job.requested_by == "key:the trigger"
    assert OutboxMessage.objects.filter(aggregate_id__in=job.stages.values("pk")).count() == 1
    (text,) = alerted()
    assert f"k2: was review {lost}, is review {job.pk}" in text
    assert "k1" not in text
    # The client that repeats its request finds the review, and nothing is made or named twice.
    assert post(trigger, "k2", "102", status=200) == job.pk
    promote(2)
    assert set(ReviewJob.objects.values_list("pk", flat=True)) == {kept, job.pk}
    assert len(alerted()) == 1


def test_a_request_that_its_client_repeated_first_is_named_and_made_once(
    trigger: ApiClient, promote: Promote
) -> None:
    lost = post(trigger, "k1", "101")
    lose(lost)
    again = post(trigger, "k1", "101")
    promote(2)
    assert list(ReviewJob.objects.values_list("pk", flat=True)) == [again]
    assert f"k1: was review {lost}, is review {again}" in alerted()[0]


def test_a_second_promotion_that_loses_the_same_requests_again_is_mended_too(
    trigger: ApiClient, promote: Promote
) -> None:
    lose(post(trigger, "k1", "101"))
    promote(2)
    second = ReviewJob.objects.get().pk
    lose(second)
    OperatorAlert.objects.all().delete()
    promote(3)
    third = ReviewJob.objects.get().pk
    assert f"k1: was review {second}, is review {third}" in alerted()[0]


def test_another_review_under_the_lost_number_hides_no_loss(trigger: ApiClient, promote: Promote) -> None:
    lost, other = post(trigger, "k1", "101"), post(trigger, "k2", "102")
    lose(lost, other)
    fresh = post(trigger, "k3", "103")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("UPDATE jobs SET id = %s WHERE id = %s", [lost, fresh])
        cursor.execute("UPDATE stage_runs SET job_id = %s WHERE job_id = %s", [lost, fresh])
    promote(2)
    assert set(ReviewJob.objects.values_list("idempotency_key", flat=True)) == {"k1", "k2", "k3"}


def test_a_lost_rerun_of_a_person_and_a_lost_event_of_a_trigger_are_made_again(
    trigger: ApiClient, promote: Promote
) -> None:
    first = ReviewJob.objects.get(pk=post(trigger, "k1", "101"))
    second = rerun.request(first, "user:ann", ReviewJob.objects.all()).job_id
    answer: Any = trigger.post_json(EVENTS, {"event": "change-commit", "change": 102, "server": "main"})
    assert second is not None
    lose(second, answer.json()["job"])
    promote(2)
    assert ReviewJob.objects.get(changelist_id="101", review_version=2).requested_by == "user:ann"
    event = SourceEvent.objects.get()
    assert (event.changelist_id, event.job) == ("102", ReviewJob.objects.get(changelist_id="102"))
    assert "change-commit 102 of main: was review" in alerted()[0]


def test_a_lost_version_after_which_a_newer_one_came_is_named_as_such(
    trigger: ApiClient, promote: Promote
) -> None:
    lost = post(trigger, "k1", "101")
    lose(lost)
    post(trigger, "k2", "101", review_version=2)
    promote(2)
    assert ReviewJob.objects.get().review_version == 2
    assert f"k1: was review {lost}, a newer version took its place" in alerted()[0]
    promote(3)
    assert len(alerted()) == 1


@pytest.mark.parametrize("found_before", [1, 2])
def test_a_look_that_the_database_interrupts_is_repeated_whole(
    trigger: ApiClient, promote: Promote, monkeypatch: pytest.MonkeyPatch, found_before: int
) -> None:
    promote(found_before)
    lose(post(trigger, "k1", "101"), post(trigger, "k2", "102"))

    def vanish(*given: object, **facts: object) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return True

    with monkeypatch.context() as patched:
        patched.setattr(kept_requests.alerts, "tell", vanish)
        with pytest.raises(Exception, match=r"terminating connection|closed"):
            promote(2)
    connection.close()
    monkeypatch.setattr(kept_requests, "LATE_SECONDS", -1.0)
    promote(2)
    assert ReviewJob.objects.count() == StageRun.objects.filter(stage="fetch").count() == 2
    assert "k1: was" in alerted()[0]
    assert "k2: was" in alerted()[0]


def test_the_thread_outlives_a_database_that_is_away(
    trigger: ApiClient, promote: Promote, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(trigger, "k1", "101")
    outcomes = iter((OperationalError("the connection is lost"), RuntimeError("a bug"), SystemExit()))
    monkeypatch.setattr(kept_requests, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(kept_requests, "look", lambda: (_ for _ in ()).throw(next(outcomes)))
    with pytest.raises(SystemExit):
        kept_requests.watch()
    assert next(outcomes, None) is None


def test_the_first_look_of_a_process_requests_nothing_again(trigger: ApiClient) -> None:
    lose(post(trigger, "k1", "101"))
    assert kept_requests.look()
    assert not ReviewJob.objects.exists()


def test_a_server_that_tells_no_timeline_is_not_asked_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "READ", "SELECT pg_walfile_name('nowhere')")
    assert not kept_requests.look()
    monkeypatch.setattr(timeline, "READ", "SELECT pg_terminate_backend(pg_backend_pid())")
    assert kept_requests.look()
    connection.close()


def test_requests_are_kept_within_a_number_of_characters_and_a_time(
    trigger: ApiClient, promote: Promote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_requests, "MOST_CHARACTERS", 8_000)
    jobs = [post(trigger, f"k{number}", f"10{number}") for number in range(4)]
    assert post(trigger, "k1", "101", status=200) == jobs[1]  # takes no place
    long = [f"webhook:https://ci.example.com/{number}{'x' * 450}" for number in range(10)]
    jobs.append(post(trigger, "k4", "104", recipients=long))
    lose(*jobs)
    promote(2)
    assert set(ReviewJob.objects.values_list("idempotency_key", flat=True)) == {"k3", "k4"}
    monkeypatch.setattr(kept_requests, "KEEP_SECONDS", -1.0)
    promote(2)
    lose(*ReviewJob.objects.values_list("pk", flat=True))
    promote(3)
    assert not ReviewJob.objects.exists()


def test_requests_are_kept_only_where_the_server_has_told_a_timeline(
    trigger: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = post(trigger, "k1", "101")
    with monkeypatch.context() as patched:
        patched.setattr(timeline, "READ", "SELECT pg_walfile_name('nowhere')")
        assert not kept_requests.look()
    assert (kept_requests._kept, kept_requests._characters) == ({}, 0)
    assert post(trigger, "k1", "101", status=200) == lost
    kept_requests.look()
    # A standby, which tells none before it is promoted.
    monkeypatch.setattr(timeline, "READ", "SELECT pg_walfile_name('nowhere')")
    assert not kept_requests.look()
    assert list(kept_requests._kept) == [(lost, "101")]


def test_a_key_that_came_to_another_review_is_not_named_as_requested_again(
    trigger: ApiClient, promote: Promote
) -> None:
    lost = post(trigger, "k1", "101")
    lose(lost)
    post(trigger, "k1", "102")
    promote(2)
    assert ReviewJob.objects.get().changelist_id == "102"
    assert f"k1: was review {lost}, its key was given to another review" in alerted()[0]


def test_a_lost_review_that_was_cancelled_here_is_not_requested_again(
    operator: ApiClient, trigger: ApiClient, promote: Promote
) -> None:
    first, second = post(trigger, "k1", "101"), post(trigger, "k2", "102")
    assert operator.post_json(f"{URL}{first}/cancel/", {"reason": "OPS-1"}).status_code == 200
    ann = factories.staff_client("ann", "operator")
    assert ann.post(f"/reviews/{second}/cancel/", {"reason": "OPS-1"}).status_code == 302
    lose(first, second)
    promote(2)
    assert not ReviewJob.objects.exists()


def test_a_lost_review_that_could_not_be_cancelled_is_requested_again(
    operator: ApiClient, trigger: ApiClient, promote: Promote
) -> None:
    lost = post(trigger, "k1", "101")
    ReviewJob.objects.filter(pk=lost).update(status="superseded", finished_at=Now())
    assert operator.post_json(f"{URL}{lost}/cancel/", {"reason": "OPS-1"}).status_code == 409
    lose(lost)
    promote(2)
    assert ReviewJob.objects.get().idempotency_key == "k1"


def test_what_a_lock_keeps_from_being_requested_again_waits_for_the_next_look(
    trigger: ApiClient, promote: Promote, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = post(trigger, "k1", "101")
    lose(lost)
    with session() as other, connection.cursor() as cursor:
        other.execute("LOCK TABLE jobs IN SHARE ROW EXCLUSIVE MODE")
        cursor.execute("SET lock_timeout = 50")
        promote(2)
        promote(2)
        assert not alerted()
        other.rollback()
        cursor.execute("RESET lock_timeout")
        monkeypatch.setattr(kept_requests, "LATE_SECONDS", -1.0)  # it waits for longer
        promote(2)
        job = ReviewJob.objects.get()
        assert f"k1: was review {lost}, is review {job.pk}" in alerted()[0]
        lose(job.pk)
        other.execute("LOCK TABLE jobs IN SHARE ROW EXCLUSIVE MODE")
        cursor.execute("SET lock_timeout = 50")
        monkeypatch.setattr(kept_requests, "KEEP_SECONDS", -1.0)
        promote(3)
        other.rollback()
        cursor.execute("RESET lock_timeout")
    assert f"k1: was review {job.pk}, could not be requested again" in alerted()[1]
    assert not kept_requests._kept


def test_an_event_that_others_overtook_is_requested_again_at_the_next_look(promote: Promote) -> None:
    outcomes: Iterator[int | Exception] = iter((Overtaken(), 8))

    def record() -> int:
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    kept_requests.keep(7, "101", "change-commit 101 of main", record)
    promote(2)
    assert not alerted()
    promote(2)
    assert "change-commit 101 of main: was review 7, is review 8" in alerted()[0]


def test_what_an_old_primary_accepted_after_the_look_is_requested_again(
    trigger: ApiClient, promote: Promote, monkeypatch: pytest.MonkeyPatch
) -> None:
    promote(2)
    for number, key in enumerate(("k1", "k2"), 1):
        lost = post(trigger, key, f"10{number}")
        lose(lost)
        promote(2)
        job = ReviewJob.objects.get(idempotency_key=key)
        assert f"{key}: was review {lost}, is review {job.pk}" in alerted()[number - 1]
    monkeypatch.setattr(kept_requests, "LATE_SECONDS", -1.0)
    lose(post(trigger, "k3", "103"))
    promote(2)
    assert len(alerted()) == 2


def test_the_alert_has_room_for_its_lines_and_the_log_has_every_name(
    trigger: ApiClient, promote: Promote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_requests, "MAX_LINES", 2)
    keys = [f"k{number}".ljust(255, "-") for number in range(3)]
    lose(*[post(trigger, key, f"10{number}") for number, key in enumerate(keys)])
    with structlog.testing.capture_logs() as logs:
        promote(2)
    lines = alerted()[0].split("\n")[1:]
    assert lines[0].startswith("1 more are in the log")
    assert [line.partition(": was review ")[0] for line in lines[1:]] == [key[:79] + "…" for key in keys[:2]]
    assert [line["key"] for line in logs if line["event"] == "lost_request_recorded"] == keys
    monkeypatch.undo()
    record: Any = None
    one = kept_requests.Kept(10**10, "101", "k" * 255, record, 0, 0.0)
    outcomes = [(one, "its key was given to another review")] * (kept_requests.MAX_LINES + 1)
    assert len("\n".join(kept_requests._lines(outcomes))) < 15_500
