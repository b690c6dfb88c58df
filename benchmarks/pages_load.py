"""A million findings on top of `admin_load`'s reviews, and one very large change.

The change is as large as its pages must stand. Words follow a steep curve, as in real text: some stand in
most findings, most in a few. One finding in five is reported again by a later review, one in fifty has a
verdict.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

from django.db import connection

from benchmarks.figures import say

if TYPE_CHECKING:
    from reviews.models import ReviewJob

WORDS = (
    "value", "check", "error", "function", "return", "test", "null", "length", "buffer", "token", "query",
    "string", "index", "timeout", "lock", "thread", "cache", "input", "output", "exception", "callback",
    "header", "request", "response", "loop", "bound", "overflow", "divide", "password", "session", "cookie",
    "parser", "encode", "decode", "retry", "queue", "worker", "signal", "socket", "file", "handle", "leak",
    "race", "deadlock", "float", "rounding", "currency", "locale", "timezone", "migration", "schema",
    "shader", "texture", "vertex", "physics", "collision", "audio", "sample", "network", "packet", "replay",
)  # fmt: skip
CATEGORIES = ("correctness", "bug", "style", "performance", "test", "documentation", "security", "data-loss",
              "secret", "concurrency")  # fmt: skip
LARGE = "bench-large"  # the key of the large change's newer version
FILES, FINDINGS = 300, 200  # of each version


def _array(words: tuple[str, ...]) -> str:
    return "ARRAY[{}]".format(",".join(f"'{word}'" for word in words))


# A word of the curve: a known one, or one of thousands of names such as `parser_417`. Depends on the row.
_WORD = f"""({_array(WORDS)})[1 + floor({len(WORDS)} * random() ^ 3)]
            || CASE WHEN random() < 0.2 THEN '_' || floor(5000 * random() ^ 2) ELSE '' END"""


def _sentence(words: int) -> str:
    """Return the SQL of that many words; `i` makes it differ from row to row."""
    return f"(SELECT string_agg({_WORD}, ' ') FROM generate_series(1, {words} + 0 * i))"


_STATEMENTS = (
    ("findings", f"""
INSERT INTO findings (job_id, file, line, severity, category, title, message, source, identity)
SELECT 1 + i::bigint * %(jobs)s / %(more)s,
       '//bench/' || ({_array(WORDS)})[1 + i %% 17] || '/src/' || ({_array(WORDS)})[1 + i %% 59] || '/'
         || ({_array(WORDS)})[1 + i %% 61] || '_' || i %% 23 || '.c', i %% 900,
       CASE WHEN i %% 33 = 0 THEN 'critical' WHEN i %% 8 = 0 THEN 'high' WHEN i %% 3 = 0 THEN 'medium'
            ELSE 'low' END,
       ({_array(CATEGORIES)})[1 + floor({len(CATEGORIES)} * random() ^ 3 + 0 * i)],
       initcap({_sentence(4)}), {_sentence(24)},
       CASE WHEN i %% 10 = 0 THEN 'check:secrets' ELSE 'llm' END,
       md5(CASE WHEN i %% 5 = 0 THEN i - 3000 ELSE i END::text)::uuid
  FROM generate_series(1, %(more)s) i"""),
    ("verdicts", """
INSERT INTO finding_events (identity, job_id, file, kind, text, actor)
SELECT identity, job_id, file, (ARRAY['useful','wrong','wont_fix'])[1 + id % 3], 'as agreed', 'ann'
  FROM findings WHERE id % 50 = 0"""),
    ("coverage", """
