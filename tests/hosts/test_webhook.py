"""The webhook's address: its answers, its rows, and the reviews that an event makes."""

from __future__ import annotations

import json
import logging
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.db.models.functions import Now
from django.utils import timezone

from criticizer.resilience.failures import PermanentFailure
from reviews.config import source_of_job
from reviews.intake import pull_requests, review_requests
from reviews.models import (
    HostChange,
    HostDelivery,
    HostInstallation,
    HostVersion,
    JobEvent,
    ReviewJob,
)
from reviews.states import JobStatus
from tests import skips
from tests.hosts import deliveries
from tests.hosts.conftest import Send
from tests.hosts.deliveries import BASE, HEAD, check, comment, installation, pull_request, repository
from tests.stack import Stack

OTHER = "c" * 40
PULL = "github:acme/website#7"


def jobs() -> list[tuple[int, str]]:
    """Return version and status of every review, oldest first."""
    return list(ReviewJob.objects.order_by("pk").values_list("review_version", "status"))


def test_a_new_head_is_202_and_a_job_with_its_head_frozen(send: Send) -> None:
    status, answer = send("pull_request", pull_request())
    job = ReviewJob.objects.get()
    assert (status, answer) == (202, {"job": job.pk, "duplicate": False})
    assert (job.changelist_id, job.review_version, job.requested_by) == (PULL, 1, "github:acme/website")
    assert job.recipients_are == "to_find"
    version = HostVersion.objects.get()
    assert (version.job, version.head_sha, version.base_sha, version.base_ref) == (job, HEAD, BASE, "main")
    change = version.change
    assert (change.repository_id, change.number, change.installation_id) == (500, 7, 3)
    delivery = HostDelivery.objects.get()
    assert (delivery.event, delivery.job, delivery.full_name) == ("pull_request.opened", job, "Acme/Website")


def test_every_answer_that_is_not_work_is_200_with_the_reason(send: Send) -> None:
    for event, content, reason in (
        ("ping", {"zen": "…"}, "ping"),
        ("star", {"action": "created"}, "star.created"),
        ("pull_request", pull_request("labeled"), "labeled"),
        ("pull_request", pull_request(draft=True), "draft"),
        ("pull_request", pull_request(repository={"id": 9, "full_name": "Else/Where"}), "not enabled"),
        ("issue_comment", comment("thanks"), "no command"),
        ("check_run", check(head=OTHER), "no pull request"),
    ):
        status, answer = send(event, content)
        assert (status, list(answer)) == (200, ["ignored"]), answer
        assert reason in answer["ignored"]
    assert not ReviewJob.objects.exists()
    assert HostDelivery.objects.count() == 7


def test_what_is_not_authentic_is_401_without_a_body_and_leaves_nothing(
    send: Send, caplog: pytest.LogCaptureFixture
) -> None:
    body = json.dumps({**pull_request(), "planted": "in the body"}).encode()
    good = deliveries.signature(body)
    wrong = (
        "", "sha1=" + good[7:47], good.upper(), good[:-1], deliveries.signature(body, "another"),
        deliveries.signature(body, ""), deliveries.signature(json.dumps(json.loads(body), indent=1).encode()),
    )  # fmt: skip
    with caplog.at_level(logging.DEBUG):
        for value in wrong:
            answer = send("pull_request", body, delivery="guid-1", **{"X-Hub-Signature-256": value})
            assert answer == (401, None)
        # Also before anything else is looked at.
        answer = send("", b"\xff not JSON", **{"X-Hub-Signature-256": "x", "Content-Type": "text/plain"})
        assert answer == (401, None)
    assert not HostDelivery.objects.exists()
    refused = [record for record in caplog.messages if "webhook_refused" in record]
    assert len(refused) == len(wrong) + 1
    assert "guid-1" in refused[0]
    assert "127.0.0.1" in refused[0]
    assert "planted" not in caplog.text
    assert good[7:40] not in caplog.text  # of the signatures above, that which fits best


