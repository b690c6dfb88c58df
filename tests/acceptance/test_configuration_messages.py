"""The messages about a `.criticizer.yml`, word for word on every channel.

The channels are comment, mail, page, webhook and API.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from criticizer.texts import Place
from tests.acceptance import shown as showing
from tests.acceptance.shown import Shown
from tests.acceptance.test_documents_by_meaning import AFTER, FILES
from tests.acceptance.world import World
from tests.fakes.github import GitHubServer

MESSAGES = {
    "llm: [\n": [
        "Configuration warning: `.criticizer.yml` has invalid YAML syntax. Using all default settings."
    ],
    "min_severity: severe\nmax_findings: 500\npathes: []\n": [
        'Configuration warning: field `min_severity` is invalid ("severe" is not one of: low, medium, high,'
        " critical), using default value `low`.",
        "Configuration warning: field `max_findings` is invalid (500 exceeds maximum of 200), using default"
        " value `50`.",
        "Configuration warning: unknown key `pathes` in `.criticizer.yml`. Did you mean `paths`? This key was"
        " ignored.",
    ],
    "llm: yes please\n": [
        'Configuration warning: field `llm` is invalid (expected true or false, got text "yes please"), using'
        " default value `false`."
    ],
    "min_severity: high\ncheck: {block: medium}\n": [
        'Configuration warning: `min_severity` ("high") hides findings that `check.block` ("medium") blocks'
        ' on. Using defaults: `min_severity` = "low", `check.block` = "none".'
    ],
}


@pytest.fixture
def shown(world: World, github: GitHubServer, tmp_path: Path) -> Shown:
    return showing.make(world, github, tmp_path, FILES)


@pytest.mark.parametrize(
    "text",
    [pytest.param(text, marks=() if text.count("\n") > 2 else pytest.mark.long) for text in MESSAGES],
    ids=["syntax", "values", "protecting", "conflict"],
)
def test_each_message_stands_word_for_word_on_every_channel(shown: Shown, text: str) -> None:
    shown.world.settings.FINDING_BUDGET = 50
    shown.repo.commit_files({".criticizer.yml": text})
    shown.review({"src/retry.py": AFTER})
    for place in (Place.COMMENT, Place.MAIL, Place.PAGE, Place.WEBHOOK, Place.API):
        for said in shown.texts(place):
            for message in MESSAGES[text]:
                assert _plain(message) in _plain(said), (place, said)


def _plain(text: str) -> str:
    """Return a text without the marks of code, which the places draw in their own way."""
    return " ".join(text.replace("`", "").replace('\\"', '"').split())
