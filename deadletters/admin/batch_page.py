"""The context of a batch's page: settings, verdicts, progress, and its items page by page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.db.models import Count, Q, QuerySet
from django.urls import reverse

from criticizer.admin_site.search_query import MAX_CHARACTERS, row_number
from criticizer.inert_links import web_link
from criticizer.wording import plural_count
from deadletters import batches
from deadletters.admin.forms import BatchSettingsForm
from deadletters.models import DeadLetter, DeadLetterGroup, ReplayBatch, ReplayBatchEvent, ReplayItem
from deadletters.states import BEFORE_REPLAY, BatchStatus, ItemStatus, LetterStatus

GROUPS_SHOWN = 5
_ENDED = (BatchStatus.FINISHED, BatchStatus.STOPPED, BatchStatus.CANCELLED)
# Outcome of an item -> the end of "2 …".
_WORDS: Mapping[str, str] = {
    ItemStatus.FAILED: "failed again",
    ItemStatus.ENDED: "ended otherwise",
    ItemStatus.SKIPPED: "skipped",
    ItemStatus.CANCELLED: "not replayed",
}
ITEMS_PER_PAGE = 100
EVENTS_SHOWN = 50
FAILURES_SHOWN = 10
_NEEDED = "needed once it is submitted"
_LETTERS = "admin:deadletters_deadletter_changelist"
# Verdict of the dry run -> label and meaning.
_VERDICTS: Mapping[str, tuple[str, str]] = {
    "eligible": (
        "Can be replayed",
        "It goes through the steps and is replayed. The allow-list is not checked here: every stage of the "
        "replay checks it before it sends anything.",
    ),
    "needs_override": ("A check fails", "It is skipped unless the settings override failed checks."),
    "circuit_open": (
        "Circuit open",
        "Its dependency is unavailable. The batch would stop there, even with an override. Wait until the "
        "circuit closes.",
    ),
    "not_dead_lettered": ("Done elsewhere", "Its job is not dead-lettered any more. It is skipped."),
    "newer_version": (
        "Superseded",
        "A newer version of its changelist, or a newer scan of its path, exists. It is skipped.",
    ),
    "artifact_expired": (
        "Payload expired",
        "Its change is not stored any more. Start the batch at the first stage instead.",
    ),
    "delivery_uncertain": (
        "Delivery uncertain",
        "A message may have been sent already. Decide about the delivery first.",
    ),
    "in_another_batch": ("In another batch", "Another batch will replay it. It is skipped."),
    "at_work": ("Replaying", "Its replay is running. It is skipped."),
    "closed": ("Closed", "It is resolved or discarded. It is skipped."),
    "gone": ("Gone", "The dead letter does not exist any more. It is skipped."),
    "not_replayable": ("Cannot be replayed", "The items below show why. It is skipped."),
}
_LOOKS = {"eligible": "check-ok", "needs_override": "check-unknown", "circuit_open": "check-unknown"}


def outcome_of(
    batch: ReplayBatch, by_status: Mapping[str, int], *, sees_groups: bool
) -> dict[str, Any] | None:
    """Return the outcome of a batch that has ended or stopped, None for any other.

    `counts` is such as "2 resolved, 1 failed again"; `next` the sentences on what to do; `groups` the
    groups of its dead letters, at most `GROUPS_SHOWN`, and none for users who may not see groups.
    """
    if batch.status not in _ENDED:
        return None
    succeeded = _succeeded(batch)
    parts = [f"{count} {words}" for words, count in succeeded.items() if count]
    parts += [f"{by_status[status]} {words}" for status, words in _WORDS.items() if by_status.get(status)]
    return {
        "counts": ", ".join(parts),
        "next": _next_steps(batch, by_status, succeeded),
        "groups": _groups(batch) if sees_groups else [],
        "look": "finished" if by_status.get(ItemStatus.SUCCEEDED) == batch.item_count else "partial",
    }


def _succeeded(batch: ReplayBatch) -> dict[str, int]:
    """Return what became of the dead letters whose replay succeeded."""
    letters = DeadLetter.objects.filter(
        pk__in=batch.items.filter(status=ItemStatus.SUCCEEDED).values("letter_id")
    )
    is_verifying = Q(status=LetterStatus.VERIFYING)
    counted = letters.aggregate(
        resolved=Count("pk", filter=Q(status=LetterStatus.RESOLVED)),
        verified=Count("pk", filter=is_verifying & Q(verified_at__isnull=False)),
        unverified=Count("pk", filter=is_verifying & Q(verified_at__isnull=True)),
        changed=Count("pk", filter=~Q(status__in=(LetterStatus.RESOLVED, LetterStatus.VERIFYING))),
    )
    return {
        "resolved": counted["resolved"],
        "verified and not resolved yet": counted["verified"],
        "replayed and not verified yet": counted["unverified"],
        "replayed and changed since": counted["changed"],
    }


def _next_steps(batch: ReplayBatch, by_status: Mapping[str, int], succeeded: Mapping[str, int]) -> list[str]:
    steps = []
    if batch.status == BatchStatus.STOPPED:
        steps.append("Remove the cause and resume the batch, or cancel it.")
    elif by_status.get(ItemStatus.FAILED):
        steps.append(
            "Open what failed again below: its newest failure says why. Remove that cause and replay."
        )
    if by_status.get(ItemStatus.SKIPPED):
        steps.append("The details below say why a dead letter was skipped.")
    if succeeded["verified and not resolved yet"]:
        steps.append("Resolve what is verified.")
    if succeeded["replayed and not verified yet"]:
        end = (
            "is then resolved by itself" if batch.resolves_verified else "can be resolved once it is verified"
        )
        steps.append(f"What is not verified yet waits for the proof of its effect, and {end}.")
    return steps


def _groups(batch: ReplayBatch) -> list[DeadLetterGroup]:
    letters = batch.items.values("letter_id")
    now = DeadLetter.objects.filter(pk__in=letters).values("group_id")  # of the newest failure
    chosen = batch.items.values("group_id")
    found = DeadLetterGroup.objects.filter(Q(pk__in=now) | Q(pk__in=chosen)).order_by("-open_count", "pk")
    return list(found[:GROUPS_SHOWN])


def pace_of(batch: ReplayBatch) -> dict[str, Any]:
    """Return the initial data of the form of a batch's rate."""
    return {"rate_per_minute": batch.rate_per_minute, "max_in_flight": batch.max_in_flight}


