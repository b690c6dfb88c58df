"""Books of the drill's pull requests: pushed heads, the product's versions, the host's rows.

`reconcile` is a pure function of them; its sentences join those of `drill_ledger`. For each pull request:

lost         the newest head, or one whose webhook was answered with a job, has no review; or its review
             succeeded and no summary stands there, or ended and no check run tells it
duplicated   two automatic reviews of one head, two summaries, two check runs of one head, two reviews with
             inline comments of one head
stuck        a review without an end, or a check run that is not concluded
wrong_state  the summary is not of the newest head; a check run tells another end than the review's; a
             review was superseded by none; a draft that no one sees; a request that the host does not know
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row

from benchmarks.drill_ledger import Row, Verdict
from notifications.providers.pull_requests.markdown import Marker, marker_of

CONCLUSIONS = {
    "succeeded": {"success", "neutral"},
    "dead_lettered": {"failure"},
    "superseded": {"cancelled"},
}
_VERSIONS = """
SELECT p.host, p.number, v.head_sha, v.is_automatic, j.id AS job, j.review_version, j.status, j.finished_at
  FROM host_versions v JOIN host_changes p ON p.id = v.change_id JOIN jobs j ON j.id = v.job_id
 ORDER BY p.host, p.number, j.review_version"""


@dataclass(frozen=True, slots=True)
class HostBooks:
    """Ledger of one host.

    `heads`: pull request and head, as they were pushed; `taken_in`: those whose webhook was answered with a
    job. `comments`: pull request and text. `host`: its name.
    """

    heads: tuple[tuple[int, str], ...]
    taken_in: frozenset[str] = frozenset()
    comments: tuple[tuple[int, str], ...] = ()
    checks: tuple[Row, ...] = ()
    reviews: tuple[Row, ...] = ()
    faults: tuple[str, ...] = ()
    host: str = "github"


def read(connection: psycopg.Connection[Any]) -> Sequence[Row]:
    """Read the product's versions of all pull requests."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_VERSIONS).fetchall()


def reconcile_all(books: Iterable[HostBooks], versions: Sequence[Row]) -> Verdict:
    """Compare the ledger of each host with the product's versions of its pull requests."""
    verdict = Verdict()
    for one in books:
        found = reconcile(one, [row for row in versions if row["host"] == one.host])
        for name in ("lost", "duplicated", "stuck", "wrong_state"):
            getattr(verdict, name).extend(f"{one.host}: {sentence}" for sentence in getattr(found, name))
    return verdict


def reconcile(books: HostBooks, versions: Sequence[Row]) -> Verdict:
    """Compare one host's ledger with the product's versions of its pull requests."""
    verdict = Verdict()
    of_head: dict[tuple[int, str], list[Row]] = {}
    newest_version: dict[int, Row] = {}
    for row in versions:
        of_head.setdefault((row["number"], row["head_sha"]), []).append(row)
        newest_version[row["number"]] = row
    newest_head = dict(books.heads)
    for number, head in books.heads:
        name = f"head {head[:12]} of pull request {number}"
        found = of_head.get((number, head), [])
        if not found and (newest_head[number] == head or head in books.taken_in):
            verdict.lost.append(f"{name} has no review")
        if sum(row["is_automatic"] for row in found) > 1:
            verdict.duplicated.append(f"{name} has {len(found)} reviews")
        for row in found:
            _compare_version(verdict, name, row, newest_version[number])
            _compare_checks(verdict, name, row, books)
    for number, head in newest_head.items():
        _compare_summary(verdict, number, head, books, newest_version.get(number))
    verdict.duplicated += _reviewed_twice(books)
    verdict.wrong_state += [
        f"review {row['id']} is {row['state']}" for row in books.reviews if row["state"] != "COMMENTED"
    ]
    verdict.wrong_state += [f"the host was asked what it does not know: {words}" for words in books.faults]
    return verdict


def _compare_version(verdict: Verdict, name: str, row: Row, newest: Row) -> None:
    if row["finished_at"] is None:
        verdict.stuck.append(f"{name}: job {row['job']} is {row['status']}")
    elif row["status"] not in CONCLUSIONS:
        verdict.wrong_state.append(f"{name}: job {row['job']} ended as {row['status']}")
    elif row["status"] == "superseded" and row["job"] == newest["job"]:
        verdict.wrong_state.append(f"{name}: job {row['job']} was superseded by none")


def _compare_checks(verdict: Verdict, name: str, row: Row, books: HostBooks) -> None:
    checks = [check for check in books.checks if check["head_sha"] == row["head_sha"]]
    if len(checks) > 1:
        verdict.duplicated.append(f"{name} has {len(checks)} check runs")
    if not checks and row["status"] != "superseded":  # one that was superseded before needs none
        verdict.lost.append(f"{name} has no check run")
    for check in checks:
        if check["status"] != "completed":
            verdict.stuck.append(f"the check run of {name} is {check['status']}")
        elif check["conclusion"] not in CONCLUSIONS.get(row["status"], ()):
            verdict.wrong_state.append(
                f"the check run of {name} says {check['conclusion']}, and its job is {row['status']}"
            )


def _compare_summary(verdict: Verdict, number: int, head: str, books: HostBooks, newest: Row | None) -> None:
    name = f"pull request {number}"
    summaries = [marker for marker in _markers(books.comments) if marker.number == number]
    if len(summaries) > 1:
        verdict.duplicated.append(f"{name} has {len(summaries)} summaries")
    if newest is None or newest["status"] != "succeeded":
        return
    if not summaries:
        verdict.lost.append(f"{name} has no summary")
    elif max(summaries, key=lambda marker: marker.version).sha != head:
        verdict.wrong_state.append(f"the summary of {name} is not of its newest head")


def _markers(texts: Sequence[tuple[int, str]]) -> Iterator[Marker]:
    for _, text in texts:
        if (marker := marker_of(text)) is not None:
            yield marker


def _reviewed_twice(books: HostBooks) -> Iterator[str]:
    found: Mapping[tuple[int, str], int] = Counter(
        (marker.number, marker.sha)
        for marker in _markers([(row["number"], row["body"]) for row in books.reviews])
    )
    for (number, head), times in found.items():
        if times > 1:
            yield f"head {head[:12]} of pull request {number} has {times} reviews with inline comments"
