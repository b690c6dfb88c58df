"""The acceptance checks of code hosts: webhooks over HTTP, real workers and git.

Their table is docs/guarantees/hosts-acceptance.md. One installation serves them all; each has a repository in
an account of its own.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from criticizer.db import prepared
from criticizer.models import OutboxMessage
from notifications.models import Delivery
from notifications.providers.pull_requests import markdown
from reviews.models import HostCheck, HostDelivery, ReviewJob, StageRun
from tests import emptying
from tests.acceptance.pulls import FINDING
from tests.fakes.github import Act, private_key, reviewed_tokens_of, tokens_of
from tests.fakes.llm import FakeLlm, Recorded, Reply
from tests.hosts import deliveries, sides
from tests.hosts.deliveries import pull_request
from tests.hosts.sides import SCALE, Sides, Site
from tests.hosts.test_github import EVERYBODY, REWRITTEN, UNICODE
from tests.notifications.test_github import outside_code
from tests.stack import eventually

# One process runs them all: they share an installation.
pytestmark = [
    pytest.mark.cluster(seconds=50),
    pytest.mark.django_db(transaction=True),
]

PER_FILE = 10  # findings that one answer of the model may have
APART = 15  # lines: nearer ones may be about one thing
FILES = 20  # a review asks the model twenty times at most
EMOJI = "🙂" * 230 + "\n```\n" + "x" * 265  # 500 characters


@pytest.fixture(scope="module")
def both(
    tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, django_db_blocker: Any
) -> Iterator[Sides]:
    environment = {
        "GITHUB_WEBHOOK_SECRETS": f"newest,It's a Secret to Everybody,clé,{deliveries.SECRET}",
        "GITHUB_PRIVATE_KEY_NEXT": private_key(2).replace("\n", "\\n"),
        "LLM_PROVIDER": "openai",
        "LLM_MODEL": "test",
        "LLM_VERIFY": "off",
        "LLM_CONTEXT_PERCENT": "0",
        "LLM_MAX_INPUT_TOKENS": "7000",
    }
    with django_db_blocker.unblock(), FakeLlm(respond=answer) as llm:
        files = tmp_path_factory.mktemp("checks")
        with sides.running(files, LLM_BASE_URL=llm.base_url, **environment) as running:
            yield running
        emptying.empty()  # of what the workers wrote after the last test


@pytest.fixture
def site(both: Sides, tmp_path: Path, request: pytest.FixtureRequest) -> Site:
    """Return a repository in an account of the test's own."""
    owner = re.sub(r"\W+", "-", request.node.name.removeprefix("test_"))[:60].strip("-")
    return Site(both, tmp_path, f"{owner.lower()}/web")


def answer(request: Recorded) -> Reply:
    """Return critical findings at ten places of `src/many<n>.py`, and two of `src/far.py`."""
    text = request.body["messages"][-1]["content"]
    found = []
    if shown := re.search(r"value_(\d+)_0 = ", text):
        number = int(shown[1])
        path = next(re.finditer(rf"//github/[\w./-]+/src/many{number}\.py", text))[0]
        found += [
            {**FINDING, "file": path, "quote": many(number)[APART * place], "severity": "critical",
             "title": f"Wrong {number} {place}", "problem": EMOJI, "suggestion": f"````\n{EMOJI}"}
            for place in range(PER_FILE)
        ]  # fmt: skip
    if path_found := re.search(r"//github/[\w./-]+/src/far\.py", text):
        found += [
            {**FINDING, "file": path_found[0], "quote": quote, "title": f"Wrong at {quote}"}
            for quote in ("line_2 = changed()", "line_40 = 40")
        ]
    return Reply(answer={"findings": found, "files_read": []})


def many(number: int) -> list[str]:
    """Return the lines of one file, about as many as one request to the model holds."""
    return [f"value_{number}_{line} = compute_{line}({number})" for line in range(APART * PER_FILE)]