def settings_of(batch: ReplayBatch) -> dict[str, Any]:
    """Return the initial data of the form of a draft."""
    return {name: getattr(batch, name) for name in BatchSettingsForm.base_fields}


def submit_help(batch: ReplayBatch) -> str:
    """Return what happens when a draft is submitted."""
    approval = (
        "Another user has to approve it before it starts"
        if batches.needs_approval(batch)
        else f"It starts at once; above {settings.REPLAY_APPROVAL_ABOVE} dead letters, from the first stage "
        "or with overridden checks another user has to approve it first"
    )
    return (
        "Dead letters that are not triaged or remediated yet take these steps with the data below. Each is "
        f"validated by itself, and a few are replayed first. {approval}."
    )


def approval_of(batch: ReplayBatch) -> str:
    """Return who approved a batch, or whether it needs approval, as a draft is now."""
    if batch.status == BatchStatus.DRAFT:
        return _NEEDED if batches.needs_approval(batch) else "not needed"
    return approval_in_list(batch)


def approval_in_list(batch: ReplayBatch) -> str:
    """Return the same, but ignore letters of a draft that were overridden by hand.

    Lists show this, because it needs no query.
    """
    if batch.approved_by:
        return batch.approved_by
    if batch.status == BatchStatus.DRAFT:
        return _NEEDED if batches.is_dangerous(batch) else "not by its settings"
    return "not approved yet" if batch.needs_approval and batch.started_at is None else "not needed"


def failures_of(batch: ReplayBatch) -> list[dict[str, Any]]:
    """Return a batch's failures by stage and error, the most frequent first."""
    letters = DeadLetter.objects.filter(pk__in=batch.items.values("letter_id")).order_by()
    counted = letters.values("error_class", "stage").annotate(count=Count("pk"))
    return [dict(row) for row in counted.order_by("-count", "error_class", "stage")[:FAILURES_SHOWN]]


def facts_of(batch: ReplayBatch) -> dict[str, Any]:
    """Return the context of replaybatch/_facts.html."""
    is_undecided = batch.status in {BatchStatus.DRAFT, BatchStatus.AWAITING}
    return {
        "by_hand": batches.overruled_by_hand(batch).count() if is_undecided else 0,
        "makers": ", ".join(name for name in batches.makers(batch) if name != batch.requested_by),
        "chosen_by": chosen_by(batch),
        "chosen_address": chosen_address(batch),
        "evidence_link": web_link(batch.evidence_link),
        "approval": approval_of(batch),
        "failures": failures_of(batch),
    }


def chosen_by(batch: ReplayBatch) -> str:
    """Return how the letters were chosen, as text."""
    if groups := batch.filter.get("groups"):
        numbers = ", ".join(str(number) for number in list(groups)[:20])
        return f"all open dead letters of group{'s' if len(groups) != 1 else ''} {numbers}"
    query, picked = str(batch.filter.get("q", "")), batch.filter.get("picked")
    if picked:
        source = f"the list of {query}" if query else "the list"
        return f"{plural_count(picked, 'dead letter')} picked by hand from {source}"
    return query or ("every dead letter of the list" if picked == 0 else "picked from the list")


