"""The rows of the admin's lists: Django's own HTML for every list, whatever the rows hold.

One attribute is added: here a row's heading says that it is one.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.templatetags.admin_list import items_for_result
from django.contrib.admin.views.main import ChangeList
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext_lazy

from criticizer.admin_site.keyset import KeysetAdmin
from criticizer.admin_site.list_rendering import columns_of, format_html_fast, render_rows
from criticizer.admin_site.viewing_scope import not_of_reviews
from criticizer.models import Circuit, OutboxMessage
from deadletters.models import DeadLetter, DeadLetterGroup, LetterArchive, LetterEdit, ReplayBatch
from notifications.models import Delivery
from reviews.models import Attempt, LedgerEntry, ReviewJob
from reviews.states import LedgerState
from tests import factories

pytestmark = pytest.mark.django_db
HOSTILE = "<script>\"&'{}{0} {x} %s ü"


@pytest.fixture(autouse=True)
def _time_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = timezone.now()
    monkeypatch.setattr("criticizer.admin_site.timestamps.timezone", SimpleNamespace(now=lambda: moment))


@pytest.fixture
def root(client: Client) -> Client:
    client.force_login(factories.UserFactory(is_staff=True, is_superuser=True))
    return client


def _jobs() -> None:
    factories.ReviewJobFactory(title=HOSTILE, author=HOSTILE, is_late=True)
    factories.ReviewJobFactory(title="", author="")


def _attempts() -> None:
    factories.AttemptFactory(error_class="RATE_LIMITED", detail=HOSTILE, outcome="failed")
    factories.AttemptFactory(finished_at=timezone.now(), outcome="succeeded")


def _deliveries() -> None:
    factories.DeliveryFactory(recipient=f"mail:{HOSTILE}", error_class="TIMEOUT")
    factories.DeliveryFactory(notified_at=timezone.now())


def _groups() -> None:
    known = DeadLetterGroup.objects.count()
    factories.DeadLetterGroupFactory(
        fingerprint=f"v1:{known}", normalized_message=HOSTILE, owner=HOSTILE, note=HOSTILE, source=HOSTILE
    )
    factories.DeadLetterGroupFactory(
        fingerprint=f"v1:{known + 1}",
        runbook_url="https://wiki.example.com/?a=1&b=2",
        snooze_until=timezone.now() + timedelta(days=1),
    )


def _letters() -> None:
    factories.DeadLetterFactory(detail=HOSTILE, is_escalated=True, failed_replay_count=2)
    factories.DeadLetterFactory(detail="", code="")


def _messages() -> None:
    factories.OutboxMessageFactory()
    factories.OutboxMessageFactory()


def _circuits() -> None:
    known = Circuit.objects.count()
    for name in (f"llm:openai{known}", f"source:{HOSTILE}{known}"):
        Circuit.objects.create(name=name, state="open", reason=HOSTILE)


def _batches() -> None:
    for reason in (HOSTILE, "again"):
        ReplayBatch.objects.create(reason=reason, requested_by="ann", item_count=2, rate_per_minute=10)


def _edits() -> None:
    for _ in range(2):
        letter = factories.DeadLetterFactory()
        LetterEdit.objects.create(letter=letter, reason=HOSTILE, requested_by="ann", before={}, after={})


def _archives() -> None:
    for number, untouched in ((1, None), (2, 0)):
        LetterArchive.objects.create(
            name=f"{HOSTILE}{LetterArchive.objects.count()}",
            sha256="0" * 64,
            key_id="k",
            letter_count=number,
            untouched_count=untouched,
            first_letter=1,
            last_letter=number,
        )


def _ledger() -> None:
    for state, counted in (
        (LedgerState.RESERVED, {}),
        (LedgerState.SETTLED, {"input_tokens": 5, "output_tokens": 2}),
    ):
        attempt = factories.AttemptFactory()
        LedgerEntry.objects.create(
            job=attempt.stage_run.job, attempt=attempt, call=HOSTILE, dependency="llm:openai", model=HOSTILE,
            source=HOSTILE, state=state, reserved_tokens=9, **counted,
        )  # fmt: skip


ROWS: dict[type[Model], Callable[[], None]] = {
    ReviewJob: _jobs,
    Attempt: _attempts,
    Delivery: _deliveries,
    DeadLetterGroup: _groups,
    DeadLetter: _letters,
    OutboxMessage: _messages,
    Circuit: _circuits,
    ReplayBatch: _batches,
    LetterEdit: _edits,
    LetterArchive: _archives,
    LedgerEntry: _ledger,
}


def test_every_list_by_key_is_tried_here() -> None:
    lists = {model for model, made in admin.site._registry.items() if isinstance(made, KeysetAdmin)}
    assert lists == set(ROWS)


def list_of(root: Client, model: type[Model]) -> Any:
    address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    response = root.get(f"{address}?by=all")
    assert response.status_code == 200
    return response


def stock_row(changes: ChangeList, row: Model) -> str:
    """Return the row as Django draws it, with the scope that Django does not give its heading."""
    cells = "".join(items_for_result(changes, row, None))
    return "<tr>" + cells.replace("<th class=", '<th scope="row" class=') + "</tr>"


@pytest.mark.parametrize("model", ROWS, ids=lambda model: model.__name__)
def test_rows_are_drawn_as_django_draws_them(root: Client, model: type[Model]) -> None:
    ROWS[model]()
    response = list_of(root, model)
    changes = response.context["cl"]
    assert len(changes.result_list) >= 2
    stock = [stock_row(changes, row) for row in changes.result_list]
    assert render_rows(changes).splitlines() == stock
    assert all(line.count('<th scope="row" class="field-') == 1 for line in stock)
    assert stock[0] in response.content.decode()
    assert "<script>" not in render_rows(changes)


@pytest.mark.parametrize("model", ROWS, ids=lambda model: model.__name__)
def test_more_rows_ask_no_more_of_the_database(root: Client, model: type[Model]) -> None:
    ROWS[model]()
    list_of(root, model)
    with CaptureQueriesContext(connection) as few:
        list_of(root, model)
    ROWS[model]()
    with CaptureQueriesContext(connection) as more:
        list_of(root, model)
    assert len(more) == len(few)


class _Other(KeysetAdmin):
    """Columns that no list of ours has; they are rendered as Django does, too."""

    orderings = admin.site.get_model_admin(ReviewJob).orderings  # type: ignore[attr-defined]
    list_display = (
        "is_late",
        "created_at",
        "finished_at",
        "usage",
        "yes",
        "none",
        "blank",
        "number",
        "marked",
        "day",
    )
    list_display_links = ("created_at", "marked")
    scope = not_of_reviews("a test")
    empty_value_display = "nothing"

    @admin.display(boolean=True)
    def yes(self, job: ReviewJob) -> bool:
        return True

    @admin.display(empty_value="none at all")
    def none(self, job: ReviewJob) -> None:
        return None

    def blank(self, job: ReviewJob) -> str:
        return "  \n"

    def number(self, job: ReviewJob) -> float:
        return 1234.5

    def marked(self, job: ReviewJob) -> SafeString:
        return mark_safe("<b>bold</b>")

    def day(self, job: ReviewJob) -> Any:
        return job.created_at


def test_all_kinds_of_columns_are_as_djangos(root: Client, rf: Any) -> None:
    _jobs()
    request = rf.get("/")
    request.user = factories.UserFactory(is_staff=True, is_superuser=True)
    changes = _Other(ReviewJob, admin.site).get_changelist_instance(request)
    stock = [stock_row(changes, row) for row in changes.result_list]
    # One more difference: Django keeps a moment that a method returns in one line.
    stock = [line.replace('class="field-day nowrap"', 'class="field-day"') for line in stock]
    assert render_rows(changes).splitlines() == stock
    assert [column.css for column in columns_of(changes) if column.tag == "th"] == ["field-created_at nowrap"]


def test_filling_escapes_what_is_not_safe_already() -> None:
    values = (HOSTILE, mark_safe("<i>"), 7, None, gettext_lazy("Yes"))
    assert format_html_fast('<a b="{}">{}{}{}{}</a>', *values) == format_html(
        '<a b="{}">{}{}{}{}</a>', *values
    )
    assert isinstance(format_html_fast("{}", 1), SafeString)
