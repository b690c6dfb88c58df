"""Verdicts on findings and their threads: permissions, effects, and the link in the mail."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.utils import timezone

from notifications.admin import preview
from notifications.providers.base import Message
from reviews import dismissals, verdicts
from reviews.models import FindingEvent, FindingRow, ReviewJob, ViewerScope
from reviews.recipients import verdict_links
from reviews.recipients.viewing_scopes import EVERYTHING, Scope
from reviews.reports import messages_for, report_of
from tests import factories
from tests.links import path_of
from tests.pages.test_files_tab import APP, LIB, reviewed

pytestmark = pytest.mark.django_db

XSS = "<img src=x onerror=alert(1)>"


def reviewer(name: str = "bob", *prefixes: str, **fields: Any) -> Any:
    """Return a person with the role reviewer, who sees every file or those below the prefixes."""
    user = factories.UserFactory(username=name, reads=not prefixes, **fields)
    user.groups.add(Group.objects.get(name="reviewer"))
    if prefixes:
        group = Group.objects.create(name=f"{name}s")
        user.groups.add(group)
        for prefix in prefixes:
            ViewerScope.objects.create(group=group, prefix=prefix, reason="theirs")
    return user


def client_of(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def job() -> ReviewJob:
    return reviewed()


@pytest.fixture
def row(job: ReviewJob) -> FindingRow:
    return job.findings.get(file=APP)


@pytest.fixture
def bob() -> Client:
    return client_of(reviewer())


def say(client: Client, row: FindingRow, verdict: str, **fields: str) -> Any:
    return client.post(f"/reviews/{row.job_id}/findings/{row.pk}/verdict/", {"verdict": verdict, **fields})


def page(client: Client, job: ReviewJob, query: str = "") -> str:
    return client.get(f"/reviews/{job.pk}/{query}").content.decode()


@pytest.mark.parametrize("view", ["files", "findings"])
def test_a_dismissed_finding_is_folded_says_who_and_is_counted(
    bob: Client, job: ReviewJob, row: FindingRow, view: str
) -> None:
    answer = say(bob, row, "wont_fix", reason=f"by design {XSS}", view=view)
    assert answer["Location"] == f"/reviews/{job.pk}/?view={view}#finding-{row.pk}"
    text = page(bob, job, f"?view={view}")
    card = text[text.index(f'id="finding-{row.pk}"') :]
    assert re.search(
        r"<summary>Dismissed: won(&#x27;|.)t fix by bob <time[^>]*>[0-9]+ s ago</time>: by design &lt;img",
        card,
    )
    assert "1 high" in text
    assert "1 dismissed" in text
    assert XSS not in text
    listed = bob.get("/").content.decode()
    assert "1 high" in listed
    assert "1 dismissed" in listed


def card_of(text: str, row: FindingRow) -> str:
    return text.split(f'id="finding-{row.pk}"')[1].split("</article>")[0]


def test_who_marked_a_finding_wrong_is_asked_why_once(bob: Client, job: ReviewJob, row: FindingRow) -> None:
    carol = client_of(reviewer("carol"))
    assert "Why? <input" not in page(bob, job)
    say(bob, row, "wrong")
    card = card_of(page(bob, job), row)
    assert "Why? <input" in card
    assert 'value="wrong">Add the reason' in card
    assert "Why? <input" not in page(carol, job)
    say(bob, row, "wrong", reason=f"only tests reach it {XSS}")
    card = card_of(page(bob, job), row)
    assert "Why? <input" not in card
    assert "only tests reach it &lt;img" in card
    assert verdicts.verdicts_of([row.identity])[row.identity].reason == f"only tests reach it {XSS}"


def test_a_reason_that_comes_later_reaches_the_matches_of_a_dismissal(
    bob: Client, job: ReviewJob, row: FindingRow
) -> None:
    say(bob, row, "wrong")
    later = factories.FindingRowFactory(
        job=factories.ReviewJobFactory(status="succeeded"),
        **{name: getattr(row, name) for name in ("file", "line", "severity", "category", "title", "message")},
        excerpt=row.excerpt,
    )
    assert dismissals.fold_dismissed(later.job_id, [later]) == 1
    say(bob, row, "wrong", reason="only tests reach it")
    found = verdicts.verdicts_of([later.identity])[later.identity]
    assert (found.reason, found.is_match) == ("only tests reach it", True)


@pytest.mark.long
def test_a_proposal_and_a_wide_dismissal_keep_their_reach_when_a_reason_is_added(
    bob: Client, job: ReviewJob, row: FindingRow
) -> None:
    FindingRow.objects.filter(pk=row.pk).update(severity="critical")
    say(bob, row, "intended")
    assert 'value="intended">Add the reason' in card_of(page(bob, job), row)
    say(bob, row, "intended", reason="by design")
    assert FindingEvent.objects.latest("pk").is_proposal
    assert "Add the reason" not in card_of(page(bob, job), row)
    FindingRow.objects.filter(pk=row.pk).update(severity="high")
    say(bob, row, "undone")
    say(bob, row, "wrong", until="2099-12-31")
    assert "Add the reason" not in card_of(page(bob, job), row)


def test_the_last_verdict_counts_and_taking_it_back_is_a_row_too(bob: Client, row: FindingRow) -> None:
    for verdict in ("useful", "wrong", "wrong", "undone", "undone"):
        assert say(bob, row, verdict).status_code == 302
    kinds = list(FindingEvent.objects.values_list("kind", flat=True))
    assert kinds == ["useful", "wrong", "undone"]  # a double click is one verdict
    assert verdicts.verdicts_of([row.identity]) == {}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"verdict": "wont_fix", "scope": "path", "paths": "//depot/main/..."}, "and no more"),
        ({"verdict": "wont_fix", "scope": "everything"}, "is no scope"),
        ({"verdict": "wont_fix", "paths": "//depot/..."}, "a path goes with"),
        ({"verdict": "wont_fix", "until": "2026-01-01"}, "the last day has passed"),
        ({"verdict": "wont_fix", "reason": "x" * 301}, "at most 300 characters"),
        ({"verdict": "excellent"}, "Not saved"),
        ({"verdict": "wrong", "reason": "a\0b"}, "Not saved"),
        ({}, "Not saved"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_what_to_do(
    bob: Client, row: FindingRow, fields: dict[str, str], said: str
) -> None:
    answer = bob.post(f"/reviews/{row.job_id}/findings/{row.pk}/verdict/", fields, follow=True)
    assert said in answer.content.decode()
    assert not FindingEvent.objects.exists()


def test_secrets_in_reasons_and_comments_are_redacted(bob: Client, row: FindingRow) -> None:
    from tests.reviewers.build import fake_token

    say(bob, row, "wont_fix", reason=f"uses {fake_token()}")
    bob.post(f"/reviews/{row.job_id}/findings/{row.pk}/comment/", {"text": f"it is {fake_token()}"})
    assert all(fake_token() not in text for text in FindingEvent.objects.values_list("text", flat=True))


def test_a_thread_is_plain_text_and_bounded(bob: Client, row: FindingRow, monkeypatch: Any) -> None:
    monkeypatch.setattr(verdicts, "MAX_EVENTS", 2)
    address = f"/reviews/{row.job_id}/findings/{row.pk}/"
    for text in (f"Why? {XSS}", "Because.\nOf that.", "too many", "x" * 2_001, " "):
        bob.post(f"{address}comment/", {"text": text})
    assert FindingEvent.objects.count() == 2
    text = bob.get(address).content.decode()
    assert "Why? &lt;img" in text
    assert "Because.\nOf that." in text
    assert XSS not in text
    assert "2 comments" in page(bob, row.job)
    say(bob, row, "useful")  # a full thread keeps nobody from a verdict
    assert verdicts.verdicts_of([row.identity])[row.identity].kind == "useful"


def test_nobody_fills_a_thread_so_that_others_cannot_speak(
    bob: Client, row: FindingRow, monkeypatch: Any
) -> None:
    monkeypatch.setattr(verdicts, "MAX_OWN_COMMENTS", 2)
    address = f"/reviews/{row.job_id}/findings/{row.pk}/"
    answers = [bob.post(f"{address}comment/", {"text": f"No. {number}"}) for number in range(3)]
    assert "you wrote 2 comments on it, the maximum" in answers[-1].content.decode()
    client_of(reviewer("carol")).post(f"{address}comment/", {"text": "Let me say this."})
    said = FindingEvent.objects.filter(kind="comment").order_by("pk")
    assert list(said.values_list("text", flat=True)) == ["No. 0", "No. 1", "Let me say this."]


def test_who_may_see_a_finding_may_judge_it_and_nobody_else(job: ReviewJob) -> None:
    dave = client_of(reviewer("dave", "//depot/main/..."))
    hidden, seen = job.findings.get(file=LIB), job.findings.get(file=APP)
    resting = factories.FindingRowFactory(job=job, file=APP, evidence=[LIB])
    for row in (hidden, resting):
        assert say(dave, row, "wrong").status_code == 404
        address = f"/reviews/{job.pk}/findings/{row.pk}/"
        assert dave.get(address).status_code == 404
        assert dave.post(f"{address}comment/", {"text": "x"}).status_code == 404
    assert say(dave, seen, "wrong").status_code == 302
    other = factories.ReviewJobFactory()
    assert client_of(reviewer("eve")).get(f"/reviews/{other.pk}/findings/{seen.pk}/").status_code == 404
    reader = client_of(factories.UserFactory())  # reads, without the role
    assert say(reader, seen, "useful").status_code == 403
    assert "Useful" not in page(reader, job)
    assert FindingEvent.objects.count() == 1


def test_a_reason_is_shown_to_those_who_may_see_what_it_was_given_on(job: ReviewJob, row: FindingRow) -> None:
    """The next version rests on less: the reason may still speak of the rest."""
    FindingRow.objects.filter(pk=row.pk).update(evidence=[LIB])
    row.refresh_from_db()
    verdicts.give(row, "wont_fix", "ann", "lib.py checks it")
    verdicts.comment(row, "ann", "see lib.py")
    FindingRow.objects.filter(pk=row.pk).update(evidence=[])
    dave = client_of(reviewer("dave", "//depot/main/..."))
    for text in (page(dave, job), dave.get(f"/reviews/{job.pk}/findings/{row.pk}/").content.decode()):
        assert "fix by ann" in text
        assert "lib.py" not in text
    scope = Scope(prefixes=("//depot/main/",))
    assert verdicts.verdicts_of([row.identity], scope)[row.identity].reason == ""
    assert verdicts.verdicts_of([row.identity], EVERYTHING)[row.identity].reason == "lib.py checks it"


def test_exports_and_the_api_say_the_verdict(bob: Client, job: ReviewJob, row: FindingRow) -> None:
    verdicts.give(row, "wrong", "ann")
    sarif = json.loads(bob.get(f"/reviews/{job.pk}/findings.sarif").content)
    suppressed = [result["suppressions"] for result in sarif["runs"][0]["results"]]
    assert [[one["justification"] for one in found] for found in suppressed] == [["Wrong: ann"], []]
    found = json.loads(bob.get(f"/reviews/{job.pk}/findings.json").content)["findings"]
    assert [(one["verdict"], one["verdict_by"]) for one in found] == [("wrong", "ann"), (None, None)]
    verdicts.give(row, "undone", "bob")
    found = json.loads(bob.get(f"/reviews/{job.pk}/findings.json").content)["findings"]
    assert [one["verdict"] for one in found] == [None, None]


# -- the mail ------------------------------------------------------------------------------------

CAROL = "mail:carol@example.com"


@pytest.fixture
def carol() -> Any:
    return reviewer("carol", "//depot/main/...", email="Carol@example.com")


def mail(job: ReviewJob, recipient: str = CAROL) -> Message:
    """Return the message to a recipient, with its delivery stored."""
    factories.StageRunFactory(job=job, stage="llm", status="succeeded") if not job.stages.exists() else None
    message = messages_for(job, {recipient: report_of(job)})[recipient]
    if not job.deliveries.filter(recipient=recipient).exists():
        factories.DeliveryFactory(job=job, recipient=recipient, token=message.token)
    return message


def link_in(message: Message, row: FindingRow) -> str:
    found = re.findall(r"https?://\S+/verdict/\S+", message.text)
    links = [path_of(address) for address in found]
    opened = [(link, verdict_links.opened(link.partition("?key=")[2])) for link in links]
    return next(link for link, what in opened if what is not None and what.finding == row)


def test_the_mail_counts_dismissed_findings_apart_and_shows_them_in_one_line(
    job: ReviewJob, row: FindingRow
) -> None:
    verdicts.give(row, "wrong", "ann")
    message = mail(job)
    assert "1 finding (1 high), 1 dismissed" in message.text
    assert "HIGH (1)" in message.text
    assert "Dismissed as wrong by ann on 20" in message.text
    assert "Dismissed as wrong by ann" in message.html
    data: Any = message.payload["data"]
    assert (data["findings_total"], data["findings_dismissed"], data["severities"]) == (2, 1, {"high": 1})
    assert [one["verdict"] for one in data["findings"]] == ["", "wrong"]


def test_the_link_asks_first_and_needs_no_login(carol: Any, job: ReviewJob, row: FindingRow) -> None:
    address = link_in(mail(job), row)
    browser = Client(enforce_csrf_checks=True)
    for method in (browser.get, browser.head):
        assert method(f"{address}&verdict=wrong").status_code == 200
    assert not FindingEvent.objects.exists()
    asked = browser.get(address)
    assert "You act as carol" in asked.content.decode()
    assert asked["Referrer-Policy"] == "strict-origin"
    assert browser.post(address, {"verdict": "wrong"}).status_code == 403  # forged
    token = browser.cookies["csrftoken"].value if "csrftoken" in browser.cookies else ""
    done = browser.post(address, {"verdict": "wrong"}, headers={"X-CSRFToken": token})
    assert "Dismissed as wrong by carol" in done.content.decode()
    assert [event.actor for event in FindingEvent.objects.all()] == ["carol"]
    assert "_auth_user_id" not in browser.session  # it opens nothing else


def test_the_pages_of_rights_name_no_query_as_referrer_and_their_forms_are_accepted(
    carol: Any, job: ReviewJob, row: FindingRow
) -> None:
    message = mail(job)
    for address in (link_in(message, row), path_of(message.unsubscribe_url)):
        browser = Client(enforce_csrf_checks=True)
        asked = browser.get(address, secure=True)
        assert asked["Referrer-Policy"] == "strict-origin"
        field = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', asked.content.decode())
        body = {"verdict": "wrong", "csrfmiddlewaretoken": field[1] if field else ""}
        # What browsers send with this policy; with `no-referrer` the Origin is null.
        sent = {"Origin": "https://testserver", "Referer": "https://testserver/"}
        done = browser.post(address, body, secure=True, headers=sent)
        assert (done.status_code, done["Referrer-Policy"]) == (200, "strict-origin")
    assert FindingEvent.objects.get().kind == "wrong"


@pytest.mark.parametrize(
    "why", ["scope", "inactive", "role", "expired", "evidence", "forged", "deleted", "twin"]
)
def test_a_link_ends_with_the_right_of_its_recipient(
    carol: Any, job: ReviewJob, row: FindingRow, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = link_in(mail(job), row)
    assert Client().get(address).status_code == 200
    if why == "scope":
        ViewerScope.objects.all().delete()
    elif why == "inactive":
        carol.is_active = False
        carol.save()
    elif why == "role":
        carol.groups.remove(Group.objects.get(name="reviewer"))
    elif why == "expired":
        later = (timezone.now() + timedelta(days=verdict_links.DAYS, minutes=1)).timestamp()
        monkeypatch.setattr(verdict_links.time, "time", lambda: later)
    elif why == "evidence":
        FindingRow.objects.filter(pk=row.pk).update(evidence=[LIB])
    elif why == "deleted":
        carol.delete()
    elif why == "twin":  # another account with the address, which may see less
        reviewer("twin", "//depot/other/...", email="carol@example.com")
    else:
        address = f"{address[:-2]}{'A' if address[-2] != 'A' else 'B'}{address[-1]}"
    assert Client().get(address).status_code == 404
    assert Client().post(address, {"verdict": "wrong"}).status_code == 404
    assert not FindingEvent.objects.exists()


def test_one_actor_changes_a_verdict_a_bounded_number_of_times(
    row: FindingRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that marks and takes back all day would make each list read all of it."""
    monkeypatch.setattr(verdicts, "MAX_CHANGES", 4)
    for kind in ("useful", "undone", "useful", "wrong"):
        verdicts.give(row, kind, "key:loop")
    with pytest.raises(verdicts.NotAccepted, match="4 times, the maximum"):
        verdicts.give(row, "useful", "key:loop")
    verdicts.give(row, "undone", "key:loop")  # the last one can be taken back
    verdicts.give(row, "wrong", "bob")  # others go on
    for kind in ("useful", "undone"):
        with pytest.raises(verdicts.NotAccepted, match="4 times, the maximum"):
            verdicts.give(row, kind, "key:loop")
    assert FindingEvent.objects.count() == 6


