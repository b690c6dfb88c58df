"""Admin of groups of the same failure: what failed, since when, how often, and who owns it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from criticizer.admin_site.list_rendering import badge, format_html_fast
from criticizer.admin_site.ordering import Ordering
from criticizer.admin_site.search_query import Term, age, exact, flags, number
from criticizer.admin_site.timestamps import time_ago
from criticizer.admin_site.viewing_scope import across_reviews
from criticizer.db import prepared
from criticizer.db.full_text import full_text
from criticizer.inert_links import web_link
from criticizer.models import Circuit
from criticizer.resilience.failures import ErrorClass
from criticizer.security import reauthentication
from deadletters import batches, groups
from deadletters.admin.base import DeadLetterPages, OpenFirst
from deadletters.admin.forms import CauseFixedForm
from deadletters.admin.group_actions import GROUP_ACTIONS, WORK, actions_for
from deadletters.admin.letter_actions import BATCH_OF_GROUPS, REPLAY
from deadletters.admin.letter_advice import advice_on, named_in
from deadletters.admin.sparkline import DAYS, counts_by_day, sentence, sparkline
from deadletters.groups import is_snoozed
from deadletters.models import DeadLetter, DeadLetterGroup, DeadLetterGroupDay, DeadLetterGroupEvent
from deadletters.states import BEFORE_REPLAY, OPEN_LETTER, GroupStatus, LetterStatus

LETTERS_SHOWN = 25
EVENTS_SHOWN = 50
MAX_STATES_COUNTED = 10_000
# Letters that wait for their verification and verified ones need different steps.
_VERIFIED = "verified"
_SEARCHES = {LetterStatus.VERIFYING.value: "is:unverified", _VERIFIED: "is:verified"}
# State of letters -> the action of their next step, and the text of its button.
_NEXT = {
    LetterStatus.NEW.value: ("triage", "Triage {}"),
    LetterStatus.TRIAGED.value: ("remediate", "Remediate {}"),
    LetterStatus.REMEDIATED.value: ("validate", "Validate {}"),
    LetterStatus.VALIDATED.value: ("replay_batch", "Replay {}"),
    LetterStatus.VERIFYING.value: ("verify", "Verify {} unverified"),
    _VERIFIED: ("resolve", "Resolve {} verified"),
}
_NOTES = {
    LetterStatus.REPLAY_PENDING.value: "A batch replays them.",
    LetterStatus.REPLAYING.value: "Their jobs are running.",
}


class GroupChangeList(OpenFirst):
    """A page of groups with their daily counts and the text of their newest letters.

    The counts of all groups take one query, and so do the texts.
    """

    def _names(self, term: Term) -> bool:
        is_asked_for = (term.key, term.value, term.is_negated) == ("is", "snoozed", False)
        return is_asked_for or super()._names(term)

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        shown = [group.pk for group in self.result_list]
        days, words = days_of(shown), groups.newest_words(shown)
        for group in self.result_list:
            group.__dict__["trend"] = days[group.pk]
            group.__dict__["words"] = words.get(group.pk, "")


@admin.register(DeadLetterGroup)
class DeadLetterGroupAdmin(DeadLetterPages):
    """The landing page of the dead letters, and the page of one group."""

    scope = across_reviews("counts and texts of all reviews with the same failure")
    change_list = GroupChangeList
    rows_key = "group"
    nouns = ("group", "groups")
    timeline, timeline_of = DeadLetterGroupEvent, "group_id"
    empty_text = (
        "No failures. Jobs that failed permanently are listed here, grouped by their failure, with the "
        "number of occurrences and the owner."
    )
    none_open = "No group needs attention."
    list_display = ("cause", "where", "letters", "days", "seen", "owner_name", "state")
    orderings = {
        "open": Ordering("Needs attention, latest first", ("-last_seen", "-id"), groups.ATTENTION),
        "all": Ordering("All, latest first", ("-last_seen", "-id")),
    }
    search_keys = {
        "state": exact("status", "The group's status", choices=GroupStatus),
        "stage": exact("stage", "The stage that failed", choices=settings.STAGES),
        "error": exact("error_class", "The error class", choices=ErrorClass),
        "source": exact("source", "The dependency", example="llm:openai"),
        "owner": exact("owner", "The owner", example="ann"),
        "age": age("last_seen", "How long ago it last happened"),
        "since": age("first_seen", "How long ago it first happened"),
        "group": number("pk", "The group's number", example="3"),
        "open": number("open_count", "The number of open dead letters", example=">0"),
        "is": flags(
            {
                "snoozed": Q(snooze_until__gt=Now()),
                "unowned": Q(owner=""),
                "open": Q(open_count__gt=0),
            },
            "Snoozed groups; groups without an owner; groups with open dead letters",
        ),
    }
    search_words = full_text("normalized_message")
    starting_views = {
        "Snoozed": "q=is%3Asnoozed",
        "Without owner": "q=is%3Aunowned",
        "With open dead letters": "q=is%3Aopen",
    }
    bulk_actions = (BATCH_OF_GROUPS, *GROUP_ACTIONS)

    # -- columns ------------------------------------------------------------------------------

    @admin.display(description="failure")
    def cause(self, group: DeadLetterGroup) -> SafeString:
        """Show the error as the link: the newest letter's text, and what all of them have in common."""
        own, common = group.__dict__.get("words", ""), group.normalized_message
        lines = [("own", own), ("quiet", common if common != own else "")]
        return format_html_fast(
            '<span class="cause">{}</span>{}',
            group.error_class,
            format_html_join(
                "", '<span class="{}">{}</span>', ((c, text[:160]) for c, text in lines if text)
            ),
        )

    @admin.display(description="where")
    def where(self, group: DeadLetterGroup) -> SafeString:
        return format_html_fast('{}<br><span class="quiet path">{}</span>', group.stage, group.source)

    @admin.display(description="open of all")
    def letters(self, group: DeadLetterGroup) -> SafeString:
        return format_html_fast(
            '<span class="counts"><strong>{} open</strong> of {}</span>', group.open_count, group.total_count
        )

    @admin.display(description="14 days")
    def days(self, group: DeadLetterGroup) -> SafeString:
        return sparkline(group.__dict__.get("trend") or [0] * DAYS)

    @admin.display(description="last seen, since")
    def seen(self, group: DeadLetterGroup) -> SafeString:
        return format_html_fast(
            '{}<br><span class="quiet">since {}</span>', time_ago(group.last_seen), time_ago(group.first_seen)
        )

    @admin.display(description="owner")
    def owner_name(self, group: DeadLetterGroup) -> SafeString | str:
        runbook = web_link(group.runbook_url)
        link = (
            format_html_fast('<br><a href="{}" rel="noopener noreferrer">Runbook</a>', runbook)
            if runbook
            else ""
        )
        note = format_html_fast('<br><span class="quiet">{}</span>', group.note[:80]) if group.note else ""
        return format_html_fast("{}{}{}", group.owner or "\u2013", link, note)

    @admin.display(description="status")
    def state(self, group: DeadLetterGroup) -> SafeString:
        snoozed = badge("snoozed", "Snoozed") if is_snoozed(group) else ""
        return format_html_fast("{} {}", badge(f"group-{group.status}", group.get_status_display()), snoozed)

    # -- the group ----------------------------------------------------------------------------

    def get_urls(self) -> list[Any]:
        return [self.url("fixed", self.fixed_view), *super().get_urls()]

    def row_page(
        self, request: HttpRequest, row: DeadLetterGroup, form: CauseFixedForm | None = None
    ) -> HttpResponse:
        may_work, may_replay = request.user.has_perm(WORK), request.user.has_perm(REPLAY)
        context = {
            "title": f"{row.error_class} in stage {row.stage}",
            "original": row,
            "may_replay": may_replay,
            "actions": actions_for(row) if may_work else (),
            "form": form or CauseFixedForm(),
            **reauthentication.password_notice(
                request, "admin:deadletters_deadlettergroup_fixed", self.address_of(row.pk)
            ),
            **_group_context(row, request.user),
        }
        return self.render(request, "change_form.html", context)

    def fixed_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Replay the group's open letters on one text; lead to the page that follows the replay."""
        if not request.user.has_perm(REPLAY):
            raise PermissionDenied
        group = self.row(request, pk)
        if group is None or request.method != "POST":
            return self.back(request, pk)
        form = CauseFixedForm(request.POST)
        if not form.is_valid():
            return self.row_page(request, group, form)
        actor = request.user.get_username()
        started = batches.replay_fixed(pk, actor=actor, evidence=form.cleaned_data["evidence"])
        if started.batch_id is None:
            return self.back(request, pk, started.result)
        if not started.is_running:  # the page of a running batch says so itself, and how it ends
            self.report(request, started.result)
        return HttpResponseRedirect(reverse("admin:deadletters_replaybatch_change", args=[started.batch_id]))


