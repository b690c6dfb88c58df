"""Results of a team's own linters, as SARIF: shown apart from findings, and not found again."""

from __future__ import annotations

from collections import Counter
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from reviews import linter_results
from reviews.api import representations
from reviews.api.auth import client_of
from reviews.api.base import ApiView
from reviews.api.commit_retry import retry_lost_commit
from reviews.api.described import AFTER, ERRORS, NOT_FOUND, POST_ERRORS
from reviews.api.parsers import LongJSONParser, SarifParser
from reviews.api.schemas import LinterResultPageSerializer
from reviews.api.views import page_after, require_visible
from reviews.reviewers.sarif_import import TOO_MANY, NotSarif, read_sarif


class EvidenceAnswerSerializer(serializers.Serializer[Any]):
    """Outcome for the results of a SARIF file."""

    accepted = serializers.IntegerField(help_text="New results.")
    repeated = serializers.IntegerField(help_text="Results that were there already.")
    left_out = serializers.DictField(
        child=serializers.IntegerField(), help_text="How many results were not stored, by why."
    )


class ReviewEvidence(ApiView):
    query = ("after",)
    parser_classes = [LongJSONParser, SarifParser]

    @extend_schema(
        operation_id="reviews_evidence_list",
        summary="Read what linters reported on the changed lines of a review",
        parameters=[AFTER],
        responses={200: LinterResultPageSerializer, **ERRORS, **NOT_FOUND},
    )
    def get(self, request: Request, job_id: int) -> Response:
        after = page_after(request)
        require_visible(job_id, request)
        scope = client_of(request).scope
        return Response(
            {
                **representations.linter_page(job_id, after, scope),
                "not_shown": linter_results.not_shown(job_id),
            }
        )

    @extend_schema(
        operation_id="reviews_evidence_create",
        summary="Post what the team's own linters reported",
        description="A SARIF 2.1.0 file of at most 1 MiB. Results on changed lines are shown beside the"
        " findings and given to the model as known; a finding that says the same is left out. Post it soon"
        " after the review is requested: what comes after the model was asked is shown only. Repeating is"
        " safe. A key with prefixes adds nothing about other files.",
        request={
            "application/sarif+json": OpenApiTypes.OBJECT,
            "application/json": OpenApiTypes.OBJECT,
        },
        responses={
            201: OpenApiResponse(EvidenceAnswerSerializer, "Stored"),
            200: OpenApiResponse(EvidenceAnswerSerializer, "Nothing new"),
            **POST_ERRORS,
            **NOT_FOUND,
        },
    )
    def post(self, request: Request, job_id: int) -> Response:
        try:
            results, left_out = read_sarif(request.data)
        except NotSarif as problem:
            raise ValidationError({"body": [str(problem)]}) from None
        client = client_of(request)
        require_visible(job_id, request)
        done = retry_lost_commit(lambda: linter_results.accept(job_id, results, client.actor, client.scope))
        reasons = left_out + Counter({TOO_MANY: done.over_limit})
        answer = {"accepted": done.added, "repeated": done.repeated, "left_out": dict(reasons)}
        return Response(answer, status=201 if done.added else 200)