def test_check_1_what_is_not_signed_is_401_without_a_body_and_leaves_nothing(both: Sides) -> None:
    for body, good in (EVERYBODY, UNICODE):
        assert both.post(body, "ping", **{"X-Hub-Signature-256": good}).status_code in {200, 400}
    stored = HostDelivery.objects.count()
    body = json.dumps({**pull_request(), "planted": "in the body"}).encode()
    good = deliveries.signature(body)
    digest = good.removeprefix("sha256=")
    refused = [
        (body, {"X-Hub-Signature-256": value})
        for value in (
            "", digest, f"sha512={digest}", f"sha256={digest.upper()}", good[:-1], f"sha1={digest[:40]}",
            deliveries.signature(body, ""), deliveries.signature(body, "another"),
        )
    ]  # fmt: skip
    refused += [(UNICODE[0], {"X-Hub-Signature-256": REWRITTEN})]
    refused += [(body, {"X-Hub-Signature-256": "", "X-Hub-Signature": f"sha1={digest[:40]}"})]
    answers = [both.post(body, "pull_request", **headers) for body, headers in refused]
    assert [(one.status_code, one.content) for one in answers] == [(401, b"")] * len(refused)
    assert HostDelivery.objects.count() == stored
    assert not ReviewJob.objects.filter(changelist_id="github:acme/website#7").exists()
    logs = both.stack.logs()
    assert logs.count("webhook_refused") >= len(refused)
    for text in ("planted", digest, digest.upper(), REWRITTEN.removeprefix("sha256=")):
        assert text not in logs


def test_check_2_twenty_deliveries_at_once_and_two_ids_of_one_head_are_one_job(site: Site) -> None:
    head = site.push()
    body = json.dumps(pull_request(head=head, **site.named)).encode()

    def post(delivery: str) -> tuple[int, int]:
        sent = site.sides.post(body, "pull_request", **{"X-GitHub-Delivery": delivery})
        return sent.status_code, sent.json()["job"]

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(post, [f"once-{site.repo.number}"] * 20))
        others = list(pool.map(post, [f"other-{site.repo.number}-{number}" for number in range(2)]))
    assert Counter(status for status, _ in answers) == {202: 1, 200: 19}
    (job,) = {job for _, job in (*answers, *others)}
    assert [status for status, _ in others] == [200, 200]
    assert site.ended(job).status == "succeeded"
    assert ReviewJob.objects.filter(changelist_id=site.pull).count() == 1
    assert len(site.repo.comments) == 1


@pytest.mark.long
def test_check_3_every_recorded_payload_is_answered_and_makes_no_work_it_does_not_ask_for(
    both: Sides,
) -> None:
    payloads = deliveries.recorded()
    if not payloads:
        pytest.skip("the recorded webhooks are not here")
    for event, content in payloads:
        before = set(ReviewJob.objects.values_list("pk", flat=True))
        sent = both.post(json.dumps(content).encode(), event)
        made = set(ReviewJob.objects.values_list("pk", flat=True)) - before
        assert sent.status_code in {200, 202}, (event, content.get("action"), sent.text)
        assert len(made) == (sent.status_code == 202), (event, content.get("action"), sent.text)
        if made:
            asks = {"opened", "reopened", "ready_for_review", "synchronize"}
            assert (event, content["action"] in asks) == ("pull_request", True)


def test_check_5_a_worker_that_dies_after_each_write_leaves_one_of_each(site: Site) -> None:
    stack, died = site.sides.stack, list[str]()

    def die(what: str) -> Act:
        def kill() -> None:
            for worker in eventually(lambda: stack.named("notify", "processing")):
                stack.kill(worker)
            died.append(what)

        return Act(after=kill, then="reset")

    for method, path in (
        ("POST", "/check-runs"), ("PATCH", "/check-runs"), ("POST", "/issues/7/comments"),
        ("POST", "/pulls/7/reviews"),
    ):  # fmt: skip
        site.sides.api.script(die(f"{method} {path}"), on=f"{method} {site.path}{path}")
    site.sides.host.waits_for = release = threading.Event()  # git: the check run is opened before the end
    head = site.push()
    job_id = site.report(head)
    eventually(lambda: site.is_opened(head))
    site.sides.host.waits_for = None
    release.set()
    assert site.ended(job_id).status == "succeeded"
    known = [0]

    def is_concluded() -> bool:
        if len(died) > known[0]:  # two minutes later: what the dead worker had claimed is free
            HostCheck.objects.filter(version__change__changelist_id=site.pull).update(due_at=None)
            known[0] = len(died)
        return site.is_concluded(head)

    eventually(is_concluded)
    job = ReviewJob.objects.get(changelist_id=site.pull)
    tokens = {row.recipient.partition(":")[0]: str(row.token) for row in Delivery.objects.filter(job=job)}
    eventually(lambda: len(set(died)) == 4)  # the last one is noted after its write is kept
    assert tokens_of(site.repo) == [tokens["github"]]
    assert reviewed_tokens_of(site.repo) == [tokens["github-review"]]
    assert [check["head_sha"] for check in site.repo.checks.values()] == [head]
    assert set(Delivery.objects.filter(job=job).values_list("status", flat=True)) == {"sent"}


