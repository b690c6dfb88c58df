"""Running workers follow an edit of the allow-list, and work as a role that owns no table."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from criticizer.db import embedded
from criticizer.models import SecurityEvent
from reviews.intake.review_requests import ReviewRequest, request_review
from reviews.models import AllowListEntry, Artifact, ReviewJob
from tests.stack import eventually, git_repository, running

pytestmark = [pytest.mark.cluster, pytest.mark.django_db(transaction=True)]


@pytest.mark.long
def test_an_edit_takes_effect_in_running_workers_within_five_seconds(tmp_path: Path) -> None:
    commits = git_repository(tmp_path / "repository", 3)
    files = tmp_path / "files"
    files.mkdir()
    environment = {
        "CHANGE_SOURCES": "git",
        "GIT_REPOSITORIES": f"demo={tmp_path / 'repository'}",
        "DEPOT_ALLOW_LIST": "//demo/...",
        "LLM_PROVIDER": "none",
        "TEST_DATABASE_ROLE": embedded.ROLE,
    }

    def reviewed(number: int) -> tuple[str, float]:
        """Post a review; return how it ended and when its change was decided about."""
        made = request_review(ReviewRequest(f"key-{number}", f"git:demo@{commits[number]}", recipients=()))
        began = time.monotonic()

        def ended() -> Any:
            return (
                ReviewJob.objects.filter(pk=made.job_id, finished_at__isnull=False)
                .values_list("status", flat=True)
                .first()
            )

        return eventually(ended, 30), time.monotonic() - began

    with running(files, environment=environment):
        assert reviewed(0)[0] == "succeeded"
        row = AllowListEntry.objects.create(kind="exclude", pattern="//demo/app.py", reason="OPS-1")
        status, seconds = reviewed(1)
        assert (status, seconds < 5) == ("dead_lettered", True)
        row.delete()
        assert reviewed(2)[0] == "succeeded"
    event = SecurityEvent.objects.get(kind="path_denied")
    assert (event.path, event.changelist_id) == ("//demo/app.py", f"git:demo@{commits[1]}")
    # No content of the denied change was read at all.
    denied = ReviewJob.objects.get(status="dead_lettered")
    assert not Artifact.objects.filter(job=denied).exists()
