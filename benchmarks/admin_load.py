"""Database as large as the admin must stand: jobs, attempts, deliveries and dead letters.

Written by SQL in a few statements, with triggers and foreign keys off while it loads; CHECKs stay on.
Failures come in waves (one class fails for a day, as a broken dependency makes it), groups follow a steep
curve (the first of them has a tenth of all dead letters), titles and authors repeat.

The newest jobs are active: a third of them waits for each stage, the stages before it are done. All is one
transaction that begins with TRUNCATE and puts the indexes back at its end, so that a server with
`wal_level=minimal` writes no log of it.
"""

from __future__ import annotations

import time

from django.db import connection, transaction

from benchmarks.figures import say

DAYS = 30
GROUPS = 600
ACTIVE = 300
FLOWS = 20  # API keys that requested the reviews


def _array(words: str) -> str:
    return "ARRAY[{}]".format(",".join(f"'{word.strip()}'" for word in words.split(",")))


# The failures: class, code and stage go together.
_KINDS = (
    ("RATE_LIMITED", "E201", "llm"),
    ("UPSTREAM_UNAVAILABLE", "E202", "llm"),
    ("NETWORK_TIMEOUT", "E101", "fetch"),
    ("AUTH_DENIED", "E203", "llm"),
    ("SCHEMA_INVALID", "E205", "llm"),
    ("NOT_FOUND", "E104", "fetch"),
    ("PATH_DENIED", "E401", "fetch"),
    ("INTERNAL_BUG", "E402", "notify"),
    ("TOKEN_LIMIT", "E206", "llm"),
    ("WORKER_LOST", "E403", "llm"),
    ("RECIPIENT_REJECTED", "E702", "notify"),
    ("CONFIG_INVALID", "E501", "fetch"),
)
_CLASSES = _array(",".join(kind[0] for kind in _KINDS))
_CODES = _array(",".join(f"CRITICIZER_{kind[1]}" for kind in _KINDS))
_STAGES = _array(",".join(kind[2] for kind in _KINDS))
_WORDS = _array(
    "reader, cache, login, parser, index, upload, retry, billing, shader, physics, network, audio, editor, "
    "import, export, sync, queue, mail, trigger, report"
)
_VERBS = _array("Fix, Add, Remove, Refactor, Speed up, Document, Test, Rename")
_NAMES = _array(
    "ann, bob, cleo, dan, eve, finn, gus, hana, ida, jon, kim, leo, mia, ned, ola, pia, quinn, rosa, sam, t"
)

