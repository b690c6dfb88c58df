"""The page "My notifications": subscriptions, threshold and mute of its user alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.test import Client
from django.utils import timezone

from notifications.preferences import policy
from reviews.audit.history import events_of
from reviews.models import Subscription, ViewerScope
from reviews.recipients import outlook
from reviews.web import subscriptions as subscription_views
from tests import factories

pytestmark = pytest.mark.django_db
PAGE = "/subscriptions/"
ANN = "mail:ann@example.com"


@pytest.fixture(autouse=True)
def _approved(settings: Any) -> None:
    settings.DEPOT_ALLOW_LIST = ["//depot/main/...", "//depot/libs/..."]


def person(name: str = "ann", email: str = "ann@example.com", *prefixes: str) -> Client:
    group = Group.objects.create(name=f"readers {name}")
    group.permissions.add(*Group.objects.get(name="reviewer").permissions.all())
    for prefix in prefixes or ("//depot/main/...",):
        ViewerScope.objects.create(group=group, prefix=prefix, reason="theirs")
    user = factories.UserFactory(username=name, email=email, reads=False)
    user.groups.add(group)
    client = Client()
    client.force_login(user)
    return client


def said(response: Any) -> str:
    return str(response.content.decode())


def test_a_path_that_may_be_meant_for_a_folder_is_added_with_a_warning() -> None:
    page = said(person().post(PAGE, {"action": "add", "pattern": "//depot/main/src"}, follow=True))
    assert "If it is a folder, write //depot/main/src/... for what lies in it." in page
    assert Subscription.objects.get().pattern == "//depot/main/src"


def test_path_is_added_listed_and_removed() -> None:
    ann = person()
    assert "No paths yet" in said(ann.get(PAGE))
    body = {"action": "add", "pattern": " //depot/main/src/... ", "author": "carol"}
    page = said(ann.post(PAGE, body, follow=True))
    assert "Subscribed to //depot/main/src/...." in page
    assert "names one file" not in page
    assert "carol" in page
    row = Subscription.objects.get()
    assert (row.owner.username, row.recipient, row.pattern) == ("ann", "", "//depot/main/src/...")
    page = said(ann.post(PAGE, {"action": "remove", "subscription": row.pk}, follow=True))
    assert "Unsubscribed from" in page
    assert not Subscription.objects.exists()
    events = events_of(Subscription).objects.order_by("pgh_id")
    assert [event.pgh_label for event in events] == ["insert", "delete"]
    assert all(event.pgh_context.metadata["user"] == row.owner_id for event in events)
    assert events[0].pgh_context.metadata["address"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("//depot/other/...", "outside the allow-list"),
        ("//depot/libs/...", "may not read"),
        ("//depot/ma...", "write"),
        ("<script>", "not a depot path"),
        ("", "required"),
    ],
)
def test_invalid_path_is_rejected_with_a_reason(pattern: str, words: str) -> None:
    page = said(person().post(PAGE, {"action": "add", "pattern": pattern}))
    assert words in page
    assert "<script>" not in page
    assert not Subscription.objects.exists()


def test_a_folder_with_its_slash_is_all_below_it_and_the_answer_says_so() -> None:
    done = person().post(PAGE, {"action": "add", "pattern": "//depot/main/docs/", "author": ""}, follow=True)
    assert "Subscribed to //depot/main/docs/...." in said(done)
    assert Subscription.objects.get().pattern == "//depot/main/docs/..."


def test_duplicate_path_and_too_many_paths_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription_views, "MAX_OWN", 2)
    ann = person()
    pages = [
        said(ann.post(PAGE, {"action": "add", "pattern": f"//depot/main/{name}.c"}, follow=True))
        for name in ("a", "a", "b", "c")
    ]
    assert "You have this subscription already" in pages[1]
    assert "You have 2 subscriptions" in pages[3]
    assert Subscription.objects.count() == 2


def begun(path: str = "//depot/main/a.c", **fields: Any) -> None:
    """Store a review of one file that a trigger began."""
    job = factories.ReviewJobFactory(**{"status": "succeeded", "recipients_are": "found", **fields})
    factories.CoverageRowFactory(job=job, file=path)


def outlook_of(client: Client) -> str:
    return " ".join(said(client.get(PAGE)).split('id="outlook"')[1].split("</section>")[0].split())


def test_the_page_says_whether_anything_will_be_mailed(settings: Any) -> None:
    ann = person()
    settings.MAIL_PROVIDER, settings.SMTP_HOST = "smtp", "mail.example.com"
    assert "Mail is set up. You have no path yet, so no review is mailed to you" in outlook_of(ann)
    ann.post(PAGE, {"action": "add", "pattern": "//depot/main/..."})
    ann.post(PAGE, {"action": "add", "pattern": "//depot/main/lib/...", "author": "Carol"})
    begun(recipients_are="given")  # the request named whom to notify
    begun(recipients_are="to_find")  # they are not known yet
    begun("//depot/libs/secret.c")  # not for Ann
    assert (
        "Mail is set up. None of the newest reviews that you may see was started by a trigger"
        in outlook_of(ann)
    )
    matches = "no review by a trigger, a code host or polling yet</span>"
    assert said(ann.get(PAGE)).count(matches) == 2
    begun("//depot/main/lib/b.c", author="carol")
    shown = outlook_of(ann)
    assert "The only review that a trigger, a code host or polling started matches your paths." in shown
    begun("//depot/main/lib/b.c", author="dave")
    begun()
    shown = outlook_of(ann)
    assert (
        "Of the last 3 reviews that a trigger, a code host or polling started, 3 match your paths." in shown
    )
    assert [part.split("<")[0] for part in shown.split('<td role="cell">') if " of 3 " in part] == [
        "3 of 3 reviews", "1 of 3 reviews",
    ]  # fmt: skip
    assert "notice info" in said(ann.get(PAGE)).split('id="outlook"')[0][-40:]
    Subscription.objects.filter(author="").delete()
    assert "3 reviews that a trigger, a code host or polling started, 1 matches your paths." in outlook_of(
        ann
    )
    Subscription.objects.all().delete()
    Subscription.objects.create(recipient=ANN, pattern="//depot/main/other/...", reason="hers")
    assert "started, none matches your paths." in outlook_of(ann)


def test_the_page_says_why_no_mail_comes_whatever_matches(settings: Any) -> None:
    ann = person()
    settings.MAIL_PROVIDER, settings.SMTP_HOST = "", ""
    assert "No mail is sent: messages are only written into a folder of this server." in outlook_of(ann)
    assert "Mail goes to" not in said(ann.get(PAGE))
    settings.MAIL_PROVIDER, settings.SMTP_HOST = "smtp", "mail.example.com"
    assert "Mail goes to" in said(ann.get(PAGE))
    ann.post(PAGE, {"action": "mute", "days": ""})
    assert "No mail is sent to you: you are muted." in outlook_of(ann)
    factories.SuppressionFactory(address="ann@example.com")
    assert "No mail is sent to you: your address was refused on 20" in outlook_of(ann)
    settings.MAIL_PROVIDER, settings.RESEND_API_KEY = "resend", ()  # its provider cannot be made
    assert "No mail is sent: the mail server is not set up. Ask an administrator." in outlook_of(ann)


def test_the_page_looks_at_the_newest_reviews_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlook, "_LOOKED_AT", 2)
    ann = person()
    ann.post(PAGE, {"action": "add", "pattern": "//depot/main/..."})
    begun()
    begun("//depot/libs/b.c")  # not for Ann
    assert "The only review that" in outlook_of(ann)
    begun("//depot/libs/c.c")
    assert "None of the newest reviews that you may see" in outlook_of(ann)


def test_a_review_of_many_files_leaves_room_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlook, "_MAX_FILES", 2)
    ann = person()
    ann.post(PAGE, {"action": "add", "pattern": "//depot/main/lib/..."})
    job = factories.ReviewJobFactory(status="succeeded", recipients_are="found")
    for number in range(5):
        factories.CoverageRowFactory(job=job, file=f"//depot/main/{number}.c")
    begun("//depot/main/lib/a.c")
    assert "Of the last 2 reviews that a trigger, a code host or polling started, 1 matches" in outlook_of(
        ann
    )


def test_the_page_compares_a_bounded_number_of_reviews(django_assert_max_num_queries: Any) -> None:
    ann = person()
    ann.post(PAGE, {"action": "add", "pattern": "//depot/main/..."})
    for _ in range(outlook.NEWEST + 3):
        begun()
    with django_assert_max_num_queries(16):
        assert f"Of the last {outlook.NEWEST} reviews" in said(ann.get(PAGE))


def test_subscriptions_of_other_users_are_neither_shown_nor_removable() -> None:
    ann, mallory = person(), person("mallory", "mallory@example.com")
    ann.post(PAGE, {"action": "add", "pattern": "//depot/main/hush/..."})
    Subscription.objects.create(recipient="mail:boss@example.com", pattern="//depot/main/...", reason="x")
    for row in Subscription.objects.all():
        assert mallory.post(PAGE, {"action": "remove", "subscription": row.pk}).status_code == 400
    assert Subscription.objects.count() == 2
    page = said(mallory.get(PAGE))
    assert "/hush" not in page  # a random token may hold a word
    assert "boss@" not in page


def test_posted_address_is_ignored() -> None:
    mallory = person("mallory", "mallory@example.com")
    more = {"recipient": ANN, "owner": "1", "address": ANN}
    mallory.post(PAGE, {"action": "add", "pattern": "//depot/main/a.c", **more})
    mallory.post(PAGE, {"action": "mute", "days": "", **more})
    assert Subscription.objects.get().recipient == ""
    assert policy.preference_of(ANN).muted_until is None
    assert policy.preference_of("mail:mallory@example.com").is_muted_for_ever


@pytest.mark.parametrize(("days", "words"), [("1", "Muted for a day."), ("", "Muted until you unmute it.")])
def test_mute_and_unmute(days: str, words: str) -> None:
    ann = person()
    page = said(ann.post(PAGE, {"action": "mute", "days": days}, follow=True))
    assert words in page
    assert "Unmute" in page
    until = policy.preference_of(ANN).muted_until
    assert until is not None
    assert (until - timezone.now() < timedelta(days=2)) is bool(days)
    assert "Unmuted: you are notified of reviews again" in said(
        ann.post(PAGE, {"action": "unmute"}, follow=True)
    )
    assert policy.preference_of(ANN).muted_until is None


def test_threshold_is_saved_and_shown() -> None:
    ann = person()
    page = said(ann.post(PAGE, {"action": "threshold", "threshold": "high"}, follow=True))
    assert '<option value="high" selected>' in page
    assert policy.preference_of(ANN).threshold == "high"
    assert ann.post(PAGE, {"action": "threshold", "threshold": "odd"}).status_code == 400
    ann.post(PAGE, {"action": "threshold", "threshold": ""})
    assert policy.preference_of(ANN).threshold == ""


@pytest.mark.parametrize(
    "body",
    [{}, {"action": "replay"}, {"action": "remove"}, {"action": "remove", "subscription": "9" * 40},
     {"action": "mute", "days": "-1"}],
)  # fmt: skip
def test_invalid_action_changes_nothing(body: dict[str, str]) -> None:
    ann = person()
    assert ann.post(PAGE, body).status_code == 400
    assert policy.preference_of(ANN).muted_until is None


def test_account_without_mail_address_cannot_subscribe() -> None:
    ann = person(email="")
    assert "no mail address" in said(ann.get(PAGE))
    assert ann.post(PAGE, {"action": "add", "pattern": "//depot/main/a.c"}).status_code == 400
    assert not Subscription.objects.exists()


def test_post_without_csrf_token_is_rejected() -> None:
    person()
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(get_user_model().objects.get(username="ann"))
    assert strict.post(PAGE, {"action": "mute", "days": ""}).status_code == 403
    assert policy.preference_of(ANN).muted_until is None


def test_notifications_page_requires_the_reader_permission() -> None:
    assert Client().get(PAGE).status_code == 302
    outsider = Client()
    outsider.force_login(factories.UserFactory(reads=False))
    assert outsider.get(PAGE).status_code == 403
    assert 'href="/subscriptions/"' in said(person().get("/"))


def test_subscription_text_is_escaped() -> None:
    ann = person()
    ann.post(PAGE, {"action": "add", "pattern": "//depot/main/a.c", "author": "<b>\u202eeve"})
    page = said(ann.get(PAGE))
    assert "&lt;b&gt;" in page
    assert "\u202e" not in page
