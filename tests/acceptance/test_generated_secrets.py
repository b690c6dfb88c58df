"""500 generated secrets in every place of a change, through the running product (G196).

Other tests measure whether a secret is found in a text. Each of these is known to be found in its own text;
here it is put into every place of a change, and must come out nowhere.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from criticizer.redaction import redact
from reviews.models import ReviewJob
from tests.acceptance.test_secrets_stay_inside import MANY_ROWS, pages, rows_of_every_table, texts_of
from tests.acceptance.world import MAIL
from tests.fakes.llm import FakeLlm, Recorded, Reply
from tests.fakes.smtp import SmtpServer
from tests.fakes.webhook import WebhookReceiver
from tests.redaction.generated import rows, values
from tests.sources.gitrepo import GitRepo
from tests.stack import eventually, running

pytestmark = [pytest.mark.long, pytest.mark.cluster, pytest.mark.django_db(transaction=True)]

SEED = int(os.environ.get("REDACTION_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
COMMITS = 5
IN_TEXTS, BARE, IN_NAMES, IN_LINKS, IN_MESSAGE = 54, 10, 12, 12, 12  # of each commit
_PLAIN = re.compile(r"[A-Za-z0-9_-]{12,80}")


@dataclass
class Change:
    """Content of one commit, and the texts of it that must be seen nowhere."""

    before: dict[str, str | bytes | None] = field(default_factory=dict)
    after: dict[str, str | bytes | None] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    message: str = ""
    author: str = ""
    needles: list[str] = field(default_factory=list)


def tokens(source: random.Random) -> Iterator[str]:
    """Yield tokens that are found by their form alone and may stand in a file's name."""
    while True:
        token = values.vendor(source)
        if _PLAIN.fullmatch(token) and token not in redact(f"see {token} here").text:
            yield token


