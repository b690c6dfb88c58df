"""API of agents of the customer: they list tasks, claim, renew, give back and submit."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from criticizer.security.client_ip import client_ip
from criticizer.workers import parking
from criticizer.workers.web_server import MAX_RESULT_BYTES
from reviews.agents import claim, submit
from reviews.agents.rows import Caller, Refusal, Refused
from reviews.api import agent_results, parsers, schemas
from reviews.api import error_catalog as catalog
from reviews.api.auth import client_of
from reviews.api.base import ApiView
from reviews.api.described import ERRORS, POST_ERRORS
from reviews.api.errors import ApiError
from reviews.api.serializers import StrictSerializer, Text, Whole, validated
from reviews.states import AgentTaskStatus, AgentTaskType, SubmissionVerdict

MAX_WAIT_SECONDS = 25
RETRY_SECONDS = 5

_KINDS = {
    Refusal.NOT_FOUND: catalog.TASK_NOT_FOUND,
    Refusal.DONE: catalog.TASK_DONE,
    Refusal.EXPIRED: catalog.TASK_EXPIRED,
    Refusal.CLAIMED: catalog.TASK_CLAIMED,
    Refusal.CLAIM_LOST: catalog.CLAIM_LOST,
}
_TYPES = [(kind.value, kind.label) for kind in AgentTaskType]
_OF_A_TASK = {
    404: OpenApiResponse(schemas.ErrorSerializer, "NOT_FOUND: unknown, or outside the key's prefixes"),
    409: OpenApiResponse(schemas.ErrorSerializer, "TASK_DONE, TASK_CLAIMED or CLAIM_LOST"),
    410: OpenApiResponse(schemas.ErrorSerializer, "TASK_EXPIRED: its time is over, or its review ended"),
}


class AgentTaskSerializer(serializers.Serializer[Any]):
    """A task that may be claimed."""

    id = serializers.UUIDField(help_text="The task.")
    type = serializers.ChoiceField(choices=_TYPES, help_text="The kind of task.")
    job = serializers.IntegerField(help_text="The review.")
    status = serializers.ChoiceField(
        choices=AgentTaskStatus.choices, help_text="`in_progress` in the list: its claim has expired."
    )
    created_at = serializers.DateTimeField(help_text="When it was offered.")
    expires_at = serializers.DateTimeField(help_text="A later result is refused.")


class AgentTaskListSerializer(serializers.Serializer[Any]):
    """The tasks that the key may claim now."""

    tasks = AgentTaskSerializer(many=True, help_text="Oldest first, at most 100.")
    more = serializers.BooleanField(help_text="Whether there are more.")


class AgentPayloadSerializer(serializers.Serializer[Any]):
    """The payload that the agent gives its model.

    All text of the change is redacted, fenced, and named as data.
    """

    type = serializers.ChoiceField(choices=_TYPES, help_text="The kind of task.")
    instructions = serializers.CharField(help_text="The system prompt.")
    request = serializers.CharField(help_text="The user message.")
    answer_schema = serializers.DictField(help_text="The JSON schema of the model's answer.")


class ClaimedTaskSerializer(AgentTaskSerializer):
    """A claimed task."""

    payload = AgentPayloadSerializer(help_text="The work.")
    claim_token = serializers.CharField(help_text="Needed for all further calls; shown once.")
    lease_expires_at = serializers.DateTimeField(
        help_text="Send a heartbeat before this time: after a third of the lease."
    )


class LeaseSerializer(serializers.Serializer[Any]):
    """A renewed lease."""

    lease_expires_at = serializers.DateTimeField(allow_null=True, help_text="null when cancelled.")
    cancelled = serializers.BooleanField(help_text="The review ended: stop working on it.")


class ResultAnswerSerializer(serializers.Serializer[Any]):
    """An accepted result."""

    status = serializers.ChoiceField(
        choices=["accepted", "accepted_as_failed"],
        help_text="`accepted_as_failed`: the second result that could not be used.",
    )
    task_id = serializers.UUIDField(help_text="The task.")
    duplicate = serializers.BooleanField(required=False, help_text="True when the same body came before.")


class ResultErrorSerializer(schemas.ErrorSerializer):
    """The body of a refused result."""

    details = serializers.JSONField(  # type: ignore[assignment]
        help_text="A list of `{path, message}`."
    )


class ClaimSerializer(StrictSerializer):
    """The body of a claim."""

    agent = Text(max_length=200, required=False, default="", allow_blank=True,
                 help_text="The agent's own name, for people.")  # fmt: skip


class ClaimNextSerializer(ClaimSerializer):
    """The body of a claim of the next task."""

    type = serializers.ListField(
        child=serializers.ChoiceField(choices=_TYPES), required=False, max_length=len(_TYPES),
        help_text="Only tasks of these types.",
    )  # fmt: skip
    job = Whole(
        min_value=1,
        max_value=2**63 - 1,
        required=False,
        allow_null=True,
        help_text="Only tasks of this review.",
    )


class HeldSerializer(StrictSerializer):
    """The body of a call of the agent that has the claim."""

    claim_token = Text(max_length=100, required=False, default="", allow_blank=True,
                       help_text="From the claim.")  # fmt: skip


class HeartbeatSerializer(HeldSerializer):
    """The body of a heartbeat."""

    progress = Text(max_length=200, required=False, allow_blank=True, help_text="Shown to operators.")


class ReleaseSerializer(HeldSerializer):
    """The body of a release."""

    reason = Text(
        max_length=500, required=False, default="", allow_blank=True, help_text="Shown to operators."
    )


class AgentView(ApiView):
    """Answers are never cached, and refusals of the domain have rows in the catalog."""

    def finalize_response(self, request: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
        final = super().finalize_response(request, response, *args, **kwargs)
        final["Cache-Control"] = "no-store"
        return final

    def handle_exception(self, exc: Exception) -> Response:
        return super().handle_exception(ApiError(_KINDS[exc.kind]) if isinstance(exc, Refused) else exc)


def caller_of(request: Request) -> Caller:
    """Return the caller of a request. An agent key without prefixes sees no task."""
    client = client_of(request)
    return Caller(client.name, client.scope.prefixes, client_ip(request))


class AgentTaskList(AgentView):
    query = ("job", "type", "wait")

    @extend_schema(
        operation_id="agent_tasks_list",
        summary="List the tasks that may be claimed, oldest first",
        description="With `wait`, the request blocks until there is a task or the time is over. Each web"
        " process lets two requests of a key wait; a further one is answered at once, with `Retry-After`.",
        parameters=[
            OpenApiParameter("job", OpenApiTypes.INT, description="Only tasks of this review."),
            OpenApiParameter(
                "type", OpenApiTypes.STR, enum=AgentTaskType.values, description="Only tasks of this type."
            ),
            OpenApiParameter("wait", OpenApiTypes.INT, description="Seconds to wait for a task, at most 25."),
        ],
        responses={200: AgentTaskListSerializer, **ERRORS},
    )
    def get(self, request: Request) -> Response:
        asked = validated(_ListSerializer, request.query_params.dict())
        types = [asked["type"]] if "type" in asked else None

        def look() -> list[dict[str, Any]]:
            return claim.listed(caller_of(request), asked.get("job"), types, claim.MAX_LISTED + 1)

        found, headers = look(), {}
        if not found and asked["wait"]:
            place = parking.place_of(request.META)
            is_parked = place is not None and place.park(client_of(request).name, asked["wait"])
            if not is_parked and not (place and place.was_parked):
                headers["Retry-After"] = str(RETRY_SECONDS)
        tasks = AgentTaskSerializer(found[: claim.MAX_LISTED], many=True).data
        return Response({"tasks": tasks, "more": len(found) > claim.MAX_LISTED}, headers=headers)


class _ListSerializer(serializers.Serializer[Any]):
    job = serializers.IntegerField(min_value=1, max_value=2**63 - 1, required=False)
    type = serializers.ChoiceField(choices=_TYPES, required=False)
    wait = serializers.IntegerField(min_value=0, max_value=MAX_WAIT_SECONDS, default=0)


class AgentTaskClaimNext(AgentView):
    @extend_schema(
        operation_id="agent_tasks_claim_next",
        summary="Claim the oldest task",
        request=ClaimNextSerializer,
        responses={200: ClaimedTaskSerializer, 204: OpenApiResponse(None, "There is none"), **POST_ERRORS},
    )
    def post(self, request: Request) -> Response:
        asked = validated(ClaimNextSerializer, request.data)
        found = claim.claim_next(caller_of(request), asked.get("job"), asked.get("type"), asked["agent"])
        return Response(status=204) if found is None else Response(ClaimedTaskSerializer(found).data)


class AgentTaskClaim(AgentView):
    @extend_schema(
        operation_id="agent_tasks_claim",
        summary="Claim a task",
        request=ClaimSerializer,
        responses={200: ClaimedTaskSerializer, **POST_ERRORS, **_OF_A_TASK},
    )
    def post(self, request: Request, task_id: UUID) -> Response:
        asked = validated(ClaimSerializer, request.data)
        return Response(ClaimedTaskSerializer(claim.claim(caller_of(request), task_id, asked["agent"])).data)


class AgentTaskHeartbeat(AgentView):
    @extend_schema(
        operation_id="agent_tasks_heartbeat",
        summary="Renew the lease of a claim",
        request=HeartbeatSerializer,
        responses={200: LeaseSerializer, **POST_ERRORS, **_OF_A_TASK},
    )
    def post(self, request: Request, task_id: UUID) -> Response:
        asked = validated(HeartbeatSerializer, request.data)
        until, is_cancelled = claim.heartbeat(
            caller_of(request), task_id, asked["claim_token"], asked.get("progress")
        )
        return Response(LeaseSerializer({"lease_expires_at": until, "cancelled": is_cancelled}).data)


class AgentTaskRelease(AgentView):
    @extend_schema(
        operation_id="agent_tasks_release",
        summary="Give a claimed task back",
        request=ReleaseSerializer,
        responses={204: OpenApiResponse(None, "Others may claim it"), **POST_ERRORS, **_OF_A_TASK},
    )
    def post(self, request: Request, task_id: UUID) -> Response:
        asked = validated(ReleaseSerializer, request.data)
        claim.release(caller_of(request), task_id, asked["claim_token"], asked["reason"])
        return Response(status=204)


class AgentTaskResult(AgentView):
    @extend_schema(
        operation_id="agent_tasks_result",
        summary="Submit the result of a claimed task",
        description="Repeating the same body is safe. The first result that cannot be used is answered 400"
        " and may be corrected; the second one is accepted as a failure. The body may hold 512 KiB.",
        request=agent_results.AgentResultSerializer,
        responses={
            200: ResultAnswerSerializer,
            **POST_ERRORS,
            **_OF_A_TASK,
            400: OpenApiResponse(ResultErrorSerializer, "RESULT_NOT_JSON or RESULT_INVALID"),
        },
    )
    def post(self, request: Request, task_id: UUID) -> Response:
        def read_body() -> bytes:
            return parsers.bounded_body(request, request.stream, MAX_RESULT_BYTES)

        answer = submit.submit(caller_of(request), task_id, read_body, agent_results.read)
        if answer.verdict is SubmissionVerdict.NOT_JSON:
            raise ApiError(catalog.RESULT_NOT_JSON, [])
        if answer.verdict is SubmissionVerdict.INVALID:
            raise ApiError(catalog.RESULT_INVALID, list(answer.details))
        body: dict[str, Any] = {"status": answer.verdict.value, "task_id": str(task_id)}
        return Response({**body, "duplicate": True} if answer.is_duplicate else body)
