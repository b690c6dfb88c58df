"""A recipient that a real mail server refuses: edited, approved, replayed, notified once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from aiosmtpd.smtp import Envelope, Session

from deadletters import workflow
from deadletters.edits import edit_requests
from deadletters.models import DeadLetter, LetterEdit
from notifications.models import Delivery, DeliveryAttempt
from reviews.intake import review_requests
from reviews.models import ReviewJob
from tests import factories, scripted
from tests.deadletters.conftest import Work
from tests.fakes.smtp import SmtpServer

pytestmark = pytest.mark.django_db(transaction=True)  # an attempt is on disk before it is made
ANN, TYPO, BOB = "mail:ann@example.com", "mail:bbo@example.com", "mail:bob@example.com"


class Mailboxes(SmtpServer):
    """A mail server that knows its mailboxes."""

    async def handle_RCPT(  # noqa: N802
        self, server: Any, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address not in {"ann@example.com", "bob@example.com"}:
            return "550 5.1.1 no such user"
        return await super().handle_RCPT(server, session, envelope, address, options)

    @property
    def told(self) -> list[str]:
        return [mail.recipient for mail in self.accepted]


@pytest.fixture
def mail(settings: Any) -> Iterator[Mailboxes]:
    settings.DEADLETTER_EDIT = True
    settings.STAGES = {**scripted.STAGES, "notify": ("reviews.stages.notify.run", "stages")}
    with Mailboxes() as server:
        settings.SMTP_HOST, settings.SMTP_PORT, settings.SMTP_SECURITY = "127.0.0.1", server.port, "none"
        settings.SMTP_USER, settings.SMTP_PASSWORD = "", ()
        settings.MAIL_FROM = "criticizer@reviews.test"
        yield server


def test_edited_recipient_is_notified_once(mail: Mailboxes, work: Work) -> None:
    review_requests.request_review(review_requests.ReviewRequest("k", "12345", recipients=(ANN, TYPO)))
    work()
    first = DeadLetter.objects.get()
    factories.CoverageRowFactory(job=first.job)
    factories.ArtifactFactory(job=first.job)
    assert (first.stage, first.error_class) == ("notify", "RECIPIENT_REJECTED")
    assert mail.told == ["ann@example.com"]
    total = first.group.total_count

    # ann asks, carol approves
    values = {"recipients": [ANN, BOB]}
    assert edit_requests.request(first.pk, actor="ann", values=values, reason="OPS-7: a typo").ok
    approved = edit_requests.approve(LetterEdit.objects.get().pk, actor="carol", reason="bob leads the team")
    assert approved.ok, approved
    second = first.generations.get()

    # the steps that are left, from the failed stage
    validation = workflow.validate(second.pk, actor="ann")
    assert validation.ok, validation
    scripted.CALLS.clear()
    assert workflow.replay(second.pk, actor="ann", reason="OPS-7").ok
    work()
    assert scripted.CALLS == []  # neither fetched nor reviewed again
    assert ReviewJob.objects.get().status == "succeeded"
    assert mail.told == ["ann@example.com", "bob@example.com"]
    assert {row.recipient: row.status for row in Delivery.objects.all()} == {
        ANN: "sent",
        TYPO: "superseded",
        BOB: "sent",
    }
    outcomes = DeliveryAttempt.objects.values_list("delivery__recipient", "outcome").order_by("id")
    assert sorted(outcomes) == sorted([(ANN, "accepted"), (TYPO, "rejected"), (BOB, "accepted")])

    assert (checked := workflow.verify(second.pk, actor="ann")).ok, checked
    assert any(
        check.message == "2 of 2 deliveries with their provider's evidence" for check in checked.checks
    )
    assert workflow.resolve(second.pk, actor="ann", resolution="the address was mistyped").ok
    second.refresh_from_db()
    assert (second.status, second.generation, second.group.open_count) == ("resolved", 2, 0)
    assert second.group.total_count == total
    work()
    assert mail.told == ["ann@example.com", "bob@example.com"]


@pytest.mark.long
def test_edited_recipient_that_fails_too_reopens_the_new_generation(mail: Mailboxes, work: Work) -> None:
    review_requests.request_review(review_requests.ReviewRequest("k", "12345", recipients=(ANN, TYPO)))
    work()
    first = DeadLetter.objects.get()
    values = {"recipients": [ANN, "mail:obb@example.com"]}
    assert edit_requests.request(first.pk, actor="ann", values=values, reason="OPS-7: a typo").ok
    assert edit_requests.approve(LetterEdit.objects.get().pk, actor="carol", reason="looks right").ok
    second = first.generations.get()
    assert workflow.validate(second.pk, actor="ann").ok
    assert workflow.replay(second.pk, actor="ann", reason="OPS-7").ok
    work()
    second.refresh_from_db()
    assert (second.status, second.is_escalated, second.failed_replay_count) == ("new", True, 1)
    assert DeadLetter.objects.count() == 2
    assert edit_requests.request(second.pk, actor="ann", values={"recipients": [ANN, BOB]}, reason="OPS-7").ok
    waiting = LetterEdit.objects.get(status="requested")
    assert edit_requests.approve(waiting.pk, actor="carol", reason="asked bob himself").ok
    third = second.generations.get()
    assert workflow.validate(third.pk, actor="ann").ok
    assert workflow.replay(third.pk, actor="ann", reason="OPS-7").ok
    work()
    assert ReviewJob.objects.get().status == "succeeded"
    assert mail.told == ["ann@example.com", "bob@example.com"]
