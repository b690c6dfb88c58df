"""From a trigger to the mailboxes of subscribers: each reads only permitted files."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group

from deadletters import workflow
from notifications.models import Delivery
from notifications.preferences import policy
from notifications.states import DeliveryStatus as D
from reviews.models import JobEvent, ReviewJob, Subscription, ViewerScope
from tests import factories
from tests.acceptance.world import MAIL, World
from tests.fakes.p4.server import CONNECTION_REFUSED, edited
from tests.fakes.webhook import Behaviour

BOB, CAROL, DAVE = (f"mail:{name}@example.com" for name in ("bob", "carol", "dave"))
OPEN, CLOSED = "//depot/main/open/a.c", "//depot/main/closed/plan.c"


def subscribe(recipient: str, pattern: str = "//depot/main/...") -> None:
    Subscription.objects.create(recipient=recipient, pattern=pattern, reason="OPS-1")


def triggered(world: World, number: str) -> int:
    body = {"event": "change-commit", "change": int(number), "server": "main"}
    answer = world.api.post_json("/api/v1/triggers/perforce/", body)
    assert answer.status_code == 202
    return int(answer.json()["job"])


def account(name: str, prefix: str) -> None:
    group = Group.objects.create(name=f"readers {name}")
    ViewerScope.objects.create(group=group, prefix=prefix, reason="theirs")
    user = factories.UserFactory(username=name, email=f"{name}@example.com", reads=False)
    user.groups.add(group, Group.objects.get(name="reviewer"))


def mail_to(world: World, recipient: str) -> str:
    address = recipient.partition(":")[2]
    (mail,) = [mail for mail in world.mails() if mail["To"] == address]
    body = mail.get_body(("plain",))
    assert body is not None
    return f"{mail['Subject']}\n{body.get_content()}"


def test_recipients_get_what_they_may_read_once_and_a_replay_notifies_the_same(world: World) -> None:
    world.settings.LLM_PROVIDER, world.settings.LLM_REQUIRED = "none", False
    world.settings.DEFAULT_RECIPIENTS = [MAIL]
    account("bob", "//depot/main/open/...")
    subscribe(BOB)
    subscribe(world.hook, "//depot/main/closed/...")
    world.depot.user("carol", "carol@example.com", "//depot/main/open/...")
    world.depot.user("dave", "dave@example.com", "//depot/libs/...")
    number = world.depot.submit(
        edited(OPEN, "int a;\n", "int a;\n__debugbreak();\n"),
        edited(CLOSED, "int b;\n", "int b;\nraise(SIGTRAP);\n"),
    )
    world.receiver.always(Behaviour(status=410))
    job = triggered(world, number)
    world.settle()
    # The webhook failed permanently and delayed no other recipient.
    assert world.status(job) == "dead_lettered"
    assert {row.recipient: row.status for row in Delivery.objects.all()} == {
        BOB: D.SENT,
        CAROL: D.SENT,
        world.hook: D.FAILED,
    }
    bob, carol = mail_to(world, BOB), mail_to(world, CAROL)
    assert "open/a.c" in bob
    assert "closed" not in bob
    assert "1 finding in files outside your viewing scope is not shown." in " ".join(bob.split())
    assert "open/a.c" not in carol  # Perforce named her; no scope here says what she may read
    assert "nothing in it that you may read" in carol

    Subscription.objects.all().delete()
    subscribe(DAVE)
    world.receiver.always(Behaviour())
    world.replay(job, restart=True)
    world.settle()
    assert world.status(job) == "succeeded"
    assert set(Delivery.objects.values_list("recipient", "status")) == {
        (BOB, D.SENT),
        (CAROL, D.SENT),
        (world.hook, D.SENT),
    }
    assert len(world.mails()) == 2
    hidden = [f for f in world.receiver.requests[-1].body["data"]["findings"] if "closed" in f["file"]]
    assert hidden, "the webhook was named by an administrator and reads everything"


def test_a_recipient_who_declines_has_no_row_and_delays_no_other(world: World) -> None:
    world.settings.LLM_PROVIDER, world.settings.LLM_REQUIRED = "none", False
    policy.mute(BOB, None, "unsubscribe link")
    policy.set_threshold(CAROL, "low", "carol")
    job = world.job(world.change(), MAIL, BOB, CAROL)
    world.settle()
    assert world.status(job) == "succeeded"
    assert list(Delivery.objects.values_list("recipient", "status")) == [(MAIL, D.SENT)]
    event = JobEvent.objects.get(job_id=job, kind="not_told")
    assert event.context["recipients"] == {BOB: "muted", CAROL: "below_threshold"}
    assert event.reason == "not notified, by their preferences: 1 below threshold, 1 muted"


@pytest.mark.long
def test_a_mute_after_the_row_was_created_does_not_stop_the_message(world: World) -> None:
    world.settings.LLM_PROVIDER, world.settings.LLM_REQUIRED = "none", False
    world.receiver.always(Behaviour(status=503))
    job = world.job(world.change(), world.hook)
    world.work()
    policy.mute(world.hook, None, "unsubscribe link")
    world.receiver.always(Behaviour())
    world.settle()
    assert world.status(job) == "succeeded"
    assert world.delivery(job, world.hook).status == D.SENT
    assert not JobEvent.objects.filter(kind="not_told").exists()


@pytest.mark.parametrize("message", ["no_permission", pytest.param("too_many_rows", marks=pytest.mark.long)])
def test_a_server_that_does_not_say_who_reads_a_change_loses_no_job(world: World, message: str) -> None:
    world.settings.LLM_PROVIDER, world.settings.LLM_REQUIRED = "none", False
    world.settings.DEFAULT_RECIPIENTS = [MAIL]
    world.depot.misbehave("reviews", messages=[message])
    job = triggered(world, world.change())
    world.settle()
    assert world.status(job) == "succeeded"
    assert list(Delivery.objects.values_list("recipient", "status")) == [(MAIL, D.SENT)]
    assert JobEvent.objects.filter(job_id=job, kind="alert").exists()


@pytest.mark.long
def test_a_server_that_is_away_is_asked_again_within_the_stages_budget(world: World) -> None:
    world.settings.LLM_PROVIDER, world.settings.LLM_REQUIRED = "none", False
    world.depot.user("carol", "carol@example.com", "//depot/main/...")
    world.depot.misbehave("reviews", times=2, stderr=CONNECTION_REFUSED, exit=1)
    job = triggered(world, world.change())
    world.settle()
    assert world.status(job) == "succeeded"
    assert world.stage(job, "fetch").attempts == 3
    assert ReviewJob.objects.get(pk=job).recipients == [CAROL]


@pytest.mark.long
def test_a_job_whose_recipients_all_decline_succeeds_and_says_so(world: World) -> None:
    world.settings.LLM_PROVIDER, world.settings.LLM_REQUIRED = "none", False
    policy.mute(MAIL, None, "unsubscribe link")
    job = world.job(world.change(), MAIL)
    world.settle()
    assert world.status(job) == "succeeded"
    assert not Delivery.objects.exists()
    assert JobEvent.objects.filter(job_id=job, kind="not_told").exists()
    shown: dict[str, Any] = world.api.get(f"/api/v1/reviews/{job}/").json()
    assert shown["deliveries"] == []


@pytest.mark.long
def test_a_replay_to_a_muted_recipient_is_verified(world: World) -> None:
    world.settings.LLM_PROVIDER, world.settings.LLM_REQUIRED = "none", False
    world.depot.misbehave("describe", messages=["no_permission"])
    job = world.job(world.change(), MAIL)
    world.settle()
    assert world.status(job) == "dead_lettered"
    policy.mute(MAIL, None, "unsubscribe link")
    world.replay(job)
    world.settle()
    verified = workflow.verify(world.letter(job).pk, actor="ann")
    assert verified.ok, verified
    assert "all recipients chose not to be notified" in [check.message.lower() for check in verified.checks]


# -- required recipients ---------------------------------------------------------------------------


@pytest.mark.long
def test_a_permanently_refused_recipient_delays_no_other_and_the_job_fails(world: World) -> None:
    world.settings.LLM_PROVIDER, world.settings.LLM_REQUIRED = "none", False
    world.receiver.always(Behaviour(status=410))
    job = world.job(world.change(), world.hook, MAIL, BOB)  # the refused one comes first
    world.settle()
    assert {world.delivery(job, who).status for who in (MAIL, BOB)} == {D.SENT}
    refused = world.delivery(job, world.hook)
    assert (refused.status, refused.notified_at) == (D.FAILED, None)
    assert world.status(job) == "dead_lettered"
    world.receiver.always(Behaviour())
    world.replay(job)
    world.settle()
    assert world.status(job) == "succeeded"
    assert not Delivery.objects.filter(job_id=job, notified_at=None).exists()
    assert len(world.mails()) == 2
    assert len(world.receiver.requests) == 2


def test_the_job_succeeds_only_when_every_required_recipient_has_notified_at(world: World) -> None:
    world.settings.LLM_PROVIDER, world.settings.LLM_REQUIRED = "none", False
    world.receiver.always(Behaviour(status=503))
    job = world.job(world.change(), MAIL, world.hook)
    world.work()
    assert world.delivery(job, MAIL).notified_at is not None
    assert world.delivery(job, world.hook).notified_at is None
    assert world.status(job) == "retryable_failed"
    world.make_due()
    world.work()
    assert world.status(job) == "retryable_failed"
    world.receiver.always(Behaviour())
    world.settle()
    assert world.status(job) == "succeeded"
    assert sorted(Delivery.objects.values_list("status", flat=True)) == [D.SENT, D.SENT]
    assert len(world.mails()) == 1
