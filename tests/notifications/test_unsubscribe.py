"""The link in each mail: one click stops the mail, and nothing else does."""

from __future__ import annotations

import base64
from typing import Any
from uuid import UUID

import pytest
from django.test import Client

from notifications.models import Delivery
from notifications.preferences import policy, unsubscribe
from tests.factories import DeliveryFactory
from tests.links import path_of

pytestmark = pytest.mark.django_db

ANN = "mail:ann@example.com"
ONE_CLICK = {"List-Unsubscribe": "One-Click"}


@pytest.fixture
def delivery(settings: Any) -> Any:
    """One whose link is the same in every run: a random one may hold any three letters."""
    settings.SECRET_KEY = "a-key-that-is-long-enough-for-the-tests-of-the-links"
    return DeliveryFactory(recipient=ANN, token=UUID(int=7, version=4))


@pytest.fixture
def address(delivery: Any) -> str:
    return path_of(unsubscribe.link(ANN, delivery.token))


@pytest.fixture
def stranger() -> Client:
    """A mail program: no session, no cookie, and Django's check of forged requests switched on."""
    return Client(enforce_csrf_checks=True)


def is_stopped(recipient: str = ANN) -> bool:
    return policy.preference_of(recipient).muted_until is not None


def test_one_click_stops_the_mail_without_login_or_cookie(stranger: Client, address: str) -> None:
    answer = stranger.post(address, ONE_CLICK)
    assert answer.status_code == 200  # no redirect: RFC 8058, 3.1
    assert is_stopped()
    assert not stranger.cookies


def test_following_the_link_only_asks(stranger: Client, address: str) -> None:
    for method in (stranger.get, stranger.head):
        assert method(address).status_code == 200
    page = stranger.get(address).content.decode()
    assert "Stop the messages?" in page
    assert "a…@example.com" in page
    assert "ann@" not in page  # messages are forwarded
    assert not is_stopped()


def test_a_second_click_changes_nothing(stranger: Client, address: str) -> None:
    stranger.post(address, ONE_CLICK)
    assert stranger.post(address, ONE_CLICK).status_code == 200
    assert is_stopped()


def test_it_can_be_undone_on_the_page(stranger: Client, address: str) -> None:
    stranger.post(address, ONE_CLICK)
    assert "Messages stopped" in stranger.get(address).content.decode()
    assert "gets mail about reviews again" in stranger.post(address, {"resume": "yes"}).content.decode()
    assert not is_stopped()


def test_it_stops_this_recipient_and_no_other(stranger: Client, address: str) -> None:
    DeliveryFactory(recipient="mail:bob@example.com")
    stranger.post(address, ONE_CLICK)
    assert not is_stopped("mail:bob@example.com")


@pytest.mark.parametrize("part", ["token", "signature", "salt", "nonsense", "nul"])
def test_a_link_that_was_not_made_here_does_nothing(
    stranger: Client, delivery: Any, address: str, part: str
) -> None:
    other = DeliveryFactory(recipient="mail:bob@example.com")
    token, _, signature = address.partition("?key=")[2].partition(".")
    foreign = base64.urlsafe_b64encode(other.token.bytes).rstrip(b"=").decode()
    made = {
        "token": f"{foreign}.{signature}",
        "signature": f"{token}.{signature[:-2]}xx",
        "salt": f"{token}.",
        "nonsense": ".." + "é" * 400,
        "nul": "%00..",
    }[part]
    for place in (f"/unsubscribe/?key={made}", f"/unsubscribe/{made}/"):
        for answer in (stranger.get(place), stranger.post(place, ONE_CLICK)):
            assert answer.status_code == (400 if part == "nul" else 404)
    assert not is_stopped()
    assert not is_stopped("mail:bob@example.com")


def test_a_link_whose_delivery_is_gone_says_so(stranger: Client, address: str) -> None:
    Delivery.objects.all().delete()
    answer = stranger.post(address, ONE_CLICK)
    assert answer.status_code == 404
    assert "too old" in answer.content.decode()


def test_other_methods_are_refused(stranger: Client, address: str) -> None:
    assert stranger.delete(address).status_code == 405


def test_a_link_is_stable_and_names_no_person(delivery: Any, settings: Any) -> None:
    settings.BASE_URL = "https://reviews.test/"
    link = unsubscribe.link(ANN, delivery.token)
    assert link == unsubscribe.link(ANN, delivery.token)
    assert link.startswith("https://reviews.test/unsubscribe/")
    assert "ann" not in link


def test_a_link_works_on_after_the_secret_key_was_rotated(
    stranger: Client, address: str, settings: Any
) -> None:
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another-key-that-is-long-enough-for-the-tests-of-the-links"
    assert stranger.post(address, ONE_CLICK).status_code == 200


@pytest.mark.parametrize("recipient", ["webhook:https://ci.example.com/x", "slack:C0123ABCD"])
def test_only_mail_has_a_link(recipient: str, delivery: Any) -> None:
    assert unsubscribe.link(recipient, delivery.token) == ""
