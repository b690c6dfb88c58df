"""Verdicts on findings by programs."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.exceptions import NotFound, PermissionDenied, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from reviews import verdicts
from reviews.api import representations, schemas
from reviews.api.auth import client_of, refuse_role
from reviews.api.base import ApiView
from reviews.api.serializers import VerdictSerializer
from reviews.api.views import NOT_FOUND, POST_ERRORS, visible_jobs
from reviews.extents import Extent, NotAccepted, NotAllowed
from reviews.models import FindingRow
from reviews.roles import API, OPERATOR


class FindingVerdict(ApiView):
    roles = API["api-verdict"]

    @extend_schema(
        operation_id="findings_verdict",
        summary="Give a verdict on a finding",
        description="Repeating the last verdict changes nothing. Critical findings are dismissed by two"
        " people on their page, not by keys.",
        request=VerdictSerializer,
        responses={
            200: OpenApiResponse(schemas.FindingSerializer, "The finding"),
            **POST_ERRORS,
            **NOT_FOUND,
        },
    )
    def post(self, request: Request, finding_id: int) -> Response:
        form = VerdictSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        client, given = client_of(request), form.validated_data
        rows = FindingRow.objects.filter(client.scope.findings(), job__in=visible_jobs(request))
        row = rows.filter(pk=finding_id).first()
        if row is None:
            raise NotFound
        extent = Extent(given["scope"], given["path"], given["until"], client.scope, client.role == OPERATOR)
        try:
            verdicts.give(row, given["verdict"], client.actor, given["reason"], extent)
        except NotAllowed as problem:
            refuse_role(request)
            raise PermissionDenied(str(problem)) from problem
        except NotAccepted as problem:
            raise ValidationError({"verdict": [str(problem)]}) from problem
        return Response(representations.finding(row.pk))
