"""The token ledger: it has every call, and its limits hold after kills too (G390 to G393)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import Count, Sum
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from criticizer.admin_site import charts
from deadletters.models import DeadLetter
from notifications.delivery.snapshot import token_for
from notifications.rendering import render
from reviews import token_counts, token_ledger
from reviews.models import Attempt, LedgerEntry, ReviewJob, TokenUse
from reviews.reviewers.model import LimitReached, ModelAnswer, TokenLimit
from reviews.stages import llm
from reviews.stages.notify import report_of
from reviews.states import AttemptOutcome, JobStatus, LedgerState
from reviews.token_ledger import TokenLedger
from tests import factories
from tests.fakes.llm import FakeLlm, Recorded, Reply, error
from tests.pipeline.test_second_model import SECOND, away, second
from tests.pipeline.test_stage_llm import DOWN, MAIL, NAME, Bench, bench, job_of, reasons, run_of
from tests.reviewers.test_answer import answer_of, raw_finding
from tests.reviewers.test_review import BAD, FINDING, D, big, holds
from tests.reviewers.test_verifying import is_verify

__all__ = ["bench", "second"]
pytestmark = pytest.mark.django_db(transaction=True)
CHARACTERS = 10_000
ESTIMATE = 5_000  # at 2.5 characters a token, with an answer of 1,000 tokens
ANSWER = ModelAnswer("", input_tokens=4_200, output_tokens=900)


@pytest.fixture(autouse=True)
def _nothing_measured() -> Iterator[None]:
    token_counts.forget()
    yield
    token_counts.forget()


def days_ago(days: int) -> datetime:
    return timezone.now() - timedelta(days=days)


def states() -> dict[str, int]:
    found = LedgerEntry.objects.order_by().values_list("state").annotate(Count("pk"))
    return {str(state): number for state, number in found}


def sums(**entries: Any) -> dict[str, int]:
    columns = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens")
    found = LedgerEntry.objects.filter(**entries).aggregate(**{name: Sum(name) for name in columns})
    return {name: found[name] or 0 for name in columns}


def used() -> dict[date, int]:
    """Return what is counted of each day."""
    return dict(TokenUse.objects.values_list("day").annotate(Sum("tokens")))


def ledger_of(job: ReviewJob) -> TokenLedger:
    attempt = Attempt.objects.create(stage_run=job.stages.get(stage="llm"), number=1)
    return TokenLedger(job.pk, attempt.pk, job.changelist_id)


# -- every call ----------------------------------------------------------------------------------


def test_the_ledger_is_what_the_provider_reported_retries_repairs_and_verification_included(
    bench: Bench, make_due: Any
) -> None:
    bench.settings.LLM_VERIFY = "on"
    bench.one_by_one()
    seen: Counter[str] = Counter()

    def respond(request: Recorded) -> Reply | None:
        text = request.body["messages"][1]["content"]
        part = "verify" if is_verify(request) else next(n for n in "1234" if holds(int(n)) in text)
        seen[part] += 1
        if part == "1" and seen[part] == 1:
            return BAD  # then a repair
        if part == "2" and seen[part] == 1:
            return DOWN  # then a retry of the stage
        if part == "3":
            return Reply(refusal="no", finish_reason="content_filter")  # charged all the same
        if part == "verify":
            return None
        found = answer_of(raw_finding(file=f"{D}f{int(part) - 1}.py", quote=f"v{int(part) - 1}_5"))
        return Reply(answer=found, usage={"prompt_tokens_details": {"cached_tokens": 11}})

    bench.llm.server.respond = respond
    job = bench.job(big(4))
    bench.work()
    make_due()
    bench.work()
    assert job_of(job).status == JobStatus.SUCCEEDED
    assert min(seen[part] for part in ("1", "2")) == 2
    assert seen["verify"] >= 1
    billed = bench.llm.server.billed
    assert LedgerEntry.objects.count() == len(bench.llm.requests)
    assert states() == {LedgerState.SETTLED: len(bench.llm.requests)}
    found = sums()
    assert (found["input_tokens"], found["output_tokens"]) == (
        billed["prompt_tokens"],
        billed["completion_tokens"],
    )
    assert found["cached_tokens"] == 11 * LedgerEntry.objects.filter(cached_tokens__gt=0).count() > 0
    assert LedgerEntry.objects.filter(tokens=0).count() == 1, "what the provider did not serve costs nothing"
    # The review's own numbers count answers of use only, so they are no more than the ledger's.
    assert job_of(job).usage["input_tokens"] <= found["input_tokens"]


def test_calls_to_the_second_model_have_entries_of_their_own(bench: Bench, second: FakeLlm) -> None:
    away(NAME)
    second.server.respond = lambda _: Reply(
        answer=FINDING, usage={"cache_read_input_tokens": 70, "cache_creation_input_tokens": 5}
    )
    bench.job()
    bench.work()
    (entry,) = LedgerEntry.objects.all()
    assert (entry.dependency, entry.model, entry.source) == (SECOND, "spare", "perforce")
    billed = second.server.billed
    assert (entry.input_tokens, entry.output_tokens) == (billed["input_tokens"] + 75, billed["output_tokens"])
    assert (entry.cached_tokens, entry.cache_write_tokens) == (70, 5)


@pytest.mark.parametrize(
    ("reply", "state"),
    [
        (Reply(answer=FINDING, usage={"prompt_tokens": 0, "completion_tokens": 0}), LedgerState.UNKNOWN),
        (Reply(truncate=True), LedgerState.UNKNOWN),
        pytest.param(Reply(hang=True), LedgerState.UNKNOWN, marks=pytest.mark.long),
        (error(429, "x"), LedgerState.SETTLED),
    ],
)
def test_a_call_without_a_report_keeps_its_estimate(bench: Bench, reply: Reply, state: str) -> None:
    bench.settings.LLM_TIMEOUT_SECONDS = 1
    bench.llm.script(reply)
    job = bench.job()
    bench.work()
    entry = LedgerEntry.objects.get(job_id=job)
    assert entry.state == state
    assert entry.tokens == (0 if state == LedgerState.SETTLED else entry.reserved_tokens)
    assert entry.reserved_tokens > token_ledger.ANSWER_TOKENS
    assert entry.ended_at is not None


def test_a_server_that_cannot_be_reached_charges_nothing(bench: Bench) -> None:
    with FakeLlm() as gone:
        bench.settings.LLM_BASE_URL = gone.base_url
    job = bench.job()
    bench.work()
    assert (run_of(job).status, states()) == ("retry_wait", {LedgerState.SETTLED: 1})
    assert LedgerEntry.objects.get().tokens == 0


def test_a_call_costs_two_statements_and_three_under_a_limit(settings: Any) -> None:
    ledger = ledger_of(factories.job_with_stages())
    token_counts.measured()
    for limit, statements in ((0, 2), (1_000_000, 5)):  # a transaction and a lock more
        settings.TOKEN_LIMIT_PER_DAY = limit
        with CaptureQueriesContext(connection) as queries:
            token_ledger.settle(ledger.reserve("c", NAME, "m", CHARACTERS), ANSWER)
        assert len(queries) == statements


# -- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", TokenLimit)
def test_each_limit_counts_its_own_calls(settings: Any, limit: TokenLimit) -> None:
    setattr(settings, f"TOKEN_LIMIT_PER_{limit.name}", 3 * ESTIMATE - 1)
    first = factories.job_with_stages(changelist_id="git:a@" + "1" * 40)
    versions = {
        TokenLimit.REVIEW: first,
        TokenLimit.CHANGE: factories.job_with_stages(
            changelist_id=first.changelist_id,
            review_version=2,
            status="succeeded",
            finished_at=first.created_at,
        ),
        TokenLimit.SOURCE: factories.job_with_stages(changelist_id="git:a@" + "2" * 40),
        TokenLimit.DAY: factories.job_with_stages(changelist_id="git:b@" + "3" * 40),
    }
    wider = [*TokenLimit, None]
    other = wider[wider.index(limit) + 1]
    for job in (first, versions[limit]):
        ledger_of(job).reserve("c", NAME, "m", CHARACTERS)
    with pytest.raises(LimitReached) as reached:
        ledger_of(versions[limit]).reserve("c", NAME, "m", CHARACTERS)
    assert (reached.value.limit, reached.value.tokens) == (limit, 3 * ESTIMATE - 1)
    assert LedgerEntry.objects.count() == 2
    if other is not None:
        ledger_of(versions[other]).reserve("c", NAME, "m", CHARACTERS)


def test_a_settled_call_makes_room_for_the_next(settings: Any) -> None:
    settings.TOKEN_LIMIT_PER_REVIEW = ESTIMATE + 10
    ledger = ledger_of(factories.job_with_stages())
    entry = ledger.reserve("1", NAME, "m", CHARACTERS)
    token_ledger.settle(entry, ModelAnswer("", input_tokens=9, output_tokens=1))
    ledger.reserve("2", NAME, "m", CHARACTERS)
    with pytest.raises(LimitReached):
        ledger.reserve("3", NAME, "m", CHARACTERS)


def test_yesterdays_calls_do_not_count_today(settings: Any) -> None:
    settings.TOKEN_LIMIT_PER_DAY = settings.TOKEN_LIMIT_PER_SOURCE = ESTIMATE
    ledger = ledger_of(factories.job_with_stages())
    entry = ledger.reserve("1", NAME, "m", CHARACTERS)
    LedgerEntry.objects.update(started_at=days_ago(1))
    TokenUse.objects.update(day=days_ago(1).date())
    ledger.reserve("2", NAME, "m", CHARACTERS)
    today = timezone.now().date()
    assert used() == {days_ago(1).date(): ESTIMATE, today: ESTIMATE}
    token_ledger.settle(entry, ANSWER)
    assert used() == {days_ago(1).date(): 5_100, today: ESTIMATE}, "a call counts for the day it began"


_WORKERS = """
import django, os, random, signal, sys, threading, time
django.setup()
from django.conf import settings
from django.db import connection
from criticizer.admin_site import charts
from deadletters.models import DeadLetter
from notifications.delivery.snapshot import token_for
from notifications.rendering import render
from reviews import token_counts, token_ledger
from reviews.reviewers.model import LimitReached, ModelAnswer
from reviews.token_ledger import TokenLedger

