"""Lists of a service that do not end cost the time of one call only (G588).

That holds however promptly each page is answered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from criticizer.codehosts.client import TokenClient, TokenConfig
from criticizer.codehosts.error_responses import of_account
from criticizer.resilience import exchange
from criticizer.resilience.failures import ErrorClass, RetryableFailure, UncertainFailure
from notifications.delivery import reconcile, store
from notifications.providers.base import Capabilities, LookUp, Message, Provider, Question
from notifications.providers.slack.provider import Slack, SlackConfig
from notifications.providers.swarm.provider import Swarm, SwarmConfig
from notifications.states import SendOutcome
from reviews.models import ReviewJob
from tests.fakes.http import Asked, LoopbackServer, Said
from tests.notifications.scripted import crashed, deliver, outcomes, prepare

PAGE_SECONDS = 0.05  # far below every limit of one exchange


class Pages:
    """A provider whose `send` reads a host's list before it posts, as summaries do."""

    name = "pages"
    capabilities = Capabilities()

    def __init__(self, url: str) -> None:
        self._client = TokenClient(TokenConfig(url, ("t",)), "/api/v1", "token", of_account("Gitea"))

    def send(self, message: Message) -> str:
        return str(sum(map(len, self._client.pages("/comments"))))

    def look_up(self, question: Question) -> LookUp:
        raise NotImplementedError

    def probe(self) -> str:
        raise NotImplementedError


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    pages = count(1)

    def answer(asked: Asked) -> Said:
        time.sleep(PAGE_SECONDS)
        page = next(pages)
        if "conversations" in asked.path:
            more = {"has_more": True, "response_metadata": {"next_cursor": f"c{page}"}}
            return Said(body={"ok": True, "messages": [], **more})
        if "v11" in asked.path:
            comment = {"id": page, "user": "someone", "time": 1, "body": ""}
            return Said(body={"error": None, "data": {"comments": [comment]}})
        return Said(body=[{"id": page}], headers={"Link": f'<{asked.path}?page={page + 1}>; rel="next"'})

    with LoopbackServer(answer) as started:
        yield started


@pytest.mark.parametrize(
    ("recipient", "made"),
    [
        ("slack:C0123ABCD", lambda url: Slack(SlackConfig(("t",), api_url=url))),
        ("swarm:change-12", lambda url: Swarm(SwarmConfig(url, "criticizer", ("t",)))),
    ],
)
def test_a_look_up_whose_pages_do_not_end_is_given_up(
    job: ReviewJob,
    server: LoopbackServer,
    monkeypatch: pytest.MonkeyPatch,
    recipient: str,
    made: Callable[[str], Provider],
) -> None:
    provider = made(server.url)
    (row,) = prepare(job, recipient)
    crashed(row, provider.name)
    store.start_reconciling(store.read(row.pk))
    monkeypatch.setattr(exchange, "CALL_SECONDS", 10 * PAGE_SECONDS)
    row = store.read(row.pk)
    with pytest.raises(RetryableFailure) as failed:
        reconcile.look_up(row, provider, reconcile.history_of(row))
    assert failed.value.error_class is ErrorClass.NETWORK_TIMEOUT
    assert SendOutcome.ABSENT not in outcomes(row)  # a list that was not read to its end proves nothing


def test_a_send_that_reads_a_list_without_end_is_given_up_and_repeated(
    job: ReviewJob, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = prepare(job, "slack:C0123ABCD")
    monkeypatch.setattr(exchange, "CALL_SECONDS", 10 * PAGE_SECONDS)
    with pytest.raises(RetryableFailure) as failed:
        deliver(job, {"slack": Pages(server.url)})
    assert failed.value.error_class is ErrorClass.NETWORK_TIMEOUT
    assert outcomes(row) == [SendOutcome.NOT_SENT]


def test_a_call_inside_another_has_no_more_time_and_gives_back_none(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = TokenClient(TokenConfig(server.url, ("t",)), "/api/v1", "token", of_account("Gitea"))
    monkeypatch.setattr(exchange, "CALL_SECONDS", 0.0)
    with exchange.one_call():
        monkeypatch.undo()
        with pytest.raises(RetryableFailure), exchange.one_call():
            client.call("GET", "/comments")
    with pytest.raises(UncertainFailure):  # the list is no object: it was asked for, and answered
        client.call("POST", "/comments")
