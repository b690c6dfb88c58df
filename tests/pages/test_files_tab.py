"""The tab Files: the redacted diff with findings, its folded parts, readers of some files."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.utils import timezone

from criticizer.models import SecurityEvent
from reviews.artifacts import reader
from reviews.models import Artifact, ReviewJob
from reviews.web import files_tab
from tests import factories
from tests.changes import store_diff
from tests.pages.test_actions import reader_of_some_files
from tests.reviewers.build import added, edited, fake_token, renamed

pytestmark = pytest.mark.django_db

APP, LIB = "//depot/main/app.py", "//depot/secret/lib.py"
OLD = "".join(f"line {number}\n" for number in range(1, 61))


@pytest.fixture
def bob(client: Client) -> Client:
    client.force_login(factories.UserFactory())
    return client


def reviewed() -> ReviewJob:
    """Return a review of two files with a finding on a replaced line of each."""
    job: ReviewJob = factories.ReviewJobFactory(status="succeeded")
    store_diff(
        job,
        edited(
            APP,
            OLD,
            OLD.replace("line 12\n", f"line twelve {fake_token()} <b>\n").replace("line 50", "line fifty"),
        ),
        edited(LIB, OLD, OLD.replace("line 12\n", "another\n")),
    )
    for file in (APP, LIB):
        factories.CoverageRowFactory(job=job, file=file, status="reviewed")
        factories.FindingRowFactory(job=job, file=file, title=f"Wrong in {file}")
    return job


def page(client: Client, job: ReviewJob, query: str = "") -> str:
    answer = client.get(f"/reviews/{job.pk}/{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_finding_stands_below_its_line_with_both_sides_of_the_change(bob: Client) -> None:
    job = reviewed()
    text = page(bob, job)
    file = text[text.index('id="file-1"') : text.index('id="file-2"')]
    removed, line, finding, later = (
        file.index(part) for part in ('id="file-1-R12"', 'id="file-1-L12"', "Wrong in", 'id="file-1-L50"')
    )
    assert removed < line < finding < later
    assert 'class="row added meant" id="file-1-L12"' in file
    assert "<b>" not in file
    assert fake_token() not in text
    assert text.count("Wrong in //depot/main") == text.count(f'id="finding-{job.findings.first().pk}"') == 1  # type: ignore[union-attr]


def test_each_person_who_is_shown_a_diff_is_recorded_once_an_hour(
    bob: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = reviewed()
    other = factories.ReviewJobFactory(
        changelist_id=job.changelist_id, review_version=2, status="succeeded", idempotency_key="k-2"
    )
    store_diff(other, edited(APP, OLD, OLD.replace("line 12\n", "another\n")))
    factories.CoverageRowFactory(job=other, file=APP, status="reviewed")

    def recorded() -> list[tuple[str, str, int]]:
        rows = SecurityEvent.objects.filter(kind="artifact_read").order_by("id")
        return [(row.actor, row.context["address"], row.context["job"]) for row in rows]

    page(bob, job, "?view=findings")
    assert recorded() == []  # no diff is shown
    page(bob, job)
    page(bob, job)
    assert bob.get(f"/reviews/{job.pk}/files/1/").status_code == 200
    name = SecurityEvent.objects.get(kind="artifact_read").actor
    assert recorded() == [(name, "127.0.0.1", job.pk)]
    assert b"another" in bob.get(f"/reviews/{other.pk}/compare/").content
    assert recorded()[1:] == [(name, "127.0.0.1", other.pk)]
    bob.force_login(factories.UserFactory(username="mallory"))
    page(bob, job)
    assert recorded()[2:] == [("mallory", "127.0.0.1", job.pk)]
    monkeypatch.setattr(reader, "SHOWN_AGAIN_SECONDS", 0.0)
    page(bob, job)
    assert len(recorded()) == 4


def test_a_diff_that_was_read_before_ends_with_its_artifact(bob: Client) -> None:
    """Diffs are cached in memory, but a deleted or replaced artifact is not shown.

    A rerun of the stage replaces it.
    """
    job = reviewed()
    assert "line twelve" in page(bob, job)
    assert "line twelve" in page(bob, job)
    store_diff(job, edited(APP, OLD, OLD.replace("line 12\n", "quite unlike it\n")))
    assert "quite unlike it" in page(bob, job)
    Artifact.objects.update(deleted_at=timezone.now())
    text = page(bob, job)
    assert "quite unlike it" not in text
    assert "The diff is no longer stored" in text


def test_the_words_that_differ_are_marked(bob: Client) -> None:
    job: ReviewJob = factories.ReviewJobFactory(status="succeeded")
    store_diff(job, edited("//depot/main/a.txt", "the old price of it\n", "the new price of it\n"))
    factories.CoverageRowFactory(job=job, file="//depot/main/a.txt", status="reviewed")
    text = page(bob, job, "?view=files")
    assert re.findall(r'class="changed">(\w+)<', text) == ["old", "new"]


def test_findings_by_severity_stay_one_click_away(bob: Client) -> None:
    text = page(bob, reviewed(), "?view=findings")
    assert "High (2)" in text
    assert 'id="file-1"' not in text


def test_a_finding_whose_line_is_not_in_the_diff_is_shown_above_it(bob: Client) -> None:
    job = reviewed()
    factories.FindingRowFactory(job=job, file=APP, line=30, end_line=30, title="Far from here")
    factories.FindingRowFactory(job=job, file=APP, line=None, end_line=None, title="About the file")
    factories.FindingRowFactory(job=job, file="description", line=None, end_line=None, title="About it all")
    text = page(bob, job)
    first = text.index('id="file-1-L9"')
    assert text.index("Far from here") < first
    assert text.index("About the file") < first
    assert text.index("About it all") < text.index('id="file-1"')


def test_large_diffs_are_folded_and_fetched_file_by_file(
    bob: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_tab, "MAX_OPEN_LINES", 10)
    job = reviewed()
    text = page(bob, job)
    assert "file-1-L12" not in text
    assert "Wrong in //depot/main/app.py" in text  # its excerpt comes with the diff
    assert f'data-src="/reviews/{job.pk}/files/1/"' in text
    assert "file-1-L12" in bob.get(f"/reviews/{job.pk}/files/1/").content.decode()
    assert bob.get(f"/reviews/{job.pk}/files/9/").status_code == 404


def test_no_finding_is_lost_where_a_file_is_cut(bob: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_tab, "MAX_FILE_LINES", 5)
    text = page(bob, reviewed())
    assert text.count("Wrong in") == 2
    assert "Only the first 5 of" in text


def test_without_its_diff_a_review_shows_findings_with_excerpts(bob: Client) -> None:
    job = reviewed()
    Artifact.objects.update(deleted_at="2026-01-01T00:00Z")
    text = page(bob, job, "?view=files")
    assert "The diff is no longer stored" in text
    assert "High (2)" in text


def test_a_reader_of_some_files_sees_their_diffs_only() -> None:
    job = reviewed()
    dave = reader_of_some_files()
    text = page(dave, job)
    assert "file-1-L12" in text
    assert LIB not in text
    assert "another" not in text
    assert dave.get(f"/reviews/{job.pk}/files/1/").status_code == 200
    assert dave.get(f"/reviews/{job.pk}/files/2/").status_code == 404


def test_a_file_without_lines_says_why(bob: Client) -> None:
    job: ReviewJob = factories.ReviewJobFactory(status="succeeded")
    store_diff(job, added("//depot/main/a.py", "x\n"), edited("//depot/main/b.py", "x\n", "x\n"))
    factories.CoverageRowFactory(job=job, file="//depot/main/b.py", status="skipped", reason="binary file")
    text = page(bob, job, "?view=files")
    assert "binary file" in text[text.index('id="file-2"') :]
    assert "//depot/main/a.py" not in text  # no coverage of it is known


def test_a_file_moved_from_outside_the_scope_shows_nothing_of_its_old_side() -> None:
    job: ReviewJob = factories.ReviewJobFactory(status="succeeded")
    store_diff(
        job, renamed(LIB, APP, OLD, OLD.replace("line 12\n", "of the new side\n").replace("line 40", "4"))
    )
    factories.CoverageRowFactory(job=job, file=APP, status="reviewed")
    factories.FindingRowFactory(job=job, file=APP, title="Wrong")
    dave = reader_of_some_files()
    for text in (page(dave, job), dave.get(f"/reviews/{job.pk}/files/1/").content.decode()):
        assert "of the new side" in text
        assert "file-1-R" not in text
        assert LIB not in text
        assert "Not every line is shown" in text


def test_without_scripts_a_file_opens_in_a_page(bob: Client) -> None:
    address = f"/reviews/{reviewed().pk}/files/1/"
    page, fragment = bob.get(address), bob.get(address, headers={"X-Requested-With": "fetch"})
    assert "<!DOCTYPE html>" in page.content.decode()
    assert 'href="/reviews/' in page.content.decode()
    assert fragment.content.decode().lstrip().startswith('<div class="file-body">')


def test_each_directory_is_listed_once(bob: Client) -> None:
    job: ReviewJob = factories.ReviewJobFactory(status="succeeded")
    paths = ["//depot/main/a.py", "//depot/main/b/c.py", "//depot/main/d.py"]
    store_diff(job, *(added(path, "x\n") for path in paths))
    for path in paths:
        factories.CoverageRowFactory(job=job, file=path, status="reviewed")
    assert page(bob, job, "?view=files").count('<h3 class="path">//depot/main/</h3>') == 1


def test_the_digest_of_a_file_follows_its_lines_and_not_its_findings(
    bob: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By it files.js tells what was viewed, also of a file that is folded."""

    def digests(job: ReviewJob) -> list[str]:
        return re.findall(r'data-content="(\w+)"', page(bob, job, "?view=files"))

    job = reviewed()
    before = digests(job)
    factories.FindingRowFactory(job=job, file=APP, title="One more")
    monkeypatch.setattr(files_tab, "MAX_OPEN_LINES", 0)
    assert digests(job) == before
    store_diff(job, edited(APP, OLD, OLD.replace("line 12", "else")), edited(LIB, OLD, OLD + "another\n"))
    assert not set(digests(job)) & set(before)


def test_lines_around_the_changes_come_with_the_page_of_the_file(bob: Client) -> None:
    job = reviewed()
    factories.FindingRowFactory(job=job, file=APP, line=30, end_line=30, title="Far from here")
    text = page(bob, job)
    assert 'id="file-1-L30"' not in text
    address = f"/reviews/{job.pk}/files/1/?around=1"
    assert address in text
    wide = bob.get(address).content.decode()
    assert "Show the lines around" not in wide
    line, finding, later = (
        wide.index(part) for part in ('id="file-1-L30"', "Far from here", 'id="file-1-L31"')
    )
    assert line < finding < later
    assert fake_token() not in wide