INSERT INTO coverage (job_id, file, status)
SELECT DISTINCT job_id, file, 'reviewed' FROM findings ORDER BY job_id"""),
)  # fmt: skip


def load(findings: int) -> None:
    """Bring the findings to that many; the connection must be a superuser's."""
    from reviews.models import FindingRow, ReviewJob

    values = {"jobs": ReviewJob.objects.latest("id").pk - 300, "more": findings - FindingRow.objects.count()}
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica; SET synchronous_commit = off")
        cursor.execute("SET maintenance_work_mem = '512MB'; SET work_mem = '128MB'; SET jit = off")
        for what, statement in _STATEMENTS:
            started = time.monotonic()
            if what == "findings":  # a GIN index grows tenfold slower with each row than at once
                cursor.execute("SELECT indexdef FROM pg_indexes WHERE indexname = 'findings_by_words'")
                (words,) = cursor.fetchone()
                cursor.execute("DROP INDEX findings_by_words")
                cursor.execute(statement, values)
                cursor.execute(words)
            else:
                cursor.execute(statement)
            say(f"  {what}: {cursor.rowcount} rows in {time.monotonic() - started:.0f} s")
        cursor.execute("RESET ALL")
        cursor.execute("VACUUM ANALYZE findings, finding_events, coverage")
    connection.close()
    _large_change()


def is_loaded() -> bool:
    from reviews.models import ReviewJob

    return ReviewJob.objects.filter(idempotency_key=LARGE).exists()


def _large_change() -> None:
    """Store two versions of a large change; the newer one keeps half the findings."""
    older = _large_review(f"{LARGE}-older", 1, "(long socket)", "long socket")
    newer = _large_review(LARGE, 2, "(size_t socket)", "size_t socket")
    kept = list(older.findings.order_by("pk")[: FINDINGS // 2])
    for finding, earlier in zip(newer.findings.order_by("pk"), kept, strict=False):
        finding.identity = earlier.identity
        finding.save(update_fields=["identity"])


def _large_review(key: str, version: int, widened: str, word: str) -> ReviewJob:
    """Store a review with its diff, as the stages do."""
    from criticizer.redaction import Redactor
    from reviews.artifacts import store
    from reviews.models import Artifact, CoverageRow, FindingRow, ReviewJob, StageRun
    from reviews.pipeline import StageClaim
    from reviews.reviewers import prepared_change_codec
    from reviews.reviewers.prepare import ReviewLimits, prepare
    from reviews.sources.base import Action, Change, ChangeStatus, FileChange
    from reviews.states import Stage

    now = datetime.now(UTC)
    old = "".join(f"int {word}_{n}(int {word});\n" for n in range(3) for word in WORDS)
    new = old.replace("(int socket)", widened).replace("int parser_1", "static int parser_1")
    paths = [f"//bench/{WORDS[n % 12]}/{WORDS[n % 60]}_{n}.c" for n in range(FILES)]
    files = tuple(FileChange(path=path, action=Action.EDIT, old_text=old, new_text=new) for path in paths)
    change = Change(
        "900000", "perforce", "ann", "Widen the sockets", ChangeStatus.SUBMITTED, 0, f"v{version}", files
    )
    job = ReviewJob.objects.create(
        idempotency_key=key, changelist_id="900000", review_version=version, status="succeeded", author="ann",
        title="Widen the sockets", deadline_at=now, finished_at=now,
    )  # fmt: skip
    for stage in Stage:
        StageRun.objects.create(job=job, stage=stage, status="succeeded", started_at=now, finished_at=now)
    claim = StageClaim(1, uuid4(), 1, Stage.FETCH, 1, 5, 1, job.pk, job.changelist_id, 1)
    prepared = prepare(change, Redactor(), ReviewLimits(max_calls=200))
    store.store(claim, Artifact.Kind.REDACTED, prepared_change_codec.to_json(prepared, "benchmark")).save()
    CoverageRow.objects.bulk_create(CoverageRow(job=job, file=file.path, status="reviewed") for file in files)
    lines = [n for n, line in enumerate(new.splitlines(), start=1) if word in line]
    FindingRow.objects.bulk_create(
        FindingRow(
            job=job, file=files[n].path, line=lines[n % 3], end_line=lines[n % 3],
            severity=("critical", "high", "medium", "low")[n % 4], category="bug",
            title=f"Callers pass an int, number {n}",
            message=f"A `{word}` does not fit where callers still pass an `int`.", source="llm",
            suggestion=f"Change the callers too:\n\n```c\n{word} = 0;\n```", confidence=80,
            excerpt=[[lines[n % 3] + at, " ", f"int header_{at};"] for at in range(-3, 4)],
        )
        for n in range(FINDINGS)
    )  # fmt: skip
    return job
