"""One mail about several reviews, from their triggers to the mailbox and back to their jobs."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.contrib.auth.models import Group, User
from django.db.models.functions import Now
from django.test import Client

from criticizer.db import prepared
from notifications.digests import lifecycle
from notifications.models import Digest
from notifications.preferences import policy
from notifications.rendering import Report
from notifications.states import DeliveryStatus as D
from reviews import pipeline
from reviews.models import AllowListEntry, RecipientOrigin, ReviewJob, StageRun, ViewerScope
from reviews.pipeline import LostLease, StageClaim
from reviews.stages import notify
from reviews.states import Stage
from tests.acceptance.world import AFTER, BEFORE, MAIL, World
from tests.factories import UserFactory
from tests.fakes.closed import closed_port
from tests.fakes.p4.server import edited
from tests.fakes.smtp import SmtpServer, Switches

BOB = "mail:bob@example.com"


@pytest.fixture
def jobs(world: World) -> list[int]:
    """Make three reviews, of a commit and of two changes, and work until they notify."""
    world.settings.LLM_PROVIDER, world.settings.LLM_REQUIRED = "none", False
    policy.set_digest(MAIL, 10, "ann")
    changes = [world.commit, world.change(), world.change()]
    made = [world.job(change, MAIL, BOB, key=f"k-{change[-9:]}") for change in changes]
    world.work()
    return made


def come_due(world: World) -> None:
    Digest.objects.update(due_at=Now())
    world.settle()


def test_three_reviews_within_the_time_are_one_mail_and_three_successes(
    world: World, jobs: list[int]
) -> None:
    # A recipient without a digest has a mail for each; waiting uses no attempt.
    assert [mail["To"] for mail in world.mails()] == ["bob@example.com"] * 3
    for job in jobs:
        assert world.status(job) == "in_progress"
        assert world.stage(job, "notify").attempts == 0
        assert "waits for a digest" in world.attempts(job, "notify")[-1].detail
    api = world.api.get(f"/api/v1/reviews/{jobs[0]}/").json()["deliveries"]
    assert [bool(delivery["waits_until"]) for delivery in api] == [True, False]

    come_due(world)
    (mail,) = [mail for mail in world.mails() if mail["To"] == "ann@example.com"]
    names = [job.changelist_id for job in ReviewJob.objects.order_by("id")]
    assert mail["Subject"].startswith("3 reviews: ")
    body = mail.get_body(("plain",))
    assert body is not None
    for job, name in zip(jobs, names, strict=True):
        assert name in body.get_content()
        assert world.status(job) == "succeeded"
        row = world.delivery(job, MAIL)
        assert row.status == D.SENT
        assert row.notified_at is not None
        assert row.digest is not None
        assert mail["X-Criticizer-Token"] == str(row.digest.token)
    assert not prepared.value("SELECT count(*) FROM circuits WHERE name = ''")


@pytest.mark.long
def test_a_page_says_what_a_delivery_waits_for(world: World, jobs: list[int], client: Client) -> None:
    client.force_login(UserFactory(username="ann", is_staff=True, is_superuser=True))
    review = client.get(f"/reviews/{jobs[0]}/").content.decode()
    assert "waits for a digest, which is due" in review
    row = world.delivery(jobs[0], MAIL)
    page = client.get(f"/admin/notifications/delivery/{row.pk}/change/").content.decode()
    assert "Waits for a digest, which is due" in page
    assert "Waits together with" in page
    message = client.get(f"/admin/deliveries/{row.pk}/message/").content.decode()
    assert "3 reviews: " in message
    come_due(world)
    assert (
        "In one message with"
        in client.get(f"/admin/notifications/delivery/{row.pk}/change/").content.decode()
    )


@pytest.mark.long
def test_a_newer_version_takes_its_review_out_of_the_digest(world: World, jobs: list[int]) -> None:
    newer = world.job(world.commit, MAIL, key="k-2", version=2, rerun=True)
    world.work()
    come_due(world)
    (mail,) = [mail for mail in world.mails() if mail["To"] == "ann@example.com"]
    body = mail.get_body(("plain",))
    assert body is not None
    assert body.get_content().count(world.commit) == 1
    assert "version 2" in body.get_content()
    assert [world.status(job) for job in [*jobs, newer]] == ["superseded", *["succeeded"] * 3]
    assert world.delivery(jobs[0], MAIL).status == D.SUPERSEDED


@pytest.mark.long
@pytest.mark.parametrize("whose", ["the first", "another"])
def test_a_review_that_is_cancelled_before_is_left_out(world: World, jobs: list[int], whose: str) -> None:
    cancelled = jobs[0] if whose == "the first" else jobs[2]
    assert pipeline.cancel(cancelled, "ann", "OPS-7")
    come_due(world)
    (mail,) = [mail for mail in world.mails() if mail["To"] == "ann@example.com"]
    assert mail["Subject"].startswith("2 reviews: ")
    assert world.delivery(cancelled, MAIL).status == D.CANCELLED
    assert sorted(world.status(job) for job in jobs) == ["cancelled", "succeeded", "succeeded"]


@pytest.mark.long
def test_a_dead_lettered_job_delays_no_digest(world: World) -> None:
    world.settings.LLM_PROVIDER, world.settings.LLM_REQUIRED = "none", False
    policy.set_digest(MAIL, 10, "ann")
    nowhere = f"webhook:http://127.0.0.1:{world.enter(closed_port())}/x"
    first = world.job(world.commit, MAIL, nowhere, key="k-1")
    second = world.job(world.change(), MAIL, key="k-2")
    for _ in range(6):
        world.work()
        world.make_due()
    assert (world.status(first), world.status(second)) == ("dead_lettered", "in_progress")
    assert world.letter(first).error_class == "NETWORK_UNREACHABLE"
    come_due(world)
    # Its review is in the digest, so its replay sends nothing again.
    assert world.status(second) == "succeeded"
    assert world.delivery(first, MAIL).status == world.delivery(second, MAIL).status == D.SENT
    assert [mail["To"] for mail in world.mails()] == ["ann@example.com"]
    world.replay(first)
    for _ in range(6):
        world.work()
        world.make_due()
    assert len(world.mails()) == 1


@pytest.mark.long
def test_an_uncertain_digest_is_decided_once_and_all_its_reviews_resume(world: World, client: Client) -> None:
    server: SmtpServer = world.enter(SmtpServer())
    world.settings.SMTP_HOST, world.settings.SMTP_PORT = "127.0.0.1", server.port
    world.settings.LLM_PROVIDER, world.settings.LLM_REQUIRED = "none", False
    policy.set_digest(MAIL, 10, "ann")
    changes = [world.commit, world.change(), world.change()]
    jobs = [world.job(change, MAIL, key=f"k-{change[-9:]}") for change in changes]
    world.work()
    server.switches = Switches(then="drop")
    come_due(world)
    server.switches = Switches()
    assert [world.status(job) for job in jobs] == ["dead_lettered"] * 3
    assert {world.letter(job).error_class for job in jobs} == {"DELIVERY_UNCERTAIN"}

    client.force_login(UserFactory(username="ann", is_staff=True, is_superuser=True))
    row = world.delivery(jobs[1], MAIL)
    chosen = {"action": "decide", "_selected_action": [row.pk]}
    asked = client.post("/admin/notifications/delivery/", chosen)
    assert "is one message about 3 reviews: the decision applies to all of them" in asked.content.decode()
    answer = {
        **chosen,
        "selection": asked.context["selection"],
        "decision": "resend",
        "reason": "OPS-7: not in the mailbox",
    }
    page = client.post("/admin/notifications/delivery/", answer, follow=True).content.decode()
    assert "It is one message about 3 reviews." in page
    from reviews.replay import delivery_audit

    world.work()
    delivery_audit.run()
    world.settle()
    assert [world.status(job) for job in jobs] == ["succeeded"] * 3
    first, second = server.accepted
    assert first.token == second.token


LOST = ("scope", "group", "role", "account closed", "address", "account deleted")


def test_a_digest_says_only_what_its_recipient_may_read_when_it_is_sent(world: World) -> None:
    """A digest leaves out what its recipient lost the right to read while it waited (G576).

    Each of six accounts loses one of the things that let it read; a seventh loses nothing.
    """
    world.settings.LLM_PROVIDER, world.settings.LLM_REQUIRED = "none", False
    reviewer = Group.objects.get(name="reviewer")
    people = {}
    for number, lost in enumerate((*LOST, "nothing")):
        policy.set_digest(f"mail:p{number}@example.com", 10, "ann")
        group = Group.objects.create(name=f"readers of {lost}")
        ViewerScope.objects.create(group=group, prefix="//depot/...", reason="a test")
        one = UserFactory(username=f"p{number}", email=f"p{number}@example.com", reads=False)
        one.groups.set([group, reviewer])
        people[lost] = (one, group)
    recipients = [f"mail:{one.email}" for one, _ in people.values()]
    changes = [
        world.depot.submit(edited(f"//depot/main/plan{n}.c", BEFORE, f"{BEFORE}__debugbreak();\n"))
        for n in range(3)
    ]
    jobs = [world.job(change, *recipients, key=f"k-{change}") for change in changes]
    # As if each had subscribed: their own rights decide what they may read.
    ReviewJob.objects.update(recipient_origins=dict.fromkeys(recipients, RecipientOrigin.OWN))
    world.work()
    assert all("plan" in str(world.delivery(job, to).payload) for job in jobs for to in recipients)
    ViewerScope.objects.filter(group=people["scope"][1]).delete()
    people["group"][0].groups.remove(people["group"][1])
    people["role"][0].groups.set([people["role"][1]])
    User.objects.filter(pk=people["account closed"][0].pk).update(is_active=False)
    User.objects.filter(pk=people["address"][0].pk).update(email="ann@elsewhere.example")
    people["account deleted"][0].delete()
    come_due(world)
    mails = {mail["To"]: mail for mail in world.mails()}
    assert len(world.mails()) == len(mails) == len(recipients)
    for lost, to in zip(people, recipients, strict=True):
        mail = mails[to.removeprefix("mail:")]
        assert mail["Subject"].startswith("3 reviews: "), lost
        says = ("plan" in str(mail), "Debugger" in str(mail))
        assert says == ((True, True) if lost == "nothing" else (False, False)), lost
    assert [world.status(job) for job in jobs] == ["succeeded"] * 3


@pytest.mark.long
def test_a_digest_holds_no_review_that_the_allow_list_forbids_by_now(world: World) -> None:
    world.settings.LLM_PROVIDER, world.settings.LLM_REQUIRED = "none", False
    policy.set_digest(MAIL, 10, "ann")
    paths = ["//depot/main/a.c", "//depot/main/b.c", "//depot/main/closed/plan.c"]
    changes = [world.depot.submit(edited(path, BEFORE, AFTER)) for path in paths]
    jobs = [world.job(change, MAIL, key=f"k-{change}") for change in changes]
    world.work()
    AllowListEntry.objects.create(kind="exclude", pattern="//depot/main/closed/...", reason="a test")
    come_due(world)
    (mail,) = world.mails()
    assert mail["Subject"].startswith("2 reviews: ")
    assert "plan.c" not in str(mail)
    assert [world.status(job) for job in jobs] == ["succeeded", "succeeded", "dead_lettered"]


def test_a_review_whose_message_cannot_be_made_fails_no_other_one(
    world: World, jobs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    report_of = notify.report_of

    def broken(job: ReviewJob) -> Report:
        if job.pk == jobs[1]:
            raise ValueError("its row is damaged")
        return report_of(job)

    monkeypatch.setattr(notify, "report_of", broken)
    come_due(world)
    (mail,) = [mail for mail in world.mails() if mail["To"] == "ann@example.com"]
    assert mail["Subject"].startswith("2 reviews: ")
    assert [world.status(jobs[0]), world.status(jobs[2])] == ["succeeded", "succeeded"]
    assert world.delivery(jobs[1], MAIL).digest is None
    assert world.delivery(jobs[1], MAIL).status == D.PENDING


@pytest.mark.long
def test_no_other_review_is_renewed_after_the_lease_is_lost(
    world: World, jobs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    Digest.objects.update(due_at=Now())
    run = StageRun.objects.get(job=jobs[0], stage="notify")
    claim = StageClaim(1, uuid4(), run.pk, Stage.NOTIFY, 1, 5, 1, jobs[0], "12345", 1)  # another one's by now
    assert lifecycle.others_due(jobs[0])
    renewed: list[int] = []
    monkeypatch.setattr(notify, "messages_for", lambda job, _reports: renewed.append(job.pk))
    with pytest.raises(LostLease):
        notify._renew_digests(claim)
    assert renewed == []