PROCESSES, THREADS, KILLED = 5, 8, 3
limit, actual, CALLS, *ids = map(int, sys.argv[1:])
settings.TOKEN_LIMIT_PER_DAY = limit

def calls(number, ledger):
    reserved = iter(range(10_000))
    def work():
        for call in range(CALLS):
            try:
                entry = ledger.reserve(f"{number}-{call}", "llm:openai", "m", 10_000)
            except LimitReached:
                continue
            time.sleep(random.random() / 200)
            if next(reserved) >= CALLS * 8 // 5 and number < KILLED:
                os.kill(os.getpid(), signal.SIGKILL)
            token_ledger.settle(entry, ModelAnswer("", input_tokens=actual))
        connection.close()
    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()

pids = []
for number in range(PROCESSES):
    pid = os.fork()
    if not pid:
        calls(number, TokenLedger(*ids, "12345"))
        os._exit(0)
    pids.append(pid)
print(*[os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids])
"""


@pytest.mark.parametrize("calls", [10, pytest.param(25, marks=pytest.mark.long)])
def test_a_thousand_reservations_at_once_with_killed_workers_exceed_no_limit(
    tmp_path: Any, calls: int
) -> None:
    """Five workers of eight threads: of the calls of all, two in five fit below the limit."""
    over, in_flight, limit = 100, 5 * 8, 5 * 8 * calls * 2 // 5 * ESTIMATE
    ledger = ledger_of(factories.job_with_stages())
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "CRITICIZER_TEST_DATABASE": connection.settings_dict["NAME"],
        "TEST_FILES_DIR": str(tmp_path),
    }
    arguments = map(str, (limit, ESTIMATE + over, calls, ledger.job_id, ledger.attempt_id))
    command = [sys.executable, "-c", _WORKERS, *arguments]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
    assert ended.stdout.split() == ["-9", "-9", "-9", "0", "0"], ended.stderr
    counted = LedgerEntry.objects.aggregate(Sum("tokens"))["tokens__sum"]
    assert limit - ESTIMATE < counted <= limit + in_flight * over
    assert sum(used().values()) == counted, "whoever is killed, the day's count is the sum of its calls"
    lost = states()[LedgerState.RESERVED]
    assert 3 <= lost <= 3 * 8
    # They count for as long as anyone knows: the provider may have charged them.
    token_ledger.maintain()
    assert states()[LedgerState.RESERVED] == lost, "their attempt may still run"
    Attempt.objects.update(outcome=AttemptOutcome.LOST, finished_at=days_ago(0))
    token_ledger.maintain()
    assert states() == {LedgerState.SETTLED: LedgerEntry.objects.count() - lost, LedgerState.UNKNOWN: lost}
    assert LedgerEntry.objects.aggregate(Sum("tokens"))["tokens__sum"] == counted


def test_a_worker_that_lived_on_settles_what_was_unknown() -> None:
    ledger = ledger_of(factories.job_with_stages())
    entry = ledger.reserve("1", NAME, "m", CHARACTERS)
    Attempt.objects.update(outcome=AttemptOutcome.LOST, finished_at=days_ago(0))
    token_ledger.maintain()
    assert states() == {LedgerState.UNKNOWN: 1}
    token_ledger.settle(entry, ANSWER)
    token_ledger.settle(entry, RuntimeError())  # once settled, it stays
    assert LedgerEntry.objects.get().tokens == ANSWER.input_tokens + ANSWER.output_tokens
    assert list(used().values()) == [ANSWER.input_tokens + ANSWER.output_tokens]


def test_a_limit_of_a_day_costs_the_same_after_many_calls(settings: Any) -> None:
    settings.TOKEN_LIMIT_PER_DAY = settings.TOKEN_LIMIT_PER_SOURCE = 10**12
    ledger = ledger_of(factories.job_with_stages())
    ledger.reserve("first", NAME, "m", CHARACTERS)
    with connection.cursor() as cursor:
        cursor.execute("""
            INSERT INTO token_ledger (job_id, attempt_id, call, dependency, model, source, reserved_tokens)
            SELECT job_id, attempt_id, call, dependency, model, source, 1
              FROM token_ledger, generate_series(1, 3000)""")
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("ANALYZE token_ledger")

    def rows_read() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_force_next_flush()")
            cursor.execute(
                "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'token_ledger'"
            )
            return int(cursor.fetchone()[0])

    before = rows_read()
    ledger.reserve("second", NAME, "m", CHARACTERS)
    assert rows_read() - before < 10


def test_a_provider_that_reports_absurd_numbers_breaks_nothing() -> None:
    entry = ledger_of(factories.job_with_stages()).reserve("1", NAME, "m", CHARACTERS)
    token_ledger.settle(entry, ModelAnswer("", input_tokens=10**30, output_tokens=10**30))
    assert LedgerEntry.objects.get().tokens == 2_000_000_000


def test_old_entries_are_deleted() -> None:
    ledger = ledger_of(factories.job_with_stages())
    for call in "12":
        ledger.reserve(call, NAME, "m", CHARACTERS)
    long_ago = days_ago(token_ledger.KEEP_DAYS + 1)
    LedgerEntry.objects.filter(call="1").update(started_at=long_ago)
    TokenUse.objects.create(day=long_ago.date(), source="perforce", shard=0, tokens=ESTIMATE)
    token_ledger.maintain()
    assert [entry.call for entry in LedgerEntry.objects.all()] == ["2"]
    assert list(used()) == [timezone.now().date()]


def test_operators_see_what_counts_towards_each_limit(settings: Any) -> None:
    client = factories.staff_client("ann", "operator")
    first, other = (factories.job_with_stages(changelist_id=f"git:{name}@" + "1" * 40) for name in "ab")
    for job, calls in ((first, 3), (other, 1)):
        ledger = ledger_of(job)
        for call in range(calls):
            ledger.reserve(str(call), NAME, "m", CHARACTERS)
    page = client.get(reverse("admin:index")).content.decode()
    assert "Token limits" not in page, "none is set"
    settings.TOKEN_LIMIT_PER_DAY, settings.TOKEN_LIMIT_PER_SOURCE = 10 * ESTIMATE, 3 * ESTIMATE
    settings.TOKEN_LIMIT_PER_REVIEW = settings.TOKEN_LIMIT_PER_CHANGE = 4 * ESTIMATE
    found = {(row["kind"], row["name"]): row["tokens"] for row in token_ledger.largest_uses()}
    assert found == {
        ("day", ""): 4 * ESTIMATE,
        ("source", "git:a"): 3 * ESTIMATE,
        ("source", "git:b"): ESTIMATE,
        ("review", first.changelist_id): 3 * ESTIMATE,
        ("change", first.changelist_id): 3 * ESTIMATE,
    }
    page = client.get(reverse("admin:index")).content.decode()
    assert f"<td>{charts.whole(20_000)}</td><td>{charts.whole(50_000)}</td><td>40%</td>" in page
    assert 'data-state="open">100%' in page
    listed = client.get(reverse("admin:reviews_ledgerentry_changelist", query={"q": "source:git:b"}))
    assert len(listed.context["cl"].result_list) == 1
    assert 'data-state="reserved">Reserved' in listed.content.decode()


# -- what a limit does to a review ------------------------------------------------------------------


def test_over_a_limit_no_call_starts_and_what_exists_is_published_with_banner_and_coverage(
    bench: Bench,
) -> None:
    bench.one_by_one()
    bench.settings.TOKEN_LIMIT_PER_REVIEW = 10_000  # a request of 8,000 tokens at most, then none fits
    bench.llm.server.respond = lambda _: Reply(answer=FINDING, input_tokens=4_321)
    job = bench.job(big(3))
    bench.work()
    found = job_of(job)
    assert (found.status, found.stopped, len(bench.llm.requests)) == (JobStatus.SUCCEEDED, "over_limit", 1)
    said = (
        "The limit of 10,000 tokens a review is reached; 2 of 3 parts were not reviewed."
        " Request a rerun when an operator has raised it."
    )
    assert found.banner == said
    late = "not reviewed: the limit of tokens was reached before this part"
    assert reasons(job) == {f"{D}f1.py": late, f"{D}f2.py": late}
    report = report_of(found)
    assert said in " ".join(render(report, MAIL, token_for(report.changelist_id, MAIL, 1)).text.split())
    assert LedgerEntry.objects.count() == 1


def test_a_limit_that_only_the_second_pass_meets_leaves_the_findings_unverified(bench: Bench) -> None:
    bench.one_by_one()
    bench.settings.LLM_VERIFY = "on"
    bench.settings.TOKEN_LIMIT_PER_REVIEW = 10_000
    bench.llm.server.respond = lambda _: Reply(answer=FINDING, input_tokens=9_873)
    job = bench.job()
    bench.work()
    found = job_of(job)
    assert (found.status, found.stopped, len(bench.llm.requests)) == (JobStatus.SUCCEEDED, "", 1)
    assert found.banner.startswith("The limit of 10,000 tokens a review is reached. 1 of 1 finding could not")


@pytest.mark.parametrize("limit", ["REVIEW", "CHANGE"])
def test_a_review_that_a_limit_leaves_nothing_of_is_a_dead_letter_that_says_what_to_set(
    bench: Bench, limit: str
) -> None:
    setattr(bench.settings, f"TOKEN_LIMIT_PER_{limit}", 100)
    job = bench.job()
    bench.work()
    letter = DeadLetter.objects.get(job_id=job)
    assert (letter.error_class, letter.attempts, len(bench.llm.requests)) == ("POLICY_REJECTED", 1, 0)
    assert letter.detail.endswith(f"Nothing was reviewed. Raise TOKEN_LIMIT_PER_{limit}, then replay.")
    setattr(bench.settings, f"TOKEN_LIMIT_PER_{limit}", 0)


@pytest.mark.parametrize("limit", ["SOURCE", "DAY"])
def test_a_review_that_finds_the_day_used_up_waits_and_uses_no_attempt(
    bench: Bench, limit: str, make_due: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llm, "left_of_day", lambda _: timedelta(hours=12))
    setattr(bench.settings, f"TOKEN_LIMIT_PER_{limit}", 100)
    job = bench.job()
    bench.work()
    assert (run_of(job).status, run_of(job).attempts, len(bench.llm.requests)) == ("pending", 0, 0)
    assert run_of(job).next_attempt_at == job_of(job).deadline_at, "its deadline comes before the next day"
    assert Attempt.objects.get(stage_run=run_of(job)).detail.startswith("The limit of 100 tokens a day")
    setattr(bench.settings, f"TOKEN_LIMIT_PER_{limit}", 0)  # the next day
    make_due()
    bench.work()
    assert (job_of(job).status, run_of(job).attempts) == (JobStatus.SUCCEEDED, 1)


def test_a_review_waits_no_longer_than_the_day_that_is_used_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llm, "left_of_day", lambda _: timedelta(minutes=1))
    bench.settings.TOKEN_LIMIT_PER_DAY = 100
    job = bench.job()
    before = timezone.now()
    bench.work()
    waits = run_of(job).next_attempt_at - before
    assert timedelta(minutes=1) <= waits < job_of(job).deadline_at - before


@pytest.mark.parametrize(
    ("now", "left"),
    [
        (datetime(2026, 11, 27, 23, 59, 59, tzinfo=UTC), timedelta(seconds=1)),
        (datetime(2026, 11, 28, tzinfo=UTC), timedelta(days=1)),
        (datetime(2026, 12, 31, 12, tzinfo=UTC), timedelta(hours=12)),
    ],
)
def test_a_day_ends_at_midnight(now: datetime, left: timedelta) -> None:
    assert llm.left_of_day(now) == left


def test_without_a_required_model_a_used_up_limit_becomes_a_banner(bench: Bench) -> None:
    bench.settings.LLM_REQUIRED, bench.settings.TOKEN_LIMIT_PER_DAY = False, 100
    job = bench.job()
    bench.work()
    assert job_of(job).status == JobStatus.SUCCEEDED
    assert job_of(job).banner == (
        "Only deterministic checks ran. The limit of 100 tokens a day is reached."
        " A rerun gets the full review."
    )
