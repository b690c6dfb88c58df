"""Dismissals that hold for findings of other reviews: matched, counted, taken back.

Some need two people.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from notifications.providers.payload import review_payload
from notifications.providers.pull_requests import markdown
from notifications.rendering.summary import summarise
from reviews import finding_exports, verdicts
from reviews.dismissals import fold_dismissed
from reviews.extents import Extent, NotAccepted, NotAllowed
from reviews.intake import api_keys
from reviews.models import FindingEvent, FindingRow, ReviewJob
from reviews.recipients import recipient_reports, verdict_links
from reviews.recipients.viewing_scopes import EVERYTHING, Scope
from reviews.reports import report_of
from reviews.stages.versions import keep_critical_shown
from tests import factories
from tests.api.conftest import ApiClient
from tests.links import path_of
from tests.pages.test_verdicts import CAROL, client_of, mail, page, reviewer, say
from tests.pipeline.test_source_events import Beside

pytestmark = pytest.mark.django_db

APP, LIB = "//depot/main/app.py", "//depot/secret/lib.py"
WIDE = Extent("category", may_be_wide=True)


def review(*files: str, **fields: Any) -> ReviewJob:
    """Return a stored review with one finding a file, folded if it was dismissed before."""
    job: ReviewJob = factories.ReviewJobFactory(status="succeeded")
    factories.StageRunFactory(job=job, stage="llm", status="succeeded")
    for file in files or (APP,):
        factories.CoverageRowFactory(job=job, file=file, status="reviewed")
        factories.FindingRowFactory(job=job, file=file, **fields)
    fold_dismissed(job.pk, list(job.findings.all()))
    return job


def verdict_of(row: FindingRow) -> verdicts.Verdict | None:
    return verdicts.verdicts_of([row.identity]).get(row.identity)


def operator(name: str = "olga") -> Any:
    user = factories.UserFactory(username=name)
    user.groups.add(Group.objects.get(name="operator"))
    return user


def test_a_finding_dismissed_in_another_change_is_folded_and_counted_everywhere() -> None:
    """In the report page, the list, the mail, what hosts are told, the API and the exports."""
    first = review().findings.get()
    verdicts.give(first, "intended", "ann", "the caller checks it")
    job = review(APP, "//depot/main/other.py", line=14, title="Division by zero if the list is empty")
    row = job.findings.get(file=APP)
    assert FindingEvent.objects.get(identity=row.identity).matches == FindingEvent.objects.earliest("pk")
    bob = client_of(reviewer())
    text = page(bob, job)
    assert re.search(r"Dismissed earlier as intended by ann .*: the caller checks it", text)
    assert "1 dismissed" in text
    assert "1 dismissed" in bob.get("/").content.decode()
    report = report_of(job)
    assert summarise(report).headline.startswith("1 finding (1 high), 1 dismissed,")
    message = mail(job)
    assert "Dismissed earlier as intended by ann on 20" in message.text
    payload = review_payload(message)
    assert payload is not None
    told = markdown.summary(message, payload, markdown.Marker(str(message.token)))
    assert ", 1 dismissed, " in told
    assert re.search(r"Dismissed earlier as intended by ann on 20\S+$", told, re.MULTILINE)
    assert told.count("is 0 for a new account") == 1  # of the other one: a dismissed one is folded
    key = ApiClient(api_keys.create("r", "reviewer"))
    found = {one["file"]: one["verdict"] for one in key.get(f"/api/v1/reviews/{job.pk}/").json()["findings"]}
    assert found == {APP: "intended", "//depot/main/other.py": None}
    assert b"Intended: ann" in finding_exports.download(job.pk, "sarif", job.findings.all()).content


def test_a_restart_stores_no_match_twice_and_undoes_no_verdict() -> None:
    verdicts.give(review().findings.get(), "wrong", "ann")
    job = review()
    row = job.findings.get()
    assert verdict_of(row) is not None
    assert fold_dismissed(job.pk, [row]) == 0
    verdicts.give(row, "undone", "bob")
    assert fold_dismissed(job.pk, [row]) == 0
    assert verdict_of(row) is None
    assert FindingEvent.objects.count() == 3


@pytest.mark.long
def test_matching_costs_a_review_one_bounded_query() -> None:
    for number in range(30):
        verdicts.give(review(f"//depot/main/{number}.py").findings.get(), "wrong", "ann")
    job = review(*[f"//depot/main/{number}.py" for number in range(100, 130)])
    rows = list(job.findings.all())
    with CaptureQueriesContext(
        connection,
    ) as queries:
        fold_dismissed(job.pk, rows)
    reads = [query["sql"] for query in queries if query["sql"].startswith("SELECT")]
    assert len(reads) == 1
    assert "LIMIT" in reads[0]


def test_taking_a_dismissal_back_shows_what_it_matched_unless_somebody_judged_that() -> None:
    first = review().findings.get()
    verdicts.give(first, "wrong", "ann")
    matched, judged = review().findings.get(), review().findings.get()
    verdicts.give(judged, "wont_fix", "bob", "too rare")
    verdicts.give(first, "undone", "carl")
    assert verdict_of(matched) is None
    verdict = verdict_of(judged)
    assert verdict is not None
    assert (verdict.kind, verdict.actor) == ("wont_fix", "bob")


def test_a_dismissal_given_again_folds_what_it_is_about_now_and_nothing_else() -> None:
    first = review().findings.get()
    verdicts.give(first, "wrong", "olga", extent=WIDE)
    same, other, judged = review(), review(title="Else", message=""), review(title="More", message="")
    verdicts.give(judged.findings.get(), "useful", "bob")
    soon = timezone.now().date() + timedelta(days=3)
    verdicts.give(first, "wrong", "olga", extent=Extent(until=soon, may_be_wide=True))
    now = [verdict_of(job.findings.get()) for job in (same, other, judged)]
    assert [verdict and (verdict.kind, verdict.until, verdict.is_match) for verdict in now] == [
        ("wrong", soon, True), None, ("useful", None, False),
    ]  # fmt: skip


def test_taking_a_dismissal_back_takes_back_more_matches_than_are_read_at_once(monkeypatch: Any) -> None:
    monkeypatch.setattr("reviews.dismissals.MAX_COMPARED", 2)  # the bound of what a review is compared with
    monkeypatch.setattr("reviews.dismissals._BATCH", 2, raising=False)
    first = review().findings.get()
    verdicts.give(first, "wrong", "ann")
    rows = [review().findings.get() for _ in range(5)]
    assert all(verdict_of(row) for row in rows)
    verdicts.give(first, "undone", "ann")
    assert [verdict_of(row) for row in rows] == [None] * 5


def test_a_finding_whose_dismissal_has_ended_is_matched_again() -> None:
    row = review().findings.get()
    yesterday = timezone.now().date() - timedelta(days=1)
    factories.FindingEventFactory(
        identity=row.identity, job=row.job, file=row.file, kind="wrong", until=yesterday
    )
    verdicts.give(review().findings.get(), "wrong", "ann")
    next_version = review(identity=row.identity).findings.get()
    assert verdict_of(next_version) is not None


@pytest.mark.django_db(transaction=True)
def test_a_dismissal_taken_back_while_a_review_is_stored_folds_nothing() -> None:
    """Before the review is compared no more than after it was, and whoever is slower waits."""
    first = review().findings.get()
    verdicts.give(first, "wrong", "ann")
    with transaction.atomic():
        row = review().findings.get()
        ann = Beside(lambda: verdicts.give(first, "undone", "ann"))
        assert ann.is_blocked()
    ann.join()
    assert (ann.result, verdict_of(row)) == (None, None)
    verdicts.give(first, "wrong", "ann")
    with transaction.atomic():
        verdicts.give(first, "undone", "ann")
        stored = Beside(lambda: review().findings.get())
        assert stored.is_blocked()
    stored.join()
    assert verdict_of(stored.result) is None


def test_a_verdict_on_a_finding_that_a_replay_took_away_is_refused() -> None:
    row = review().findings.get()
    FindingRow.objects.filter(pk=row.pk).delete()
    with pytest.raises(NotAccepted, match="the review ran again"):
        verdicts.give(row, "wrong", "ann")


def test_a_dismissal_ends_with_its_last_day() -> None:
    today = timezone.now().date()
    first = review().findings.get()
    verdicts.give(first, "wrong", "ann", extent=Extent(until=today))
    matched = review().findings.get()
    assert verdict_of(matched) is not None
    yesterday = today - timedelta(days=1)
    for row in (first, matched):  # as a day later
        event = FindingEvent.objects.get(identity=row.identity)
        FindingEvent.objects.create(
            identity=row.identity, job=event.job, file=event.file, kind="wrong", actor="ann", until=yesterday,
            category=event.category, words=event.words, line=event.line, matches=event.matches,
        )  # fmt: skip
    later = review().findings.get()
    for row in (first, matched, later):
        assert verdict_of(row) is None
        assert not FindingRow.objects.filter(verdicts.has_verdict(), pk=row.pk).exists()
        assert FindingRow.objects.annotate(**verdicts.of_findings()).get(pk=row.pk).verdict is None  # type: ignore[attr-defined]


# -- two people ------------------------------------------------------------------------------------


def test_a_critical_finding_dismissed_by_one_person_stays_shown_until_a_second_agrees() -> None:
    job = review(severity="critical")
    row = job.findings.get()
    ann, bob = client_of(reviewer("ann")), client_of(reviewer("bob"))
    for _ in range(2):  # the same person twice is one
        say(ann, row, "wrong", reason="see the caller")
    assert verdict_of(row) is None
    text = page(bob, job)
    assert "wants to dismiss this critical finding (wrong)" in text
    assert "1 critical" in text
    assert "1 dismissed" not in text
    assert not report_of(job).findings[0].is_dismissed
    assert verdict_of(review(severity="critical").findings.get()) is None  # nor does it hold for others
    say(bob, row, "intended")
    verdict = verdict_of(row)
    assert verdict is not None
    assert (verdict.kind, verdict.is_by_two) == ("intended", True)
    assert verdict_of(review(severity="critical").findings.get()) is not None


def test_a_key_is_no_second_person_and_neither_is_who_says_something_else() -> None:
    row = review(severity="critical").findings.get()
    verdicts.give(row, "wrong", "ann")
    with pytest.raises(NotAllowed, match="two people, not by a key"):
        verdicts.give(row, "wrong", "key:ci")
    verdicts.give(row, "useful", "bob")
    verdicts.give(row, "wrong", "bob")  # ann's word came before it was useful
    verdict = verdict_of(row)
    assert verdict is not None
    assert verdict.kind == "useful"
    verdicts.give(row, "undone", "bob")
    assert verdicts.said_about([row.identity], EVERYTHING)[row.identity].proposal is None
    with pytest.raises(NotAccepted, match="Nothing was taken back"):
        verdicts.give(row, "undone", "bob")


def test_two_people_dismiss_as_far_and_as_long_as_both_said() -> None:
    today = timezone.now().date()
    row = review(severity="critical").findings.get()
    soon, later = today + timedelta(days=3), today + timedelta(days=9)
    verdicts.give(row, "wrong", "ann", extent=Extent("category", until=later, may_be_wide=True))
    verdicts.give(
        row, "wrong", "bob", extent=Extent("rule", may_be_wide=True)
    ) if row.source != "llm" else None
    verdicts.give(
        row, "wrong", "bob", extent=Extent("category", "", soon, Scope(prefixes=("//depot/main/",)), True)
    )
    event = FindingEvent.objects.latest("pk")
    assert (event.is_proposal, event.until, event.within) == (False, soon, ["//depot/main/"])


def test_what_one_person_dismissed_does_not_stay_dismissed_once_it_is_critical() -> None:
    row = review().findings.get()
    verdicts.give(row, "wrong", "ann", extent=WIDE)
    worse = factories.FindingRowFactory.build(job_id=row.job_id, identity=row.identity, severity="critical")
    same = factories.FindingRowFactory.build(job_id=row.job_id, identity=row.identity, severity="medium")
    keep_critical_shown([worse, same])
    assert (worse.identity == row.identity, same.identity == row.identity) == (False, True)
    assert verdict_of(review(severity="critical").findings.get()) is None


def test_one_person_hides_no_critical_finding_by_the_page_of_an_earlier_version() -> None:
    earlier = review().findings.get()
    now = review(identity=earlier.identity, severity="critical").findings.get()
    verdicts.give(earlier, "wrong", "ann")
    assert verdict_of(now) is None
    with pytest.raises(NotAllowed, match="two people, not by a key"):
        verdicts.give(earlier, "wrong", "key:ci")
    verdicts.give(now, "wrong", "bob")
    verdict = verdict_of(now)
    assert verdict is not None
    assert verdict.is_by_two


@pytest.mark.django_db(transaction=True)
def test_a_dismissal_given_while_a_review_is_stored_knows_what_that_made_critical() -> None:
    row = review().findings.get()
    worse = factories.FindingRowFactory.build(job_id=row.job_id, identity=row.identity, severity="critical")
    with transaction.atomic():
        keep_critical_shown([worse])
        worse.save()
        ann = Beside(lambda: verdicts.give(row, "wrong", "ann"))
        assert ann.is_blocked()
    ann.join()
    assert (ann.result, worse.identity) == (None, row.identity)
    assert verdict_of(worse) is None


# -- who may, and who reads ---------------------------------------------------------------------------


def test_wide_scopes_are_for_operators_and_end_where_their_giver_sees_no_further() -> None:
    job = review()
    row = job.findings.get()
    dave = reviewer("dave", "//depot/main/...")
    say(client_of(dave), row, "wrong", scope="category")
    say(client_of(dave), row, "wrong", scope="path", paths="//depot/...")
    assert not FindingEvent.objects.exists()
    own = client_of(dave).get(f"/reviews/{job.pk}/findings/{row.pk}/").content.decode()
    assert 'value="file"' in own
    assert 'value="category"' not in own
    # One who sees a part, and was granted it.
    lead = Extent("path", "//depot/...", None, Scope(prefixes=("//depot/main/",)), True)
    with pytest.raises(NotAllowed, match="beyond the files that are visible to you"):
        verdicts.give(row, "wrong", "lead", extent=lead)
    verdicts.give(row, "wrong", "lead", "ours", Extent("category", "", None, lead.seen, True))
    inside, outside = review("//depot/main/x.py", LIB, title="Other", message="").findings.order_by("file")
    resting = review(title="Other", evidence=[LIB]).findings.get()
    assert [verdict_of(one) is not None for one in (inside, outside, resting)] == [True, False, False]
    # It is taken back by who may give it.
    with pytest.raises(NotAllowed):
        verdicts.give(row, "useful", "dave")
    say(client_of(operator()), row, "undone")
    assert verdict_of(inside) is None


def test_an_operator_dismisses_a_category_in_a_path_until_a_day_on_the_page_of_a_finding() -> None:
    row = review().findings.get()
    olga = client_of(operator())
    until = (timezone.now() + timedelta(days=30)).date().isoformat()
    fields = {"reason": "generated", "scope": "category", "paths": "//depot/main/...", "until": until}
    say(olga, row, "wont_fix", view="thread", **fields)
    text = olga.get(f"/reviews/{row.job_id}/findings/{row.pk}/").content.decode()
    assert f"generated (Everything of this category in //depot/main/..., until {until})" in text
    inside, outside = review("//depot/main/x.py", "//depot/new.py", title="Else", message="").findings.all()
    assert [verdict_of(one) is not None for one in (inside, outside)] == [True, False]


@pytest.mark.parametrize(
    ("extent", "problem"),
    [
        (Extent("path", may_be_wide=True), "name the path"),
        (Extent("path", "depot", may_be_wide=True), "is not a depot path"),
        (Extent("path", "-//depot/...", may_be_wide=True), "does not match"),
        (Extent("path", "//other/...", may_be_wide=True), "does not match"),
        (Extent("rule", may_be_wide=True), "by no rule"),
        (Extent(seen=Scope()), "no file is visible"),
    ],
)
def test_an_extent_without_sense_is_refused(extent: Extent, problem: str) -> None:
    with pytest.raises(NotAccepted, match=problem):
        verdicts.give(review().findings.get(), "wrong", "ann", extent=extent)
    assert not FindingEvent.objects.exists()


def test_no_viewer_reads_a_reason_or_a_path_of_files_that_they_may_not_see() -> None:
    """Every entry point, for each viewer who sees the match and not what was dismissed."""
    hidden = review(LIB).findings.get()
    extent = Extent("category", "//depot/...", may_be_wide=True)
    verdicts.give(hidden, "wrong", "ann", "lib.py is ours", extent)
    job = review(title="Else", message="", severity="high")
    row = job.findings.get()
    critical = review(LIB, severity="critical").findings.get()
    verdicts.give(critical, "wrong", "ann", "lib.py again")
    FindingRow.objects.filter(pk=critical.pk).update(file=APP)  # the next version is about less
    factories.CoverageRowFactory(job=critical.job, file=APP)
    dave = reviewer("dave", "//depot/main/...", email="carol@example.com")
    client = client_of(dave)
    key = ApiClient(api_keys.create("scoped", "reviewer", ["//depot/main/..."]))
    message = mail(job)
    said = [
        *(page(client, of, query) for of in (job, critical.job) for query in ("", "?view=findings")),
        *(client.get(address).content.decode() for address in ("/", "/findings/", "/quality/")),
        client.get(f"/reviews/{job.pk}/findings/{row.pk}/").content.decode(),
        client.get(f"/reviews/{critical.job_id}/findings/{critical.pk}/").content.decode(),
        *(
            client.get(f"/reviews/{job.pk}/findings.{form}").content.decode()
            for form in finding_exports.FORMS
        ),
        *(
            client.get(path_of(verdict_links.link(of.pk, token, timezone.now()))).content.decode()
            for of, token in ((row, message.token), (critical, mail(critical.job).token))
        ),
        message.text, message.html, str(message.payload),
        key.get(f"/api/v1/reviews/{job.pk}/").content.decode(),
        key.post_json(f"/api/v1/findings/{row.pk}/verdict/", {"verdict": "useful"}).content.decode(),
    ]  # fmt: skip
    assert all("lib.py" not in text and "//depot/..." not in text for text in said)
    assert sum("Dismissed earlier as wrong" in text for text in said) >= 5
    assert "wants to dismiss" in said[2]
    reports = recipient_reports.reports_for(report_of(job), [CAROL], {})
    assert [one.is_dismissed for one in reports[CAROL].findings] == [False]  # the key called it useful


# -- the API --------------------------------------------------------------------------------------------


def test_programs_give_verdicts_by_role_and_scope() -> None:
    row, hidden = review().findings.get(), review(LIB).findings.get()
    keys = {
        "reviewer": ApiClient(api_keys.create("bot", "reviewer")),
        "operator": ApiClient(api_keys.create("ops", "operator")),
        "scoped": ApiClient(api_keys.create("main", "operator", ["//depot/main/..."])),
    }

    def post(who: str, finding: FindingRow, **body: Any) -> Any:
        return keys[who].post_json(f"/api/v1/findings/{finding.pk}/verdict/", body)

    answer = post("reviewer", row, verdict="wont_fix")
    assert answer.status_code == 200
    assert (answer.json()["id"], answer.json()["verdict"], answer.json()["verdict_by"]) == (
        row.pk, "wont_fix", "key:bot",
    )  # fmt: skip
    wide = {"verdict": "intended", "reason": "as agreed", "scope": "path", "path": "//depot/main/..."}
    assert post("reviewer", row, **wide).status_code == 403
    assert post("scoped", hidden, **wide).status_code == 404
    assert post("scoped", row, **{**wide, "path": "//depot/..."}).status_code == 403
    assert post("scoped", row, **wide).status_code == 200
    event = FindingEvent.objects.latest("pk")
    assert (event.kind, event.scope, event.within) == ("intended", "path", ["//depot/main/"])
    for body in ({}, {"verdict": "excellent"}, {"verdict": "wrong", "scope": "world"}, {**wide, "path": "x"}):
        assert post("operator", row, **body).json()["error"] == "SCHEMA_INVALID"
    assert post("operator", row, verdict="wrong", until="2026-01-01").status_code == 400
    assert post("operator", review(severity="critical").findings.get(), verdict="wrong").status_code == 403
    assert post("operator", row, verdict="undone").json()["verdict"] is None
