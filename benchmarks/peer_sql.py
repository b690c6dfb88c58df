"""SQL of the peers per stage: the product's tables and state changes, without its outbox.

Each is one statement and one commit, prepared, like the product's own; leases, fencing and the
check for open deliveries are left out. The tables bring their constraints and triggers along.
"""

from __future__ import annotations

# Both end in `due`, the stage to be announced next: a peer on PostgreSQL announces it in the same
# statement, others read its id.
INSERTING = """
WITH job AS (
  INSERT INTO jobs (idempotency_key, request_sha256, changelist_id, recipients, requested_by, deadline_at)
  VALUES (%(changelist)s, '', %(changelist)s, '[]', '', now() + interval '20 minutes') RETURNING id),
runs AS (
  INSERT INTO stage_runs (job_id, stage)
  SELECT job.id, stage FROM job, unnest(ARRAY['fetch', 'llm', 'notify']) AS stage RETURNING id, stage),
due AS (SELECT id FROM runs WHERE stage = 'fetch')"""
INSERT = INSERTING + " SELECT id FROM due"

CLAIM = """
WITH run AS (
  UPDATE stage_runs s
     SET status = 'running', attempts = s.attempts + 1, lease_token = gen_random_uuid(),
         lease_expires_at = now() + interval '30 seconds', next_attempt_at = NULL,
         started_at = coalesce(s.started_at, now())
    FROM jobs j
   WHERE s.id = %(run)s AND j.id = s.job_id AND s.status IN ('pending', 'retry_wait')
  RETURNING s.id, s.job_id, s.stage, s.attempts, s.lease_token, j.status AS job_status, j.changelist_id),
begun AS (
  INSERT INTO attempts (stage_run_id, number, worker) SELECT id, attempts, 'peer' FROM run RETURNING id),
job AS (
  UPDATE jobs SET status = 'in_progress' FROM run
   WHERE jobs.id = run.job_id AND run.job_status <> 'in_progress')
SELECT run.id AS run, run.stage, run.attempts AS attempt, run.lease_token AS token, begun.id AS attempt_id,
       run.changelist_id
  FROM run, begun"""

RECORDING = """
WITH run AS (
  UPDATE stage_runs SET status = 'succeeded', lease_token = NULL, lease_expires_at = NULL, finished_at = now()
   WHERE id = %(run)s AND lease_token = %(token)s AND status = 'running' RETURNING job_id),
attempt AS (
  UPDATE attempts SET outcome = 'succeeded', finished_at = now() FROM run WHERE attempts.id = %(attempt_id)s),
job AS (
  UPDATE jobs SET status = 'succeeded', finished_at = now() FROM run
   WHERE jobs.id = run.job_id AND %(next_stage)s = ''),
due AS (SELECT n.id FROM run JOIN stage_runs n ON n.job_id = run.job_id AND n.stage = %(next_stage)s)"""
RECORD = RECORDING + " SELECT id FROM due"

RETRY = """
WITH run AS (
  UPDATE stage_runs SET status = 'retry_wait', lease_token = NULL, lease_expires_at = NULL,
         next_attempt_at = now() + make_interval(secs => %(delay)s)
   WHERE id = %(run)s AND lease_token = %(token)s AND status = 'running' RETURNING job_id),
attempt AS (
  UPDATE attempts SET outcome = 'failed', finished_at = now(), retry_delay_seconds = %(delay)s
    FROM run WHERE attempts.id = %(attempt_id)s)
UPDATE jobs SET status = 'retryable_failed' FROM run WHERE jobs.id = run.job_id"""

_NEXT = {"fetch": "llm", "llm": "notify", "notify": ""}


def recording(claim: dict[str, object]) -> dict[str, object]:
    """Return the parameters of RECORD for what CLAIM returned."""
    return {**claim, "next_stage": _NEXT[str(claim["stage"])]}
