"""Stored review units: the costs of another version or change, and what is asked again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from criticizer.security import expired_copies
from criticizer.security.encryption import key_id
from reviews import pipeline
from reviews.artifacts import integrity
from reviews.models import CoverageRow, FindingFate, FindingRow, ReviewJob, ReviewUnit
from reviews.sources.base import ChangeStatus
from reviews.stages import units
from reviews.states import JobStatus
from tests.fakes.llm import Recorded, Reply
from tests.pipeline.test_stage_llm import Bench, answers_of, bench, cut_short, job_of, run_of  # noqa: F401 - a fixture
from tests.reviewers.build import added, change
from tests.reviewers.test_answer import answer_of, raw_finding
from tests.reviewers.test_review import D, big

pytestmark = pytest.mark.django_db(transaction=True)
FINDING = answer_of(raw_finding(severity="high"))
LINE = "    total = price * count\n"
SHELF = change(*(added(f"{D}{name}.py", f"{name} = 1\n{LINE if name == 'a' else ''}") for name in "abc"))
SUBMITTED = replace(SHELF, status=ChangeStatus.SUBMITTED)
SHELVED = replace(SHELF, status=ChangeStatus.SHELVED)


def respond(request: Recorded) -> Reply | None:
    """Report a finding in a.py where it is asked about."""
    return Reply(answer=FINDING) if "/a.py\n" in request.body["messages"][1]["content"] else None


@pytest.fixture
def shelves(bench: Bench) -> Bench:  # noqa: F811 - the fixture
    bench.llm.server.respond = respond
    bench.settings.LLM_MAX_INPUT_TOKENS = 16_000  # in smaller windows an answer holds one finding
    return bench


def asked(bench: Bench) -> int:  # noqa: F811 - the type
    count = len(bench.llm.requests)
    bench.llm.requests.clear()
    return count


def findings(job: int) -> list[tuple[str, int | None, str]]:
    return list(FindingRow.objects.filter(job=job).values_list("file", "line", "title"))


def review(shelves: Bench, content: Any = SHELVED, version: int = 1, key: str = "1") -> int:
    job = shelves.job(content, key, version)
    shelves.work()
    assert job_of(job).status == JobStatus.SUCCEEDED
    return job


def test_an_equal_shelf_is_reviewed_without_a_call(shelves: Bench) -> None:
    first = review(shelves)
    assert (asked(shelves), ReviewUnit.objects.filter(made_by=first).count()) == (1, 3)
    second = review(shelves, version=2)
    assert (asked(shelves), findings(second)) == (0, findings(first))
    assert [row.fate for row in FindingFate.objects.filter(job=second)] == ["carried"]
    assert set(CoverageRow.objects.filter(job=second).values_list("status", "reason")) == {
        ("reviewed", "same content as in version 1")
    }
    assert CoverageRow.objects.filter(job=second).count() == 3
    usage = job_of(second).usage
    assert (usage["calls"], usage["carried"], job_of(second).banner) == (0, 3, "")
    assert usage["spared_tokens"] > 0
    assert FindingRow.objects.get(job=second).identity == FindingRow.objects.get(job=first).identity
    assert not FindingRow.objects.filter(ending="fixed").exists()


def test_a_copy_in_another_change_costs_nothing_and_does_not_name_the_other(shelves: Bench) -> None:
    review(shelves)
    asked(shelves)
    copies = [replace(file, path=file.path.replace("/p/", "/p/release/")) for file in SHELF.files]
    second = review(shelves, replace(SUBMITTED, files=tuple(copies)), key="2")
    assert (asked(shelves), [file for file, *_ in findings(second)]) == (0, [f"{D}release/a.py"])
    assert set(CoverageRow.objects.filter(job=second).values_list("reason", flat=True)) == {
        "same content as in another reviewed change"
    }


@pytest.mark.long
def test_a_submitted_change_is_asked_about_anew_after_its_shelf(shelves: Bench) -> None:
    review(shelves)
    asked(shelves)
    review(shelves, SUBMITTED, version=2)
    assert asked(shelves) == 1


def test_on_request_everything_is_asked_about_again(shelves: Bench) -> None:
    review(shelves)
    asked(shelves)
    job = shelves.job(SHELVED, "1", 2)
    ReviewJob.objects.filter(pk=job).update(from_scratch=True)
    shelves.work()
    assert asked(shelves) == 1
    assert set(ReviewUnit.objects.values_list("made_by", flat=True)) == {job}


def test_expired_units_are_not_read_and_then_deleted(shelves: Bench, settings: Any) -> None:
    review(shelves)
    asked(shelves)
    settings.ARTIFACT_REDACTED_TTL_DAYS = 30
    ReviewUnit.objects.update(made_at=F("made_at") - timedelta(days=31))
    shelves.monkeypatch.setattr(expired_copies, "_ran_at", None)
    assert dict(expired_copies.overdue(timedelta(0)))["review_units"] == 3
    review(shelves, version=2)
    assert asked(shelves) == 1  # and they are there again
    assert "review_units" not in dict(expired_copies.overdue(timedelta(0)))
    ReviewUnit.objects.update(made_at=F("made_at") - timedelta(days=31))
    expired_copies.empty_expired()
    assert not ReviewUnit.objects.exists()


def test_units_are_sealed_and_rotate_with_artifacts(shelves: Bench, settings: Any) -> None:
    first = review(shelves)
    asked(shelves)
    with connection.cursor() as cursor:
        cursor.execute("SELECT string_agg(answer, '') FROM review_units")
        (text,) = cursor.fetchone() or ("",)
    assert text
    assert FindingRow.objects.get(job=first).title not in text
    new = Fernet.generate_key().decode()
    settings.ARTIFACT_KEYS = [new, *settings.ARTIFACT_KEYS]
    assert integrity.rotate_keys().left == 0
    settings.ARTIFACT_KEYS = [new]
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM review_units WHERE starts_with(answer, %s)", [key_id(new)])
        assert cursor.fetchone() == (3,)
    assert findings(review(shelves, version=2)) == findings(first)
    assert asked(shelves) == 0


def test_a_unit_that_no_key_opens_is_asked_about_again(shelves: Bench, settings: Any) -> None:
    first = review(shelves)
    asked(shelves)
    ReviewUnit.objects.update(answer="0123456789ab:nothing")
    assert findings(review(shelves, version=2)) == findings(first)
    assert asked(shelves) == 1


def test_a_killed_worker_repeats_no_answered_part_also_when_units_appear_in_between(shelves: Bench) -> None:
    """Reviews of the same content end between the attempts, but the parts stay as they were cut.

    With another cut they would be new parts.
    """
    shelves.one_by_one()
    shelves.monkeypatch.setattr("reviews.stages.model_client.KEEP_SECONDS", 0.01)
    content = replace(big(3), status=ChangeStatus.SHELVED)
    job = shelves.job(content)
    claim = shelves.fetch_only(job)
    shelves.llm.script(Reply(), Reply(), Reply(hang=True))
    cut_short(shelves, claim, lambda: len(shelves.llm.requests) == 3 and answers_of(run_of(job)) == 2)
    asked(shelves)
    review(shelves, replace(content, files=content.files[:2]), key="2")
    assert (asked(shelves), ReviewUnit.objects.count()) == (2, 2)
    pipeline.give_back(claim)
    shelves.work()
    assert (job_of(job).status, asked(shelves)) == (JobStatus.SUCCEEDED, 1)


def test_another_attempt_carries_what_the_first_one_did(shelves: Bench) -> None:
    review(shelves)
    keys = list(ReviewUnit.objects.values_list("key", flat=True))
    job = shelves.job(SHELVED, "1", 2)
    claim = shelves.fetch_only(job)
    progress: dict[str, str] = {}
    assert set(units.known_units(claim, keys[:2], progress, is_submitted=False)) == set(keys[:2])
    progress["part"] = "{}"
    assert set(units.known_units(claim, keys, progress, is_submitted=False)) == set(keys[:2])
    assert units.known_units(claim, keys, {"part": "{}"}, is_submitted=False) == {}


def test_units_cost_one_query_and_one_statement(shelves: Bench) -> None:
    job = shelves.job(SHELVED)
    claim = shelves.fetch_only(job)
    with CaptureQueriesContext(
        connection,
    ) as seen:
        units.known_units(claim, ["x"] * 500, {}, is_submitted=False)
    assert len(seen) == 1
    answers = [units.AnsweredUnit(f"{n}", [], "m", 1) for n in range(500)]
    with CaptureQueriesContext(connection) as seen:
        units.save_units(claim, answers)
    assert len([query for query in seen if "review_units" in query["sql"]]) == 1


def test_without_a_model_no_unit_is_read_or_written(shelves: Bench) -> None:
    shelves.settings.LLM_PROVIDER, shelves.settings.LLM_REQUIRED = "none", False
    shelves.monkeypatch.setattr(units, "known_units", None)
    review(shelves)
    assert not ReviewUnit.objects.exists()