# (what, statement): %(jobs)s, %(letters)s, %(active)s, %(days)s, %(groups)s.
# Jobs are numbered from 1 in order of time.
_STATEMENTS: tuple[tuple[str, str], ...] = (
    ("jobs", f"""
INSERT INTO jobs (id, idempotency_key, request_sha256, changelist_id, review_version, recipients,
                  requested_by, status, ended_as, status_reason, created_at, deadline_at, finished_at,
                  is_late, author, title)
SELECT i, 'bench-' || i, repeat('0', 64), (100000 + i)::text, 1, '["mail:ann@example.com"]',
       'key:team-' || i %% {FLOWS}, s,
       CASE WHEN s IN ('succeeded','queued','in_progress','retryable_failed') THEN '' ELSE s END, '', at,
       CASE WHEN s IN ('queued','in_progress','retryable_failed')
            THEN now() + interval '1 day' + i * interval '1 millisecond' ELSE at + interval '20 minutes' END,
       CASE WHEN s IN ('queued','in_progress','retryable_failed') THEN NULL
            ELSE least(at + (20 + 100 * random() ^ 3) * interval '1 second', now()) END,
       i %% 5000 = 0, CASE s WHEN 'queued' THEN '' ELSE ({_NAMES})[1 + i %% 20] END,
       CASE s WHEN 'queued' THEN '' -- until its change is fetched
              ELSE ({_VERBS})[1 + i %% 8] || ' the ' || ({_WORDS})[1 + (i / 7) %% 20] || ' of '
                   || ({_WORDS})[1 + (i / 31) %% 20] || ' ' || i END
  FROM (SELECT i, now() - (%(days)s * 86400.0 * (%(jobs)s - i) / %(jobs)s) * interval '1 second' AS at,
               CASE WHEN i > %(jobs)s - %(active)s
                    THEN (ARRAY['queued','in_progress','retryable_failed'])[1 + i %% 3]
                    WHEN i::bigint * 7919 %% 10007 < 10007.0 * %(letters)s / %(jobs)s THEN 'dead_lettered'
                    WHEN i %% 97 = 0 THEN 'timed_out' WHEN i %% 89 = 0 THEN 'superseded'
                    WHEN i %% 401 = 0 THEN 'cancelled' ELSE 'succeeded' END AS s
          FROM generate_series(1, %(jobs)s) i) made"""),
    ("failures", f"""
CREATE TEMP TABLE failures AS
SELECT id AS job_id, row_number() OVER (ORDER BY id) AS n, finished_at AS at, g,
       ({_CLASSES})[1 + g %% 12] AS error_class, ({_CODES})[1 + g %% 12] AS code,
       ({_STAGES})[1 + g %% 12] AS stage
  FROM (SELECT id, finished_at,
               -- Half of them are of the wave of their day.
               CASE WHEN id %% 2 = 0 THEN extract(doy FROM finished_at)::int %% 12
                    ELSE floor(%(groups)s * random() ^ 4)::int END AS g
          FROM jobs WHERE status = 'dead_lettered') d"""),
    ("indexes", "CREATE INDEX ON failures (job_id); ANALYZE failures"),
    ("stages", """
INSERT INTO stage_runs (job_id, stage, status, attempts, max_attempts, started_at, finished_at, error_class)
SELECT j.id, s.stage,
       CASE WHEN j.status IN ('queued','in_progress','retryable_failed')
            THEN CASE sign(s.place - 1 - j.id %% 3) WHEN -1 THEN 'succeeded' WHEN 1 THEN 'pending'
                      ELSE CASE j.status WHEN 'retryable_failed' THEN 'retry_wait' ELSE 'pending' END END
            WHEN f.stage IS NULL THEN CASE WHEN j.status = 'succeeded' THEN 'succeeded' ELSE 'cancelled' END
            WHEN s.stage = f.stage THEN 'failed'
            WHEN s.place < array_position(ARRAY['fetch','llm','notify'], f.stage) THEN 'succeeded'
            ELSE 'pending' END,
       CASE WHEN s.stage = f.stage THEN 1 + j.id %% 5 ELSE 1 END, 5, j.created_at, j.finished_at,
       CASE WHEN s.stage = f.stage THEN f.error_class ELSE '' END
  FROM jobs j LEFT JOIN failures f ON f.job_id = j.id,
       (VALUES ('fetch', 1), ('llm', 2), ('notify', 3)) s(stage, place)"""),
    ("attempts", """
INSERT INTO attempts (stage_run_id, number, worker, started_at, finished_at, outcome, error_class,
                      code, detail)
SELECT r.id, n, 'bench-' || r.id %% 4, r.started_at + n * interval '3 seconds',
       r.started_at + n * interval '3 seconds' + (CASE r.stage WHEN 'llm' THEN 14 ELSE 0.4 END
         * (0.4 + random() ^ 4 * 6)) * interval '1 second',
       CASE WHEN r.status = 'failed' THEN 'failed' ELSE 'succeeded' END,
       r.error_class, CASE WHEN r.status = 'failed' THEN 'CRITICIZER_E201' ELSE '' END,
       CASE WHEN r.status = 'failed' THEN 'The server answered 503: try again later.' ELSE '' END
  FROM stage_runs r, generate_series(1, r.attempts) n
 WHERE r.status IN ('succeeded', 'failed')"""),
    ("deliveries", """
INSERT INTO deliveries (job_id, changelist_id, recipient, review_version, status, token, provider,
                        subject, payload, payload_sha256, notification_id, notified_at, attempts,
                        created_at, updated_at)
SELECT id, changelist_id, 'mail:ann@example.com', 1, s, gen_random_uuid(), 'mail', 'Review', '{}', '',
       CASE WHEN s = 'sent' THEN 'n-' || id ELSE '' END, CASE WHEN s = 'sent' THEN finished_at END, 1,
       finished_at, finished_at
  FROM (SELECT *, CASE WHEN id %% 1000 = 0 THEN 'failed' WHEN id %% 3001 = 0 THEN 'uncertain'
                       ELSE 'sent' END AS s
          FROM jobs WHERE status = 'succeeded') j"""),
    ("groups", f"""
INSERT INTO dead_letter_groups (id, fingerprint, stage, error_class, source, normalized_message,
                                first_seen, last_seen, status, owner, note, open_count, total_count)
SELECT 1 + g, 'v1:' || md5(g::text), ({_STAGES})[1 + g %% 12], ({_CLASSES})[1 + g %% 12],
       (ARRAY['llm:openai','p4:main','provider:mail'])[1 + g %% 3],
       ({_WORDS})[1 + g %% 20] || ' answered <number> after <number> ms in '
         || ({_WORDS})[1 + (g / 20) %% 20],
       min(at), max(at), (ARRAY['open','open','open','acknowledged','resolved','ignored'])[1 + g %% 6],
       CASE WHEN g %% 4 = 0 THEN 'ann' ELSE '' END, '', 0, count(*)
  FROM failures GROUP BY g"""),
    ("days", """
INSERT INTO dead_letter_group_days (group_id, day, count)
SELECT 1 + g, (at AT TIME ZONE 'UTC')::date, count(*) FROM failures GROUP BY 1, 2"""),
    ("letters", """
INSERT INTO dead_letters (id, job_id, group_id, stage, status, error_class, code, severity, detail,
    payload_reference, attempts, first_failure_at, last_failure_at, created_at, closed_at, is_escalated,
    failed_replay_count, category, triaged_by, triaged_at, evidence_note, remediated_by, remediated_at,
    validation_ok, validated_by, validated_at, replay_reason, replayed_by, replayed_at,
    verified_by, verified_at, resolution, resolved_by)
SELECT n, job_id, 1 + g, stage, s, error_class, code, (ARRAY['critical','high','medium','low'])[1 + g %% 4],
       'The server answered 503 after ' || n %% 9000 || ' ms: try again later.', 'artifact:' || n,
       1 + n %% 5, at - interval '1 minute', at, at,
       CASE WHEN s IN ('resolved', 'discarded') THEN at + interval '1 hour' END, n %% 400 = 0,
       CASE WHEN n %% 50 = 0 THEN 1 ELSE 0 END,
       CASE WHEN s = 'new' THEN ''
            ELSE (ARRAY['transient','data','auth_config','code_defect'])[1 + g %% 4] END,
       CASE WHEN s = 'new' THEN '' ELSE 'ann' END, CASE WHEN s <> 'new' THEN at + interval '10 minutes' END,
       'The key was renewed.', 'ann', at + interval '20 minutes', TRUE, 'ann', at + interval '21 minutes',
       'The cause is gone.', 'ann', at + interval '22 minutes', 'ann', at + interval '30 minutes',
       'It went through.', 'ann'
  FROM (SELECT *, CASE WHEN n %% 20 < 9 THEN 'new' WHEN n %% 20 < 11 THEN 'triaged'
                       WHEN n %% 20 = 11 THEN 'remediated'
                       WHEN n %% 400 = 12 THEN 'verifying' WHEN n %% 20 < 18 THEN 'resolved'
                       ELSE 'discarded' END AS s
          FROM failures) f"""),
    ("payloads", """
INSERT INTO dead_letter_payloads (letter_id, last_stack, sanitized_context)
SELECT id, repeat('  File "reviews/stages/llm.py", line 81, in run' || chr(10), 30), '{"attempt": 3}'
  FROM dead_letters"""),
    ("open letters", """
UPDATE dead_letter_groups g SET open_count = n FROM (
  SELECT group_id, count(*) AS n FROM dead_letters WHERE status NOT IN ('resolved','discarded') GROUP BY 1) o
 WHERE o.group_id = g.id"""),
    ("events", """
INSERT INTO dead_letter_events (letter_id, action, actor, reason, context, created_at)
SELECT id, a, 'ann', 'as the runbook says', '{}', last_failure_at + p * interval '5 minutes'
  FROM dead_letters, (VALUES ('created', 0), ('triaged', 1), ('remediated', 2)) e(a, p)
 WHERE p = 0 OR status <> 'new' ORDER BY id, p"""),
    ("queue", """
INSERT INTO outbox_messages (aggregate_type, aggregate_id, message_type, queue, flow, available_at,
                             waiting_for)
SELECT 'stage_run', r.id, 'run_stage', CASE r.stage WHEN 'fetch' THEN 'stages' ELSE r.stage END,
       j.requested_by,
       -- Due as they were requested, give or take a minute.
       CASE WHEN j.id %% 8 = 0 THEN now() + interval '1 day'
            ELSE least(j.created_at + random() * interval '1 minute', now()) END,
       CASE WHEN j.id %% 8 = 0 AND r.stage = 'llm' THEN 'llm:openai' ELSE '' END
  FROM jobs j JOIN stage_runs r ON r.job_id = j.id
 WHERE j.status IN ('queued','in_progress','retryable_failed')
   AND r.stage = (ARRAY['fetch','llm','notify'])[1 + j.id %% 3]"""),
    ("coverage", """
INSERT INTO coverage (job_id, file, status, reason)
SELECT id, '//bench/main/src/file' || id %% 900 || '.c', 'reviewed', '' FROM jobs"""),
    ("findings", """
INSERT INTO findings (job_id, file, severity, category, title, message, source)
SELECT id, '//bench/main/src/file' || id %% 900 || '.c', (ARRAY['high','medium','low'])[1 + id %% 3],
       'correctness', 'A length is not checked', 'Check it.', 'llm' FROM jobs WHERE id %% 2 = 0"""),
)  # fmt: skip
_SEQUENCES = """
SELECT format('SELECT setval(%L, (SELECT coalesce(max(id), 1) FROM %I))',
              pg_get_serial_sequence(quote_ident(t), 'id'), t)
  FROM unnest(ARRAY['jobs', 'dead_letters', 'dead_letter_groups']) t"""


