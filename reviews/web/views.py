"""Read-only pages of reviewers, and the fragments that keep them up to date.

The `…-live` views return the parts of a page that change while a review runs; live.js swaps
them in by element id (see `live`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from criticizer.admin_site.base import admin_page
from criticizer.admin_site.saved_views import change_of, normalized_query, views_of
from criticizer.admin_site.viewing_scope import of_registered, visible_to
from criticizer.live_pages import BUSY_SECONDS, IDLE_SECONDS, live_answer, with_live_headers
from criticizer.security.client_ip import client_ip
from notifications.models import Delivery
from reviews import config, finding_exports, job_configuration
from reviews import failure_reference as codes
from reviews.artifacts import reader
from reviews.dashboard import overview
from reviews.dashboard.now import needs_now
from reviews.dashboard.trends import WINDOWS
from reviews.filters import FindingFilter, subject
from reviews.models import ReviewJob
from reviews.recipients.resolve import no_recipients_reason
from reviews.recipients.viewing_scopes import Scope, scope_of
from reviews.roles import READ
from reviews.web import actions, feeds
from reviews.web.fates import ledger_of
from reviews.web.files_tab import files_tab, has_diff, one_file
from reviews.web.finding_list import finding_page
from reviews.web.notices import notices_of
from reviews.web.outcomes import Outcome, outcomes
from reviews.web.progress import notified, progress_line, progress_sentence, stages_of
from reviews.web.reader_page import POST, page_for, reader_page
from reviews.web.review_list import ReviewFilter, matching
from reviews.web.review_results import Results, pull_of, results_of, results_revision, versions_of
from reviews.web.usage import counters
from reviews.web.within_review import filter_fields, kept_query, wanted_within


@reader_page
def review_list(request: HttpRequest) -> HttpResponse:
    """Show the newest reviews, narrowed by changelist, status and text."""
    context = _list_context(request)
    tools = _list_tools(request, "reviews", context["wanted"])
    return render(request, "reviews/list.html", {**tools, **context})


@reader_page
def review_list_live(request: HttpRequest) -> HttpResponse:
    """Return the table of the list, or 204 when the reader has it already."""
    context = _list_context(request)
    html = render_to_string("_workers.html", {}, request)
    html += render_to_string("reviews/_list.html", context, request)
    return live_answer(request, html, context["live_seconds"])


def _list_context(request: HttpRequest) -> dict[str, Any]:
    form = ReviewFilter(request.GET, label_suffix="")
    wanted = form.wanted()
    scope = scope_of(request.user)
    page = matching(wanted, request.user, scope, request.GET.get("after", ""), request.GET.get("before", ""))
    return {
        "wanted": wanted,
        "form": form,
        "page": page,
        "is_filtered": bool(wanted) or not form.is_valid(),
        "live_seconds": BUSY_SECONDS if page.has_active else IDLE_SECONDS if page.is_first else 0,
        "sees_no_file": scope.is_empty,
        "base_url": settings.BASE_URL.rstrip("/"),
        "example_changelist": _example_changelist(),
    }


def _example_changelist() -> str:
    """Return the id of a changelist as one of the configured sources has it."""
    configured = config.sources()
    if configured.perforce is None and configured.git:
        return f"git:{next(iter(configured.git))}@<40 digits of the commit>"
    return "12345"


@page_for(READ, methods=POST)
def saved_view(request: HttpRequest, name: str) -> HttpResponse:
    """Save, rename or delete the person's own view of a list, then show the list."""
    if name not in feeds.LISTS:
        raise Http404
    return change_of(request, f"pages.{name}", reverse(feeds.LISTS[name].page))


