"""The page of a letter follows the replay of its job until a person has something to do."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from deadletters import workflow
from deadletters.models import DeadLetter
from tests.admin.test_letters import LIST, ann, letter, make_letter, page, validated  # noqa: F401  fixtures

pytestmark = pytest.mark.django_db


def replaying(letter: DeadLetter) -> DeadLetter:  # noqa: F811
    validated(letter)
    assert workflow.replay(letter.pk, actor="ann", reason="the server is back").ok
    letter.refresh_from_db()
    return letter


def live(client: Client, letter: DeadLetter, **query: str) -> Any:  # noqa: F811
    return client.get(f"{LIST}{letter.pk}/live/", query)


def followed(html: str) -> str:
    """Return what the page has, as it tells the server; "" for a page that does not ask."""
    return "".join(re.findall(r'data-live-have="(\w+)"', html))


def test_a_replay_is_followed_until_it_is_over(ann: Client, letter: DeadLetter) -> None:  # noqa: F811
    replaying(letter)
    html = page(ann, letter)
    have = followed(html)
    assert "The dead letter is replaying." in html
    assert 'aria-live="polite"' in html
    unchanged = live(ann, letter, have=have)
    assert (unchanged.status_code, unchanged["X-Live-Next"]) == (204, "2")
    DeadLetter.objects.filter(pk=letter.pk).update(status="verifying")
    over = live(ann, letter, have=have)
    text = over.content.decode()
    assert over.status_code == 200
    assert "X-Live-Next" not in over
    assert "Now: Verify" in text
    assert 'name="csrfmiddlewaretoken"' in text  # the step that is asked for now can be taken
    assert "Cache-Control" in over
    assert "no-store" in over["Cache-Control"]


@pytest.mark.parametrize("status", ["new", "triaged", "verifying", "discarded"])
def test_a_page_with_a_form_or_of_a_closed_letter_stays_as_it_is(
    ann: Client,  # noqa: F811
    status: str,
) -> None:
    still = make_letter(status=status)
    assert followed(page(ann, still)) == ""
    assert "X-Live-Next" not in live(ann, still)


def test_a_letter_that_is_gone_is_not_found(ann: Client, letter: DeadLetter) -> None:  # noqa: F811
    assert ann.get(f"{LIST}{letter.pk + 999}/live/").status_code == 404
