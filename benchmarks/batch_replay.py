"""Replay batch of thousands of dead letters at a set rate, through a kill and a pause.

`python -m benchmarks.batch_replay --letters 5000 --rate 3000`: loads dead letters by SQL, lets real worker
clusters work through one batch, kills every worker process at a third of the way, pauses the batch at two
thirds, and counts what the rows say in the end.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import ground
from benchmarks.figures import Figure, Must, emit, say
from benchmarks.ground import CannotRun, until

PAUSE_SECONDS = 8.0

# Jobs whose stage llm used its one attempt, their dead letters in one group, and the artifact's row.
_LOAD = """
WITH job AS (
  INSERT INTO jobs (idempotency_key, request_sha256, changelist_id, review_version, recipients,
                    requested_by, deadline_at, status, status_reason, finished_at)
  SELECT 'load-' || n, '', 'bench' || n, 1, '[]', 'bench', now() + interval '1 hour', 'dead_lettered',
         'AUTH_DENIED', now()
    FROM generate_series(1, %(letters)s) n RETURNING id),
run AS (
  INSERT INTO stage_runs (job_id, stage, status, attempts, finished_at)
  SELECT job.id, s.stage, s.status, s.attempts, CASE WHEN s.status <> 'pending' THEN now() END
    FROM job, (VALUES ('fetch', 'succeeded', 1), ('llm', 'failed', 1), ('notify', 'pending', 0))
              AS s (stage, status, attempts)),
artifact AS (
  INSERT INTO artifacts (job_id, kind, is_raw, name, sha256, size_bytes, expires_at)
  SELECT id, 'change', true, 'load-' || id, '', 1, now() + interval '7 days' FROM job),
same AS (
  INSERT INTO dead_letter_groups (fingerprint, stage, error_class, source, normalized_message, total_count)
  VALUES ('v1:load', 'llm', 'AUTH_DENIED', 'llm:none', 'the key has expired', %(letters)s) RETURNING id),
letter AS (
  INSERT INTO dead_letters (job_id, group_id, stage, error_class, code, severity, detail,
                            payload_reference, attempts, first_failure_at, last_failure_at)
  SELECT job.id, same.id, 'llm', 'AUTH_DENIED', 'CRITICIZER_E207', 'critical', 'the key has expired', '',
         1, now(), now() FROM job, same RETURNING id)
INSERT INTO dead_letter_payloads (letter_id, last_stack, sanitized_context) SELECT id, '', '{}' FROM letter"""


def load(letters: int) -> list[int]:
    """Make so many dead letters of jobs that can be replayed; return their ids."""
    from criticizer.db import prepared

    prepared.rows(_LOAD, {"letters": letters})
    return [row["id"] for row in prepared.rows("SELECT id FROM dead_letters ORDER BY id")]


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts from the rows after a batch: each number is exact."""

    outcomes: dict[str, int]
    succeeded_jobs: int
    replayed_twice: int  # dead letters
    stages_run_twice: int  # jobs whose stage llm was recorded more than once after the replay
    let_go: int  # dead letters that the batch still holds


def count() -> Counted:
    """Count what one batch of this database did."""
    from criticizer.db import prepared

    outcomes = prepared.rows("SELECT status, count(*) AS n FROM replay_items GROUP BY 1 ORDER BY 1")
    return Counted(
        outcomes={row["status"]: row["n"] for row in outcomes},
        succeeded_jobs=prepared.value("SELECT count(*) FROM jobs WHERE status = 'succeeded'"),
        replayed_twice=prepared.value(
            "SELECT count(*) FROM (SELECT letter_id FROM dead_letter_events WHERE action = 'replayed'"
            " GROUP BY 1 HAVING count(*) > 1) t"
        ),
        stages_run_twice=prepared.value(
            "SELECT count(*) FROM (SELECT job_id FROM coverage GROUP BY 1 HAVING count(*) > 1) t"
        ),
        let_go=prepared.value(
            "SELECT count(*) FROM dead_letters WHERE status IN ('replay_pending', 'replaying')"
        ),
    )


