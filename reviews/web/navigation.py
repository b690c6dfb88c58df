"""The admin's navigation: seven tasks, and the pages of the one that is open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse

from notifications.admin.views import READS_PROVIDERS
from reviews.roles import READS_REPOSITORIES

# Task -> (label, table or URL name). Tables of edits are reached from the list of what was edited.
_TASKS: dict[str, tuple[tuple[str, str], ...]] = {
    "Now": (("Now", "admin:index"),),
    "Reviews": (
        ("Reviews", "reviews_reviewjob"),
        ("Attempts", "reviews_attempt"),
        ("Agent tasks", "reviews_agenttask"),
        ("Token ledger", "reviews_ledgerentry"),
        ("Artifacts", "reviews_artifact"),
    ),
    "Failures": (
        ("Failure groups", "deadletters_deadlettergroup"),
        ("Dead letters", "deadletters_deadletter"),
        ("Replay batches", "deadletters_replaybatch"),
        ("Dead letter edits", "deadletters_letteredit"),
        ("Archive", "deadletters_letterarchive"),
        ("Failure codes", "failure-codes"),
    ),
    "Deliveries": (
        ("Deliveries", "notifications_delivery"),
        ("Subscriptions", "reviews_subscription"),
        ("Preferences", "notifications_recipientpreference"),
        ("Suppressed addresses", "notifications_suppression"),
        ("Providers", "providers"),
    ),
    "Sources": (
        ("Polled sources", "reviews_sourceposition"),
        ("Source events", "reviews_sourceevent"),
        ("Repositories", "repositories"),
        ("Installations", "reviews_hostinstallation"),
        ("Pull requests", "reviews_hostchange"),
        ("Webhook deliveries", "reviews_hostdelivery"),
        ("Allow-list", "reviews_allowlistentry"),
        ("Skipped paths", "reviews_skippedpath"),
        ("Scanned paths", "reviews_scantarget"),
        ("Team rules", "reviews_teamrule"),
    ),
    "Access": (
        ("Users", "auth_user"),
        ("Groups", "auth_group"),
        ("Viewing scopes", "reviews_viewerscope"),
        ("API keys", "reviews_apikey"),
        ("Security events", "criticizer_securityevent"),
    ),
    "System": (
        ("Circuits", "criticizer_circuit"),
        ("Workers", "criticizer_workercluster"),
        ("Outbox", "criticizer_outboxmessage"),
    ),
}
# URL names without a table -> where they belong.
_BELONGS = {
    "dashboard-live": "admin:index",
    "invite": "auth_user",
    "delivery-message": "notifications_delivery",
    "job-message": "reviews_reviewjob",
    "provider-test": "providers",
    "repository-test": "repositories",
}
# URL names -> the permissions to open them, which the views take from the same place.
_PERMISSIONS: dict[str, tuple[str, ...]] = {
    "admin:index": (),
    "failure-codes": (),
    "providers": READS_PROVIDERS,
    "repositories": READS_REPOSITORIES,
}
# Tables of events that are no history of another table.
_OWN_EVENTS = {"reviews_sourceevent", "criticizer_securityevent"}


@dataclass(frozen=True, slots=True)
class Link:
    """A task, or a page of one."""

    label: str
    href: str
    is_current: bool


def navigation(request: HttpRequest) -> dict[str, Any]:
    """Return the `tasks` that the user may open, and `title` and `pages` of the current one."""
    here, tasks, title, pages = _here(request), [], "", []
    for task, links in _open_to(request):
        is_current = any(target == here for _, target in links)
        tasks.append(Link(task, _address(links[0][1]), is_current))
        if is_current and len(links) > 1:
            title = task
            pages = [Link(label, _address(target), target == here) for label, target in links]
    return {"tasks": tasks, "title": title, "pages": pages}


def _open_to(request: HttpRequest) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    for task, links in _TASKS.items():
        may = [(label, target) for label, target in links if _may_open(target, request)]
        # Reference pages alone make no task.
        if task == "Now" or any(target not in _PERMISSIONS for _, target in may):
            yield task, may


def _may_open(target: str, request: HttpRequest) -> bool:
    if target in _PERMISSIONS:
        return bool(request.user.has_perms(_PERMISSIONS[target]))
    app, _, model = target.partition("_")
    table: Any = admin.site.get_model_admin(apps.get_model(app, model))
    return bool(table.has_view_or_change_permission(request))


def _address(target: str) -> str:
    named = target in _PERMISSIONS
    return reverse(target if named else f"admin:{target}_changelist")


def _here(request: HttpRequest) -> str:
    """Return the table or the URL name of the open page; edits belong to what was edited."""
    name = request.resolver_match.view_name if request.resolver_match else ""
    if name in _PERMISSIONS or not name.startswith("admin:"):
        return _BELONGS.get(name, name)
    app, _, rest = name.removeprefix("admin:").partition("_")
    model = rest.partition("_")[0]
    table = f"{app}_{model}"
    return table.removesuffix("event") if table.endswith("event") and table not in _OWN_EVENTS else table
