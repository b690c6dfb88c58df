"""Suppressed addresses in the console: what is suppressed and why, and lifting it with a reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from criticizer.admin import ReadOnlyAdmin, one_of, titled
from notifications import suppressions
from notifications.models.suppressions import Suppression

MAX_CHOSEN = 100  # of one action


class LiftForm(forms.Form):
    """Why mail may go to the addresses again."""

    reason = forms.CharField(
        min_length=3,
        max_length=500,
        strip=True,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="A ticket or a sentence: the mailbox was mended, the complaint was a mistake. It is kept.",
    )


class InForce(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("force", "In force"), ("lifted", "Lifted")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() is None:
            return queryset
        return queryset.filter(lifted_at__isnull=self.value() == "force")


@admin.register(Suppression)
class SuppressionAdmin(ReadOnlyAdmin):
    list_display = (
        titled("address", "address", "path"),
        "reason",
        "provider",
        titled("created_at", "suppressed"),
        titled("lifted_at", "lifted"),
        "lifted_by",
    )
    list_filter = (InForce, one_of("reason", "reason", Suppression.Reason.choices))
    search_fields = ("address__startswith",)
    search_help_text = "The beginning of an address, in lower case."
    ordering = ("-id",)
    actions = ("lift",)
    fields = (
        *("address", "reason", "provider", "event_id", "detail", "created_at"),
        *("lifted_at", "lifted_by", "lift_reason"),
    )

    def has_lift_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("notifications.lift_suppression"))

    @admin.action(description="Lift\u2026", permissions=["lift"])
    def lift(self, request: HttpRequest, queryset: QuerySet[Suppression]) -> HttpResponse | None:
        """Ask why; with an answer, lift exactly the suppressions that the question listed."""
        is_answer = "confirmed" in request.POST
        form = LiftForm(request.POST if is_answer else None)
        chosen = (
            [int(item) for item in request.POST.getlist(ACTION_CHECKBOX_NAME) if item.isdecimal()]
            if is_answer
            else list(queryset.values_list("pk", flat=True)[: MAX_CHOSEN + 1])
        )
        if len(chosen) > MAX_CHOSEN:
            self.message_user(request, f"Choose at most {MAX_CHOSEN} addresses at a time.", messages.ERROR)
            return None
        if not form.is_valid():
            return self._question(request, chosen, form)
        actor, reason = request.user.get_username(), form.cleaned_data["reason"]
        lifted = sum(suppressions.lift(pk, actor=actor, reason=reason) for pk in chosen)
        text = (
            f"{lifted} lifted: mail goes to {'it' if lifted == 1 else 'them'} again; replay what was refused"
        )
        if len(chosen) > lifted:
            text += f". {len(chosen) - lifted} skipped: lifted before"
        self.message_user(request, f"{text}.", messages.SUCCESS if lifted else messages.WARNING)
        return None

    def _question(self, request: HttpRequest, chosen: Sequence[int], form: forms.Form) -> TemplateResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": "Lift suppressions",
            "opts": self.opts,
            "form": form,
            "suppressions": Suppression.objects.filter(pk__in=chosen).order_by("address"),
        }
        return TemplateResponse(request, "admin/notifications/suppression/confirm.html", context)
