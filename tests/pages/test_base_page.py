"""Parts of all pages: content security policy, worker banner, error pages, login."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.template.loader import render_to_string
from django.test import Client
from django.utils import timezone

from criticizer.management.commands import up
from criticizer.models import Circuit
from criticizer.queue import outbox
from reviews import config
from reviews.web import context_processors
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def bob(client: Client) -> Client:
    client.force_login(factories.UserFactory())
    return client


def test_content_security_policy_has_no_unsafe_source(bob: Client) -> None:
    policy = bob.get("/")["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy


def test_banner_names_queues_without_a_worker(bob: Client) -> None:
    factories.WorkerClusterFactory(queue="stages")
    text = bob.get("/").content.decode()
    assert "No worker is serving the queues llm, notify." in text
    (said,) = re.findall(r"<code>manage\.py up (--.+?)</code>", text)
    options = up.Command().create_parser("manage.py", "up").parse_args(said.split())
    assert options.only == ["llm", "notify"]


def test_banner_ignores_clusters_without_a_recent_lease(bob: Client) -> None:
    for queue in outbox.queues():
        factories.WorkerClusterFactory(queue=queue, beat_at=timezone.now() - timedelta(minutes=1))
    assert "No worker is serving the queues llm, notify, stages." in bob.get("/").content.decode()


def test_no_banner_when_every_queue_has_a_worker(bob: Client) -> None:
    for queue in outbox.queues():
        factories.WorkerClusterFactory(queue=queue)
    assert "No worker is serving" not in bob.get("/").content.decode()


def test_circuits_that_no_banner_names_cost_no_query_of_what_waits(
    bob: Client, django_assert_num_queries: Any
) -> None:
    for name, state in (("webhook:ci.example.com", "open"), ("provider:mail", "forced_closed")):
        Circuit.objects.create(name=name, state=state)
    with django_assert_num_queries(1):
        assert context_processors.stopped_dependencies() == []
    Circuit.objects.create(name=config.perforce_dependency(), state="open")
    factories.OutboxMessageFactory(queue="stages", waiting_for=config.perforce_dependency())
    with django_assert_num_queries(2):
        (said,) = context_processors.stopped_dependencies()
    assert said == (
        "The version control server is not answering. 1 review waits; it continues automatically when it"
        " answers."
    )


def test_banner_is_hidden_without_login(client: Client) -> None:
    assert "No worker is serving" not in client.get("/login/").content.decode()


def test_page_renders_when_the_banner_query_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def down() -> dict[str, int]:
        raise OperationalError

    monkeypatch.setattr(context_processors, "workers_alive", down)
    assert context_processors.unserved_queues() == []


@pytest.mark.parametrize("name", ["403", "403_csrf", "404", "500", "503"])
def test_error_pages_render_without_database_or_request(name: str, django_assert_num_queries: object) -> None:
    with django_assert_num_queries(0):  # type: ignore[operator]
        assert "<h1>" in render_to_string(f"{name}.html")


def test_unknown_address_gets_the_404_page(bob: Client) -> None:
    answer = bob.get("/nowhere/")
    assert answer.status_code == 404
    assert "This page does not exist." in answer.content.decode()
    assert "This review does not exist" not in answer.content.decode()


def test_a_review_that_is_not_there_says_what_may_be_and_keeps_the_navigation(bob: Client) -> None:
    page = bob.get("/reviews/4711/").content.decode()
    assert (
        "This review does not exist, or you may not see any of its files. A review requested seconds ago"
        in page
    )
    assert 'href="/subscriptions/"' in page
    assert "Log out" in page


def test_login_redirects_back_to_the_requested_page(client: Client) -> None:
    user = factories.UserFactory()
    job = factories.ReviewJobFactory()
    answer = client.post(
        "/login/",
        {"username": user.username, "password": factories.PASSWORD, "next": f"/reviews/{job.pk}/"},
    )
    assert (answer.status_code, answer["Location"]) == (302, f"/reviews/{job.pk}/")


def test_login_does_not_redirect_to_other_hosts(client: Client) -> None:
    user = factories.UserFactory()
    answer = client.post(
        "/login/",
        {"username": user.username, "password": factories.PASSWORD, "next": "https://mallory.example/"},
    )
    assert answer["Location"] == "/"


def test_logout_requires_post(bob: Client) -> None:
    assert bob.get("/logout/").status_code == 405
    assert bob.post("/logout/")["Location"] == "/login/"
