"""`manage.py lost_requests`: accepted reviews that logs have and the database lacks."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import structlog
from django.core.management import CommandError, call_command

from reviews.models import ReviewJob
from tests.api.conftest import ApiClient
from tests.api.test_kept_requests import lose, post

pytestmark = pytest.mark.django_db(transaction=True)


def write(path: Path, logs: list[structlog.typing.EventDict]) -> str:
    """Write what was logged as a collector stores it, between lines of others."""
    made = [f"Nov 28 web[7]: {json.dumps({**line, 'timestamp': '21:34'}, default=str)}" for line in logs]
    path.write_text("\n".join(['cut off: {"event": "job_created", "job"', *made, "{}", "no JSON", ""]))
    return str(path)


def test_lost_reviews_are_named_with_what_to_post_again(trigger: ApiClient, tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logs:
        kept, again, lost = (post(trigger, f"k{number}", f"10{number}") for number in range(3))
    log, out = write(tmp_path / "web.log", list(logs)), io.StringIO()
    call_command("lost_requests", log, stdout=out)
    assert out.getvalue() == "None of 3 accepted reviews is missing.\n"

    lose(again, lost)
    now, out = post(trigger, "k1", "101"), io.StringIO()
    with pytest.raises(CommandError, match=r"^1 review of 3 accepted missing\. Post the requests again"):
        call_command("lost_requests", log, stdout=out)
    assert out.getvalue().splitlines() == [
        f"review {again} of 101, version 1, key k1, accepted 21:34: is review {now} now",
        f"review {lost} of 102, version 1, key k2, accepted 21:34: missing",
    ]
    assert set(ReviewJob.objects.values_list("pk", flat=True)) == {kept, now}


def test_another_clients_review_of_the_same_version_takes_no_place(
    trigger: ApiClient, tmp_path: Path
) -> None:
    with structlog.testing.capture_logs() as logs:
        lost = post(trigger, "k0", "100")
    lose(lost)
    post(trigger, "k1", "100")
    with pytest.raises(CommandError, match="1 review of 1"):
        call_command("lost_requests", write(tmp_path / "web.log", list(logs)), stdout=io.StringIO())


def test_a_log_without_an_accepted_review_is_no_proof(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No line of a log says job_created"):
        call_command("lost_requests", write(tmp_path / "web.log", []))
    with pytest.raises(CommandError, match="cannot be read: No such file"):
        call_command("lost_requests", str(tmp_path / "none.log"))
