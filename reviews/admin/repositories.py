"""The page of code hosts: what is connected, what came last, and how to set each up here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from csp.decorators import csp_update
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.decorators import permission_required
from django.db.models import Count, Max, Q
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from criticizer.codehosts.base import Host
from criticizer.codehosts.registry import HOSTS
from criticizer.redaction import clean
from criticizer.resilience.failures import classify
from notifications.config import host as host_of
from notifications.recipients import variables_of
from reviews.admin import github_app
from reviews.models import HostChange, HostCheck, HostDelivery, HostInstallation
from reviews.roles import READS_REPOSITORIES

MAX_REPOSITORIES = 50
_reads = permission_required(READS_REPOSITORIES, raise_exception=True)
_tests = permission_required(["notifications.test_provider", "reviews.view_all_files"], raise_exception=True)


@dataclass(frozen=True, slots=True)
class HostView:
    """One host. `to_set`: the variables of its credentials, where one is missing."""

    host: Host
    to_set: str
    secrets: int
    only: str  # which repositories are enabled, in words
    webhook_url: str
    set_up: Sequence[str]
    installations: Sequence[HostInstallation]
    repositories: Sequence[Mapping[str, Any]]
    last_event: HostDelivery | None
    last_failure: HostCheck | None


@dataclass(frozen=True, slots=True)
class Tested:
    """The result of *Test the connection* for one host."""

    name: str
    text: str
    is_ok: bool
    advice: str = ""
    code: str = ""


def _url(path: str) -> str:
    return settings.BASE_URL.rstrip("/") + path


def _view(name: str) -> HostView:
    host, variable = host_of(name), name.upper()
    patterns = getattr(settings, f"{variable}_REPOSITORIES")
    changes = HostChange.objects.filter(host=name).exclude(state=HostChange.State.REMOVED)
    by_repository = changes.values("full_name").annotate(
        last=Max("reported_at"), open=Count("pk", filter=Q(state__in=("open", "draft")))
    )
    checks = HostCheck.objects.exclude(error_class="").filter(version__change__host=name)
    return HostView(
        host,
        "" if host.is_connected else variables_of(name),
        len(getattr(settings, f"{variable}_WEBHOOK_SECRETS")),
        ", ".join(patterns) or f"those below //{name}/ in the allow-list",
        _url(reverse("api-host-webhook", args=[name])),
        host.set_up,
        list(HostInstallation.objects.filter(host=name).order_by("account")[:MAX_REPOSITORIES]),
        list(by_repository.order_by("-last")[:MAX_REPOSITORIES]),
        HostDelivery.objects.filter(host=name).order_by("-received_at", "-id").first(),
        checks.select_related("version__change").order_by("-id").first(),
    )


def _page(request: HttpRequest, tested: Tested | None = None) -> HttpResponse:
    new_app = github_app.returned_app(request) if tested is None else None
    context = {
        **admin.site.each_context(request),
        "title": "Repositories",
        "hosts": [_view(name) for name in HOSTS],
        "tested": tested,
        "may_test": request.user.has_perm("notifications.test_provider"),
        "new_app": new_app,
        "new_app_url": request.user.has_perm(github_app.MAKES_APPS)
        and github_app.signed_form_url(request.user),
        "manifest": github_app.manifest(),
    }
    answer = TemplateResponse(request, "admin/reviews/repositories.html", context)
    # The one form of ours that another site takes.
    permit = csp_update({"form-action": [github_app.new_app_url()]})
    return cast("HttpResponse", permit(lambda _: answer)(request))


@require_http_methods(["GET", "HEAD", "POST"])
@_reads
def repositories(request: HttpRequest) -> HttpResponse:
    """Show each code host: credentials, installations, repositories, last event and failure, and set-up.

    A POST also shows the credentials of the App that GitHub's form has just made.
    """
    return _page(request)


@require_POST
@_tests
def check_connection(request: HttpRequest, name: str) -> HttpResponse:
    """Ask a host who we are and what we lack; nothing is written there."""
    if name not in HOSTS:
        raise Http404
    host = host_of(name)
    if not host.is_connected:
        return _page(request, Tested(name, f"Set {variables_of(name)} and restart.", is_ok=False))
    try:
        text, missing = host.probe(), host.lacks()
    except Exception as error:  # noqa: BLE001 - whatever the other side or its address does
        failure = classify(error)
        return _page(
            request,
            Tested(name, clean(failure.detail, 300), False, failure.kind.hint, str(failure.error_class)),
        )
    if missing:
        advice = "Add it to the App, and let each owner accept it."
        return _page(request, Tested(name, f"Missing: {'; '.join(missing)}.", False, advice))
    return _page(request, Tested(name, text, is_ok=True))