# Indexes and UNIQUE constraints of the loaded tables; a primary key stays, as foreign keys need it.
_TABLES = (
    "jobs, stage_runs, attempts, deliveries, dead_letter_groups, dead_letter_group_days, dead_letters, "
    "dead_letter_payloads, dead_letter_events, outbox_messages, coverage, findings"
)
_INDEXES = f"""
SELECT CASE WHEN c.oid IS NULL THEN format('DROP INDEX %s', i.indexrelid::regclass)
            ELSE format('ALTER TABLE %s DROP CONSTRAINT %I', i.indrelid::regclass, c.conname) END,
       CASE WHEN c.oid IS NULL THEN pg_get_indexdef(i.indexrelid)
            ELSE format('ALTER TABLE %s ADD CONSTRAINT %I %s', i.indrelid::regclass, c.conname,
                        pg_get_constraintdef(c.oid)) END
  FROM pg_index i LEFT JOIN pg_constraint c ON c.conindid = i.indexrelid AND c.contype IN ('u', 'x')
 WHERE NOT i.indisprimary
   AND i.indrelid = ANY(string_to_array('{_TABLES}', ', ')::regclass[])
   AND NOT EXISTS (SELECT FROM pg_constraint f WHERE f.contype = 'f' AND f.conindid = i.indexrelid)"""


