"""The line that each failure leaves in the log, as the real handler renders it.

One test per failure of `ROWS`: it happens in the real pipeline, and each of its JSON lines must have the
level and the fields that the table names.
"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import OperationalError
from django.urls import reverse
from django.utils import timezone

from criticizer.db import prepared
from criticizer.models import Circuit
from criticizer.resilience import overrides
from criticizer.resilience.states import CircuitState
from reviews import config
from reviews.models import ReviewJob
from reviews.pipeline import terminate
from tests.acceptance import stages
from tests.acceptance.test_scenarios import (
    FOUND,
    TOO_LONG,
    UNPARSEABLE,
    WRONG_STRUCTURE,
    change_in_parts,
    on_part,
)
from tests.acceptance.world import MAIL, World
from tests.api.conftest import ApiClient
from tests.fakes.llm import Reply, error
from tests.fakes.p4.server import added
from tests.reviewers.test_answer import answer_of, raw_finding

Line = dict[str, Any]
FAILURE = {"error_class", "code", "severity"}
STAGE = {"job", "stage", "attempt"}


@pytest.fixture
def lines() -> Iterator[Callable[[], list[Line]]]:
    """Return the lines logged so far, rendered and redacted by the product's own formatter."""
    root = logging.getLogger()
    real = next(handler for handler in root.handlers if handler.formatter is not None)
    buffer = io.StringIO()
    handler = logging.StreamHandler(buffer)
    handler.setFormatter(real.formatter)
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield lambda: [json.loads(line) for line in buffer.getvalue().splitlines()]
    root.removeHandler(handler)
    root.setLevel(before)


# -- the scenarios ---------------------------------------------------------------------------------


def unusable(reply: Reply) -> Callable[[World], None]:
    def happen(world: World) -> None:
        world.llm.server.respond = on_part(1, reply)
        world.job(change_in_parts(world), world.hook)
        world.work()

    return happen


def duplicate(world: World) -> None:
    change = world.change()
    world.job(change, world.hook)
    world.job(change, world.hook)


def nothing_found(world: World) -> None:
    world.job(world.change(), world.hook)
    world.work()


def without_evidence(world: World) -> None:
    world.llm.script(Reply(answer=answer_of({**FOUND, "quote": "int other(void) { return 3; }"})))
    world.job(world.change(), world.hook)
    world.work()


def message_too_long(world: World) -> None:
    text = "".join(f"v{number} = {number}\n" for number in range(700))
    found = [
        raw_finding(file="//depot/main/f.py", quote=f"v{number} = {number}", title=f"Finding {number}")
        for number in range(0, 700, 100)
    ]
    world.monkeypatch.setattr("notifications.rendering.selection.FINDINGS_BYTES", 1)
    world.monkeypatch.setattr("notifications.rendering.selection.BRIEF_BYTES", 0)
    world.llm.script(Reply(answer=answer_of(*found)))
    world.job(world.depot.submit(added("//depot/main/f.py", text)), MAIL)
    world.work()


def rate_limited(world: World) -> None:
    world.llm.script(error(429, "slow down", "rate_limit_exceeded", headers={"Retry-After": "90"}))
    world.job(world.change(), world.hook)
    world.work()


def database_lost(world: World) -> None:
    def lost() -> None:
        raise OperationalError("the connection is lost")

    stages.BEFORE["fetch"] = lost
    world.job(world.change(), world.hook)
    world.work()


def superseded(world: World) -> None:
    change = world.change()
    world.job(change, world.hook)
    world.job(change, world.hook, key="k-2", version=2, rerun=True)


def timed_out(world: World) -> None:
    job = world.job(world.change(), world.hook)
    ReviewJob.objects.filter(pk=job).update(deadline_at=timezone.now())
    terminate.expire_overdue()


def late_result(world: World) -> None:
    job = world.job(world.change(), world.hook)

    def end() -> None:
        ReviewJob.objects.filter(pk=job).update(deadline_at=timezone.now())
        terminate.expire([job])

    stages.BEFORE["llm"] = end
    world.work()


def worker_lost(world: World) -> None:
    def die() -> None:
        raise SystemExit

    stages.BEFORE["fetch"] = die
    world.job(world.change(), world.hook)
    with pytest.raises(SystemExit):
        world.work()
    stages.reset()
    prepared.rows("UPDATE outbox_messages SET lease_token = NULL, started_at = NULL")
    world.make_due()
    world.work()


def no_model(world: World) -> None:
    world.settings.LLM_PROVIDER, world.settings.LLM_REQUIRED = "none", False
    world.job(world.change(), world.hook)
    world.work()


def model_away(world: World) -> None:
    world.settings.LLM_REQUIRED = False
    world.llm.server.respond = lambda request: error(401, "no", "invalid_api_key")
    world.job(world.change(), world.hook)
    world.work()


def credentials_refused(world: World) -> None:
    world.llm.server.respond = lambda request: error(401, "no", "invalid_api_key")
    world.job(world.change(), world.hook)
    world.work()


def key_refused(world: World) -> None:
    ApiClient("no-such-key").post_json(reverse("api-reviews"), {})


def signature_refused(world: World) -> None:
    world.settings.POSTMARK_WEBHOOK_AUTH = ["name:password"]
    world.api.post_json(reverse("mail-events-postmark"), {})


def file_skipped(world: World) -> None:
    world.job(world.depot.submit(added("//depot/main/package-lock.json", '{"name": "a"}\n')), world.hook)
    world.work()


