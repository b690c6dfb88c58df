"""Pages of scans: paths, claims by document, history, trend, and the button for a new one."""

from __future__ import annotations

import html
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.utils import timezone

from reviews.drift.claims import Verdict
from reviews.models import ReviewJob, Scan, ScanDocument, ScanTarget, ViewerScope
from reviews.states import JobStatus
from reviews.web import scans as pages
from tests import factories
from tests.pages.test_verdicts import client_of, reviewer
from tests.sources.gitrepo import GitRepo

pytestmark = pytest.mark.django_db
HELD, GONE = ("holds", "make lint", "c-1"), ("refuted", "src/<core>.py", "c-2")


@pytest.fixture
def bob() -> Client:
    return client_of(reviewer("bob"))


def scan_of(
    target: ScanTarget, *claims: tuple[str, str, str], days_ago: int = 0, total: int | None = None, **job: Any
) -> Scan:
    """Store a scan of one document with these claims, each a verdict, a text and an id."""
    fields = {"status": JobStatus.SUCCEEDED, "kind": "scan", "series": f"scan:{target.pk}", **job}
    at = timezone.now() - timedelta(days=days_ago)
    made = factories.ReviewJobFactory(changelist_id=f"git:demo@{days_ago:040}", created_at=at, **fields)
    scan = Scan.objects.create(job=made, target=target)
    counts = {verdict.value: sum(claim[0] == verdict for claim in claims) for verdict in Verdict}
    shown = [
        {"id": name, "line": 3, "kind": "command", "text": text, "verdict": verdict, "reason": "",
         "says": "no <such> file" if verdict == "refuted" else "", "instead": "", "found": ""}
        for verdict, text, name in claims
    ]  # fmt: skip
    ScanDocument.objects.create(
        scan=scan,
        digest="d",
        path="//demo/README.md",
        total=len(claims),
        verified_at=at,
        claims=shown,
        **counts,
    )
    if total is not None:
        ScanDocument.objects.create(scan=scan, digest="e", path="//demo/late.md", total=total - len(claims))
    return scan


