"""The pace of a batch that is under way, and its rows that follow what happens to them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from deadletters import batches
from deadletters.models import ReplayBatch, ReplayItem
from tests import factories
from tests.admin.test_letters import messages_of
from tests.admin.test_replay_batches import LIST, ann, drafted, page  # noqa: F401

pytestmark = pytest.mark.django_db


def running(ann: Client, letters: int = 2) -> ReplayBatch:  # noqa: F811
    batch = drafted(ann, letters, evidence_note="OPS-7", rate_per_minute=10, max_in_flight=5)
    assert batches.submit(batch.pk, actor="ann").ok
    return batch


def change(client: Client, batch: ReplayBatch, **fields: Any) -> Any:
    body = {"rate_per_minute": 120, "max_in_flight": 7, "reason": "", **fields}
    return client.post(f"{LIST}{batch.pk}/pace/", body, follow=True)


# -- the pace ----------------------------------------------------------------------------------


@pytest.mark.parametrize("act", [None, pytest.param(batches.pause, marks=pytest.mark.long)])
def test_a_batch_under_way_has_another_pace_from_now_on(ann: Client, act: Any) -> None:  # noqa: F811
    batch = running(ann)
    if act:
        act(batch.pk, actor="ann")
    assert 'value="10"' in page(ann, batch)
    response = change(ann, batch, reason="the vendor allows more")
    assert messages_of(response) == ["120 a minute, at most 7 at once from now on."]
    batch.refresh_from_db()
    assert (batch.rate_per_minute, batch.max_in_flight, batch.next_item_at) == (120, 7, None)
    last = batch.events.order_by("-id")[0]
    assert (last.action, last.actor) == ("pace", "ann")
    assert last.reason == "120 a minute, at most 7 at once: the vendor allows more"
    assert "120 a minute, at most 7 at once" in response.content.decode()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"rate_per_minute": 0}, "greater than or equal to 1"),
        pytest.param({"rate_per_minute": 6001}, "less than or equal to 6000", marks=pytest.mark.long),
        pytest.param({"max_in_flight": 501}, "less than or equal to 500", marks=pytest.mark.long),
        pytest.param({"rate_per_minute": "fast"}, "Enter a whole number", marks=pytest.mark.long),
    ],
)
def test_a_pace_out_of_range_changes_nothing(ann: Client, fields: Any, words: str) -> None:  # noqa: F811
    batch = running(ann)
    response = change(ann, batch, **fields)
    assert words in response.content.decode()
    batch.refresh_from_db()
    assert (batch.rate_per_minute, batch.max_in_flight) == (10, 5)


@pytest.mark.long
def test_only_a_batch_under_way_has_a_pace_to_change(ann: Client) -> None:  # noqa: F811
    batch = drafted(ann)
    assert "Change the rate" not in page(ann, batch)
    assert messages_of(change(ann, batch)) == ["Nothing was changed: the batch is draft."]
    batches.cancel(batch.pk, actor="ann")
    assert "Change the rate" not in page(ann, batch)
    assert messages_of(change(ann, batch)) == ["Nothing was changed: the batch is cancelled."]


def test_a_reader_does_not_change_the_pace_and_looking_changes_nothing(ann: Client) -> None:  # noqa: F811
    batch = running(ann)
    uma = factories.staff_client("uma", "auditor")
    assert "Change the rate" not in page(uma, batch)
    assert change(uma, batch).status_code == 403
    ann.get(f"{LIST}{batch.pk}/pace/", {"rate_per_minute": 120, "max_in_flight": 7})
    batch.refresh_from_db()
    assert batch.rate_per_minute == 10


# -- the rows ----------------------------------------------------------------------------------


def live(client: Client, batch: ReplayBatch, **query: Any) -> Any:
    return client.get(f"{LIST}{batch.pk}/live/", query)


def rows_of(html: str) -> list[str]:
    return re.findall(r'<tr id="item-(\d+)">', html)


@pytest.mark.long
def test_an_update_of_an_ended_batch_has_no_rate_and_tells_its_end(ann: Client) -> None:  # noqa: F811
    batch = running(ann)
    assert 'id="batch-rate"' not in live(ann, batch).content.decode(), "a form in use is never replaced"
    ReplayBatch.objects.filter(pk=batch.pk).update(status="finished", finished_at=timezone.now())
    html = live(ann, batch).content.decode()
    assert '<div id="batch-rate"></div>' in html
    facts = html[html.index('id="batch-facts"') :]
    assert re.search(r"<dt>Finished</dt><dd>\s*<time", facts)
    assert 'id="batch-history"' in html


@pytest.mark.long
def test_the_rows_follow_what_happens_to_them(ann: Client) -> None:  # noqa: F811
    batch = running(ann)
    html = page(ann, batch)
    (have,) = re.findall(r'data-live-have="(\w+)"', html)
    assert live(ann, batch, have=have).status_code == 204  # nothing happened
    item = ReplayItem.objects.filter(batch=batch)[0]
    ReplayItem.objects.filter(pk=item.pk).update(status="skipped", detail="already resolved by bob")
    answer = live(ann, batch, have=have)
    assert answer.status_code == 200
    assert "already resolved by bob" in answer.content.decode()
    assert rows_of(answer.content.decode()) == rows_of(html)
    assert live(ann, batch, have=answer["X-Live-Have"]).status_code == 204


def test_only_the_rows_of_the_page_that_is_looked_at_are_sent(
    ann: Client,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("deadletters.admin.batch_page.ITEMS_PER_PAGE", 2)
    batch = running(ann, letters=5)
    pks = [str(pk) for pk in batch.items.order_by("id").values_list("pk", flat=True)]
    second = page(ann, batch, f"?after={pks[1]}")
    assert rows_of(second) == pks[2:4]
    assert f"/live/?outcome=&amp;after={pks[1]}" in second
    (have,) = re.findall(r'data-live-have="(\w+)"', second)
    ReplayItem.objects.filter(pk=pks[0]).update(status="skipped", detail="on another page")
    moved = live(ann, batch, after=pks[1], have=have).content.decode()
    assert rows_of(moved) == pks[2:4]  # the tally above has changed, the rows are those that are shown
    assert "on another page" not in moved
    only = live(ann, batch, outcome="skipped").content.decode()
    assert rows_of(only) == pks[:1]


def test_that_time_passes_is_no_reason_to_send_the_rows_again(ann: Client) -> None:  # noqa: F811
    from deadletters.admin.base import digest

    row = '<td><time datetime="2026-01-01T00:00:00Z" title="x" data-relative>{}</time></td>'
    assert digest(row.format("3 s ago")) == digest(row.format("4 s ago"))
    assert digest(row.format("3 s ago")) != digest(row.format("3 s ago").replace("00Z", "01Z"))
