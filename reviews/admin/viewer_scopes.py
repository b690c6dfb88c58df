"""Viewing scopes in the admin: the depot trees of each group, with a reason and a history."""

from __future__ import annotations

from criticizer.admin_site.base import list_column
from criticizer.admin_site.viewing_scope import not_of_reviews
from reviews.admin.audited import AuditedAdmin, register_audited
from reviews.intake.api_keys import check_tree
from reviews.models import ViewerScope
from reviews.web.forms import ReasonedEdit, accepted


class ViewerScopeForm(ReasonedEdit[ViewerScope]):
    """A group and a depot tree it may read, with the reason for this edit."""

    class Meta:
        model = ViewerScope
        fields = ("group", "prefix", "reason")

    def clean_prefix(self) -> str:
        return accepted(check_tree, self.cleaned_data["prefix"].strip())


@register_audited(
    ViewerScope,
    list_column("group_id", "group's number"),
    list_column("prefix", "depot tree", "path"),
    search="prefix__startswith",
)
class ViewerScopeAdmin(AuditedAdmin):
    scope = not_of_reviews("the scopes themselves")
    empty_text = (
        "No viewing scope yet: only people who may see every file see reviews. Add a depot tree for a group."
    )
    form = ViewerScopeForm
    list_display = (list_column("prefix", "depot tree", "path"), "group", "reason")
    list_select_related = ("group",)
    search_fields = ("prefix__startswith", "group__name__exact")
    ordering = ("group", "prefix")