def test_the_second_secret_counts_while_the_first_is_new(send: Send, settings: Any) -> None:
    settings.GITHUB_WEBHOOK_SECRETS = ["newest", deliveries.SECRET]
    assert send("ping", {})[0] == 200
    settings.GITHUB_WEBHOOK_SECRETS = ["newest"]
    assert send("ping", {}) == (401, None)
    settings.GITHUB_WEBHOOK_SECRETS = []
    assert send("ping", {}) == (401, None)


def test_wrong_forms_are_refused_after_the_signature(send: Send) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    status, answer = send("ping", b"payload=%7B%7D", **form)
    assert (status, answer["error"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert "application/json" in answer["details"]["content_type"][0]
    assert send("ping", {}, **{"Content-Type": "application/json; charset=utf-8"})[0] == 200
    for body in (b"[]", b"{", b"\xff", b'{"a": NaN}', b"[" * 100_000, b"1" * 5000):
        status, answer = send("pull_request", body)
        assert (status, answer["error"]) == (400, "SCHEMA_INVALID")
    status, answer = send("pull_request", pull_request(head="main"))
    assert (status, list(answer["details"])) == (400, ["pull_request.head.sha"])
    assert HostDelivery.objects.count() == 1


def test_a_body_over_five_megabytes_is_413_whatever_its_signature(send: Send) -> None:
    largest = 5 * 1024 * 1024
    body = json.dumps({"zen": "x" * (largest - 11)}).encode()
    assert len(body) == largest
    assert send("ping", body)[0] == 200
    for signature in (deliveries.signature(body + b" "), "wrong"):
        status, answer = send("ping", body + b" ", **{"X-Hub-Signature-256": signature})
        assert (status, answer["error"]) == (413, "PAYLOAD_TOO_LARGE")


def test_a_repeated_delivery_is_answered_with_its_job_also_when_that_is_over(send: Send) -> None:
    _, first = send("pull_request", pull_request(), delivery="guid-1")
    again = {"job": first["job"], "duplicate": True}
    assert send("pull_request", pull_request(), delivery="guid-1") == (200, again)
    succeed(first["job"])
    assert send("pull_request", pull_request(), delivery="guid-1") == (200, again)
    # A repository's own hook tells the same under an id of its own.
    assert send("pull_request", pull_request(), delivery="guid-2") == (200, again)
    assert (HostDelivery.objects.get(delivery_id="guid-1").repeats, len(jobs())) == (2, 1)


def test_deliveries_are_kept_for_thirty_days_and_a_head_has_one_review_for_good(send: Send) -> None:
    for delivery, days in (("old", 30.1), ("recent", 29.9)):
        send("pull_request", pull_request(), delivery=delivery)
        received = timezone.now() - timedelta(days=days)
        HostDelivery.objects.filter(delivery_id=delivery).update(received_at=received)
    assert (pull_requests.delete_expired(), pull_requests.delete_expired()) == (1, 0)
    assert HostDelivery.objects.get().delivery_id == "recent"
    status, answer = send("pull_request", pull_request(), delivery="old")
    assert (status, answer["duplicate"], ReviewJob.objects.count()) == (200, True, 1)


def test_each_head_and_each_base_is_the_next_version_and_ends_the_one_before(send: Send) -> None:
    send("pull_request", pull_request())
    assert send("pull_request", pull_request("synchronize", head=OTHER, at=1))[0] == 202
    rebased = {**pull_request("edited", head=OTHER, base_ref="next", at=2), "changes": {"base": {}}}
    assert send("pull_request", rebased)[0] == 202
    assert jobs() == [(1, "superseded"), (2, "superseded"), (3, "queued")]
    assert ReviewJob.objects.values_list("changelist_id", flat=True).distinct().get() == PULL


def test_a_pull_request_without_a_further_version_is_ignored_with_the_reason(send: Send) -> None:
    """An earlier version of the API accepted the highest number that the column holds."""
    send("pull_request", pull_request())
    ReviewJob.objects.update(review_version=review_requests.LAST_VERSION)
    status, answer = send("pull_request", pull_request("synchronize", head=OTHER, at=1))
    assert (status, list(answer)) == (200, ["ignored"])
    assert "the highest possible version" in answer["ignored"]
    assert HostDelivery.objects.latest("pk").ignored == answer["ignored"]
    assert pull_requests.find_head(HostChange.objects.get().pk, "d" * 40) is None
    assert len(jobs()) == 1


def test_an_older_event_replaces_nothing(send: Send) -> None:
    _, old = send("pull_request", pull_request(at=1))
    _, new = send("pull_request", pull_request("synchronize", head=OTHER, at=3))
    # The first head again: late, under another id; and one that was never seen, from in between.
    assert send("pull_request", pull_request(at=1)) == (200, {"job": old["job"], "duplicate": True})
    status, answer = send("pull_request", pull_request("synchronize", head="d" * 40, at=2))
    assert (status, list(answer)) == (200, ["ignored"])
    assert send("pull_request", pull_request("closed", at=2))[1]["ignored"].startswith("a newer event")
    assert jobs() == [(1, "superseded"), (2, "queued")]
    assert ReviewJob.objects.get(status="queued").pk == new["job"]
    # Somebody pushes the first head again.
    assert send("pull_request", pull_request("synchronize", at=4))[0] == 202
    assert jobs() == [(1, "superseded"), (2, "superseded"), (3, "queued")]


@pytest.mark.parametrize("ends", ["closed", "converted_to_draft"])
def test_what_is_closed_or_a_draft_is_cancelled_and_may_be_reviewed_later(send: Send, ends: str) -> None:
    send("pull_request", pull_request())
    status, answer = send("pull_request", pull_request(ends, at=1))
    assert (status, "1 running" in answer["ignored"]) == (200, True)
    assert jobs() == [(1, "cancelled")]
    assert JobEvent.objects.get().actor == "criticizer"
    opens = "reopened" if ends == "closed" else "ready_for_review"
    assert send("pull_request", pull_request(opens, at=2))[0] == 202
    assert jobs() == [(1, "cancelled"), (2, "queued")]


def test_a_head_that_was_reviewed_is_not_reviewed_again_when_it_is_reopened(send: Send) -> None:
    _, first = send("pull_request", pull_request())
    succeed(first["job"])
    send("pull_request", pull_request("closed", at=1))
    again = (200, {"job": first["job"], "duplicate": True})
    assert send("pull_request", pull_request("reopened", at=2)) == again


def test_people_with_rights_get_another_review_once_for_each_delivery(send: Send) -> None:
    _, first = send("pull_request", pull_request())
    succeed(first["job"])
    status, second = send("issue_comment", comment(), delivery="guid-2")
    assert (status, second["job"] == first["job"]) == (202, False)
    again = (200, {"job": second["job"], "duplicate": True})
    assert send("issue_comment", comment(), delivery="guid-2") == again
    assert send("check_run", check(), delivery="guid-3")[0] == 202  # as a fork's: it names the head only
    assert jobs() == [(1, "succeeded"), (2, "superseded"), (3, "queued")]
    assert send("check_suite", check("check_suite", head=OTHER))[1]["ignored"].startswith("no pull request")
    send("pull_request", pull_request("closed", at=1))
    assert "closed" in send("check_run", check())[1]["ignored"]
    # The head is reviewed once again by hand only: its automatic review is known.
    assert send("pull_request", pull_request())[1]["duplicate"] is True


def test_a_draft_is_reviewed_when_somebody_asks(send: Send) -> None:
    send("pull_request", pull_request(draft=True))
    assert send("issue_comment", comment())[0] == 202
    assert HostVersion.objects.get().is_automatic is False


def test_an_uninstalled_app_ends_its_reviews_and_begins_none(send: Send) -> None:
    send("pull_request", pull_request())
    send("pull_request", pull_request(number=8, repository={"id": 501, "full_name": "acme/b"}))
    send("installation", installation("suspend"))
    assert [status for _, status in jobs()] == ["cancelled", "cancelled"]
    assert "suspended" in send("pull_request", pull_request("synchronize", head=OTHER, at=1))[1]["ignored"]
    send("installation", installation("unsuspend"))
    assert send("pull_request", pull_request("synchronize", head=OTHER, at=1))[0] == 202
    removed = {**installation("removed"), "repositories_removed": [{"id": 500}]}
    assert "1 running" in send("installation_repositories", removed)[1]["ignored"]
    send("installation", installation("deleted"))
    assert "uninstalled" in send("installation", installation("unsuspend"))[1]["ignored"]
    assert "uninstalled" in send("pull_request", pull_request("synchronize", head=HEAD, at=2))[1]["ignored"]
    assert HostInstallation.objects.get().status == HostInstallation.Status.DELETED
    assert set(HostChange.objects.values_list("state", flat=True)) == {"removed"}
    assert not ReviewJob.objects.filter(status="queued").exists()


BODIES = {
    "pull_request": [pull_request(), pull_request("closed"), pull_request("converted_to_draft")],
    "issue_comment": [comment(), {**comment(), "action": "deleted"}],
    "check_run": [check()],
    "check_suite": [check("check_suite")],
    "installation": [installation("deleted"), installation("suspend")],
    "installation_repositories": [{**installation("removed"), "repositories_removed": [{"id": 500}]}],
    "repository": [repository(action) for action in ("deleted", "archived", "renamed")],
    # Events that ask for nothing here, with actions that do elsewhere.
    "label": [{**repository("deleted"), "label": {"id": 1}}],
    "release": [{**repository("deleted"), "release": {"id": 1}}],
    "issues": [{**repository("transferred"), "issue": {"number": 7, "pull_request": {}}}],
    "pull_request_review": [
        {**pull_request(), "number": None, "action": action, "review": {}}
        for action in ("edited", "dismissed", "reopened", "closed")
    ],
    "discussion_comment": [{**comment(), "issue": None, "discussion": {}}],
}


def test_a_captured_body_does_nothing_under_the_name_of_another_event(send: Send) -> None:
    def rows() -> tuple[Any, ...]:
        return jobs(), list(HostChange.objects.values()), list(HostInstallation.objects.values())

    send("pull_request", pull_request())
    known, done, turn = rows(), [], 0
    for event, bodies in BODIES.items():
        for body in bodies:
            others = [other for other in BODIES if other != event]
            turn += 1  # in `make test` each body comes under every sixth name, the next one under others
            names = others if skips.is_all() else others[turn % 6 :: 6]
            answers = [(other, *send(other, body)) for other in names]
            served = [one for one in answers if one[1] != 400 and "ignored" not in one[2]]
            if served or rows() != known:
                done.append((event, body["action"], served or answers))
    assert done == []


def test_a_renamed_repository_keeps_its_pull_requests(send: Send) -> None:
    send("pull_request", pull_request())
    send("repository", repository("renamed", "Acme/Site"))
    assert HostChange.objects.get().full_name == "Acme/Site"
    renamed = {"id": 500, "full_name": "Acme/Site"}
    again = send("pull_request", pull_request(repository=renamed))
    assert (again[0], len(jobs())) == (200, 1)
    send("pull_request", pull_request("synchronize", head=OTHER, at=1, repository=renamed))
    assert ReviewJob.objects.latest("pk").changelist_id == "github:acme/site#7"
    # Its summary, which says that it is of version 1, is edited by the next one.
    assert jobs() == [(1, "superseded"), (2, "queued")]
    assert "archived" in send("repository", repository("archived", "Acme/Site"))[1]["ignored"]
    assert jobs()[1] == (2, "cancelled")


def test_a_repository_is_read_under_its_new_name_only_where_that_is_enabled(
    send: Send, settings: Any, tmp_path: Path
) -> None:
    settings.DATA_DIR = tmp_path
    settings.DEPOT_ALLOW_LIST = ["//github/acme/..."]
    send("pull_request", pull_request())
    job = ReviewJob.objects.get()
    send("repository", repository("renamed", "Acme/Site"))
    assert source_of_job(job)
    for enabled, allowed in (
        (["acme/*"], ["//github/acme/..."]),
        ([], ["//github/acme/..."]),
        (["mallory/*"], ["//github/acme/..."]),
    ):
        settings.GITHUB_REPOSITORIES, settings.DEPOT_ALLOW_LIST = enabled, allowed
        send("repository", repository("transferred", "Mallory/Website"))
        with pytest.raises(PermanentFailure, match="renamed or transferred"):
            source_of_job(job)
    settings.DEPOT_ALLOW_LIST = ["//github/acme/...", "//github/mallory/website/src/..."]
    assert source_of_job(job)


def test_an_installation_that_a_repository_left_does_not_end_the_reviews_of_the_next(send: Send) -> None:
    send("pull_request", pull_request())
    moved = {**pull_request("synchronize", head=OTHER, at=1), "installation": {"id": 4}}
    assert send("pull_request", moved)[0] == 202
    removed = {**installation("removed"), "repositories_removed": [{"id": 500}]}
    assert "0 running" in send("installation_repositories", removed)[1]["ignored"]
    assert HostChange.objects.get().state == "open"
    removed["installation"]["id"] = 4
    assert "1 running" in send("installation_repositories", removed)[1]["ignored"]


def test_without_a_list_of_repositories_the_allow_list_decides(send: Send, settings: Any) -> None:
    settings.GITHUB_REPOSITORIES = []
    assert "not enabled" in send("pull_request", pull_request())[1]["ignored"]
    settings.DEPOT_ALLOW_LIST = ["//github/acme/website/src/..."]
    assert send("pull_request", pull_request())[0] == 202


def test_a_delivery_that_was_refused_by_configuration_counts_when_it_is_sent_again(
    send: Send, settings: Any
) -> None:
    settings.GITHUB_REPOSITORIES = ["else/*"]
    send("pull_request", pull_request(), delivery="guid-1")
    settings.GITHUB_REPOSITORIES = ["acme/web*"]
    assert send("pull_request", pull_request(), delivery="guid-1")[0] == 202
    # But one that ended something does not end it again.
    send("installation", installation("suspend"), delivery="guid-2")
    send("installation", installation("unsuspend"), delivery="guid-3")
    send("installation", installation("suspend"), delivery="guid-2")
    assert HostInstallation.objects.get().status == HostInstallation.Status.ACTIVE


def test_recorded_payloads_are_all_answered_and_make_no_work_they_do_not_ask_for(send: Send) -> None:
    if not (payloads := deliveries.recorded()):
        pytest.skip("the recorded webhooks are not here")
    answers: Counter[int] = Counter()
    # `make test` sends every third of them.
    for event, content in payloads if skips.is_all() else payloads[::3]:
        before = ReviewJob.objects.count()
        status, answer = send(event, content)
        answers[status] += 1
        made = ReviewJob.objects.count() - before
        assert made == (status == 202), (event, content.get("action"), answer)
        if made:
            assert (event, content["action"]) in {
                ("pull_request", one) for one in ("opened", "reopened", "ready_for_review", "synchronize")
            }
    assert set(answers) <= {200, 202}


def succeed(job_id: int) -> None:
    """Let a job succeed without running it."""
    job = ReviewJob.objects.filter(pk=job_id)
    job.update(status=JobStatus.IN_PROGRESS)
    job.update(status=JobStatus.SUCCEEDED, finished_at=Now())


@pytest.mark.cluster
@pytest.mark.django_db(transaction=True)
def test_twenty_posts_of_one_delivery_and_two_of_one_head_make_one_job(tmp_path: Path) -> None:
    environment = {
        "GITHUB_WEBHOOK_SECRETS": f"newer secret,{deliveries.SECRET}",
        "GITHUB_REPOSITORIES": "acme/*",
    }
    stack = Stack(tmp_path, queues=(), with_web=True, environment=environment)
    try:
        stack.start()
        body = json.dumps(pull_request()).encode()

        def post(delivery: str) -> tuple[int, Any]:
            sent = deliveries.headers(body, "pull_request", delivery=delivery)
            answer = httpx.post(
                stack.base_url + deliveries.PATH, content=body, headers=sent, timeout=60, trust_env=False
            )
            return answer.status_code, answer.json()

        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(post, ["guid-1"] * 20))
            others = list(pool.map(post, [f"other-{n}" for n in range(5)]))
    finally:
        stack.stop()
    assert Counter(status for status, _ in answers) == {202: 1, 200: 19}
    assert {answer["job"] for _, answer in (*answers, *others)} == {ReviewJob.objects.get().pk}
    assert {status for status, _ in others} == {200}
    assert HostDelivery.objects.get(delivery_id="guid-1").repeats == 19
