"""The failure of a delivery without a provider names the channel and the variables to set."""

from __future__ import annotations

from typing import Any

import pytest

from criticizer.resilience.failures import ErrorClass, PermanentFailure
from reviews.models import ReviewJob
from tests.notifications.scripted import ScriptedProvider, deliver, prepare


@pytest.mark.parametrize(
    ("recipient", "says"),
    [
        ("slack:C0123ABCD", "no provider is configured for slack recipients: set SLACK_BOT_TOKEN"),
        (
            "swarm:review-123",
            "no provider is configured for swarm recipients: set SWARM_URL, SWARM_USER and SWARM_TICKET",
        ),
        ("webhook:https://ci.example.com/hook", "no provider is configured for webhook recipients"),
    ],
)
def test_it_names_the_channel_and_the_variables(
    job: ReviewJob, mail: ScriptedProvider, recipient: str, says: str
) -> None:
    (row,) = prepare(job, recipient)
    with pytest.raises(PermanentFailure) as failed:
        deliver(job, {"mail": mail})
    assert (failed.value.error_class, failed.value.detail) == (ErrorClass.CONFIG_INVALID, says)
    row.refresh_from_db()
    assert row.detail == says


def test_it_says_what_is_wrong_with_settings_that_are_there(
    job: ReviewJob, mail: ScriptedProvider, settings: Any
) -> None:
    settings.WEBHOOK_SECRETS = ("abc",)
    prepare(job, "webhook:https://ci.example.com/hook")
    with pytest.raises(PermanentFailure) as failed:
        deliver(job, {"mail": mail})
    assert failed.value.detail.startswith("the provider of webhook recipients cannot be made: ")
    assert "abc" not in failed.value.detail
