"""One review of a pull request, and every place where its texts appear: for tests of texts."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.test import Client

from criticizer.db import prepared
from criticizer.resilience import gate
from criticizer.texts import Place
from reviews import check_runs
from reviews.models import HostChange, HostVersion, ReviewJob
from reviews.stages import fetch
from tests import factories
from tests.acceptance.pulls import PULL, OfPull
from tests.acceptance.world import MAIL, World
from tests.fakes.github import GitHubServer
from tests.fakes.smtp import SmtpServer
from tests.sources.gitrepo import GitRepo

Files = Mapping[str, str | bytes | None]
ROOT = "//github/acme/web/"
SOURCE_OF_JOB = fetch.config.source_of_job  # before a pull request has one of its own


@dataclass
class Shown:
    """A repository with one pull request, whose review goes to mail, webhook and pull request."""

    world: World
    github: GitHubServer
    repo: GitRepo
    job: int = 0

    def __post_init__(self) -> None:
        self.smtp: SmtpServer = self.world.enter(SmtpServer())
        self.world.settings.SMTP_HOST, self.world.settings.SMTP_PORT = "127.0.0.1", self.smtp.port

    def review(self, files: Files) -> ReviewJob:
        """Commit files as the head of the pull request, and review it until nothing is left to do."""
        self.open(files)
        self.world.settle()
        return self.ended()

    def open(self, files: Files) -> int:
        """Commit files as the head of the pull request, and request its review."""
        sha = self.repo.commit_files(dict(files))
        source = OfPull(self.repo.path, sha)
        self.world.monkeypatch.setattr(fetch.config, "source_of_job", lambda job: source)
        hosted = self.github.repos["acme/web"]
        hosted.pulls[7].head = sha
        hosted.pulls[7].hunks = dict.fromkeys(files, ((1, 999, 1, 999),))
        version = ReviewJob.objects.count() + 1
        job = factories.job_with_stages(
            changelist_id=PULL, review_version=version, recipients=[MAIL, self.world.hook, PULL]
        )
        seen = {"head_sha": sha, "base_sha": "b" * 40, "base_ref": "main"}
        change, _ = HostChange.objects.get_or_create(
            host="github", repository_id=hosted.number, number=7,
            defaults={"full_name": "acme/web", "changelist_id": PULL, "reported_at": job.created_at, **seen},
        )  # fmt: skip
        HostVersion.objects.create(change=change, job=job, is_automatic=True, **seen)
        factories.OutboxMessageFactory(aggregate_id=job.stages.get(stage="fetch").pk)
        self.job = job.pk
        return job.pk

    def ended(self) -> ReviewJob:
        return ReviewJob.objects.get(pk=self.job)

    def texts(self, place: Place) -> list[str]:
        """Return what stands in each variant of a place, without its markup and on one line."""
        return [" ".join(text.split()) for text in getattr(self, f"_{place.name.lower()}")()]

    def _page(self) -> Iterator[str]:
        client = Client()
        client.force_login(factories.UserFactory())
        answer = client.get(f"/reviews/{self.job}/")
        assert answer.status_code == 200
        yield _without_tags(answer.content.decode())

    def _api(self) -> Iterator[str]:
        yield _flat(self.world.api.get(f"/api/v1/reviews/{self.job}/").json())

    def _webhook(self) -> Iterator[str]:
        yield _flat(self.world.receiver.requests[-1].body)

    def _mail(self) -> Iterator[str]:
        mail = self.smtp.accepted[-1].mail
        for kind in ("plain", "html"):
            part = mail.get_body((kind,))
            assert part is not None
            text = str(part.get_content())
            yield _without_tags(text) if kind == "html" else text

    def _comment(self) -> Iterator[str]:
        body = list(self.github.repos["acme/web"].comments.values())[-1]["body"]
        yield re.sub(r"\\([^A-Za-z0-9\s])", r"\1", body).replace("\N{ZERO WIDTH SPACE}", "")

    def _check(self) -> Iterator[str]:
        prepared.rows("DELETE FROM paces")
        gate.forget()
        check_runs.run()
        check = list(self.github.repos["acme/web"].checks.values())[-1]
        yield " ".join([check["conclusion"], check["output"]["title"], check["output"]["summary"]])


def make(world: World, github: GitHubServer, path: Path, files: Files) -> Shown:
    repo = GitRepo(path / "shown")
    repo.commit_files(dict(files))
    world.settings.LLM_VERIFY = "off"
    return Shown(world, github, repo)


def _without_tags(text: str) -> str:
    text = re.sub(r"(?is)<(style|script|title)\b.*?</\1>", " ", text)
    return html.unescape(re.sub(r"<[^>]+>", "", text))


def _flat(value: Any) -> str:
    return re.sub(r'\\"', '"', json.dumps(value, ensure_ascii=False))