@pytest.mark.long
def test_check_6_only_our_own_summary_counts_on_whatever_page_and_a_deleted_one_is_posted_once(
    site: Site,
) -> None:
    for number in range(250):
        site.sides.api.say(site.name, 7, f"A comment {number}.", login="bob")
    site.ended(site.report(site.push()))
    (summary,) = site.summaries()
    copied = summary["body"].replace(" v=1 ", " v=99 ")
    assert copied != summary["body"]
    pasted = site.sides.api.say(site.name, 7, copied, login="mallory")
    head = site.push()
    site.ended(site.report(head))
    assert [one["id"] for one in site.summaries()] == [summary["id"]]
    assert f"v=2 sha={head}" in summary["body"]
    assert pasted["body"] == copied
    del site.repo.comments[summary["id"]]
    head = site.push()
    site.ended(site.report(head))
    (again,) = site.summaries()
    assert f"v=3 sha={head}" in again["body"]


LIMITS: dict[str, tuple[float, dict[str, Any]]] = {  # seconds as the host means them
    "retry-after": (100.0, {"status": 403, "headers": {"retry-after": "100"}}),
    "secondary": (60.0, {"status": 403, "body": {"message": "You have exceeded a secondary rate limit."}}),
    "429": (60.0, {"status": 429}),
    "used-up": (2400.0, {"status": 403, "headers": {"x-ratelimit-remaining": "0"}}),
}
LISTENED_SECONDS = 4.0


@pytest.mark.long
@pytest.mark.parametrize("limit", LIMITS)
def test_check_7_a_limit_is_waited_for_and_costs_no_attempt(site: Site, limit: str) -> None:
    seconds, told = LIMITS[limit]
    api = site.sides.api
    if limit == "used-up":
        told["headers"] |= {"x-ratelimit-reset": str(int(api.now() + seconds))}
    what = f"POST {site.path}/issues/7/comments"
    api.script(Act(keep=False, **told), on=what)
    job = site.report(site.push())

    def after_the_limit() -> list[sides.Call]:
        calls = site.calls()
        refused = [number for number, call in enumerate(calls) if call.status == told["status"]]
        return calls[refused[0] :] if refused else []

    eventually(after_the_limit)
    if limit == "used-up":
        time.sleep(LISTENED_SECONDS)
        assert len(after_the_limit()) == 1
        assert ReviewJob.objects.get(pk=job).finished_at is None
        let_limits_end()
    assert site.ended(job).status == "succeeded"
    first, second, *_ = after_the_limit()
    if limit != "used-up":
        assert second.at - first.at >= seconds * SCALE
    assert StageRun.objects.get(job=job, stage="notify").attempts == 1
    attempts = Delivery.objects.get(job=job, recipient=site.pull).attempt_rows
    assert list(attempts.values_list("outcome", flat=True)) == ["not_sent", "accepted"]
    assert len(site.repo.comments) == 1


def let_limits_end() -> None:
    """Let every pause of a dependency be over, as if its time had passed."""
    prepared.rows("DELETE FROM paces")
    OutboxMessage.objects.filter(lease_token=None).update(available_at=timezone.now())


def expire_tokens(both: Sides) -> None:
    for token in both.api.tokens.values():
        token.expires_at = 0.0


@pytest.mark.long
def test_check_8_a_token_that_expires_between_summary_and_review_is_made_anew_once(site: Site) -> None:
    what = f"POST {site.path}/pulls/7/reviews"
    site.sides.api.script(Act(before=lambda: expire_tokens(site.sides)), on=what)
    job = site.report(site.push())
    assert site.ended(job).status == "succeeded"
    posts = [(number, call.status) for number, call in enumerate(site.sides.calls) if call.what == what]
    assert [status for _, status in posts] == [401, 200]
    between = site.sides.calls[posts[0][0] : posts[1][0]]
    assert sum("access_tokens" in call.what for call in between) == 1
    assert (len(site.repo.comments), len(site.repo.reviews)) == (1, 1)
    assert set(Delivery.objects.filter(job=job).values_list("status", flat=True)) == {"sent"}


