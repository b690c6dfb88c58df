"""Filters of findings and of reviews, for pages, feeds and the API.

One declaration of the fields, and two conditions made of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.db.models import Exists, OuterRef, Q

from reviews.models import CoverageRow
from reviews.recipients.viewing_scopes import Scope
from reviews.reviewers.base import FindingSeverity
from reviews.search import jobs_with_findings, with_facets
from reviews.states import VERDICTS
from reviews.verdicts import has_verdict_in_words

_VERDICTS = [
    ("", "Any verdict"),
    ("open", "Not dismissed"),
    ("none", "No verdict"),
    *((kind.value, str(kind.label)) for kind in VERDICTS),
]
_SEVERITIES = [("", "Any severity"), *((name.value, name.value.capitalize()) for name in FindingSeverity)]
_SOURCES = [("", "Model and checks"), ("llm", "Language model"), ("check", "Checks")]
_DATE = forms.DateInput(attrs={"type": "date"})
MAX_TEXT = 300  # a pasted title or path
# A path as pages print it, with or without the lines of a finding.
_PATH = re.compile(r"(?P<path>//.*?)(?::[0-9]{1,9}(?:[-\u2013][0-9]{1,9})?)?", re.ASCII | re.DOTALL)


class FindingFilter(forms.Form):
    """Filter of findings, and of reviews that have such findings. Empty fields filter nothing."""

    text = forms.CharField(
        max_length=MAX_TEXT,
        required=False,
        label="Words",
        help_text="Of titles, messages and paths, or a changelist; the beginning of a word is enough.",
    )
    author = forms.CharField(max_length=255, required=False, help_text="Of the change.")
    path = forms.CharField(
        max_length=1024, required=False, label="Path begins with", help_text="Such as //depot/main/"
    )
    file = forms.CharField(max_length=1024, required=False, strip=False, help_text="Its whole path.")
    severity = forms.ChoiceField(choices=_SEVERITIES, required=False)
    category = forms.CharField(max_length=32, required=False)
    source = forms.ChoiceField(choices=_SOURCES, required=False, label="Found by")
    verdict = forms.ChoiceField(choices=_VERDICTS, required=False)
    since = forms.DateField(required=False, widget=_DATE, label="From")
    until = forms.DateField(required=False, widget=_DATE, label="To")
    mine = forms.BooleanField(required=False, label="Only my changes")

    def wanted(self) -> dict[str, Any]:
        """Return the filters that are set; none where the form is not valid.

        A path that was pasted into the words is a filter of paths.
        """
        found = self.cleaned_data if self.is_valid() else {}
        wanted = {name: value for name, value in found.items() if value}
        pasted = _PATH.fullmatch(wanted.get("text", ""))
        if pasted and "path" not in wanted:
            del wanted["text"]
            wanted["path"] = pasted["path"]
        return wanted

    IN_SIGHT: tuple[str, ...] = ("text",)  # the others are behind a fold

    @property
    def main_fields(self) -> list[forms.BoundField]:
        return [field for field in self if field.name in self.IN_SIGHT]

    @property
    def more_fields(self) -> list[forms.BoundField]:
        return [field for field in self if field.name not in self.IN_SIGHT]

    @property
    def has_more(self) -> bool:
        return not self.is_valid() or any(v for n, v in self.cleaned_data.items() if n not in self.IN_SIGHT)


@dataclass(frozen=True, slots=True)
class Subject:
    """Subject of a page: its path, file and author. `query` leads to the same on other pages."""

    text: str
    query: str


def subject(wanted: Mapping[str, Any]) -> Subject | None:
    """Return the subject of a page whose filters name one of these: `in //app/ by carol`."""
    words = {"path": "in", "file": "in the file", "author": "by"}
    named = {name: str(wanted[name]) for name in words if name in wanted}
    text = " ".join(f"{words[name]} {value}" for name, value in named.items())
    return Subject(text, urlencode(named)) if named else None


def of_changes(wanted: Mapping[str, Any], user: Any, job: str = "") -> Q:
    """Return the condition on reviews; `job` leads to the review, such as `job__`."""
    found = Q()
    if author := wanted.get("author"):
        found &= Q(**{f"{job}author": author})
    if wanted.get("mine"):
        names = {user.get_username(), user.get_full_name(), user.email} - {""}
        found &= Q(**{f"{job}author__in": sorted(names)})
    if since := wanted.get("since"):
        found &= Q(**{f"{job}created_at__gte": datetime.combine(since, time.min, UTC)})
    if until := wanted.get("until"):
        found &= Q(**{f"{job}created_at__lte": datetime.combine(until, time.max, UTC)})
    return found


def of_findings(wanted: Mapping[str, Any]) -> Q:
    """Return the condition on findings by what they say and what is said about them."""
    found = with_facets({name: wanted[name] for name in ("severity", "category", "source") if name in wanted})
    return found & _of_files(wanted) & has_verdict_in_words(wanted.get("verdict", ""))


def of_reviews(wanted: Mapping[str, Any], user: Any, scope: Scope) -> Q:
    """Return the condition on reviews: their change, and that they have such a finding or file."""
    found = of_changes(wanted, user)
    if wanted.keys() & {"severity", "category", "source", "verdict"}:
        return found & jobs_with_findings(scope.findings() & of_findings(wanted))
    if of_files := _of_files(wanted):
        files = CoverageRow.objects.filter(scope.files(), of_files, job=OuterRef("pk"))
        return found & Q(Exists(files))
    return found


def _of_files(wanted: Mapping[str, Any]) -> Q:
    """Return the condition on `file` of findings and of coverage rows."""
    lookups = {"path": "file__startswith", "file": "file"}
    return Q(**{lookups[name]: wanted[name] for name in lookups if name in wanted})
