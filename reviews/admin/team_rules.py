"""Team rules in the admin: edited with a reason and a history, each with its hit rate."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Count, IntegerField, OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest

from criticizer.admin_site.base import choice_filter, list_column
from criticizer.admin_site.viewing_scope import not_of_reviews
from reviews.admin.audited import AuditedAdmin, register_audited
from reviews.models import RuleUse, TeamRule
from reviews.reviewers.base import FindingSeverity
from reviews.web.forms import ReasonedEdit, checked_pattern


class TeamRuleForm(ReasonedEdit[TeamRule]):
    """A rule with the paths it is for, and the reason for this edit."""

    class Meta:
        model = TeamRule
        fields = ("name", "pattern", "severity", "text", "good", "bad", "owner", "since", "reason")
        widgets = {name: forms.Textarea(attrs={"rows": 4, "cols": 80}) for name in ("text", "good", "bad")}

    def clean_pattern(self) -> str:
        return checked_pattern(self.cleaned_data["pattern"])


@register_audited(
    TeamRule,
    "name",
    list_column("pattern", "pattern", "path"),
    "severity",
    search="name__startswith pattern__startswith",
)
class TeamRuleAdmin(AuditedAdmin):
    """Rules by path: what the team wants reviewed."""

    scope = not_of_reviews("what reviews look for")
    empty_text = "No rule yet. A rule tells the model what your team wants reviewed, and in which paths."
    form = TeamRuleForm
    list_display = (
        "name",
        list_column("pattern", "pattern", "path"),
        "severity",
        "text",
        "owner",
        "since",
        "hit_rate",
    )
    list_filter = (
        choice_filter(
            "severity", "severity", [(severity.value, severity.value) for severity in FindingSeverity]
        ),
    )
    search_fields = ("name__startswith", "pattern__startswith", "owner__exact")
    ordering = ("name",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[TeamRule]:
        rows: QuerySet[TeamRule] = super().get_queryset(request)
        return rows.annotate(reviews=_uses(), cited=_uses(cited__gt=0))

    @admin.display(description="cited in")
    def hit_rate(self, row: Any) -> str:
        return f"{row.cited or 0} of {row.reviews} reviews" if row.reviews else "not used yet"


def _uses(**of: int) -> Subquery:
    """Return the number of reviews that had a rule, by its name."""
    uses = RuleUse.objects.filter(~Q(name__startswith="//"), name=OuterRef("name"), **of).order_by()
    counted = uses.values("name").annotate(count=Count("pk")).values("count")
    return Subquery(counted, output_field=IntegerField())
