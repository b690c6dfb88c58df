"""One installation for a test: its entry points, its worker, its rows and all that was sent."""

from __future__ import annotations

import email
import email.policy
from collections.abc import Callable
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from criticizer.db import prepared
from criticizer.queue import outbox
from deadletters import alerts
from deadletters.models import DeadLetter
from notifications import alerts as operators
from notifications.models import Delivery
from reviews.intake import api_keys
from reviews.intake.review_requests import IntakeResult, ReviewRequest, request_review
from reviews.models import Attempt, ReviewJob, StageRun
from reviews.pipeline import executor
from tests.acceptance.line import Line
from tests.api.conftest import ApiClient
from tests.fakes.llm import FakeLlm
from tests.fakes.p4.server import FakeDepot, edited
from tests.fakes.smtp import SmtpServer
from tests.fakes.webhook import WebhookReceiver
from tests.letters import walk_and_replay

MAIL = "mail:ann@example.com"
BEFORE, AFTER = "int answer(void) { return 1; }\n", "int answer(void) { return 2; }\n"


@dataclass
class World:
    files: Path
    settings: Any
    monkeypatch: pytest.MonkeyPatch
    commit: str  # of the repository that every test may read
    depot: FakeDepot
    receiver: WebhookReceiver
    llm: FakeLlm
    lines: Callable[[int, str], Line]
    enter: Callable[[Any], Any]
    hook: str = ""
    smtp: SmtpServer | None = None

    def __post_init__(self) -> None:
        self.hook = f"webhook:{self.receiver.url}"
        self.key = api_keys.create("ci", "trigger")
        self.api = ApiClient(self.key)

    # -- requests ------------------------------------------------------------------------------

    def change(self) -> str:
        """Submit an ordinary change to the depot."""
        return self.depot.submit(edited("//depot/main/a.c", BEFORE, AFTER))

    def request(
        self, changelist: str, *recipients: str, key: str = "k-1", version: int = 1, rerun: bool = False
    ) -> IntakeResult:
        return request_review(ReviewRequest(key, changelist, version, recipients, rerun))

    def job(self, changelist: str, *recipients: str, **more: Any) -> int:
        """Request a review and return the id of the job made."""
        job_id = self.request(changelist, *recipients, **more).job_id
        assert job_id is not None
        return job_id

    # -- the worker ----------------------------------------------------------------------------

    def work(self) -> int:
        """Run everything that is due now, on all queues; return how many messages were claimed."""
        claimed = 0
        while messages := [found for queue in outbox.queues() for found in outbox.claim(queue, 10)]:
            for message in messages:
                claimed += 1
                if message.message_type == alerts.MESSAGE:
                    operators.run_message(message.id, message.aggregate_id, str(message.lease_token))
                else:
                    executor.run_stage(message.id, message.aggregate_id, message.lease_token)
        return claimed

    def make_due(self) -> None:
        """Let every wait be over: backoffs, pauses and leases."""
        prepared.rows("DELETE FROM paces")
        prepared.rows("UPDATE outbox_messages SET available_at = now()")
        prepared.rows("UPDATE stage_runs SET lease_expires_at = now() WHERE lease_token IS NOT NULL")

    def settle(self) -> None:
        """Work and wait until nothing is left to do."""
        for _ in range(20):
            self.work()
            if not prepared.value("SELECT count(*) FROM outbox_messages"):
                return
            self.make_due()
        raise AssertionError("work does not come to an end")

    # -- what is written down ------------------------------------------------------------------

    @staticmethod
    def status(job: int) -> str:
        return ReviewJob.objects.get(pk=job).status

    @staticmethod
    def stage(job: int, stage: str) -> StageRun:
        return StageRun.objects.get(job_id=job, stage=stage)

    @staticmethod
    def attempts(job: int, stage: str) -> list[Attempt]:
        return list(Attempt.objects.filter(stage_run__job_id=job, stage_run__stage=stage).order_by("id"))

    @staticmethod
    def letter(job: int) -> DeadLetter:
        return DeadLetter.objects.get(job_id=job)

    @staticmethod
    def delivery(job: int, recipient: str) -> Delivery:
        return Delivery.objects.get(job_id=job, recipient=recipient)

    def replay(self, job: int, *, restart: bool = False) -> None:
        """Replay the job's dead letter as ann would."""
        done = walk_and_replay(self.letter(job).pk, reason="OPS-1: mended", restart=restart)
        assert done.ok, done.message

    # -- what arrived --------------------------------------------------------------------------

    def mails(self) -> list[EmailMessage]:
        """Return the mails in every mailbox of the maildir."""
        return [
            email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
            for path in sorted((self.files / "mail").rglob("new/*"))
        ]