def text_of(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def test_every_verdict_has_words_and_a_look() -> None:
    assert pages._WORDS.keys() == pages._SERIES.keys() == {verdict.value for verdict in Verdict}
    assert pages._CLAIMS_THAT.keys() == pages._WORDS.keys() < pages._LOOKS.keys()


def test_the_list_shows_each_path_with_its_newest_scan(bob: Client) -> None:
    assert "Nothing is scanned" in text_of(bob, "/scans/")
    first, never = factories.ScanTargetFactory(path="//a/..."), factories.ScanTargetFactory(path="//b/...")
    scan_of(first, HELD, GONE, days_ago=1)
    scan_of(first, HELD)
    shown = text_of(bob, "/scans/")
    for part in ("//a/...", "100%", "1 of 1 verified, 0 refuted", "//b/...", "not scanned yet"):
        assert part in shown
    assert "50%" not in shown
    assert "The schedule" not in text_of(bob, f"/scans/{never.pk}/")


def test_paths_come_in_pages(bob: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_TARGETS", 2)
    for name in "abc":
        factories.ScanTargetFactory(path=f"//{name}&/...")
    shown, address = [], "/scans/"
    for _ in range(2):
        answer = bob.get(address)
        shown.append([row.target.path for row in answer.context["rows"]])
        links = re.findall(r'href="([^"]*)">(More|First) paths', answer.content.decode())
        address = "/scans/" + html.unescape(links[0][0])
    assert shown == [["//a&/...", "//b&/..."], ["//c&/..."]]
    assert [label for _, label in links] == ["First"]
    assert "No further path" in text_of(bob, "/scans/?after=//c%26/...")
    assert len(bob.get(address).context["rows"]) == 2


def test_a_path_shows_claims_by_document_history_and_trend(bob: Client) -> None:
    target = factories.ScanTargetFactory(path="//demo/...")
    old = scan_of(target, HELD, ("holds", GONE[1], GONE[2]), days_ago=3)
    middle = scan_of(target, HELD, GONE, days_ago=2)
    scan_of(target, HELD, GONE, days_ago=1)
    answer = bob.get(f"/scans/{target.pk}/")
    shown = " ".join(answer.content.decode().split())
    assert "src/&lt;core&gt;.py" in shown
    assert "no &lt;such&gt; file" in shown
    (row,) = answer.context["part"]["rows"]
    since = {claim.fields["id"]: claim.since for claim in row.claims}
    assert since == {"c-1": old.job.created_at, "c-2": middle.job.created_at}
    health, verdicts = answer.context["charts"]
    assert [series.values for series in health.series] == [[100, 50, 50]]
    assert health.top == "100%"
    assert {series.name: series.values for series in verdicts.series}["refuted"] == [0, 1, 1]
    assert len(answer.context["history"]) == 3
    earlier = bob.get(f"/scans/{target.pk}/?scan={old.pk}")
    assert earlier.context["chosen"].health == "100%"
    assert bob.get(f"/scans/{target.pk}/?scan=999999").status_code == 404
    assert bob.get(f"/scans/{target.pk}/?scan=x").status_code == 404


def test_a_neutral_scan_says_what_was_not_read(bob: Client) -> None:
    target = factories.ScanTargetFactory()
    scan_of(target, HELD, documents={"beyond": 7, "left_out": 3})
    shown = text_of(bob, f"/scans/{target.pk}/")
    assert (
        "undecided</span> It neither passed nor failed: not every document and statement was read." in shown
    )
    assert "Not read: 7 documents. Left out beyond the limits: 3 statements." in shown
    assert bob.get(f"/scans/{target.pk}/").context["chosen"].conclusion == "neutral"


@pytest.mark.parametrize(
    ("claims", "fields", "said"),
    [
        ([HELD], {}, "up to date</span> Every claim was verified, and none is refuted."),
        ([HELD, GONE], {}, "out of date</span> Every claim was verified, and 1 is refuted."),
        (
            [GONE, ("refuted", "b", "c-9")],
            {},
            "out of date</span> Every claim was verified, and 2 are refuted.",
        ),
        (
            [HELD],
            {"total": 3},
            "undecided</span> It neither passed nor failed: not every claim was verified.",
        ),
        (
            [("ambiguous", "core.py", "c-3")],
            {},
            "undecided</span> It neither passed nor failed: no claim could be decided.",
        ),
        (
            [HELD],
            {"status": JobStatus.TIMED_OUT},
            "undecided</span> It neither passed nor failed: the scan did not finish.",
        ),
        ([HELD], {"status": JobStatus.IN_PROGRESS}, "running</span></p>"),
    ],
)
def test_a_result_says_what_it_means(
    bob: Client, claims: list[Any], fields: dict[str, Any], said: str
) -> None:
    target = factories.ScanTargetFactory()
    scan_of(target, *claims, **fields)
    assert said in text_of(bob, f"/scans/{target.pk}/")
    assert "Undecided: not everything was read or verified" in text_of(bob, "/scans/")


def empty_scan_of(target: ScanTarget, **documents: Any) -> Scan:
    counts = {"documents": 0, "unread": 0, "unlisted": 0, **documents}
    scan = scan_of(target, scope_prefixes=[target.folder], documents=counts)
    scan.documents.all().delete()
    return scan


def test_a_newest_scan_that_read_nothing_is_said_above_the_one_before(bob: Client) -> None:
    target = factories.ScanTargetFactory(path="//demo/...")
    scan_of(target, HELD, days_ago=1)
    assert "read nothing" not in text_of(bob, f"/scans/{target.pk}/")
    empty = empty_scan_of(target)
    shown = text_of(bob, f"/scans/{target.pk}/")
    assert f'<a href="?scan={empty.pk}">The newest scan</a>' in shown
    assert (
        "read no documents, so the scan before it is shown. No document was read: the path has none, or"
        in shown
    )
    assert "100%" in shown
    itself = text_of(bob, f"/scans/{target.pk}/?scan={empty.pk}")
    assert "undecided</span> It neither passed nor failed: no document was read." in itself
    assert "the scan before it is shown" not in itself
    review = text_of(bob, f"/reviews/{empty.pk}/")
    assert "No document was read: the path has none, or the allow-list or a skipped path" in review
    assert "This scan verified" not in review


def test_what_else_an_empty_scan_says_stands_alone(bob: Client) -> None:
    target = factories.ScanTargetFactory(path="//demo/...")
    empty_scan_of(target, note="Scan timed out before its documents were listed.", unlisted=1)
    shown = text_of(bob, f"/scans/{target.pk}/")
    assert "Scan timed out before" in shown
    assert "No document was read" not in shown


def test_a_refuted_claim_says_what_to_do_and_leads_to_its_finding(bob: Client) -> None:
    target = factories.ScanTargetFactory(path="//demo/...")
    scan = scan_of(target, HELD, GONE, ("refuted", "make tset", "c-3"))
    ScanDocument.objects.update(
        claims=[
            {**claim, "says": "", "kind": "path_reference" if claim["id"] == "c-2" else "command"}
            for claim in ScanDocument.objects.get().claims
        ]
    )
    of_claim = {
        "job": scan.job,
        "file": "//demo/README.md",
        "line": 3,
        "title": "Not so any more: `src/<core>.py`",
    }
    factories.FindingRowFactory(**{**of_claim, "line": 4})
    reported = factories.FindingRowFactory(**of_claim, evidence=[])
    shown = text_of(bob, f"/scans/{target.pk}/")
    assert "No file or folder is there with this name. Correct or remove the statement." in shown
    assert "This does not hold now. Correct or remove the statement." in shown
    links = re.findall(r'href="(/reviews/\d+/findings/\d+/)">Open the finding', shown)
    assert links == [f"/reviews/{scan.pk}/findings/{reported.pk}/"]
    assert bob.get(links[0]).status_code == 200


def test_a_finding_that_rests_on_a_file_out_of_sight_is_not_linked() -> None:
    target = factories.ScanTargetFactory(path="//demo/...")
    scan = scan_of(target, GONE)
    factories.FindingRowFactory(
        job=scan.job,
        file="//demo/README.md",
        line=3,
        title="Not so any more: `src/<core>.py`",
        evidence=["//other/a"],
    )
    dora = client_of(reviewer("dora", "//demo/..."))
    shown = text_of(dora, f"/scans/{target.pk}/")
    assert "Correct or remove the statement." in shown
    assert "Open the finding" not in shown


def test_the_axis_of_scans_names_each_scan_once(bob: Client) -> None:
    target = factories.ScanTargetFactory()
    scan_of(target, HELD, days_ago=9)
    for scans, ticks in ((1, 1), (2, 2), (3, 3), (4, 3)):
        health, verdicts = bob.get(f"/scans/{target.pk}/").context["charts"]
        assert (len(health.slots), len(health.ticks), len(verdicts.ticks)) == (scans, ticks, ticks)
        scan_of(target, HELD, days_ago=scans)


def test_the_axis_of_scans_of_one_day_has_times_of_day(bob: Client) -> None:
    def at(*moments: str) -> list[str]:
        return pages._labels([datetime.fromisoformat(f"2026-11-{moment}:00+00:00") for moment in moments])

    assert at("26T01:30", "27T01:30") == ["26 Nov", "27 Nov"]
    assert at("27T01:30", "27T13:05") == ["01:30", "13:05"]
    assert at("26T01:30", "27T01:30", "27T13:05") == ["26 Nov 01:30", "27 Nov 01:30", "27 Nov 13:05"]
    assert at() == []


def test_the_page_of_a_running_scan_follows_it_to_its_end(bob: Client) -> None:
    target = factories.ScanTargetFactory()
    scan = scan_of(target, HELD, total=3, status=JobStatus.IN_PROGRESS, finished_at=None)
    page = text_of(bob, f"/scans/{target.pk}/?verdict=holds")
    live = f"/scans/{target.pk}/live/"
    assert f'data-live="{live}?verdict=holds"' in page
    assert "Documents appear here as they are verified." in page
    have = re.findall(r'data-live-have="(\w+)"', page)[0]
    unchanged = bob.get(live, {"verdict": "holds", "have": have})
    assert (unchanged.status_code, unchanged["X-Live-Have"], unchanged["X-Live-Next"]) == (204, have, "2")
    ScanDocument.objects.filter(digest="e").update(unread="too hard")  # it is lost, not verified
    lost = bob.get(live, {"verdict": "holds", "have": have})
    assert (lost.status_code, lost["X-Live-Have"] == have) == (200, False)
    ScanDocument.objects.filter(digest="e").update(unread="", verified_at=timezone.now(), refuted=2)
    changed = bob.get(live, {"verdict": "holds", "have": have})
    shown = changed.content.decode()
    assert changed["X-Live-Next"] == "2"
    assert '<div id="scan">' in shown
    assert "3 of 3 claims verified" in shown
    assert "Documents with claims that hold" in shown
    assert "have=" not in shown
    assert "<html" not in shown
    ReviewJob.objects.filter(pk=scan.pk).update(status=JobStatus.SUCCEEDED, finished_at=timezone.now())
    ended = bob.get(live, {"have": changed["X-Live-Have"]})
    assert "X-Live-Next" not in ended
    assert "Every claim was verified, and 2 are refuted." in ended.content.decode()
    assert "data-live=" not in text_of(bob, f"/scans/{target.pk}/")


def test_the_live_part_of_a_path_is_for_those_who_see_every_file_of_it(bob: Client) -> None:
    target = factories.ScanTargetFactory(path="//demo/...")
    scan_of(target, HELD)
    dora = client_of(reviewer("dora", "//demo/docs/..."))
    assert dora.get(f"/scans/{target.pk}/live/").status_code == 404
    assert Client().get(f"/scans/{target.pk}/live/").status_code == 302


def test_a_verdict_narrows_the_documents_to_its_claims(bob: Client) -> None:
    target = factories.ScanTargetFactory()
    scan_of(target, HELD, GONE)
    (row,) = bob.get(f"/scans/{target.pk}/?verdict=refuted").context["part"]["rows"]
    assert [claim.fields["id"] for claim in row.claims] == ["c-2"]
    assert bob.get(f"/scans/{target.pk}/?verdict=ambiguous").context["part"]["rows"] == []
    assert "There are no claims that are ambiguous." in text_of(bob, f"/scans/{target.pk}/?verdict=ambiguous")
    assert "Documents with claims that hold" in text_of(bob, f"/scans/{target.pk}/?verdict=holds")
    assert bob.get(f"/scans/{target.pk}/?verdict=nonsense").context["verdict"] == ""


def test_nothing_verifiable_and_partial_results_are_said(bob: Client) -> None:
    target = factories.ScanTargetFactory()
    scan_of(target, ("ambiguous", "core.py", "c-3"), total=5)
    shown = text_of(bob, f"/scans/{target.pk}/")
    assert "nothing verifiable" in shown
    assert "Scan timed out after verifying 1 of 5 claims." in shown
    assert 'data-state="partial">undecided<' in shown
    assert "4 claims, not verified" in shown


def test_documents_come_in_pages(bob: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_DOCUMENTS", 1)
    target = factories.ScanTargetFactory()
    scan_of(target, HELD, total=2)
    first = bob.get(f"/scans/{target.pk}/").context["part"]
    second = bob.get(f"/scans/{target.pk}/?after={first['more']}").context["part"]
    paths = [row.document.path for part in (first, second) for row in part["rows"]]
    assert paths == ["//demo/README.md", "//demo/late.md"]
    assert (first["is_first"], second["is_first"], second["more"]) == (True, False, None)


def test_who_does_not_see_every_file_of_a_path_does_not_see_its_scans(bob: Client) -> None:
    docs, whole = (
        factories.ScanTargetFactory(path="//demo/docs/..."),
        factories.ScanTargetFactory(path="//demo/..."),
    )
    for target in (docs, whole):
        scan_of(target, HELD)
    group = Group.objects.create(name="writers")
    group.permissions.set(Group.objects.get(name="reviewer").permissions.all())
    ViewerScope.objects.create(group=group, prefix="//demo/docs/...", reason="OPS-1")
    writer = factories.UserFactory(username="wendy", reads=False)
    writer.groups.add(group)
    wendy = client_of(writer)
    shown = text_of(wendy, "/scans/")
    assert "//demo/docs/..." in shown
    assert "//demo/...<" not in shown
    assert wendy.get(f"/scans/{docs.pk}/").status_code == 200
    assert wendy.get(f"/scans/{whole.pk}/").status_code == 404
    assert wendy.post(f"/scans/{whole.pk}/now/").status_code == 404


def test_the_button_requests_one_scan_however_often_it_is_pressed(
    bob: Client, tmp_path: Path, settings: Any
) -> None:
    repo = GitRepo(tmp_path / "demo")
    repo.commit_files({"README.md": "Run `make`.\n"})
    settings.CHANGE_SOURCES, settings.GIT_REPOSITORIES = ["git"], {"demo": repo.path}
    target = factories.ScanTargetFactory(path="//demo/...")
    assert "Scan now" in text_of(bob, f"/scans/{target.pk}/")
    answers = [bob.post(f"/scans/{target.pk}/now/", follow=True).content.decode() for _ in range(2)]
    assert "The scan is requested" in answers[0]
    assert "being scanned already" in answers[1]
    assert "Scan now" not in answers[1]
    job = ReviewJob.objects.get()
    assert (job.kind, job.requested_by, job.scan.target) == ("scan", "bob", target)


def test_a_repository_that_cannot_be_read_is_said_with_what_to_do(bob: Client) -> None:
    target = factories.ScanTargetFactory(path="//nowhere/...")
    shown = bob.post(f"/scans/{target.pk}/now/", follow=True).content.decode()
    assert "Nothing was requested: no git repository is named nowhere" in shown
    assert not ReviewJob.objects.exists()