def texts(seed: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield texts whose secrets are found where they stand alone, each with its secrets."""
    for row in rows(seed, 20_000):
        certain = row.secrets and all(len(secret) >= 10 for secret in row.secrets)
        if certain and not row.mutation and not row.text.startswith(("diff ", "--- ")):
            shown = redact(row.text).text
            if not any(secret in shown for secret in row.secrets):
                yield row.text, row.secrets


def changes(seed: int) -> Iterator[Change]:
    """Yield commits that hold 100 secrets each, in every place that a commit has."""
    source = random.Random(seed)
    drawn, token = texts(seed), tokens(source)
    for number in range(COMMITS):
        change = Change()
        for place, (text, secrets) in enumerate(itertools.islice(drawn, IN_TEXTS)):
            name = f"c{number}/text{place}.txt"
            change.needles += secrets
            if place % 3 == 0:  # a line that goes
                change.before[name], change.after[name] = f"{text}\n\nend\n", "end\n"
            elif place % 3 == 1:  # a line that comes
                change.before[name], change.after[name] = "begin\n", f"begin\n\n{text}\n"
            elif place % 2:  # a file that goes
                change.before[name], change.after[name] = f"{text}\n", None
            else:
                change.after[name] = f"{text}\n"
        names, links, said = (list(itertools.islice(token, n)) for n in (IN_NAMES, IN_LINKS, IN_MESSAGE))
        change.after |= {f"c{number}/{one}.py": "breakpoint()\n" for one in names}
        change.links = {f"c{number}/link{place}": f"/srv/{one}/x" for place, one in enumerate(links)}
        # A password that one file names, and that stands bare in every other place.
        bare = [values.generated(source) for _ in range(200)]
        known = [one for one in bare if _PLAIN.fullmatch(one) and len(one) >= 14][:BARE]
        change.after[f"c{number}/settings.py"] = "".join(
            f'db{i}_password = "{one}"\n' for i, one in enumerate(known)
        )
        change.after[f"c{number}/{known[0]}.md"] = f"Connect with {known[1]} now.\n"
        change.links[f"c{number}/other"] = known[2]
        change.message = f"Use {known[3]} and {said[0]}\n\n" + "\n".join(
            f"Also {one}." for one in (*said[1:], *known[4:])
        )
        change.author = f"{known[5]} {said[0]} <{known[6]}@example.com>"
        change.needles += [*names, *links, *said, *known]
        yield change


def commit(repository: GitRepo, change: Change) -> str:
    """Make the commit, after one that holds what it changes or deletes; return its id."""
    repository.commit_files(change.before, "Before.")
    for name, content in change.after.items():
        if content is None:
            (repository.path / name).unlink()
        else:
            repository.write(name, content)
    for name, target in change.links.items():
        (repository.path / name).symlink_to(target)
    repository.git("add", "-A", "-f")
    repository.git("commit", "-q", "--author", change.author, "-F", "-", stdin=change.message.encode())
    return repository.git("rev-parse", "HEAD")


def answer(request: Recorded) -> Reply:
    """Answer as a model that repeats what it was shown: its text reaches mails and pages."""
    shown = json.dumps(request.body, ensure_ascii=False)
    file = re.search(r"//demo/c[0-9]/text[0-9]+\.txt", shown)
    finding: dict[str, Any] = {
        "file": file.group() if file else "//demo/x", "hunk": None, "quote": "begin",
        "quote_end": None, "side": "new",
        "category": "bug", "rule_id": None, "severity": "high", "confidence": 90, "title": "Reads twice",
        "problem": shown[-1500:], "trigger": "Always.", "suggestion": None,
    }  # fmt: skip
    return Reply(answer={"findings": [finding], "files_read": []})


def outside(
    llm: FakeLlm, smtp: SmtpServer, receiver: WebhookReceiver, jobs: list[int]
) -> Iterator[tuple[str, str]]:
    """Yield (place, text) of all that other machines received, and of the pages and tables."""
    for request in llm.requests:
        yield "model", json.dumps(request.body, ensure_ascii=False) + str(request.headers)
    for accepted in smtp.accepted:
        for text in (*texts_of(accepted.mail), accepted.raw.decode("latin-1")):
            yield "mail", text
    for received in receiver.requests:
        yield "webhook", json.dumps(received.body, ensure_ascii=False) + str(received.headers)
    yield from rows_of_every_table()
    yield from pages(jobs, MANY_ROWS)


def test_no_secret_of_500_in_every_place_of_a_change_comes_out(tmp_path: Path) -> None:
    planned = list(changes(SEED))
    needles = {needle for change in planned for needle in change.needles}
    assert len(needles) >= 500, f"REDACTION_SEED={SEED}"
    repository = GitRepo(tmp_path / "repository")
    with ExitStack() as everything:
        receiver = everything.enter_context(WebhookReceiver())
        llm = everything.enter_context(FakeLlm(respond=answer))
        smtp = everything.enter_context(SmtpServer())
        stack = everything.enter_context(
            running(tmp_path, with_web=True, environment={
                "CHANGE_SOURCES": "git", "GIT_REPOSITORIES": f"demo={repository.path}",
                "DEPOT_ALLOW_LIST": "//demo/...", "OUTBOUND_ALLOW": "127.0.0.0/8",
                "MAIL_PROVIDER": "smtp", "SMTP_HOST": "127.0.0.1", "SMTP_PORT": str(smtp.port),
                "SMTP_SECURITY": "none",
                "LLM_PROVIDER": "openai", "LLM_MODEL": "test-model", "LLM_BASE_URL": llm.base_url,
            })
        )  # fmt: skip
        api = everything.enter_context(stack.api())
        jobs = []
        for number, change in enumerate(planned):
            body = {
                "idempotency_key": f"k-{number}",
                "changelist_id": f"git:demo@{commit(repository, change)}",
                "recipients": [MAIL, f"webhook:{receiver.url}"],
            }
            posted = api.post("/api/v1/reviews/", json=body)
            assert posted.status_code == 201, posted.text
            jobs.append(posted.json()["id"])
        eventually(lambda: not ReviewJob.objects.filter(pk__in=jobs, finished_at=None).exists(), 240)
        statuses = set(ReviewJob.objects.filter(pk__in=jobs).values_list("status", flat=True))
        assert statuses == {"succeeded"}, f"REDACTION_SEED={SEED}"
        answers = [("API", api.get(f"/api/v1/reviews/{job}/").text) for job in jobs]
        leaked: dict[str, set[str]] = {}
        logs = ("log", stack.logs())
        looked_at = set()
        for where, text in (*outside(llm, smtp, receiver, jobs), *answers, logs):
            looked_at.add(where)
            for plain in {text, text.replace('\\"', '"').replace("\\\\", "\\")}:
                for needle in needles:
                    if needle in plain:
                        leaked.setdefault(where, set()).add(needle)
        assert {
            "model",
            "mail",
            "webhook",
            "API",
            "log",
            "jobs",
            "findings",
            "console reviewjob",
            "/",
        } <= looked_at
        shown = "".join(json.dumps(request.body) for request in llm.requests)
        for number, place in itertools.product(
            range(COMMITS), ("settings.py", "link0", "text0", "text1", "text2")
        ):
            assert f"c{number}/{place}" in shown, "the model was not shown what is searched for"
        assert len(smtp.accepted) == len(receiver.processed) == COMMITS
        assert leaked == {}, f"REDACTION_SEED={SEED}"
