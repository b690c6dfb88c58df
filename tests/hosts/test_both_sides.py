"""A pull request on a strict GitHub, API and git: real web server, real workers, real git."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from criticizer.models import OutboxMessage
from notifications.models import Delivery
from reviews.models import HostChange, ReviewJob
from tests.fakes.github import tokens_of
from tests.hosts import sides
from tests.hosts.deliveries import installation
from tests.hosts.sides import Site
from tests.stack import eventually

pytestmark = [pytest.mark.cluster(seconds=20), pytest.mark.long, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def site(tmp_path: Path, transactional_db: None) -> Iterator[Site]:
    with sides.running(tmp_path) as both:
        yield Site(both, tmp_path, "Acme/Website")


def test_a_head_that_moves_three_times_within_a_review_ends_as_one_summary_of_the_last(site: Site) -> None:
    site.sides.host.waits_for = release = threading.Event()  # git: the first review is at work until then
    heads = [site.push()]
    jobs = [site.report(heads[0])]
    eventually(lambda: site.is_opened(heads[0]))
    for _ in range(3):
        heads.append(site.push())
        jobs.append(site.report(heads[-1]))
    site.sides.host.waits_for = None
    release.set()
    site.ended(jobs[-1])
    assert [ReviewJob.objects.get(pk=job).status for job in jobs] == ["superseded"] * 3 + ["succeeded"]
    (summary,) = site.repo.comments.values()
    assert f"sha={heads[-1]}" in summary["body"]
    assert "Note:" not in summary["body"]
    assert tokens_of(site.repo) == [str(Delivery.objects.get(job=jobs[-1], recipient=site.pull).token)]
    (review,) = site.repo.reviews
    assert review["commit_id"] == heads[-1]
    assert {comment["path"] for comment in review["comments"]} == {"src/a.py"}
    checks = site.repo.checks
    eventually(
        lambda: (
            site.is_concluded(heads[-1]) and all(site.is_concluded(c["head_sha"]) for c in checks.values())
        )
    )
    ends = {check["head_sha"]: check["conclusion"] for check in checks.values()}
    assert (ends.pop(heads[-1]), ends.pop(heads[0])) == ("neutral", "cancelled")
    assert set(ends.values()) <= {"cancelled"}  # of those that were opened at all
    assert len(checks) == len(ends) + 2


def test_an_app_that_is_uninstalled_within_a_review_ends_it_without_another_call(site: Site) -> None:
    host, api = site.sides.host, site.sides.api
    host.waits_for = release = threading.Event()
    head = site.push()
    job = site.report(head)
    eventually(lambda: site.is_opened(head) and host.asked)
    api.is_installed = False
    site.sides.send("installation", installation("deleted"))
    called, tokens = len(api.calls), dict(api.tokens)
    ended = ReviewJob.objects.get(pk=job)
    assert (ended.status, HostChange.objects.get().state) == ("cancelled", "removed")
    host.waits_for = None
    release.set()
    clock = OutboxMessage.objects.filter(message_type="tell_check_runs")
    for _ in range(4):  # the worker of check runs looks again and again
        before = clock.values_list("available_at", flat=True).get()
        eventually(lambda at=before: clock.exclude(available_at=at).exists())
    assert ReviewJob.objects.get(pk=job).status == "cancelled"
    assert not Delivery.objects.filter(job=job).exists()
    assert (len(api.calls), api.tokens) == (called, tokens)
    assert not site.repo.comments
    assert not site.repo.reviews