def test_no_log_has_the_right_of_a_link(
    carol: Any, job: ReviewJob, row: FindingRow, caplog: pytest.LogCaptureFixture
) -> None:
    message = mail(job)
    verdict, stop = link_in(message, row), path_of(message.unsubscribe_url)
    for address in (verdict, stop, f"{verdict}x", f"{stop}x"):
        Client().get(address)
        Client().post(address)
        assert address.partition("?key=")[2][:40] not in caplog.text
    assert caplog.text.count("/verdict/") >= 4
    assert caplog.text.count("/unsubscribe/") >= 4


def test_links_of_earlier_mails_go_on(carol: Any, job: ReviewJob, row: FindingRow) -> None:
    message = mail(job)
    for address, text in ((link_in(message, row), "Your verdict?"), (message.unsubscribe_url, "Stop the")):
        base, _, key = path_of(address).partition("?key=")
        assert text in Client().get(f"{base}{key}/").content.decode()


def test_recipients_who_may_not_judge_get_no_link(job: ReviewJob, row: FindingRow) -> None:
    factories.UserFactory(username="dora", email="dora@example.com")  # reads, without the role
    for recipient in (CAROL, "mail:dora@example.com", "slack:C0123ABCD"):
        message = mail(job, recipient)
        assert "/verdict/" not in message.text + message.html


