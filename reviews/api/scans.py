"""API of scans of documentation: request one, and read what it found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from criticizer.redaction import clean
from criticizer.resilience.failures import Failure
from reviews import scans
from reviews.api import schemas
from reviews.api.auth import client_of
from reviews.api.base import ApiView
from reviews.api.commit_retry import retry_lost_commit
from reviews.api.described import AFTER, ERRORS, IDEMPOTENCY_KEY, NOT_FOUND, PAGE, POST_ERRORS
from reviews.api.error_catalog import ApiErrorKind
from reviews.api.errors import ApiError
from reviews.api.pagination import Pages
from reviews.api.representations import absolute
from reviews.api.serializers import StrictSerializer, Text
from reviews.api.views import page_after, validated_with_key
from reviews.drift.claims import Kind, Verdict
from reviews.intake import scans as intake
from reviews.models import Scan, ScanDocument, ScanTarget

PAGE_DOCUMENTS = 50
CLAIM_VERDICTS = [(verdict.value, verdict.value) for verdict in Verdict]


class ScanRequestSerializer(StrictSerializer):
    """The body of `POST /api/v1/scans/`."""

    path = Text(max_length=1024, help_text="A path that operators have scanned, such as `//app/...`.")
    idempotency_key = Text(
        max_length=255,
        required=False,
        error_messages={"required": "This field is required, here or as the header Idempotency-Key."},
        help_text="Your name for this request, here or as the header Idempotency-Key: a repeated name makes"
        " no second scan of the path.",
    )


class ScanLinksSerializer(serializers.Serializer[Any]):
    """URLs of a scan."""

    self = serializers.URLField(help_text="The URL of this answer.")
    documents = serializers.URLField(help_text="What was found, by document.")
    review = serializers.URLField(help_text="The same job as a review: its state, findings and messages.")


class ScanSerializer(serializers.Serializer[Any]):
    """A scan of documentation."""

    id = serializers.IntegerField(help_text="The scan, which is also the id of its job.")
    path = serializers.CharField(help_text="What is scanned.")
    changelist_id = serializers.CharField(help_text="The commit, or changelist of Perforce, that is scanned.")
    status = serializers.CharField(help_text="The state of its job, as of a review.")
    conclusion = serializers.ChoiceField(
        choices=[(each, each) for each in scans.CONCLUSIONS],
        allow_null=True,
        help_text="`failure`: a claim is refuted; `neutral`: not every claim was verified, or no claim"
        " could be decided; null while it is active.",
    )
    health = serializers.IntegerField(
        allow_null=True, help_text="Percent of held and refuted claims that hold; null: nothing verifiable."
    )
    claims = serializers.IntegerField(help_text="Claims of the documents that could be read.")
    verified = serializers.IntegerField(help_text="How many of them have a verdict.")
    documents = serializers.IntegerField(help_text="Documents.")
    unread = serializers.IntegerField(help_text="How many of them were not read.")
    holds = serializers.IntegerField(help_text="Claims that hold.")
    refuted = serializers.IntegerField(help_text="Claims that held once, and do not any more.")
    ambiguous = serializers.IntegerField(help_text="Claims that may mean several things.")
    uncheckable = serializers.IntegerField(help_text="Claims that could not be decided.")
    requested_by = serializers.CharField(help_text="Who asked for it.")
    created_at = serializers.DateTimeField(help_text="When it was asked for.")
    finished_at = serializers.DateTimeField(allow_null=True, help_text="When it ended.")
    duplicate = serializers.BooleanField(
        required=False, help_text="In the answer to a request: true where the scan was there already."
    )
    links = ScanLinksSerializer(help_text="URLs.")


class ScanPageSerializer(serializers.Serializer[Any]):
    """A page of scans."""

    count = serializers.IntegerField(help_text="Scans in all, up to 10,000.")
    next = serializers.URLField(allow_null=True, help_text="The next page.")
    previous = serializers.URLField(allow_null=True, help_text="The page before.")
    results = ScanSerializer(many=True, help_text="Newest first.")


class ScanClaimSerializer(serializers.Serializer[Any]):
    """A claim of a document. Texts are redacted."""

    id = serializers.CharField(help_text="The same for equal claims of a document, in every scan.")
    line = serializers.IntegerField(help_text="From 1.")
    kind = serializers.ChoiceField(choices=[(kind.value, kind.value) for kind in Kind], help_text="Its kind.")
    text = serializers.CharField(help_text="What the document says.")
    verdict = serializers.ChoiceField(choices=CLAIM_VERDICTS, help_text="The verdict.")
    reason = serializers.CharField(allow_blank=True, help_text="Why it is ambiguous or uncheckable.")
    says = serializers.CharField(allow_blank=True, help_text="What is there instead.")
    instead = serializers.CharField(allow_blank=True, help_text="What to write, where that is certain.")
    found = serializers.CharField(allow_blank=True, help_text="The file that it rests on.")


class ScanDocumentSerializer(serializers.Serializer[Any]):
    """A document of a scan."""

    path = serializers.CharField(help_text="Depot path.")
    total = serializers.IntegerField(help_text="Its claims.")
    verified_at = serializers.DateTimeField(allow_null=True, help_text="null: not verified.")
    unread = serializers.CharField(allow_blank=True, help_text="Why it was not read.")
    claims = ScanClaimSerializer(
        many=True, help_text=f"Empty for all but the newest {scans.KEPT_SCANS} scans of a path."
    )


class ScanDocumentPageSerializer(serializers.Serializer[Any]):
    """A page of a scan's documents."""

    next = serializers.URLField(allow_null=True, help_text="The next page.")
    results = ScanDocumentSerializer(many=True, help_text="Readmes first, then by depth and name.")