def days_of(group_ids: Sequence[int]) -> dict[int, list[int]]:
    """Return the counts of the last days of each group, the oldest first."""
    today = timezone.now().date()
    counted: dict[int, dict[date, int]] = {pk: {} for pk in group_ids}
    rows = DeadLetterGroupDay.objects.filter(group__in=group_ids, day__gt=today - timedelta(days=DAYS))
    for group_id, day, count in rows.values_list("group_id", "day", "count"):
        counted[group_id][day] = count
    return {pk: counts_by_day(days, today) for pk, days in counted.items()}


def letters_address(query: str, *, by: str = "") -> str:
    """Return the query string of the letters' list for a search."""
    return urlencode({"q": query, **({"by": by} if by else {})})


def _group_context(group: DeadLetterGroup, user: Any) -> dict[str, Any]:
    counts = days_of([group.pk])[group.pk]
    newest = DeadLetter.objects.filter(group=group).select_related("job").order_by("-last_failure_at", "-id")
    letters = list(newest[:LETTERS_SHOWN])
    by_state = _by_state(group)
    # Replayed ones need no further replay, whatever their number.
    replayed = sum(row["count"] for row in by_state if row["state"] not in BEFORE_REPLAY)
    to_replay = max(0, group.open_count - replayed)
    to_fix = batches.replayable(group)[:MAX_STATES_COUNTED].count()
    is_recovered = bool(by_state) and not to_replay and all(row["state"] == _VERIFIED for row in by_state)
    return {
        **(advice_on(letters[0]) if letters else {"kind": None}),
        "named": named_in(letters[0], user) if letters else None,
        "group": group,
        "open_count": group.open_count,
        "is_snoozed": is_snoozed(group),
        "runbook": web_link(group.runbook_url),
        "trend": sparkline(counts),
        "trend_words": sentence(counts),
        "by_state": by_state,
        "to_replay": to_replay,
        "to_fix": to_fix,
        "is_replay_default": not to_fix,
        "approval_above": settings.REPLAY_APPROVAL_ABOVE,
        "recovered": letters_address(f"group:{group.pk} is:verified") if is_recovered else "",
        "letters": letters,
        "own_words": letters[0].detail.strip() if letters else "",
        "page_size": LETTERS_SHOWN,
        "events": DeadLetterGroupEvent.objects.filter(group=group).order_by("-id")[:EVENTS_SHOWN],
        # All of them: the list itself opens with what needs attention, and acts on nothing else.
        "group_list": f"{reverse('admin:deadletters_deadlettergroup_changelist')}?by=all",
        "letter_list": reverse("admin:deadletters_deadletter_changelist"),
        "open_query": letters_address(f"group:{group.pk}"),
        "all_query": letters_address(f"group:{group.pk}", by="all"),
        "resolve_label": f"Resolve {_all(replayed)} verified",
        "replay_label": f"Replay {_all(to_replay)} open",
        "circuit_address": _circuit_address(group.source),
    }


