"""Outlook for a person's mail: its set-up, and the newest reviews that match their paths."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Window
from django.db.models.functions import RowNumber

from criticizer import mail
from notifications.config import providers
from notifications.preferences.policy import Preference
from notifications.suppressions.bounces import suppressed_since
from reviews.models import CoverageRow, RecipientMode, ReviewJob, Subscription
from reviews.recipients.viewing_scopes import Scope
from reviews.sources.line_index import LineIndex

NEWEST = 20  # reviews that the paths are compared with
_LOOKED_AT = 1_000  # reviews among which these are looked for, whoever may see them
_MAX_OTHERS = 200
_MAX_FILES = 1_000  # of a review
_STARTED_BY = "a trigger, a code host or polling"


@dataclass(frozen=True, slots=True)
class Outlook:
    """Outlook for a person: `text` says in one or two sentences what will be mailed.

    `is_good`: mail comes. `matches`: of how many of the newest `compared` reviews each subscription covers a
    file, by its id.
    """

    text: str
    is_good: bool
    matches: Mapping[int, int]
    compared: int


def outlook(
    address: str, preference: Preference, subscriptions: Sequence[Subscription], scope: Scope
) -> Outlook:
    """Return what a person can expect: `address` is a recipient such as `mail:ann@example.com`.

    Only reviews that the person may see are compared, and of these only files that they may see.
    """
    others = Subscription.objects.filter(recipient=address, owner=None)[:_MAX_OTHERS]
    matches, matching, compared = _compared([*subscriptions, *others], scope)
    problem = _problem(address, preference)
    if not subscriptions and not others:
        about = "You have no path yet, so no review is mailed to you unless a request names you."
    elif not compared:
        about = (
            f"None of the newest reviews that you may see was started by {_STARTED_BY}, and only these count."
        )
    elif compared == 1:
        matched = "matches" if matching else "does not match"
        about = f"The only review that {_STARTED_BY} started {matched} your paths."
    else:
        about = (
            f"Of the last {compared} reviews that {_STARTED_BY} started, {matching or 'none'} "
            f"match{'es' if matching <= 1 else ''} your paths."
        )
    text = f"{problem or 'Mail is set up.'} {about}"
    return Outlook(text, not problem and bool(matching), matches, compared)


def _problem(address: str, preference: Preference) -> str:
    """Return why no mail comes whatever matches, or ""."""
    if "mail" not in providers():
        return "No mail is sent: the mail server is not set up. Ask an administrator."
    if mail.provider() == mail.MAILDIR:
        return "No mail is sent: messages are only written into a folder of this server."
    if since := suppressed_since(address):
        return f"No mail is sent to you: your address was refused on {since:%Y-%m-%d}. Ask an administrator."
    return "No mail is sent to you: you are muted." if preference.muted_until is not None else ""


def _compared(subscriptions: Sequence[Subscription], scope: Scope) -> tuple[dict[int, int], int, int]:
    """Return matches by subscription, the number of reviews with one, and the number compared."""
    jobs = _newest(scope) if subscriptions else {}
    index = LineIndex(row.pattern for row in subscriptions)
    place = Window(RowNumber(), partition_by="job_id", order_by="pk")
    rows = CoverageRow.objects.filter(scope.files(), job__in=jobs).annotate(place=place)
    paths: dict[int, set[str]] = defaultdict(set)
    for job, file in rows.filter(place__lte=_MAX_FILES).values_list("job_id", "file"):
        paths[job].add(file)
    matches: Counter[int] = Counter()
    matching = 0
    for job, author in jobs.items():
        patterns = index.matching(paths[job])
        covered = [
            row.pk
            for row in subscriptions
            if row.pattern in patterns and row.author.lower() in ("", author.lower())
        ]
        matches.update(covered)
        matching += bool(covered)
    return dict(matches), matching, len(jobs)


def _newest(scope: Scope) -> dict[int, str]:
    """Return the authors of the newest reviews by the reviews' ids.

    Only of reviews whose recipients were looked up.
    """
    newest = ReviewJob.objects.order_by("-pk").values_list("pk", flat=True)[_LOOKED_AT - 1 : _LOOKED_AT]
    rows = scope.jobs().filter(pk__gte=newest.first() or 0).order_by("-pk")
    looked_up = rows.filter(recipients_are=RecipientMode.FOUND).values_list("pk", "author")
    return dict(looked_up[:NEWEST])