def circuit_open(world: World) -> None:
    name = config.perforce_dependency()
    Circuit.objects.create(name=name)
    overrides.force(name, CircuitState.FORCED_OPEN, actor="ann", reason="OPS-1: repair", seconds=600)
    world.job(world.change(), world.hook)
    world.work()


def defect(world: World) -> None:
    def fail() -> None:
        raise KeyError("no such thing")

    stages.BEFORE["fetch"] = fail
    world.job(world.change(), world.hook)
    world.work()


@dataclass(frozen=True)
class Row:
    scenario: str
    happen: Callable[[World], None]
    level: str
    event: str
    fields: frozenset[str] | set[str]


unparseable = unusable(UNPARSEABLE)
ROWS = [
    Row("01 unparseable output", unparseable, "warning", "answer_repair_asked",
        FAILURE | STAGE | {"call", "part", "problem", "characters"}),
    Row("01 unparseable twice", unparseable, "warning", "chunk_not_reviewed",
        FAILURE | STAGE | {"call", "part", "calls"}),
    Row("01 above the threshold", unparseable, "error", "chunks_failed_threshold",
        {"job", "rate", "failed", "parts", "severity"}),
    Row("02 wrong structure", unusable(WRONG_STRUCTURE), "warning", "answer_repair_asked",
        FAILURE | STAGE | {"call", "problem"}),
    Row("03 repeated request", duplicate, "debug", "request_duplicate", {"job", "outcome", "job_status"}),
    Row("04 nothing found", nothing_found, "info", "review_done", {"job", "findings", "parts"}),
    Row("05 no evidence", without_evidence, "warning", "answer_checked",
        STAGE | {"part", "without_evidence"}),
    Row("06 token limit", unusable(TOO_LONG), "warning", "chunk_not_reviewed",
        FAILURE | STAGE | {"call", "model", "estimated_tokens"}),
    Row("07 message too long", message_too_long, "warning", "message_truncated",
        STAGE | {"findings_shown", "findings_total", "characters"}),
    Row("08 rate limit", rate_limited, "warning", "stage_failed", FAILURE | STAGE | {"retry_in_seconds"}),
    Row("09 database lost", database_lost, "warning", "stage_failed", FAILURE | STAGE | {"retry_in_seconds"}),
    Row("10 newer request", superseded, "info", "job_superseded", {"job", "by_version"}),
    Row("11 deadline", timed_out, "warning", "job_timed_out",
        FAILURE | {"job", "stage", "created_at", "deadline_at"}),
    Row("12 late result", late_result, "info", "result_after_end", {"job", "stage", "late_by_seconds"}),
    Row("13 worker lost", worker_lost, "warning", "worker_lost", FAILURE | STAGE | {"worker"}),
    Row("14 not configured", no_model, "warning", "review_without_model", {"job", "why"}),
    Row("14 degraded", model_away, "warning", "review_without_model", {"job", "dependency", "why"}),
    Row("15 credentials refused", credentials_refused, "warning", "model_key_refused", {"call", "status"}),
    Row("15 credentials refused for good", credentials_refused, "warning", "job_dead_lettered",
        FAILURE | STAGE),
    Row("15 its dead letter", credentials_refused, "error", "dead_letter_created",
        FAILURE | {"letter", "job", "stage", "group"}),
    Row("16 key refused", key_refused, "error", "api_key_refused", {"reason", "remote_address", "severity"}),
    Row("16 signature refused", signature_refused, "error", "mail_event_refused",
        {"provider", "path", "severity"}),
    Row("18 file skipped", file_skipped, "warning", "files_not_reviewed", {"job", "files", "reasons"}),
    Row("circuit open", circuit_open, "warning", "stage_waits", {"job", "stage", "dependency", "seconds"}),
    Row("defect", defect, "error", "internal_bug", FAILURE | {"job", "stage", "stack"}),
]  # fmt: skip


# Another scenario of `make test` leaves the same line with the same fields.
_LONG = {
    *(database_lost, model_away, late_result, nothing_found, file_skipped, without_evidence),
    *(row.happen for row in ROWS if row.scenario in {"02 wrong structure", "06 token limit"}),
}


@pytest.mark.parametrize(
    "happen",
    [
        pytest.param(happen, marks=pytest.mark.long if happen in _LONG else ())
        for happen in {row.happen: row.scenario for row in ROWS}
    ],
)
def test_every_scenario_leaves_its_line(
    world: World, lines: Callable[[], list[Line]], happen: Callable[[World], None]
) -> None:
    happen(world)
    logged = lines()
    for row in (row for row in ROWS if row.happen is happen):
        found = [line for line in logged if line["event"] == row.event]
        assert found, (row.scenario, sorted({line["event"] for line in logged}))
        assert found[0]["level"] == row.level, row.scenario
        missing = row.fields - {name for name, value in found[0].items() if value not in (None, "")}
        assert not missing, f"{row.scenario}: {missing} of {found[0]}"


def test_no_line_about_a_failure_lacks_its_code(world: World, lines: Callable[[], list[Line]]) -> None:
    for happen in (credentials_refused, timed_out):
        happen(world)
    for line in lines():
        if "error_class" in line:
            assert set(line) >= FAILURE, line
        if line["level"] in {"error", "critical"}:
            assert line["severity"] in {"medium", "high", "critical"}, line
