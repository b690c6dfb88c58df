"""Peer of the product's admin: Django's as one would write it first, on the same tables.

`python -m benchmarks.admin_scale` serves it beside the product's own (BENCHMARK_URLCONF), with the same
middleware and login: `list_display`, `list_filter` and `search_fields` over the fields that operators ask
for, and everything else as it comes.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.urls import path

from criticizer.urls import urlpatterns as product
from deadletters.models import DeadLetter, DeadLetterGroup
from reviews.models import ReviewJob

site = admin.AdminSite(name="stock")


class Stock(admin.ModelAdmin[Any]):
    # Not the product's templates, which Django would find by the model's name.
    change_list_template = "admin/change_list.html"
    change_form_template = "admin/change_form.html"


@admin.register(ReviewJob, site=site)
class StockJobs(Stock):
    list_display = ("changelist_id", "review_version", "status", "title", "author", "created_at", "is_late")
    list_filter = ("status", "is_late", "created_at")
    search_fields = ("changelist_id", "title", "author")
    ordering = ("-created_at",)


@admin.register(DeadLetterGroup, site=site)
class StockGroups(Stock):
    list_display = ("error_class", "stage", "normalized_message", "status", "open_count", "last_seen")
    list_filter = ("status", "stage", "error_class")
    search_fields = ("normalized_message", "error_class")
    ordering = ("-last_seen",)


@admin.register(DeadLetter, site=site)
class StockLetters(Stock):
    list_display = ("error_class", "job", "stage", "status", "severity", "last_failure_at")
    list_filter = ("status", "stage", "error_class", "severity")
    search_fields = ("detail", "error_class", "job__changelist_id")
    list_select_related = ("job",)
    raw_id_fields = ("job", "group", "parent")
    ordering = ("-last_failure_at",)


urlpatterns = [path("stock/", site.urls), *product]
