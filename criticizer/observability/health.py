"""Health endpoints, `/metrics`, and 503 answers while the database is away.

`HealthMiddleware` answers `/livez` and `/readyz` before hosts, sessions and routes are checked, so that they
work whatever else is wrong. `/metrics` is an ordinary view.
"""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import structlog
from django.conf import settings
from django.core.signals import got_request_exception
from django.db import (
    DatabaseError,
    InterfaceError,
    InternalError,
    OperationalError,
    ProgrammingError,
    connection,
    transaction,
)
from django.db.migrations.executor import MigrationExecutor
from django.db.models import QuerySet, Sum
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.template.loader import render_to_string
from django.views.decorators.csrf import csrf_exempt
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.exposition import generate_latest
from rest_framework.exceptions import APIException, AuthenticationFailed, NotAuthenticated, PermissionDenied
from rest_framework.settings import api_settings

from criticizer import texts
from criticizer.db import reconnect
from criticizer.db.folded_migrations import partly_run
from criticizer.models import WorkerCluster
from criticizer.observability.metrics import bound_queries, registry
from criticizer.queue import outbox
from criticizer.resilience import circuit_breaker
from criticizer.resilience.classification import classify
from criticizer.resilience.failures import Component, ErrorClass

log = structlog.get_logger(__name__)

BEAT_SECONDS = 15  # a cluster that was silent for longer is not counted
RETRY_AFTER_SECONDS = 5
READINESS = frozenset({"/readyz", "/health"})  # one answer under both names
CONFLICT = "Another request changed the same record. Send the request again, as Retry-After says."
UNAVAILABLE = "The database cannot be reached. Send the request again, as Retry-After says."
_DOWN = "criticizer.database_down"  # key in request.META, set where the error was seen
_KINDS_WITH_HOSTS = re.compile(r"^(p4|provider:webhook):.*", re.DOTALL)
_migrated = False


# -- workers and readiness --------------------------------------------------------------------


def beating() -> QuerySet[WorkerCluster]:
    silence = timedelta(seconds=BEAT_SECONDS * max(1.0, settings.RETRY_TIME_SCALE))
    return WorkerCluster.objects.filter(beat_at__gt=Now() - silence)


def workers_alive() -> dict[str, int]:
    """Return the number of workers per queue of `settings.STAGES`, 0 where there is none.

    Counts clusters that beat in the last 15 s (times RETRY_TIME_SCALE where that is above 1)
    and are not draining: a draining cluster takes nothing new. Raises Django's database errors.
    """
    found = dict(beating().filter(draining=False).values_list("queue").annotate(Sum("workers")))
    return {queue: found.get(queue, 0) for queue in outbox.queues()}


def is_migrated() -> bool:
    """Return whether every migration is applied.

    True is remembered: the code of a process is fixed.
    """
    global _migrated
    if not _migrated:
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
        _migrated = not (missing or partly_run(executor.loader))
    return _migrated


def not_ready_reason() -> str | None:
    """Return why the service is not ready, or None."""
    try:
        with transaction.atomic():
            bound_queries()
            if not is_migrated():
                return "migrations_missing"
            return None if all(workers_alive().values()) else "workers_missing"
    except ProgrammingError:
        return "migrations_missing"  # a table or column is not there
    except (DatabaseError, InterfaceError) as error:
        if reconnect.is_disconnect(error):
            reconnect.note_loss()
        return texts.DATABASE_AWAY.text


def _degradations(*, with_hosts: bool) -> dict[str, object]:
    """Return circuits that are not closed and maintenance functions that hang, if any.

    `with_hosts` includes the names of servers and receivers, which only this machine may see.
    """
    try:
        with transaction.atomic():
            bound_queries()
            circuits = {
                name: stopped.state.value for name, stopped in circuit_breaker.open_circuits().items()
            }
            hanging = sorted(
                {name for names in beating().values_list("hanging", flat=True) for name in names}
            )
    except (DatabaseError, InterfaceError):
        return {}
    if not with_hosts:
        circuits = {_KINDS_WITH_HOSTS.sub(r"\1", name): state for name, state in circuits.items()}
    return {name: found for name, found in (("circuits", circuits), ("hanging", hanging)) if found}


# -- middleware -------------------------------------------------------------------------------


def is_database_down(error: BaseException | None) -> bool:
    """Return whether `error` is a lost connection or a conflict, so that a retry may succeed."""
    if not isinstance(error, (OperationalError, InterfaceError, InternalError)):
        return False
    return classify(error).retryable