def _all(number: int) -> str:
    return "1" if number == 1 else f"all {number}"


# Ten thousand rows take longer to send than to count.
_COUNT_STATES = prepared.statement(
    """
SELECT state, count(*) AS number FROM (
  SELECT CASE WHEN status = '$VERIFYING' AND verified_at IS NOT NULL THEN '$VERIFIED' ELSE status END AS state
    FROM dead_letters WHERE group_id = %(group)s AND status IN $OPEN LIMIT %(most)s) l GROUP BY 1""",
    VERIFYING=LetterStatus.VERIFYING.value,
    VERIFIED=_VERIFIED,
    OPEN=prepared.sql_list(OPEN_LETTER),
)


def _by_state(group: DeadLetterGroup) -> list[dict[str, Any]]:
    """Return the open letters by state, with the action of their next step."""
    rows = prepared.rows(_COUNT_STATES, {"group": group.pk, "most": MAX_STATES_COUNTED})
    counted = {row["state"]: int(row["number"]) for row in rows}
    found = []
    for state, label in [*((status.value, status.label) for status in OPEN_LETTER), (_VERIFIED, "Verified")]:
        if not (count := counted.get(state, 0)):
            continue
        action, button = _NEXT.get(state, ("", ""))
        found.append(
            {
                "state": state,
                "label": label,
                "count": count,
                "query": letters_address(f"group:{group.pk} {_SEARCHES.get(state, f'state:{state}')}"),
                "action": action,
                "button": button.format(_all(count)),
                "note": _NOTES.get(state, ""),
            }
        )
    return found


def _circuit_address(name: str) -> str:
    found = Circuit.objects.filter(pk=name).first() if name else None
    return reverse("admin:criticizer_circuit_change", args=[found.pk]) if found else ""
