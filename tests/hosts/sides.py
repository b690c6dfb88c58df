"""An installation of the product beside a strict GitHub: API and git server at one address.

Each test has a repository of its own, in an account of its own: limits and circuits are an account's.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from reviews.models import ReviewJob
from tests.fakes.git_http import GitHost, PullRequests
from tests.fakes.github import APP_ID, SLUG, GitHubServer, Pull, private_key
from tests.fakes.http import Asked, Said
from tests.hosts import deliveries
from tests.hosts.deliveries import pull_request
from tests.stack import Stack, eventually

SCALE = 0.05  # of the product's waits
CONFLICT = "<<<<<<< ours\none = {0}\n=======\none = 2\n>>>>>>> theirs\n"
HUNKS = {"src/a.py": ((1, 1, 1, 5),)}


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the API, when it was answered (monotonic clock) and how."""

    at: float
    what: str  # method and path
    status: int


class Sides:
    """The installation, the host, and what was called there."""

    def __init__(self, stack: Stack, host: GitHost, api: GitHubServer) -> None:
        self.stack, self.host, self.api = stack, host, api
        self.calls: list[Call] = []
        api.url, host.api, host.accepts = host.url, self._answer, api.accepts

    def _answer(self, asked: Asked) -> Said:
        said = self.api.answer(asked)
        self.calls.append(Call(time.monotonic(), f"{asked.method} {asked.path}", said.status))
        return said

    def post(self, body: bytes, event: str, **headers: str) -> httpx.Response:
        """Post bytes to the webhook's address, signed, with further or other headers."""
        sent = {**deliveries.headers(body, event), **headers}
        address = self.stack.base_url + deliveries.PATH
        return httpx.post(address, content=body, headers=sent, timeout=60, trust_env=False)

    def send(self, event: str, content: Any, **headers: str) -> Any:
        answer = self.post(json.dumps(content).encode(), event, **headers)
        assert answer.status_code in {200, 202}, answer.text
        return answer.json()


class Site:
    """A repository of the host, with pull request 7."""

    def __init__(self, sides: Sides, directory: Path, name: str) -> None:
        self.sides, self.name = sides, name.lower()
        self.git = PullRequests(sides.host, directory / self.name.replace("/", "-"), name)
        self.repo = sides.api.add(self.name)
        self.named = {"repository": {"id": self.repo.number, "full_name": name}}
        self.pull, self.path = f"github:{self.name}#7", f"/repos/{self.name}"
        self._pushed = 0

    def push(self, files: dict[str, str | bytes | None] | None = None, **described: Any) -> str:
        """Push a head that replaces the one before and return it; a check finds something in it."""
        self._pushed += 1
        self.git.branch("topic")
        content = files or {"src/a.py": CONFLICT.format(self._pushed)}
        head = self.git.pull(7, content, f"Change {self._pushed}.")
        self.repo.pulls[7] = Pull(head, **{"hunks": HUNKS, **described})
        return head

    def report(self, head: str, **given: Any) -> int:
        """Send the webhook of a head and return its job."""
        action = "synchronize" if self._pushed > 1 else "opened"
        content = pull_request(action, head=head, at=self._pushed, **self.named, **given)
        return int(self.sides.send("pull_request", content)["job"])

    def ended(self, job: int) -> ReviewJob:
        eventually(lambda: ReviewJob.objects.get(pk=job).finished_at)
        return ReviewJob.objects.get(pk=job)

    def is_opened(self, head: str) -> bool:
        return any(check["head_sha"] == head for check in list(self.repo.checks.values()))

    def is_concluded(self, head: str) -> bool:
        checks = [check for check in list(self.repo.checks.values()) if check["head_sha"] == head]
        return bool(checks) and all(check["status"] == "completed" for check in checks)

    def calls(self) -> list[Call]:
        """Return the calls about this repository, in order."""
        return [call for call in list(self.sides.calls) if f"{self.path}/" in call.what.lower()]

    def summaries(self) -> list[dict[str, Any]]:
        """Return our own comments."""
        return [one for one in self.repo.comments.values() if one["user"]["login"] == f"{SLUG}[bot]"]


@contextlib.contextmanager
def running(directory: Path, **environment: str) -> Iterator[Sides]:
    """Start host, web server and workers, and stop them afterwards.

    A fault of our client in its calls of the host fails the test.
    """
    with GitHost(directory / "host") as host, GitHubServer() as api:
        given = {
            "GITHUB_WEBHOOK_SECRETS": deliveries.SECRET,
            "GITHUB_API_URL": host.url,
            "GITHUB_APP_ID": str(APP_ID),
            "GITHUB_APP_SLUG": SLUG,
            "GITHUB_PRIVATE_KEY": private_key().replace("\n", "\\n"),
            "DEPOT_ALLOW_LIST": "//github/...",
            "DEFAULT_RECIPIENTS": "mail:ann@example.com",
            "RETRY_TIME_SCALE": str(SCALE),
            "SOURCE_POLL_SECONDS": "0",  # the poll asks for repositories whatever becomes of a review
            **environment,
        }
        stack = Stack(directory, with_web=True, environment=given)
        try:
            stack.start()
            yield Sides(stack, host, api)
        except BaseException:
            print(stack.logs()[-20_000:])
            raise
        finally:
            stack.stop()
        assert api.faults == []