def test_a_preview_for_operators_holds_nobodys_right(carol: Any, job: ReviewJob, row: FindingRow) -> None:
    message = mail(job)
    shown = " ".join(part.text for part in preview.preview_of(CAROL, message).parts)
    shown += preview.html_answer(type("R", (), {"GET": {}})(), message).content.decode()  # type: ignore[arg-type]
    assert "/verdict/?key=…" in shown
    assert link_in(message, row) not in shown


def test_a_preview_of_an_earlier_mail_holds_nobodys_right(
    carol: Any, job: ReviewJob, row: FindingRow
) -> None:
    message = mail(job)
    rights = [link_in(message, row), path_of(message.unsubscribe_url)]
    earlier = replace(message, **{  # type: ignore[arg-type]
        name: re.sub(r"/\?key=([\w.-]+)", r"/\1/", getattr(message, name))
        for name in ("text", "html", "unsubscribe_url")
    })  # fmt: skip
    assert "?key=" not in earlier.text + earlier.html + earlier.unsubscribe_url
    shown = " ".join(part.text for part in preview.preview_of(CAROL, earlier).parts)
    shown += preview.html_answer(type("R", (), {"GET": {}})(), earlier).content.decode()  # type: ignore[arg-type]
    assert "/verdict/…/" in shown
    assert "/unsubscribe/…/" in shown
    for right in rights:
        assert right.partition("?key=")[2] not in shown
