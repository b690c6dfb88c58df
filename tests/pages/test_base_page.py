"""What all pages share: the policy, the worker banner, the error pages, the login."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import OperationalError
from django.template.loader import render_to_string
from django.test import Client
from django.utils import timezone

from reviews.web import context_processors
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def bob(client: Client) -> Client:
    client.force_login(factories.UserFactory())
    return client


def test_the_policy_has_no_unsafe_source(bob: Client) -> None:
    policy = bob.get("/")["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy


def test_the_banner_names_the_queues_without_a_worker(bob: Client) -> None:
    factories.WorkerClusterFactory(queue="stages")
    assert "No worker is serving the queue llm." in bob.get("/").content.decode()


def test_a_cluster_that_stopped_beating_does_not_count(bob: Client) -> None:
    for queue in ("stages", "llm"):
        factories.WorkerClusterFactory(queue=queue, beat_at=timezone.now() - timedelta(minutes=1))
    assert "No worker is serving the queues llm, stages." in bob.get("/").content.decode()


def test_with_all_workers_there_is_no_banner(bob: Client) -> None:
    for queue in ("stages", "llm"):
        factories.WorkerClusterFactory(queue=queue)
    assert "No worker is serving" not in bob.get("/").content.decode()


def test_strangers_learn_nothing_of_the_workers(client: Client) -> None:
    assert "No worker is serving" not in client.get("/login/").content.decode()


def test_a_page_does_not_fail_because_the_banner_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def down() -> dict[str, int]:
        raise OperationalError

    monkeypatch.setattr(context_processors, "workers_alive", down)
    assert context_processors.unserved_queues() == []


@pytest.mark.parametrize("name", ["403", "403_csrf", "404", "500", "503"])
def test_error_pages_need_neither_database_nor_request(name: str, django_assert_num_queries: object) -> None:
    with django_assert_num_queries(0):  # type: ignore[operator]
        assert "<h1>" in render_to_string(f"{name}.html")


def test_an_unknown_address_gets_our_page(bob: Client) -> None:
    answer = bob.get("/nowhere/")
    assert answer.status_code == 404
    assert "This page does not exist." in answer.content.decode()


def test_login_returns_to_the_page_that_asked_for_it(client: Client) -> None:
    user = factories.UserFactory()
    job = factories.ReviewJobFactory()
    answer = client.post(
        "/login/",
        {"username": user.username, "password": factories.PASSWORD, "next": f"/reviews/{job.pk}/"},
    )
    assert (answer.status_code, answer["Location"]) == (302, f"/reviews/{job.pk}/")


def test_login_does_not_send_people_to_other_hosts(client: Client) -> None:
    user = factories.UserFactory()
    answer = client.post(
        "/login/",
        {"username": user.username, "password": factories.PASSWORD, "next": "https://mallory.example/"},
    )
    assert answer["Location"] == "/"


def test_logging_out_takes_a_post(bob: Client) -> None:
    assert bob.get("/logout/").status_code == 405
    assert bob.post("/logout/")["Location"] == "/login/"
