"""The address to which code hosts send their events.

The signature alone proves who sent one.
"""

from __future__ import annotations

import json
from typing import Any

import structlog
from django.http import HttpResponse
from rest_framework.exceptions import ParseError, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from criticizer.codehosts.base import Host
from criticizer.codehosts.events import NotAuthentic, Refused, Unreadable
from criticizer.security.client_ip import client_ip
from notifications import config
from reviews.api import parsers
from reviews.api.commit_retry import retry_lost_commit
from reviews.api.error_catalog import BUSY, UNSUPPORTED_MEDIA_TYPE
from reviews.api.errors import ApiError
from reviews.intake import pull_requests, refusals
from reviews.intake.review_requests import Overtaken

log = structlog.get_logger(__name__)

MAX_BODY_BYTES = 5 * 1024 * 1024
_DELIVERY = ("-delivery", "idempotency-key", "webhook-id")  # headers that name one
_CONTENT_TYPE = "Set the webhook's content type to application/json on the host."


class HostWebhook(APIView):
    """An event of a code host (guarantee G240).

    Not in the OpenAPI document: only hosts can sign a body.
    """

    authentication_classes = []
    permission_classes = []
    throttle_classes = []
    schema = None

    def post(self, request: Request, host: str) -> HttpResponse:
        receiver = config.host(host)
        body = parsers.bounded_body(request, request.stream, MAX_BODY_BYTES)
        try:
            receiver.authenticate(request.headers, body)
        except NotAuthentic as refused:
            _refuse(request, host, receiver, refused.reason)
            return HttpResponse(status=401)
        if request.content_type.partition(";")[0].strip().lower() != "application/json":
            _refuse(request, host, receiver, Refused.CONTENT_TYPE)
            raise ApiError(UNSUPPORTED_MEDIA_TYPE, {"content_type": [_CONTENT_TYPE]})
        try:
            event = receiver.event(request.headers, _object(body))
        except ParseError:
            _refuse(request, host, receiver, Refused.UNREADABLE)
            raise
        except Unreadable as error:
            _refuse(request, host, receiver, Refused.UNREADABLE)
            raise ValidationError({error.field: [f"Must be {error.accepts}."]}) from None
        delivery = receiver.delivery_id(request.headers, body)
        try:
            answer = retry_lost_commit(lambda: pull_requests.receive(host, delivery, event))
        except Overtaken as error:
            raise ApiError(BUSY) from error
        if answer.job_id is None:
            return Response({"ignored": answer.ignored})
        status = 200 if answer.is_duplicate else 202
        return Response({"job": answer.job_id, "duplicate": answer.is_duplicate}, status=status)


def _refuse(request: Request, host: str, receiver: Host, reason: Refused) -> None:
    """Record a refusal with neither body nor signature: both are the sender's."""
    delivery = receiver.delivery_id(request.headers, b"") if _names_delivery(request) else ""
    address = client_ip(request)
    log.error(
        "webhook_refused",
        host=host,
        reason=reason,
        remote_address=address,
        path=request.path,
        delivery=delivery or "missing",
    )
    refusals.record(host, reason, address, delivery)


def _names_delivery(request: Request) -> bool:
    return any(name.lower().endswith(_DELIVERY) for name in request.headers)


def _object(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body.decode(), parse_constant=parsers.refuse_constant)
    except (ValueError, RecursionError):
        raise ParseError("The body is not JSON.") from None
    if not isinstance(content, dict):
        raise ParseError("The body is not a JSON object.")
    return content