def load(jobs: int, letters: int, active: int = ACTIVE) -> None:
    """Fill an empty, migrated database; the connection must be a superuser's.

    `active` of the jobs have not ended; each has a message for its stage, one in eight due in a day.
    """
    from reviews.dashboard import rollup

    values = {"jobs": jobs, "letters": letters, "active": active, "days": DAYS, "groups": GROUPS}
    with transaction.atomic(), connection.cursor() as cursor:
        # Triggers and foreign keys are off; so is the wait for the disk at the commit.
        cursor.execute("SET LOCAL session_replication_role = replica; SET LOCAL synchronous_commit = off")
        cursor.execute(
            "SET LOCAL maintenance_work_mem = '512MB'; SET LOCAL work_mem = '128MB'; SET LOCAL jit = off"
        )
        cursor.execute(f"TRUNCATE {_TABLES} CASCADE")
        cursor.execute(_INDEXES)
        indexes = cursor.fetchall()
        for drop, _ in indexes:
            cursor.execute(drop)
        for what, statement in _STATEMENTS:
            started = time.monotonic()
            cursor.execute(statement, values)
            say(f"  {what}: {cursor.rowcount} rows in {time.monotonic() - started:.0f} s")
        cursor.execute(_SEQUENCES)
        for (statement,) in cursor.fetchall():
            cursor.execute(statement)
        cursor.execute("DROP TABLE failures")
        started = time.monotonic()
        for _, create in indexes:
            cursor.execute(create)
        say(f"  {len(indexes)} indexes in {time.monotonic() - started:.0f} s")
    started = time.monotonic()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    say(f"  vacuumed in {time.monotonic() - started:.0f} s")
    connection.close()
    started = time.monotonic()
    before = None
    while True:  # as the workers do it, a day at a time
        rollup.roll_up()
        with connection.cursor() as cursor:
            cursor.execute("SELECT started_at FROM rollups WHERE kind = 'mark'")
            mark = cursor.fetchone()
        if mark == before:
            break
        before = mark
    say(f"  figures counted in {time.monotonic() - started:.0f} s")
