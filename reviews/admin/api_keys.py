"""Admin of API keys."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString

from criticizer.admin_site.base import ReadOnlyAdmin, admin_page, choice_filter, detail_field, list_column
from criticizer.admin_site.list_rendering import badge
from criticizer.admin_site.viewing_scope import not_of_reviews
from reviews.intake import api_keys
from reviews.models import ApiKey
from reviews.web.forms import ApiKeyForm


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    """API keys are created and revoked here; a key is shown once, its digest never."""

    scope = not_of_reviews("programs and their roles")
    empty_text = (
        "No API key yet. Triggers, CI jobs and agents need one each; it is shown once, when you add it."
    )
    list_display = (
        list_column("name", "name", "path"),
        "state",
        "role",
        list_column("prefix", "begins with", "path"),
        list_column("created_at", "created"),
        list_column("last_used_at", "last used"),
    )
    list_filter = (choice_filter("role", "role", ApiKey.Role.choices),)
    search_fields = ("name",)
    ordering = ("name",)
    actions = ("revoke",)
    fields = (
        "name", "state", "role", detail_field("prefix", "begins with", "path"),
        detail_field("created_at", "created"),
        detail_field("last_used_at", "last used"), detail_field("revoked_at", "revoked"), "prefixes",
    )  # fmt: skip
    readonly_fields = ("state",)

    @admin.display(description="state")
    def state(self, key: ApiKey) -> SafeString:
        value, label = ("revoked", "Revoked") if key.revoked_at else ("alive", "Valid")
        return badge(value, label)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("reviews.add_apikey"))

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("reviews.change_apikey"))

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> type[ModelForm[Any]]:
        return super().get_form(request, obj, change, **kwargs) if obj else ApiKeyForm

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.fields if obj else ("name", "role", "prefixes")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.readonly_fields if obj else ()

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        key = api_keys.create(obj.name, obj.role, form.cleaned_data["prefixes"])
        obj.pk = ApiKey.objects.values_list("pk", flat=True).get(name=obj.name)
        obj.__dict__["key_shown_once"] = key

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: Any = None) -> HttpResponse:
        """Show the key in this answer only: messages would store it in the session."""
        key = obj.__dict__["key_shown_once"]
        template, title = "admin/reviews/apikey/created.html", "The new API key"
        answer = admin_page(request, template, title, opts=self.opts, name=obj.name, key=key)
        answer["Cache-Control"] = "no-store"
        return answer

    @admin.action(description="Revoke", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        results = [api_keys.revoke(name) for name in queryset.values_list("name", flat=True)]
        skipped = results.count(False)
        text = f"{sum(results)} revoked" + (f", {skipped} skipped: already revoked" if skipped else "") + "."
        self.message_user(request, text, messages.WARNING if skipped else messages.SUCCESS)
