"""A replay batch of many letters survives kills and a pause, and replays nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.batch_replay import count, kill_workers, load, replayed
from criticizer.models import OutboxMessage
from deadletters import batches
from deadletters.models import DeadLetter, ReplayBatch
from tests.crash.conftest import SCALE
from tests.stack import eventually, running

pytestmark = [pytest.mark.cluster, pytest.mark.long]
LETTERS = 150


@pytest.mark.django_db(transaction=True)
def test_a_batch_outlives_its_workers_and_a_pause(tmp_path: Path) -> None:
    batch = batches.draft(
        filter={}, ids=load(LETTERS), actor="ann", reason="OPS-1", evidence_note="OPS-1: mended",
        rate_per_minute=3000, max_in_flight=50,
    )  # fmt: skip
    assert batches.submit(batch.pk, actor="ann").ok
    assert batches.approve(batch.pk, actor="bob").ok
    environment = {
        "RETRY_TIME_SCALE": str(SCALE),
        "TEST_STAGES": "tests.crash.replays",
        "DEPOT_ALLOW_LIST": "//demo/...",
    }
    with running(tmp_path, environment=environment) as stack:
        eventually(lambda: replayed() > LETTERS / 4, 180)
        assert kill_workers(stack.main("stages").pid)
        eventually(lambda: replayed() > LETTERS / 2, 180)
        assert batches.pause(batch.pk, actor="bob", reason="a look").ok
        held = replayed()
        eventually(lambda: not DeadLetter.objects.filter(status="replaying").exists(), 120)
        assert replayed() == held < LETTERS
        assert batches.resume(batch.pk, actor="bob").ok
        eventually(lambda: ReplayBatch.objects.get().status == "finished", 240)
        eventually(lambda: not OutboxMessage.objects.filter(aggregate_type="replay_batch").exists(), 60)
    found = count()
    assert found.outcomes == {"succeeded": LETTERS}
    assert found.succeeded_jobs == LETTERS
    assert (found.replayed_twice, found.stages_run_twice, found.let_go) == (0, 0, 0)
    assert DeadLetter.objects.filter(status="verifying", verified_at__isnull=False).count() == LETTERS
