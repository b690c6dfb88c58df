"""Configuration that a review was made by: what it hides, and what readers see of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.urls import reverse
from django.utils import timezone

from notifications.rendering import ConfigurationLine
from reviews.configuration import FILE_NAMES
from reviews.configuration.effects import FindingRules, strictest
from reviews.models import FindingFate, RepositoryConfiguration, ReviewJob
from reviews.recipients.viewing_scopes import Scope
from reviews.repository_configuration import branch_of
from reviews.reviewers.base import Fate, RawId
from reviews.reviewers.review import ReviewOutcome

_AFTER_MERGE = "Configuration: this change edits `{name}`, which takes effect after merge."


def lines_of(job: ReviewJob) -> tuple[ConfigurationLine, ...]:
    """Return what stands at the top of a review's report, each line for readers of its file."""
    found = []
    for each in job.configuration:
        texts = []
        if each["is_edited"]:
            texts.append(_AFTER_MERGE.format(name=each["name"] or FILE_NAMES[0]))
        texts += [fault["text"] for fault in each["warnings"]]
        if each["hidden"]:
            texts.append(f"and {each['hidden']} more configuration warnings.")
        texts += [f"In the changed file: {text}" for text in each["proposed"]]
        found += [ConfigurationLine(_path_of(each), text) for text in texts]
    return tuple(found)


def _path_of(kept: Mapping[str, Any]) -> str:
    """Return the file of a root, or the one that a change adds there."""
    return f"{kept['root']}{kept['name'] or FILE_NAMES[0]}"


def hidden_by_configuration(job_id: int, outcome: ReviewOutcome) -> ReviewOutcome:
    """Return the outcome without the findings that the repository hides.

    The ledger keeps them (G445).
    """
    job = ReviewJob.objects.only("configuration").get(pk=job_id)
    today = timezone.now().date()
    rules = {
        each["root"]: FindingRules(
            each["root"], each["values"], today, case_sensitive=each.get("case_sensitive", True)
        )
        for each in job.configuration
    }
    hidden: dict[RawId, str] = {}
    for finding in outcome.review.findings:
        file = finding.file.casefold()  # the source may ignore case
        above = (root for root in rules if file.startswith(root.casefold()))
        root = max(above, key=lambda root: (len(root), finding.file.startswith(root)), default="")
        why = rules[root].why_hidden(finding) if root else ""
        if why and finding.raw is not None:
            hidden[finding.raw] = why
    if not hidden:
        return outcome
    kept = tuple(finding for finding in outcome.review.findings if finding.raw not in hidden)
    fates = tuple(
        replace(fated, fate=Fate.SUPPRESSED, reason=hidden[fated.raw])
        if fated.raw in hidden and fated.into is None
        else fated
        for fated in outcome.fates
    )
    return replace(outcome, review=replace(outcome.review, findings=kept), fates=fates)


def as_read_by(kept: Sequence[Mapping[str, Any]], scope: Scope) -> dict[str, Any] | None:
    """Return the configuration of a review as the API shows it to readers of its file.

    None: there is nothing to say. Further roots of a Perforce change stand in `others`.
    """
    found = [
        {
            "source": _path_of(each) if each["name"] else "",
            "revision": each.get("revision", ""),
            "digest": each["digest"],
            "warnings": [fault["text"] for fault in each["warnings"]],
            "is_edited": each["is_edited"],
            "proposed": each["proposed"],
        }
        for each in kept
        if (each["name"] or each["is_edited"] or each["warnings"]) and scope.allows(_path_of(each))
    ]
    return {**found[0], "others": found[1:]} if found else None


def pages_of(job: ReviewJob, scope: Scope) -> list[tuple[str, str]]:
    """Return name and address of the pages of a review's configurations that a reader may open."""
    roots = [each["root"] for each in job.configuration]
    rows = RepositoryConfiguration.objects.filter(root__in=roots, branch=branch_of(job)) if roots else ()
    return [
        (path, reverse("reviews:configuration", args=[row.pk]))
        for row in rows
        if row.configuration["name"] and scope.allows(path := f"{row.root}{row.configuration['name']}")
    ]


def suppressed_in(job: ReviewJob) -> int:
    """Return how many findings of the newest run the repository hides."""
    return FindingFate.of_newest_run(job).filter(fate=Fate.SUPPRESSED).count() if job.configuration else 0


def wants_agents(job: ReviewJob) -> bool:
    """Return whether agents of its repository read the change, in place of our model."""
    return any(values.get("agent", False) for values in _values(job))


def blocks_at(job: ReviewJob) -> str:
    """Return the severity at which a check run fails, or `none`."""
    return strictest(_values(job), "check.block")


def budget_of(job: ReviewJob) -> int:
    """Return how many findings a message shows in full."""
    return min(int(most) for most in (settings.FINDING_BUDGET, *(v["max_findings"] for v in _values(job))))


def _values(job: ReviewJob) -> list[Mapping[str, Any]]:
    return [each["values"] for each in job.configuration]
