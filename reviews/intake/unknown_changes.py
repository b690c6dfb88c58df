"""Refusal of requests for unknown changes, before they become dead letters (G145)."""

from __future__ import annotations

import time
from collections.abc import Iterator

from django.conf import settings

from criticizer.codehosts.names import has_no_wildcard
from criticizer.codehosts.registry import HOSTS, repositories_variable
from criticizer.db import prepared
from criticizer.resilience.failures import ErrorClass, Failure
from reviews import config
from reviews.models import HostChange
from reviews.recipients.viewing_scopes import EVERYTHING, Scope
from reviews.sources import pull, registry

LOOK_UP_SECONDS = 2.0  # then the fetch decides
NAMES = 20  # of repositories in one answer
LETTERS_AN_HOUR = 100  # of one requester, for changes that their source does not know
WAIT_SECONDS = 600.0
REFUSED_SECONDS = 60.0  # then the dead letters are counted again
LOOK_EVERY = 50  # requests of one requester between two counts, so that few requests cost no query

_LETTERS = """
SELECT count(*) FROM dead_letters l JOIN jobs j ON j.id = l.job_id
 WHERE l.last_failure_at > now() - interval '1 hour' AND l.stage = 'fetch' AND l.error_class = 'NOT_FOUND'
   AND j.requested_by = %(requester)s"""
# Of this process, by requester.
_requests: dict[str, int] = {}
_refused_until: dict[str, float] = {}


def why_unknown(changelist_id: str, scope: Scope) -> str:
    """Return why a change cannot be reviewed; "" when it can, or when only the fetch can tell.

    Its source is not configured (then with the configured names that `scope` may see), the commit is not in
    its repository, no reference leads to it, or no webhook reported the pull request. A Perforce server is
    not asked: it waits for this answer in its trigger (docs/api.md). A repository that does not answer in
    time leaves it to the fetch.
    """
    prefix = registry.depot_prefix(changelist_id)
    if prefix is None:
        return why_no_perforce(scope)
    if pull.depot_prefix(changelist_id) is not None:
        if HostChange.objects.filter(changelist_id=changelist_id).exists():
            return ""
        host, _, repository = prefix.strip("/").partition("/")
        if not config.is_enabled_repository(host, repository):
            return f"no repository {host}:{repository} is enabled; {_configured(scope)}"
        return "no webhook reported this pull request, so its head is unknown"
    name = prefix.strip("/")
    sources = config.sources()
    if name not in sources.git:
        return f"no git repository is named {name}; {_configured(scope)}"
    try:
        registry.git_source(name, sources, timeout_seconds=LOOK_UP_SECONDS).look_up(changelist_id)
    except Failure as failure:
        return failure.detail if failure.error_class is ErrorClass.NOT_FOUND else ""
    return ""


def why_no_perforce(scope: Scope = EVERYTHING) -> str:
    """Return why no changelist of Perforce can be reviewed; empty when a server is configured."""
    if "perforce" in settings.CHANGE_SOURCES:  # what it lacks then, `check` and the failed fetch say
        return ""
    return f"no Perforce server is configured (P4PORT, and perforce in CHANGE_SOURCES); {_configured(scope)}"


def _configured(scope: Scope) -> str:
    names = [f"git:{name}" for name in sorted(config.sources().git) if scope.may_touch(f"//{name}/")]
    if "perforce" in settings.CHANGE_SOURCES:
        names.insert(0, "numbers of Perforce changelists")
    names += _hosted(scope)
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    return f"configured here: {', '.join(names[:NAMES]) or 'nothing'}{more}"


def _hosted(scope: Scope) -> Iterator[str]:
    """Yield the repositories of code hosts that are enabled, or the patterns that enable them."""
    for host in HOSTS:
        root = f"//{host}/"
        allowed = (line.removesuffix("/...") for line in settings.DEPOT_ALLOW_LIST)
        below = [line.removeprefix(root) for line in allowed if line.startswith(root)]
        for name in getattr(settings, repositories_variable(host)) or below:
            if scope.everything or (has_no_wildcard(name) and scope.may_touch(f"{root}{name}/")):
                yield f"{host}:{name}"


def has_used_up_letters(requester: str) -> bool:
    """Return whether too many requests of this requester ended as unknown changes."""
    now = time.monotonic()
    if now < _refused_until.get(requester, 0.0):
        return True
    _requests[requester] = (_requests.get(requester, 0) + 1) % LOOK_EVERY
    if _requests[requester] or prepared.value(_LETTERS, {"requester": requester}) < LETTERS_AN_HOUR:
        return False
    _refused_until[requester] = now + REFUSED_SECONDS
    return True