def chosen_address(batch: ReplayBatch) -> str:
    """Return the URL of the list with the search of a batch; "" without a search.

    The list then shows closed letters as well.
    """
    query = str(batch.filter.get("q", ""))
    if groups := batch.filter.get("groups"):
        query = f"group:{','.join(str(number) for number in list(groups)[:20])}"
    if not query:
        return ""
    return reverse(_LETTERS, query={"q": query, "by": "all"})


def label_of(verdict: str) -> str:
    """Return the label of a verdict."""
    return _VERDICTS[verdict][0] if verdict in _VERDICTS else verdict.replace("_", " ").capitalize()


def verdict_rows(batch: ReplayBatch) -> list[dict[str, Any]]:
    """Return the verdicts of the last dry run, what can be replayed first."""
    counts: Mapping[str, int] = batch.report.get("verdicts", {})
    known = [*_VERDICTS, *sorted(set(counts) - set(_VERDICTS))]
    rows = []
    for verdict in known:
        if verdict in counts:
            _, meaning = _VERDICTS.get(verdict, ("", "It is skipped."))
            look = _LOOKS.get(verdict, "check-failed")
            rows.append(
                {"label": label_of(verdict), "count": counts[verdict], "meaning": meaning, "look": look}
            )
    return rows


def dry_run_sentence(report: Mapping[str, Any]) -> str:
    """Return the result of a dry run: `dry run, nothing was replayed: 312 can be replayed`."""
    counts: Mapping[str, int] = report.get("verdicts", {})
    parts = [f"{count} {label_of(verdict).lower()}" for verdict, count in counts.items()]
    return f"dry run, nothing was replayed: {', '.join(parts) or 'there is nothing to replay'}"


def progress_context(batch: ReplayBatch, *, sees_groups: bool) -> dict[str, Any]:
    """Return what changes while a batch runs. `goes_on`: it runs, or a job of it still does."""
    progress = batches.progress(batch.pk)
    return {
        "goes_on": batch.status == BatchStatus.RUNNING or ItemStatus.REPLAYING in progress.by_status,
        "done": progress.done,
        "outcome": outcome_of(batch, progress.by_status, sees_groups=sees_groups),
        "new_since": progress.newer,
        "new_since_address": _newer_address(progress),
        "tally": [
            {"state": status.value, "label": status.label, "count": progress.by_status[status.value]}
            for status in ItemStatus
            if progress.by_status.get(status.value)
        ],
    }


def _newer_address(progress: batches.Progress) -> str:
    """Return the URL of the list of the letters that arrived later.

    "" without such letters, or where their groups are too many for a search.
    """
    groups = ",".join(map(str, progress.newer_groups))
    query = f"group:{groups} letter:>={progress.first_newer} state:{','.join(BEFORE_REPLAY)}"
    return reverse(_LETTERS, query={"q": query}) if progress.newer and len(query) <= MAX_CHARACTERS else ""


def items_page(batch: ReplayBatch, outcome: str, after: str) -> dict[str, Any]:
    """Return one page of the items, in the order of their letters, of one outcome or of all."""
    wanted = outcome if outcome in ItemStatus.values else ""
    start = row_number(after) or 0
    rows: QuerySet[ReplayItem] = batch.items.order_by("id")
    if wanted:
        rows = rows.filter(status=wanted)
    found = list(rows.filter(pk__gt=start)[: ITEMS_PER_PAGE + 1])
    shown = found[:ITEMS_PER_PAGE]
    for item in shown:
        item.__dict__["shown_verdict"] = label_of(item.verdict) if item.verdict else "\N{EN DASH}"
    more = {"after": shown[-1].pk} if len(found) > ITEMS_PER_PAGE else {}
    return {
        "items": shown,
        "has_verdicts": any(item.verdict for item in shown),
        "older": _query(wanted, **more) if more else "",
        "is_older_page": bool(start),
        "first_query": _query(wanted),
        "letters_address": reverse(_LETTERS, query={"q": f"batch:{batch.pk}"}),
        "item_filters": [
            {"label": label, "query": _query(value), "is_this": value == wanted}
            for value, label in [("", "All"), *ItemStatus.choices]
        ],
    }


def last_event(batch: ReplayBatch) -> int:
    """Return the number of the newest line of a batch's history, for the forms of its pages."""
    return batch.events.order_by("-id").values_list("pk", flat=True).first() or 0


def events_of(batch: ReplayBatch) -> QuerySet[ReplayBatchEvent]:
    """Return the newest lines of a batch's history."""
    return batch.events.order_by("-id")[:EVENTS_SHOWN]


def _query(outcome: str, **more: Any) -> str:
    return f"?{urlencode({**({'outcome': outcome} if outcome else {}), **more})}#items-title"
