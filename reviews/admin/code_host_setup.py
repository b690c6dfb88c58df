"""The page of code hosts: what is connected, what came last, and how to set each up here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from csp.decorators import csp_update
from django.conf import settings
from django.contrib.auth.decorators import permission_required
from django.db.models import Count, Max, Q
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from criticizer.admin_site.base import admin_page
from criticizer.codehosts.base import Host
from criticizer.codehosts.events import Refused
from criticizer.codehosts.registry import HOSTS, repositories_variable, secrets_variable
from notifications.config import host as host_of
from notifications.recipients import variables_of
from reviews.admin import connection_test, github_app
from reviews.admin.connection_test import Problem, Tested
from reviews.models import HostChange, HostCheck, HostDelivery, HostInstallation, HostRefusal
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
    refusals: Sequence[tuple[HostRefusal, str]]  # newer than the last event, and what to do
    last_failure: HostCheck | None


def _url(path: str) -> str:
    return settings.BASE_URL.rstrip("/") + path


def _view(name: str) -> HostView:
    host = host_of(name)
    last_event = HostDelivery.objects.filter(host=name).order_by("-received_at", "-id").first()
    patterns = getattr(settings, repositories_variable(name))
    changes = HostChange.objects.filter(host=name).exclude(state=HostChange.State.REMOVED)
    by_repository = changes.values("full_name").annotate(
        last=Max("reported_at"), open=Count("pk", filter=Q(state__in=("open", "draft")))
    )
    checks = HostCheck.objects.exclude(error_class="").filter(version__change__host=name)
    return HostView(
        host,
        "" if host.is_connected else variables_of(name),
        len(getattr(settings, secrets_variable(name))),
        ", ".join(patterns) or f"those below //{name}/ in the allow-list",
        _url(reverse("api-host-webhook", args=[name])),
        host.set_up,
        list(HostInstallation.objects.filter(host=name).order_by("account")[:MAX_REPOSITORIES]),
        list(by_repository.order_by("-last")[:MAX_REPOSITORIES]),
        last_event,
        _refusals(name, last_event),
        checks.select_related("version__change").order_by("-id").first(),
    )


def _refusals(name: str, last_event: HostDelivery | None) -> list[tuple[HostRefusal, str]]:
    rows = HostRefusal.objects.filter(host=name).order_by("-refused_at")
    if last_event is not None:
        rows = rows.filter(refused_at__gt=last_event.received_at)
    return [(row, _advice(row)) for row in rows]


def _advice(row: HostRefusal) -> str:
    label, variable = HOSTS[row.host].label, secrets_variable(row.host)
    return {
        Refused.NONE_SET: f"Set {variable} and restart.",
        Refused.UNSIGNED: f"Set the secret of the webhook on {label}: one of {variable}.",
        Refused.WRONG: f"Set the same secret in the webhook on {label} and in {variable}. A proxy that"
        " changes the body of requests has the same effect.",
        Refused.LATE: "Set the clocks of both servers: they differ by more than five minutes.",
        Refused.CONTENT_TYPE: f"Set the content type of the webhook on {label} to application/json.",
        Refused.UNREADABLE: f"Look at the answer in the webhook's deliveries on {label}: it names the field.",
    }[Refused(row.reason)]


def _page(request: HttpRequest, tested: Tested | None = None) -> HttpResponse:
    forms = github_app.forms(request.user) if request.user.has_perm(github_app.MAKES_APPS) else []
    new_app = github_app.returned_app(request) if tested is None else None
    answer = admin_page(
        request,
        "admin/reviews/repositories.html",
        "Repositories",
        hosts=[_view(name) for name in HOSTS],
        tested=tested,
        may_test=request.user.has_perm("notifications.test_provider"),
        new_app=new_app,
        app_forms=forms,
        manifest=github_app.manifest(),
    )
    # The only forms of ours that another site takes.
    permit = csp_update({"form-action": [form.address for form in forms]})
    return cast("HttpResponse", permit(lambda _: answer)(request))


@require_http_methods(["GET", "HEAD", "POST"])
@_reads
def repositories(request: HttpRequest) -> HttpResponse:
    """Show each code host: credentials, installations, repositories, newest events, set-up.

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
        return _page(request, Tested(name, "", [Problem(f"Set {variables_of(name)} and restart.")]))
    tested = connection_test.run(host)
    if not tested.is_refused:
        tested = replace(tested, problems=[*tested.problems, *_refused(name)])
    return _page(request, tested)


def _refused(name: str) -> list[Problem]:
    last_event = HostDelivery.objects.filter(host=name).order_by("-received_at", "-id").first()
    return [
        Problem(f"The last webhook was refused. {row.get_reason_display()}.", advice)
        for row, advice in _refusals(name, last_event)
    ]
