"""Receivers that hang or drip, and the reviews of others meanwhile, on a real installation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from notifications.models import Delivery
from reviews.intake.review_requests import ReviewRequest, request_review
from reviews.models import ReviewJob, StageRun
from tests.fakes.webhook import Behaviour, WebhookReceiver
from tests.stack import eventually, git_repository, running

pytestmark = [pytest.mark.cluster, pytest.mark.long]


def test_hung_and_dripping_receivers_delay_no_review_that_mails(
    tmp_path: Path, transactional_db: Any
) -> None:
    """20 reviews notify a receiver that never answers, two notify 100 slow recipients each.

    These are guarantees G133 to G135.
    """
    commits = iter(git_repository(tmp_path / "repository", 24))

    def request(*recipients: str, key: str) -> int:
        wanted = ReviewRequest(key, f"git:demo@{next(commits)}", recipients=recipients, requested_by=key[:5])
        job = request_review(wanted).job_id
        assert job is not None
        return job

    def is_done(job: int) -> bool:
        return ReviewJob.objects.get(pk=job).status == "succeeded"

    environment = {
        "CHANGE_SOURCES": "git",
        "GIT_REPOSITORIES": f"demo={tmp_path / 'repository'}",
        "DEPOT_ALLOW_LIST": "//demo/...",
        "OUTBOUND_ALLOW": "127.0.0.0/8",
        "LLM_PROVIDER": "none",
    }
    files = tmp_path / "files"
    files.mkdir()
    # The receivers stop before the installation, so that its workers end at once.
    with running(files, environment=environment), WebhookReceiver() as hung, WebhookReceiver() as slow:
        hung.always(Behaviour(hang=True))
        slow.always(Behaviour(drip=True))
        for n in range(20):
            request(f"webhook:{hung.url}/{n}", key=f"hangs {n}")
        for n in range(2):
            request(*(f"webhook:{slow.url}/{n}/{m}" for m in range(100)), key=f"drips {n}")
        eventually(lambda: hung.requests or slow.requests)
        for n in range(2):
            other = request("mail:ann@example.com", key=f"other {n}")
            eventually(lambda other=other: is_done(other), 30)
        # Nobody lost an attempt to the wait for a slot.
        assert not StageRun.objects.filter(stage="notify", attempts__gt=3).exists()
        assert not Delivery.objects.exclude(recipient="mail:ann@example.com").filter(status="sent").exists()
