"""The peer of intake: the view one would write first, with DRF's ModelSerializer and the ORM.

`python -m benchmarks.intake` serves it in place of the API (BENCHMARK_URLCONF), with the same
server, middleware, authentication, throttle and tables. A job, its three stages and its outbox row
are created in one transaction; a repeated key shows as IntegrityError, and the original is read.
Lighter than the product's view in three ways: it validates less, wakes no worker, and answers
with the job's own fields only.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from django.conf import settings
from django.db import IntegrityError, transaction
from django.urls import path
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from criticizer.models import OutboxMessage
from criticizer.urls import urlpatterns as product
from reviews.models import ApiKey, ReviewJob, StageRun
from reviews.states import STAGE_ORDER, Stage


class PlainSerializer(serializers.ModelSerializer[ReviewJob]):
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
        deadline_at = timezone.now() + timedelta(seconds=settings.REVIEW_SLA_SECONDS)
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


class PlainView(APIView):
    roles: ClassVar[dict[str, tuple[str, ...]]] = {"POST": (ApiKey.Role.TRIGGER,)}

    def post(self, request: Request) -> Response:
        form = PlainSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        try:
            form.save()
        except IntegrityError:
            original = ReviewJob.objects.get(idempotency_key=form.validated_data["idempotency_key"])
            return Response({**PlainSerializer(original).data, "duplicate": True})
        return Response(form.data, status=201)


urlpatterns = [path("api/v1/reviews/", PlainView.as_view()), *product]
