"""Conditions on agent tasks, as SQL, and what several modules do with their rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from criticizer.db import prepared
from criticizer.queue import outbox
from criticizer.workers.parking import CHANNEL
from reviews.models.agents import INDEXED_DEPTHS
from reviews.states import OPEN_TASK

MAX_CLAIMS = 3
OPEN = prepared.sql_list(OPEN_TASK)
# clock_timestamp(): a statement may have waited for a lock.
_LAPSED = "(t.status = 'in_progress' AND t.lease_expires_at <= clock_timestamp())"
_UNCLAIMED = f"(t.status = 'pending' OR {_LAPSED})"
# Open, but its time is over, or it was claimed too often: no result is accepted any more.
DEAD = (
    f"(t.status IN {OPEN} AND (t.expires_at <= clock_timestamp()"
    f" OR (t.claims >= {MAX_CLAIMS} AND {_UNCLAIMED})))"
)
CLAIMABLE = f"({_UNCLAIMED} AND t.claims < {MAX_CLAIMS} AND t.expires_at > clock_timestamp())"
TO_RELEASE = f"({_LAPSED} AND t.claims < {MAX_CLAIMS} AND t.expires_at > clock_timestamp())"
VISIBLE = (
    "cardinality(t.directories) > 0 AND NOT EXISTS ("
    "SELECT FROM unnest(t.directories) directory WHERE NOT directory ^@ ANY (%(prefixes)s::text[]))"
)


def statement(text: str, **constants: str | int) -> str:
    """Return SQL about tasks `t`, with `$DEAD` and other constants filled in.

    Values are parameters.
    """
    return prepared.statement(
        text, OPEN=OPEN, DEAD=DEAD, CLAIMABLE=CLAIMABLE, TO_RELEASE=TO_RELEASE, VISIBLE=VISIBLE, **constants
    )


@dataclass(frozen=True, slots=True)
class Caller:
    """Caller of the API: a key of the role agent, by its name, at an address.

    `prefixes` are the depot directories that it may see, each with its slash: without any, it sees nothing.
    """

    key: str
    prefixes: tuple[str, ...]
    address: str = ""


class Refusal(StrEnum):
    """Reason why a call about a task is refused."""

    NOT_FOUND = "not_found"
    DONE = "done"
    EXPIRED = "expired"
    CLAIMED = "claimed"
    CLAIM_LOST = "claim_lost"


class Refused(Exception):
    """A refused call: it changes nothing. `kind` says why."""

    def __init__(self, kind: Refusal) -> None:
        super().__init__(kind)
        self.kind = kind


def ancestors_of(prefixes: Iterable[str]) -> dict[int, list[str]] | None:
    """Return by depth the directories, as `ancestor_sql` names them, above all of the prefixes.

    No deeper than the indexes of tasks reach. None where a prefix is of every depot: no index helps.
    """
    cut = {
        tuple(prefix.rpartition("/")[0].strip("/").split("/")[: INDEXED_DEPTHS[-1]]) for prefix in prefixes
    }
    if ("",) in cut:
        return None
    kept = [one for one in cut if not any(one[:n] in cut for n in range(1, len(one)))]
    return {depth: ["/".join(one) for one in kept if len(one) == depth] for depth in INDEXED_DEPTHS}


def directories_of(paths: Iterable[str]) -> list[str]:
    """Return directories that hold all the paths, without those that lie in another one of them."""
    found: list[str] = []
    for directory in sorted({f"{path.rpartition('/')[0]}/" for path in paths}):
        if not found or not directory.startswith(found[-1]):
            found.append(directory)
    return found


def hold_stage(stage_run_id: int) -> None:
    """Lock a stage, before its tasks. Inside a transaction."""
    prepared.rows("SELECT 1 FROM stage_runs WHERE id = %(id)s FOR NO KEY UPDATE", {"id": stage_run_id})


def state_of(task_id: UUID, caller: Caller) -> Refusal | None:
    """Return why a task cannot be worked on, None when it is open. Raises Refused: NOT_FOUND."""
    found = prepared.row(
        statement("SELECT t.status, $DEAD AS dead FROM agent_tasks t WHERE t.id = %(id)s AND $VISIBLE"),
        {"id": task_id, "prefixes": list(caller.prefixes)},
    )
    if found is None:
        raise Refused(Refusal.NOT_FOUND)
    return refusal_of(found["status"], is_dead=found["dead"])


def refusal_of(status: str, *, is_dead: bool) -> Refusal | None:
    """Return why a task in this state cannot be worked on, None when it is open."""
    if status in ("completed", "failed"):
        return Refusal.DONE
    return Refusal.EXPIRED if is_dead or status in ("expired", "cancelled") else None


def announce() -> None:
    """Tell agents that wait for a task to look again. Goes out with the caller's commit."""
    prepared.rows("SELECT pg_notify(%(channel)s, '')", {"channel": CHANNEL})


def wake_if_last(stage_run_id: int) -> bool:
    """Make a stage due whose tasks are all final. Part of the transaction that holds the stage."""
    left = "SELECT count(*) FROM agent_tasks t WHERE t.stage_run_id = %(id)s AND t.status IN $OPEN"
    if prepared.value(statement(left), {"id": stage_run_id}):
        return False
    outbox.make_due("stage_run", stage_run_id, "run_stage")
    return True