def _list_tools(request: HttpRequest, name: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return what both lists offer for their present filter: saved views, feed, subject."""
    query = request.META.get("QUERY_STRING", "")
    return {
        "list_name": name,
        "subject": subject(wanted),
        "views": [view for view in views_of(request.user, f"pages.{name}", {}, query) if view.pk],
        "view_query": normalized_query(query),
        "feed": feeds.address(request.user, name, normalized_query(query)),
    }


@reader_page
def finding_list(request: HttpRequest) -> HttpResponse:
    """Show the findings of all reviews, narrowed by words and filters (guarantee G265).

    The newest come first.
    """
    form = FindingFilter(request.GET, label_suffix="")
    wanted = form.wanted()
    scope = scope_of(request.user)
    context = {
        **_list_tools(request, "findings", wanted),
        "form": form,
        "page": finding_page(wanted, request.user, scope, request.GET.get("after", "")),
        "is_filtered": bool(wanted) or not form.is_valid(),
    }
    return render(request, "reviews/findings.html", context)


@reader_page
def review_detail(request: HttpRequest, job_id: int) -> HttpResponse:
    """Show one review: its progress, findings, coverage and deliveries."""
    scope = scope_of(request.user)
    job = get_object_or_404(scope.jobs(), pk=job_id)
    # Read before the results: a change in between is fetched again rather than missed.
    revision = results_revision(job) if job.is_active else ""
    outcome = outcomes([job])[job.pk]
    context = {
        **_progress_context(job, scope, outcome),
        **_results_context(request, job, scope, outcome),
        "revision": revision,
        "live_seconds": BUSY_SECONDS if job.is_active else 0,
    }
    return render(request, "reviews/detail.html", context)


@reader_page
def review_detail_live(request: HttpRequest, job_id: int) -> HttpResponse:
    """Return the progress of one review.

    With its results, if they differ from what the reader has.
    """
    scope = scope_of(request.user)
    job = get_object_or_404(scope.jobs(), pk=job_id)
    revision = results_revision(job)
    outcome = outcomes([job])[job.pk]
    html = render_to_string("_workers.html", {}, request)
    html += render_to_string("reviews/_progress.html", _progress_context(job, scope, outcome), request)
    if request.GET.get("have") != revision:
        request.GET = kept_query(request.GET)  # type: ignore[assignment]  # links are those of the page
        context = _results_context(request, job, scope, outcome)
        html += render_to_string("reviews/_head.html", context, request)
        html += render_to_string("reviews/_results.html", context, request)
    return with_live_headers(HttpResponse(html), revision, BUSY_SECONDS if job.is_active else 0)


@reader_page
def review_file(request: HttpRequest, job_id: int, number: int) -> HttpResponse:
    """Show the lines of one file of the tab Files, with its findings.

    files.js gets them without the page around.
    """
    scope = scope_of(request.user)
    job = get_object_or_404(scope.jobs(), pk=job_id)
    has_context = request.GET.get("around") == "1"
    file = one_file(job, scope, number, wanted_within(request.GET), with_context=has_context)
    if file is None:
        raise Http404
    reader.record_shown(job, request.user, client_ip(request))
    is_page = request.headers.get("X-Requested-With") != "fetch"
    kept = kept_query(request.GET).urlencode()
    context = {"job": job, "file": file, "view": "files", "kept": kept}
    return render(request, f"reviews/{'' if is_page else '_'}file.html", context)


@reader_page
def findings_file(request: HttpRequest, job_id: int, form: str) -> HttpResponse:
    """Download the findings of a review for other tools."""
    scope = scope_of(request.user)
    job = get_object_or_404(scope.jobs(), pk=job_id)
    return finding_exports.download(job.pk, form, job.findings.filter(scope.findings()))


def _progress_context(job: ReviewJob, scope: Scope, outcome: Outcome) -> dict[str, Any]:
    stages = stages_of(job, scope)
    return {
        "job": job,
        "stages": stages,
        "progress": progress_sentence(job, stages, outcome),
        "progress_line": progress_line(job, outcome),
        "notified": notified(job),
    }


def _results_context(request: HttpRequest, job: ReviewJob, scope: Scope, outcome: Outcome) -> dict[str, Any]:
    is_staff = request.user.is_authenticated and request.user.is_staff
    notices = notices_of(job, scope, for_operator=is_staff)
    may = actions.offered(request.user, job, scope)
    versions = versions_of(job, scope)
    if not versions or versions[0].review_version <= job.review_version:
        notices = actions.with_rerun_links(notices, job, may_review_again=may["may_review_again"])
    results, narrowed = results_of(job, scope, request.GET), wanted_within(request.GET)
    wanted = request.GET.get("view") or ("files" if results.finding_count else "findings")
    is_stored = has_diff(job)
    shown = results.findings.rows
    files = files_tab(job, scope, shown, narrowed) if is_stored and wanted == "files" else None
    if files is not None:
        reader.record_shown(job, request.user, client_ip(request))
    return {
        "job": job,
        "kept": kept_query(request.GET).urlencode(),
        "outcome": outcome,
        "pull": pull_of(job),
        "results": results,
        "configuration_pages": job_configuration.pages_of(job, scope),
        "files": files,
        "narrowed": narrowed,
        "filter_fields": list(filter_fields(job, scope, narrowed, results.all_rows)),
        "ledger": ledger_of(job, scope) if files is None else None,
        "view": "findings" if files is None else "files",
        "has_diff": is_stored if wanted != "files" else files is not None,
        "versions": versions,
        "notices": notices,
        "shows_recipients": is_staff,
        "messages_open": _messages_open(request.user, results) if is_staff else (),
        "counters": list(counters(job.usage)),
        "no_recipients_reason": no_recipients_reason(
            job.status, job.recipients, job.recipients_are, len(results.deliveries)
        ),
        **may,
    }


def _messages_open(user: Any, results: Results) -> Collection[int]:
    """Return which deliveries of a page have a page in the admin that the user may open."""
    shown = [delivery.pk for delivery in results.deliveries]
    if not shown or not user.has_perm("notifications.view_delivery"):
        return ()
    if visible_to(user) is None:
        return shown
    return set(of_registered(Delivery, user).filter(pk__in=shown).values_list("pk", flat=True))


@require_safe
@never_cache
def dashboard_live(request: HttpRequest) -> HttpResponse:
    """Return the dashboard of `?window=`, or 204 when the reader has it already."""
    if not overview.may_see(request.user):
        raise PermissionDenied
    shown = overview.dashboard(request.GET.get("window", ""))
    html = render_to_string("_workers.html", {}, request)
    html += render_to_string("admin/_now.html", {"now": needs_now(request.user)}, request)
    html += render_to_string("admin/_dashboard.html", {"dashboard": shown, "windows": WINDOWS}, request)
    return live_answer(request, html, overview.REFRESH_SECONDS)


@require_safe
def failure_codes(request: HttpRequest) -> HttpResponse:
    """Show every failure code with its texts; `#<code>` links to a row."""
    seen = {""}
    sections = []
    for section in codes.sections():
        rows = []
        for code, *cells in section.rows:
            # A code may be in several tables: links go to the first.
            rows.append({"anchor": "" if code in seen else code, "code": code, "cells": cells})
            seen.add(code)
        sections.append(
            {"title": section.title, "note": section.note, "columns": section.columns, "rows": rows}
        )
    return admin_page(request, "admin/failure_codes.html", "Failure codes", sections=sections)
