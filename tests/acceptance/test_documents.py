"""Documents that a change makes untrue, through whole jobs: page, API, mail, replay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from reviews.artifacts import redactor
from reviews.models import AllowListEntry, FindingRow, ReviewJob
from reviews.recipients import recipient_reports
from reviews.recipients.viewing_scopes import EVERYTHING, Scope
from reviews.replay import allowlist_recheck
from reviews.reports import report_of
from reviews.web.notices import notices_of
from tests.acceptance.world import MAIL, World
from tests.sources.gitrepo import GitRepo

FILES: dict[str, str | bytes | None] = {
    "README.md": "See `src/core.py`.\n\nRun `make lint`.\n",
    "docs/guide.md": "# Guide\n\nThe [code](../src/core.py) is small.\n",
    "src/core.py": "x = 1\n",
    "src/other.py": "y = 1\n",
    "Makefile": "lint:\n\ttrue\n",
}
MOVED: dict[str, str | bytes | None] = {
    "src/core.py": None,
    "src/engine.py": "x = 1\n",
    "README.md": "See `src/engine.py`.\n\nRun `make lint`.\n",
}
SUMMARY = "3 claims of documents: 2 hold, 1 refuted, 0 ambiguous, 0 not checkable."


@pytest.fixture
def repo(world: World, tmp_path: Path) -> GitRepo:
    made = GitRepo(tmp_path / "documented")
    world.settings.GIT_REPOSITORIES = {"demo": made.path}
    world.settings.LLM_VERIFY = "off"
    made.commit_files(FILES)
    return made


def reviewed(world: World, repo: GitRepo, files: dict[str, str | bytes | None]) -> ReviewJob:
    change = f"git:demo@{repo.commit_files(files)}"
    job = world.job(change, MAIL, world.hook, key=f"k-{ReviewJob.objects.count()}")
    world.settle()
    return ReviewJob.objects.get(pk=job)


def untrue(job: ReviewJob) -> list[FindingRow]:
    return list(FindingRow.objects.filter(job=job, source="check:drift").order_by("file", "line"))


@pytest.mark.long
def test_a_rename_that_mends_one_document_of_two_is_reported_for_the_other(
    world: World, repo: GitRepo
) -> None:
    job = reviewed(world, repo, MOVED)
    (finding,) = untrue(job)
    assert (finding.file, finding.line) == ("//demo/docs/guide.md", 3)
    assert finding.title == "Untrue after this change: `../src/core.py`"
    assert "this change renames src/core.py to src/engine.py" in finding.message
    assert finding.suggestion == "Write `../src/engine.py`."
    assert (finding.category, finding.severity) == ("documentation", "medium")
    assert finding.evidence == ["//demo/src/core.py", "//demo/src/engine.py"]
    mail = next(iter(world.mails())).get_body(("plain",))
    assert mail is not None
    text = " ".join(str(mail.get_content()).split())
    assert SUMMARY in text
    assert finding.title in text
    answer = world.api.get(f"/api/v1/reviews/{job.pk}/").json()
    assert answer["documents"] == {
        "summary": SUMMARY, "holds": 2, "refuted": 1, "ambiguous": 0, "uncheckable": 0, "unread": 0,
        "left_out": 0, "by_meaning": {"drifted": 0, "holds": 0, "uncertain": 0, "sections": []},
    }  # fmt: skip
    assert SUMMARY in [notice.text for notice in notices_of(job, EVERYTHING, for_operator=False)]
    (sent,) = world.receiver.requests
    assert SUMMARY in sent.body["data"]["status_lines"]


@pytest.mark.long
def test_text_files_are_still_looked_at_for_deleted_names(world: World, repo: GitRepo) -> None:
    job = reviewed(world, repo, {"src/other.py": None, "notes.txt": "See `src/other.py` for it.\n"})
    found = FindingRow.objects.filter(job=job).values_list("source", "file")
    assert list(found) == [("check:stale_references", "//demo/notes.txt")]


@pytest.mark.long
def test_documents_without_claims_are_said_to_have_none(world: World, repo: GitRepo) -> None:
    job = reviewed(world, repo, {"docs/plain.md": "# Plain\n\nNothing that can be verified.\n"})
    expected = "No verifiable claims found in the changed documentation files."
    assert expected in [notice.text for notice in notices_of(job, EVERYTHING, for_operator=False)]
    assert world.api.get(f"/api/v1/reviews/{job.pk}/").json()["documents"]["summary"] == expected
    assert expected in world.receiver.requests[0].body["data"]["status_lines"]
    mail = world.mails()[0].get_body(("plain",))
    assert mail is not None
    assert expected in " ".join(str(mail.get_content()).split())


@pytest.mark.long
def test_a_change_without_documents_says_nothing(world: World, repo: GitRepo) -> None:
    job = reviewed(world, repo, {"src/other.py": "y = 2\n"})
    assert report_of(job).documents == ""


@pytest.mark.long
def test_the_repository_switches_and_scopes_it(world: World, repo: GitRepo) -> None:
    repo.commit_files({".criticizer.yml": "docs: {enabled: false}\n"})
    job = reviewed(world, repo, MOVED)
    assert (untrue(job), job.documents) == ([], {})
    repo.commit_files({".criticizer.yml": "docs: {exclude: [docs/]}\n"})
    again = reviewed(world, repo, {"src/engine.py": None, "src/third.py": "x = 1\n"})
    assert {finding.file for finding in untrue(again)} == {"//demo/README.md"}


def test_a_replay_has_the_same_findings_whatever_the_repository_became(world: World, repo: GitRepo) -> None:
    job = reviewed(world, repo, MOVED)
    # The counts of the whole tree are shown to readers of the whole tree.
    narrow = Scope(prefixes=("//demo/src/",))
    assert SUMMARY not in [notice.text for notice in notices_of(job, narrow, for_operator=False)]
    report = recipient_reports.part_of(report_of(job), narrow)
    assert report.documents == ""
    assert [finding.file for finding in report.findings if finding.file.endswith(".md")] == []
    assert recipient_reports.part_of(report_of(job), EVERYTHING).documents == SUMMARY
    prepared = redactor.load(job.pk, lambda paths, others: ()).prepared
    (finding,) = [one for one in prepared.findings if one.source == "check:drift"]
    repo.git("update-ref", "-d", "refs/heads/main")
    again = redactor.redact_again(job.pk, lambda paths, others: ()).prepared
    assert [one for one in again.findings if one.source == "check:drift"] == [finding]


def test_a_document_that_left_the_allow_list_is_not_reported(world: World, repo: GitRepo) -> None:
    job = reviewed(world, repo, MOVED)
    AllowListEntry.objects.create(kind="exclude", pattern="//demo/docs/...", reason="OPS-1")

    def check(paths: Sequence[str], others: Sequence[str]) -> set[str]:
        return allowlist_recheck.gone_sources(job.changelist_id, "llm", paths, others)

    prepared = redactor.load(job.pk, check).prepared
    assert [one for one in prepared.findings if one.source == "check:drift"] == []
    again = redactor.redact_again(job.pk, check).prepared
    assert [one for one in again.findings if one.source == "check:drift"] == []


def test_one_check_reports_a_line_and_no_secret_of_a_document_is_in_a_finding(
    world: World, repo: GitRepo
) -> None:
    """A document of the change still names the file: `drift` reports it.

    `stale_references` does not.
    """
    token = "AKIA" + "QYLPMN5HFIQR7BBB"
    repo.commit_files({"docs/run.md": f"Run `TOKEN={token} make lint`.\n"})
    change: dict[str, str | bytes | None] = {
        "Makefile": "check:\n\ttrue\n", "src/other.py": None,
        "README.md": "See `src/other.py`, and `src/core.py`.\n",
    }  # fmt: skip
    job = reviewed(world, repo, change)
    found = untrue(job)
    assert {finding.file for finding in found} >= {"//demo/docs/run.md"}
    assert all(token not in f"{row.title}{row.message}{row.suggestion}" for row in found)
    readme = FindingRow.objects.filter(job=job, file="//demo/README.md").values_list("source", flat=True)
    assert list(readme) == ["check:drift"]
