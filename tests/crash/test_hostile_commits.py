"""Commits that are expensive to redact, and a flood beside hung receivers.

They are posted to a real installation.
"""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from reviews.intake.review_requests import ReviewRequest, request_review
from reviews.models import ReviewJob
from tests.fakes.webhook import Behaviour, WebhookReceiver
from tests.stack import Stack, eventually, git_repository, running

pytestmark = [pytest.mark.cluster, pytest.mark.long]

HOSTILE = 8
FILES = 19
BYTES = 1_000_000
LINE = "curl -u a: "
FLOOD = 1_759
MAX_GROWTH = 50_000_000  # bytes of a worker that its work may leave behind


def git(repository: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Eve", "-c", "user.email=eve@example.com")
    command = ["git", "-C", str(repository), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def hostile_commits(repository: Path) -> list[str]:
    """Return commits of 19 MB of commands with a login each: long lines and short lines in turn."""
    ids = []
    for number in range(HOSTILE):
        line = LINE * (100 if number % 2 else 1) + "\n"
        for file in range(FILES):
            (repository / f"hostile_{file}.sh").write_text(f"# {number}\n{line * (BYTES // len(line))}")
        git(repository, "add", "-A")
        git(repository, "commit", "-q", "-m", f"Hostile {number}")
        ids.append(git(repository, "rev-parse", "HEAD"))
    return ids


def memory(stack: Stack) -> dict[int, int]:
    """Return the bytes that each process of the installation has for itself, by pid."""
    found = {}
    for child in stack.supervisor.children:
        assert child.process is not None
        main = psutil.Process(child.process.pid)
        for process in (main, *main.children(recursive=True)):
            found[process.pid] = process.memory_full_info().uss
    return found


def flood_commits(repository: Path) -> list[str]:
    """Return FLOOD small commits on a branch of their own."""
    stream = []
    for number in range(FLOOD):
        parent = "" if number else "from refs/heads/main^0\n"
        text, title = f"flood {number}\n", f"Flood {number}"
        stream.append(
            f"commit refs/heads/flood\ncommitter Eve <eve@example.com> {1_700_000_000 + number} +0000\n"
            f"data {len(title)}\n{title}\n{parent}M 100644 inline flood.txt\ndata {len(text)}\n{text}\n"
        )
    command = ["git", "-C", str(repository), "fast-import", "--quiet"]
    subprocess.run(command, input="".join(stream), text=True, check=True)
    return git(repository, "rev-list", "--reverse", "main..flood").split()


def request(commit: str, key: str, number: int, *recipients: str) -> int:
    wanted = ReviewRequest(
        f"{key}-{number}",
        f"git:demo@{commit}",
        recipients=recipients or ("mail:ann@example.com",),
        requested_by=key,
    )
    job = request_review(wanted).job_id
    assert job is not None
    return job


def post(client: httpx.Client, commit: str, *recipients: str) -> int:
    """Request a review over HTTP and return its job's id."""
    body = {
        "idempotency_key": f"posted-{commit}",
        "changelist_id": f"git:demo@{commit}",
        "recipients": recipients or ["mail:ann@example.com"],
    }
    answer = client.post("/api/v1/reviews/", json=body)
    assert answer.status_code == 201, answer.text
    return int(answer.json()["id"])


def end_of(job: int, seconds: float) -> str:
    ended = ReviewJob.objects.filter(pk=job, finished_at__isnull=False)
    return str(eventually(lambda: ended.values_list("status", flat=True).first(), seconds))


def environment(repository: Path) -> dict[str, str]:
    return {
        "CHANGE_SOURCES": "git",
        "GIT_REPOSITORIES": f"demo={repository}",
        "DEPOT_ALLOW_LIST": "//demo/...",
        "OUTBOUND_ALLOW": "127.0.0.0/8",
        "LLM_PROVIDER": "none",
    }


def test_hostile_commits_delay_no_other_review_and_leave_no_memory_behind(
    tmp_path: Path, transactional_db: Any
) -> None:
    """Other reviews take less than 30 s beside eight commits too slow to redact (G140, G161)."""
    repository = tmp_path / "repository"
    ordinary = git_repository(repository, 6)
    hostile = hostile_commits(repository)
    files = tmp_path / "files"
    files.mkdir()
    with running(files, environment=environment(repository)) as stack:
        warm = [request(commit, "key:warm", number) for number, commit in enumerate(ordinary[:4])]
        for job in warm:
            assert end_of(job, 30) == "succeeded"
        before = memory(stack)
        expensive = [request(commit, "key:eve", number) for number, commit in enumerate(hostile)]
        for number, commit in enumerate(ordinary[4:]):
            assert end_of(request(commit, "key:ann", number), 30) == "succeeded"
        assert {end_of(job, 180) for job in expensive} <= {"succeeded", "dead_lettered"}
        grown = {pid: used - before[pid] for pid, used in memory(stack).items() if pid in before}
        assert grown
        assert max(grown.values()) < MAX_GROWTH, grown


def test_everything_at_once_delays_no_other_review(tmp_path: Path, transactional_db: Any) -> None:
    """Reviews of another key end within 30 s each under all loads (G133 to G135, G140).

    The loads are a flood of 1,759 posts, eight hostile commits, 20 reviews that notify a receiver that hangs,
    and 200 recipients at one that drips.
    """
    repository = tmp_path / "repository"
    ordinary = git_repository(repository, 28)
    flood, hostile = flood_commits(repository), hostile_commits(repository)
    files = tmp_path / "files"
    files.mkdir()
    with (
        running(files, environment=environment(repository), with_web=True) as stack,
        WebhookReceiver() as hung,
        WebhookReceiver() as slow,
        contextlib.ExitStack() as closing,
    ):
        hung.always(Behaviour(hang=True))
        slow.always(Behaviour(drip=True))
        hangs, drips, eve, flooder, ann = clients = [stack.api() for _ in range(5)]
        for client in clients:
            closing.enter_context(client)
        for n in range(20):
            post(hangs, ordinary[n], f"webhook:{hung.url}/{n}")
        for n in range(2):
            post(drips, ordinary[20 + n], *(f"webhook:{slow.url}/{n}/{m}" for m in range(100)))
        for commit in hostile:
            post(eve, commit)
        posts = [post(flooder, commit) for commit in flood]
        eventually(lambda: hung.requests or slow.requests)
        for commit in ordinary[22:]:
            assert end_of(post(ann, commit), 30) == "succeeded"
        assert ReviewJob.objects.filter(pk__in=posts, finished_at__isnull=True).exists()
