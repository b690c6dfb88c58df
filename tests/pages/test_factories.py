"""The factories create rows that the database accepts."""

from __future__ import annotations

import inspect

import pytest
from factory.django import DjangoModelFactory

from reviews.states import JobStatus, StageStatus
from tests import factories

FACTORIES = [
    value
    for _, value in inspect.getmembers(factories, inspect.isclass)
    if issubclass(value, DjangoModelFactory) and not value._meta.abstract
]
pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("factory", FACTORIES, ids=lambda factory: factory.__name__)
def test_every_factory_makes_two_rows(factory: type) -> None:
    is_shared = bool(getattr(factory, "_meta").django_get_or_create)  # noqa: B009
    assert (factory().pk == factory().pk) == is_shared


@pytest.mark.parametrize("status", JobStatus)
def test_a_job_can_be_made_in_every_status(status: JobStatus) -> None:
    assert factories.ReviewJobFactory(status=status).status == status


@pytest.mark.parametrize("status", StageStatus)
def test_a_stage_can_be_made_in_every_status(status: StageStatus) -> None:
    assert factories.StageRunFactory(status=status).status == status


def test_factory_rows_carry_database_defaults() -> None:
    job = factories.job_with_stages()
    assert job.created_at is not None
    assert [stage.stage for stage in job.stages.order_by("id")] == ["fetch", "llm", "notify"]