@pytest.mark.long
def test_check_8_the_second_key_is_used_when_the_first_is_refused(site: Site) -> None:
    site.sides.api.keys = {2}
    expire_tokens(site.sides)
    try:
        job = site.report(site.push())
        assert site.ended(job).status == "succeeded"
    finally:
        site.sides.api.keys = {1, 2}
    assert (len(site.repo.comments), len(site.repo.reviews)) == (1, 1)
    assert "github_key_refused" in site.sides.stack.logs()


@pytest.mark.long
def test_check_8_a_fresh_token_that_is_refused_for_seconds_fails_nothing(site: Site) -> None:
    site.sides.api.lag_seconds = 5 * SCALE
    expire_tokens(site.sides)
    try:
        job = site.report(site.push())
        assert site.ended(job).status == "succeeded"
    finally:
        site.sides.api.lag_seconds = 0.0
    assert {call.status for call in site.calls()} >= {401, 200}
    assert set(StageRun.objects.filter(job=job).values_list("attempts", flat=True)) == {1}
    assert (len(site.repo.comments), len(site.repo.reviews)) == (1, 1)


@pytest.mark.long
def test_check_9_as_many_findings_as_a_review_can_have_keep_both_limits(site: Site) -> None:
    site.push()
    files: dict[str, str | bytes | None] = {
        f"src/many{number}.py": "\n".join([*many(number), ""]) for number in range(100, 100 + FILES)
    }
    head = site.push(files, hunks=dict.fromkeys(files, ((0, 0, 1, APART * PER_FILE),)))
    job = site.ended(site.report(head))
    total = job.findings.count()
    assert (job.status, total) == ("succeeded", FILES * PER_FILE)
    (summary,) = site.summaries()
    body = summary["body"]
    assert len(body) <= markdown.MAX_CHARACTERS
    assert len(body.encode()) <= markdown.MAX_BYTES
    marker = markdown.marker_of(body)
    assert marker is not None
    assert (marker.version, marker.sha) == (job.review_version, head)
    shown = outside_code(body).count("**CRITICAL: ")
    assert 10 < shown < total
    assert f"Showing {shown} of {total} findings." in outside_code(body)
    (review,) = site.repo.reviews
    assert len(review["comments"]) == 30


@pytest.mark.long
def test_check_10_what_lies_outside_the_hunks_is_in_the_summary_only(site: Site) -> None:
    lines = [f"line_{number} = {number}" for number in range(1, 61)]
    site.git.branch("main")
    site.git.work.commit_files({"src/far.py": "\n".join(lines) + "\n"}, "Far.")
    site.git.push("refs/heads/main")
    changed = [*lines]
    changed[1] = "line_2 = changed()"
    head = site.push({"src/far.py": "\n".join(changed) + "\n"}, hunks={"src/far.py": ((1, 5, 1, 5),)})
    job = site.ended(site.report(head))
    assert job.status == "succeeded"
    (review,) = site.repo.reviews
    assert [(one["path"], one["line"]) for one in review["comments"]] == [("src/far.py", 2)]
    (summary,) = site.summaries()
    # The model was not shown line 40: a finding there has no line. Known lines: test_diff_places.
    assert set(job.findings.values_list("line", flat=True)) == {2, None}
    assert summary["body"].count("Wrong at") == job.findings.count() == 2


def test_check_10_a_refused_place_ends_as_summary_and_review_without_comments(site: Site) -> None:
    refused = {
        "message": "Unprocessable Entity",
        "errors": ["line must be part of the diff"],
        "status": "422",
    }
    site.sides.api.script(Act(keep=False, status=422, body=refused), on=f"POST {site.path}/pulls/7/reviews")
    job = site.report(site.push())
    assert site.ended(job).status == "succeeded"
    (review,) = site.repo.reviews
    assert (review["comments"], len(site.summaries())) == ([], 1)
    assert set(Delivery.objects.filter(job=job).values_list("status", flat=True)) == {"sent"}