class ScanList(ApiView):
    query = ("path", "page")

    @extend_schema(
        operation_id="scans_list",
        summary="List scans of documentation, newest first",
        description="A key with prefixes sees the scans of paths below them.",
        parameters=[OpenApiParameter("path", OpenApiTypes.STR, description="Scans of this path."), PAGE],
        responses={200: ScanPageSerializer, **ERRORS, **NOT_FOUND},
    )
    def get(self, request: Request) -> Response:
        found = scans.scans_in(client_of(request).scope)
        if path := request.query_params.get("path"):
            found = found.filter(target__path=path[:1024].replace("\0", ""))
        pages = Pages()
        ids = pages.ids(found, request, self)
        rows = sorted(scans.scans_in(client_of(request).scope).filter(pk__in=ids), key=lambda row: -row.pk)
        return pages.get_paginated_response(_shown(rows))

    @extend_schema(
        operation_id="scans_create",
        summary="Request a scan of documentation",
        description="Scans the newest commit or changelist. Repeating a request is safe: the answer is the"
        " original scan, with `duplicate` true. So it is while a scan of the path is active.",
        request=ScanRequestSerializer,
        parameters=[IDEMPOTENCY_KEY],
        responses={
            201: OpenApiResponse(ScanSerializer, "Created"),
            200: OpenApiResponse(ScanSerializer, "A repeated request, or a scan is active: that scan"),
            404: OpenApiResponse(schemas.ErrorSerializer, "NOT_FOUND: not scanned, or outside the prefixes"),
            **POST_ERRORS,
            503: OpenApiResponse(
                schemas.ErrorSerializer,
                "DATABASE_UNAVAILABLE, or the class of a passing failure of the repository, with Retry-After",
            ),
        },
    )
    def post(self, request: Request) -> Response:
        asked, client = validated_with_key(ScanRequestSerializer, request), client_of(request)
        target = scans.targets_in(client.scope).filter(path=asked["path"]).first()
        if target is None:
            raise NotFound("The path is not among the scanned paths, or this key may not see it.")
        key = asked["idempotency_key"]
        try:
            answer = retry_lost_commit(lambda: intake.request(target, key, client.actor))
        except ScanTarget.DoesNotExist as error:
            raise NotFound from error
        except Failure as failure:
            details = {"path": [f"{clean(failure.detail, 500)}."]}
            if failure.retryable:
                kind = failure.kind
                unavailable = ApiErrorKind(503, kind.error_class.value, kind.code, kind.message)
                raise ApiError(unavailable, details) from failure
            raise ValidationError(details) from failure
        (shown,) = _shown(Scan.objects.select_related("job", "target").filter(pk=answer.job_id))
        shown["duplicate"] = not answer.is_new
        headers = {"Location": shown["links"]["self"]} if answer.is_new else {}
        return Response(shown, status=201 if answer.is_new else 200, headers=headers)


class ScanDetail(ApiView):
    @extend_schema(
        operation_id="scans_retrieve",
        summary="Read a scan of documentation",
        responses={200: ScanSerializer, **ERRORS, **NOT_FOUND},
    )
    def get(self, request: Request, scan_id: int) -> Response:
        return Response(_shown([_scan_or_404(request, scan_id)])[0])


class ScanDocuments(ApiView):
    query = ("after",)

    @extend_schema(
        operation_id="scans_documents",
        summary="Read the documents of a scan with their claims, in pages",
        parameters=[AFTER],
        responses={200: ScanDocumentPageSerializer, **ERRORS, **NOT_FOUND},
    )
    def get(self, request: Request, scan_id: int) -> Response:
        after = page_after(request)
        scan = _scan_or_404(request, scan_id)
        rows = list(scan.documents.filter(pk__gt=after).order_by("pk")[: PAGE_DOCUMENTS + 1])
        address = absolute("api-scan-documents", scan.pk)
        more = f"{address}?after={rows[PAGE_DOCUMENTS - 1].pk}" if len(rows) > PAGE_DOCUMENTS else None
        return Response({"next": more, "results": _documents(rows[:PAGE_DOCUMENTS])})


def _scan_or_404(request: Request, scan_id: int) -> Scan:
    scan = scans.scans_in(client_of(request).scope).filter(pk=scan_id).first()
    if scan is None:
        raise NotFound
    return scan


def _documents(rows: Sequence[ScanDocument]) -> Any:
    return ScanDocumentSerializer(rows, many=True).data


def _shown(rows: Sequence[Scan] | QuerySet[Scan]) -> list[dict[str, Any]]:
    """Return scans as the API shows them."""
    results = scans.results_of([row.pk for row in rows])
    return [_fields(row, results[row.pk]) for row in rows]


def _fields(scan: Scan, result: scans.ScanResult) -> dict[str, Any]:
    job = scan.job
    fields = {
        "id": scan.pk,
        "path": scan.target.path,
        "changelist_id": job.changelist_id,
        "status": job.status,
        "conclusion": scans.conclusion_of(job, result),
        "health": result.health,
        "claims": result.total,
        "verified": result.verified,
        "documents": result.documents,
        "unread": result.unread,
        **result.counts,
        "requested_by": job.requested_by,
        "created_at": job.created_at,
        "finished_at": job.finished_at,
        "links": {
            "self": absolute("api-scan", scan.pk),
            "documents": absolute("api-scan-documents", scan.pk),
            "review": absolute("api-review", scan.pk),
        },
    }
    shown: dict[str, Any] = dict(ScanSerializer(fields).data)
    return shown
