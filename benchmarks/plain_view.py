"""Peer of intake: the view one would write first, with DRF's ModelSerializer and the ORM.

`python -m benchmarks.intake` serves it in place of the API (BENCHMARK_URLCONF), with the same server,
middleware, authentication, throttle and tables. A job, its three stages and its outbox row are created in
one transaction; a repeated key shows as IntegrityError, and the original is read. It validates less than the
product's view and wakes no worker.

Two peers differ in their answer. `PlainView` answers what the contract asks for, with nested serializers;
`ShortView` answers with the job's own five fields, which would break every client but shows what the writing
alone is worth.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from django.conf import settings
from django.db import IntegrityError, transaction
from django.urls import path, reverse
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from criticizer.models import OutboxMessage
from criticizer.urls import urlpatterns as product
from deadletters.models import DeadLetter
from deadletters.states import OPEN_LETTER
from notifications.models import Delivery
from reviews.models import CoverageRow, FindingRow, ReviewJob, StageRun
from reviews.states import STAGE_ORDER, Stage, StageStatus


class ShortSerializer(serializers.ModelSerializer[ReviewJob]):
    """Checks the request, creates the rows, answers with the columns."""

    class Meta:
        model = ReviewJob
        fields = ("id", "idempotency_key", "changelist_id", "review_version", "recipients")
        # The database says what is a duplicate; a look beforehand would cost a query and still race.
        extra_kwargs: ClassVar[dict[str, Any]] = {
            "idempotency_key": {"validators": []},
            "review_version": {"default": 1},
        }
        validators: ClassVar[list[Any]] = []

    def create(self, validated_data: dict[str, Any]) -> ReviewJob:
        deadline_at = timezone.now() + timedelta(seconds=settings.REVIEW_SLA_SECONDS[""])
        with transaction.atomic():
            job = ReviewJob.objects.create(**validated_data, deadline_at=deadline_at)
            runs = StageRun.objects.bulk_create([StageRun(job=job, stage=stage) for stage in STAGE_ORDER])
            OutboxMessage.objects.create(
                aggregate_type="stage_run",
                aggregate_id=runs[0].pk,
                message_type="run_stage",
                queue=settings.STAGES[Stage.FETCH][1],
            )
        return job


class StageSerializer(serializers.ModelSerializer[StageRun]):
    class Meta:
        model = StageRun
        fields = ("stage", "status", "attempts", "max_attempts", "next_attempt_at", "error_class")


class DeliverySerializer(serializers.ModelSerializer[Delivery]):
    class Meta:
        model = Delivery
        fields = ("recipient", "status", "notification_id", "notified_at")


class FindingSerializer(serializers.ModelSerializer[FindingRow]):
    class Meta:
        model = FindingRow
        fields = (
            "file", "line", "end_line", "side", "severity", "category", "title", "message",
            "suggestion", "source",
        )  # fmt: skip


class CoverageSerializer(serializers.ModelSerializer[CoverageRow]):
    class Meta:
        model = CoverageRow
        fields = ("file", "status", "reason")


class JobSerializer(serializers.ModelSerializer[ReviewJob]):
    """The job as the contract shows it."""

    stages = StageSerializer(many=True)
    deliveries = serializers.SerializerMethodField()
    findings = FindingSerializer(many=True)
    coverage = CoverageSerializer(many=True)
    stage = serializers.SerializerMethodField()
    dead_letter = serializers.SerializerMethodField()
    links = serializers.SerializerMethodField()

    class Meta:
        model = ReviewJob
        fields = (
            "id", "idempotency_key", "changelist_id", "review_version", "status", "stage", "deadline_at",
            "created_at", "finished_at", "is_late", "stages", "deliveries", "findings", "coverage",
            "dead_letter", "links",
        )  # fmt: skip

    def get_deliveries(self, job: ReviewJob) -> Any:
        return DeliverySerializer(Delivery.objects.filter(job_id=job.pk), many=True).data

    def get_stage(self, job: ReviewJob) -> str:
        unfinished = [run.stage for run in job.stages.all() if run.status != StageStatus.SUCCEEDED]
        return unfinished[0] if unfinished else Stage.NOTIFY

    def get_dead_letter(self, job: ReviewJob) -> int | None:
        letters = DeadLetter.objects.filter(job_id=job.pk, status__in=OPEN_LETTER)
        return letters.values_list("pk", flat=True).first()

    def get_links(self, job: ReviewJob) -> dict[str, str]:
        return {
            "self": settings.BASE_URL + reverse("api-review", args=[job.pk]),
            "html": settings.BASE_URL + reverse("reviews:detail", args=[job.pk]),
        }


class ShortView(APIView):
    def post(self, request: Request) -> Response:
        form = ShortSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        try:
            job = form.save()
        except IntegrityError:
            job = ReviewJob.objects.get(idempotency_key=form.validated_data["idempotency_key"])
            return Response({**self.answer(job), "duplicate": True})
        return Response(self.answer(job), status=201)

    def answer(self, job: ReviewJob) -> Any:
        return ShortSerializer(job).data


class PlainView(ShortView):
    def answer(self, job: ReviewJob) -> Any:
        # One query for the job and one for each list; the values the database filled in are read with it.
        return JobSerializer(ReviewJob.objects.prefetch_related("stages").get(pk=job.pk)).data


urlpatterns = [
    # The name decides which roles may post.
    path("api/v1/reviews/", PlainView.as_view(), name="api-reviews"),
    path("short/api/v1/reviews/", ShortView.as_view(), name="api-reviews"),
    *product,
]