def replayed() -> int:
    """Return how many dead letters were replayed so far."""
    from criticizer.db import prepared

    return int(prepared.value("SELECT count(*) FROM dead_letter_events WHERE action = 'replayed'"))


def kill_workers(main_pid: int) -> int:
    """SIGKILL every worker process of a cluster; return how many there were."""
    import psutil

    workers = [
        process
        for process in psutil.Process(main_pid).children(recursive=True)
        if any(role in " ".join(process.cmdline()).split() for role in ("idle", "processing"))
    ]
    for process in workers:
        process.kill()
    return len(workers)


def _watch(batch_id: int, letters: int, pid: int) -> tuple[int, int]:
    """Kill and pause on the way.

    Return how many processes were killed and how many dead letters the pause let through.
    """
    from deadletters import batches
    from deadletters.models import ReplayBatch

    def at_least(part: float) -> Callable[[], bool]:
        return lambda: replayed() >= letters * part

    until(at_least(1 / 3), 600, "a third of the letters")
    killed = kill_workers(pid)
    say(f"batch_replay: {killed} worker processes killed at {replayed()} letters")
    until(at_least(2 / 3), 600, "two thirds of the letters")
    assert batches.pause(batch_id, actor="bob", reason="a look at the dashboards").ok
    before = replayed()
    time.sleep(PAUSE_SECONDS)
    leaked = replayed() - before
    say(f"batch_replay: paused at {before} letters, {leaked} more after {PAUSE_SECONDS:g} s")
    assert batches.resume(batch_id, actor="bob").ok
    until(lambda: ReplayBatch.objects.get(pk=batch_id).status == "finished", 900, "the batch's end", 0.5)
    return killed, leaked


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--letters", type=int, default=5000)
    parser.add_argument("--rate", type=int, default=3000, help="letters a minute")
    given = parser.parse_args()
    with (
        ground.prepared({"BENCHMARK_STAGES": "benchmarks.replay_stages"}) as place,
        place.database() as environment,
    ):
        from criticizer.workers.supervisor import clusters
        from deadletters import batches

        ids = load(given.letters)
        started = time.monotonic()
        batch = batches.draft(
            filter={"q": "error:AUTH_DENIED"}, ids=ids, actor="ann", reason="OPS-1: the key was renewed",
            evidence_note="OPS-1: the key was renewed", rate_per_minute=given.rate, max_in_flight=200,
        )  # fmt: skip
        drafted = time.monotonic() - started
        verdicts = batches.dry_run(batch.pk)["verdicts"]
        tried = time.monotonic() - started - drafted
        say(f"batch_replay: {verdicts} in {tried:.1f} s, drafted in {drafted:.1f} s")
        batches.submit(batch.pk, actor="ann")
        batches.approve(batch.pk, actor="bob")
        begun = time.monotonic()
        # A killed worker may take the queue's lock with it: the cluster ends itself and is started again.
        with place.running(clusters(("stages",), environment), restarts=True) as pids:
            killed, leaked = _watch(batch.pk, given.letters, pids[0])
        seconds = time.monotonic() - begun
        found = count()
    say(f"batch_replay: {found}")
    exact = found.outcomes == {"succeeded": given.letters} and found.succeeded_jobs == given.letters
    emit(
        [
            Figure("batch_replay_letters", found.outcomes.get("succeeded", 0), "letters",
                   must=Must("value", ">=", given.letters if exact else given.letters + 1)),
            Figure("batch_replay_twice", found.replayed_twice + found.stages_run_twice, "letters",
                   must=Must("value", "<=", 0)),
            Figure("batch_replay_stuck", found.let_go, "letters", must=Must("value", "<=", 0)),
            Figure("batch_replay_in_pause", leaked, "letters", must=Must("value", "<=", 1)),
            Figure("batch_replay_killed", killed, "processes", must=Must("value", ">=", 1)),
            Figure("batch_replay_rate", 60 * given.letters / (seconds - PAUSE_SECONDS), "letters/min"),
            Figure("batch_dry_run", tried, "s"),
        ]
    )  # fmt: skip


if __name__ == "__main__":
    try:
        main()
    except CannotRun as error:
        sys.exit(f"batch_replay: {error}")