def unavailable(error: BaseException) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the body and headers of the 503 that answers a database error."""
    failure = classify(error)
    if reconnect.is_disconnect(error):
        reconnect.note_loss()
    kind = failure.kind if failure.component is Component.DATABASE else classify(OperationalError()).kind
    body: dict[str, Any] = {
        "error": kind.error_class.value,
        "code": kind.code,
        "message": CONFLICT if kind.error_class is ErrorClass.WRITE_CONFLICT else UNAVAILABLE,
        "details": {},
    }
    return body, {"Retry-After": str(RETRY_AFTER_SECONDS), "Cache-Control": "no-store"}


def unavailable_response(request: HttpRequest, error: BaseException) -> HttpResponse:
    """Return the 503 that answers a database error: JSON for the API, a page for others."""
    body, headers = unavailable(error)
    log.warning(
        "database_unavailable", path=request.path[:200], code=body["code"], error=type(error).__name__
    )
    if request.path.startswith("/api/"):
        return JsonResponse(body, status=503, headers=headers)
    return HttpResponse(render_to_string("503.html"), status=503, headers=headers)


def _note_database_down(sender: object, request: HttpRequest | None = None, **_: object) -> None:
    # Django turns an exception of an inner middleware into a 500 before we see it; this signal
    # is the only place that still has the exception.
    error = sys.exc_info()[1]
    if request is not None and is_database_down(error):
        request.META[_DOWN] = error


got_request_exception.connect(_note_database_down, dispatch_uid="criticizer.observability.health")


class HealthMiddleware:
    """Answers `/livez` and readiness; turns a lost database into 503 with Retry-After elsewhere.

    Placed first: these need neither a known Host header nor a session nor a working database.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.path_info in {"/livez", *READINESS}:
            return _probe(request)
        response = self.get_response(request)
        if response.status_code == 500 and (error := request.META.pop(_DOWN, None)) is not None:
            return unavailable_response(request, error)
        return response

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Answer a view's database error; Django answers other errors."""
        return unavailable_response(request, exception) if is_database_down(exception) else None


def _probe(request: HttpRequest) -> HttpResponse:
    if request.method not in {"GET", "HEAD"}:
        return HttpResponse(status=405, headers={"Allow": "GET, HEAD"})
    is_readiness = request.path_info in READINESS
    reason = not_ready_reason() if is_readiness else None
    body: dict[str, Any] = {"status": "ok"} if reason is None else {"status": "degraded", "reason": reason}
    # Reported without a 503: restarting us does not bring a dependency back.
    if is_readiness:
        body |= _degradations(with_hosts=_is_loopback(request))
    response = JsonResponse(body, status=200 if reason is None else 503)
    response.headers["Cache-Control"] = "no-store"
    if reason is not None:
        response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return response


# -- metrics ----------------------------------------------------------------------------------

_registry = registry(workers_alive)

# A request that carries one of these came through a proxy: the peer's address is the proxy's.
_PROXY_HEADERS = (
    "HTTP_X_FORWARDED_FOR",
    "HTTP_FORWARDED",
    "HTTP_X_REAL_IP",
    "HTTP_X_FORWARDED_HOST",
    "HTTP_VIA",
)


@csrf_exempt
def metrics(request: HttpRequest) -> HttpResponse:
    """Return Prometheus text to direct clients of this machine and to API keys of operators.

    Others get the API's answers 401 (no key) and 403 (another role).
    """
    if request.method not in {"GET", "HEAD"}:
        return HttpResponse(status=405, headers={"Allow": "GET, HEAD"})
    if not _is_loopback(request) and (refusal := _refusal(request)) is not None:
        answer_to: Any = api_settings.EXCEPTION_HANDLER
        answer = answer_to(refusal, {})
        return JsonResponse(answer.data, status=answer.status_code)
    return HttpResponse(generate_latest(_registry), content_type=CONTENT_TYPE_LATEST)


def _is_loopback(request: HttpRequest) -> bool:
    if any(header in request.META for header in _PROXY_HEADERS):
        return False
    try:
        address = ipaddress.ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _refusal(request: HttpRequest) -> APIException | None:
    """Authenticate as the API does; return why the client may not read the figures, or None.

    The API's classes are named in settings, as they belong to another app.
    """
    classes: Any = api_settings.DEFAULT_AUTHENTICATION_CLASSES
    for authentication in classes:
        try:
            found = authentication().authenticate(request)
        except AuthenticationFailed as error:
            return error
        if found is not None:
            # Its figures count the files of every review.
            may_read = found[1].role == "operator" and found[1].scope.everything
            return None if may_read else PermissionDenied()
    return NotAuthenticated()
