"""`.criticizer.yml` in whole jobs on real stages, with loopback model, mail and webhooks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.utils import timezone
from django.utils.html import escape

from reviews import config
from reviews.check_runs import told_of
from reviews.job_configuration import as_read_by, blocks_at, lines_of, suppressed_in
from reviews.models import CoverageRow, FindingFate, FindingRow, RepositoryConfiguration, ReviewJob
from reviews.recipients import recipient_reports
from reviews.recipients.viewing_scopes import EVERYTHING, Scope
from reviews.reports import report_of
from reviews.repository_configuration import Configurations, as_json
from reviews.sources.fetcher import ChangeFetcher
from reviews.web.notices import notices_of
from tests import factories
from tests.acceptance.world import AFTER, BEFORE, MAIL, World
from tests.fakes.llm import Reply
from tests.fakes.p4.server import CONNECTION_REFUSED, added, deleted, edited, purged
from tests.sources.gitrepo import GitRepo

FILE = ".criticizer.yml"
STRICT = "llm: false\npaths: {exclude: [secret/]}\n"
CONFLICT = "<<<<<<< ours\nint a;\n=======\nint b;\n>>>>>>> theirs\n"
FAR = "int far;\n" * 30
KEY = "AKIA" + "QYLPMN5HFIQR7BBB"


@pytest.fixture
def repo(world: World, tmp_path: Path) -> GitRepo:
    made = GitRepo(tmp_path / "configured")
    world.settings.GIT_REPOSITORIES = {"demo": made.path}
    world.settings.LLM_VERIFY = "off"
    made.commit_files({"a.c": BEFORE})
    return made


def reviewed(world: World, repo: GitRepo, files: dict[str, str | bytes | None]) -> ReviewJob:
    """Commit files and review the commit, with a mail and a webhook."""
    change = f"git:demo@{repo.commit_files(files)}"
    count = ReviewJob.objects.count()
    job = world.job(change, MAIL, world.hook, key=f"k-{count}")
    world.settle()
    return ReviewJob.objects.get(pk=job)


def sent(world: World) -> str:
    return "\n".join(json.dumps(request.body) for request in world.llm.requests)


def coverage(job: ReviewJob) -> dict[str, str]:
    return dict(CoverageRow.objects.filter(job=job).values_list("file", "reason"))


def mail(world: World, job: ReviewJob) -> str:
    """Return the text of the mail about a job, on one line."""
    texts = [part.get_content() for each in world.mails() if (part := each.get_body(("plain",)))]
    (found,) = [text for text in texts if job.changelist_id in text]
    return " ".join(str(found).split())


def test_a_change_is_reviewed_by_the_file_before_it_and_the_next_one_obeys(
    world: World, repo: GitRepo
) -> None:
    job = reviewed(world, repo, {FILE: STRICT + "min_severity: severe\n", "a.c": AFTER, "secret/b.c": AFTER})
    assert job.status == "succeeded"
    assert "return 2" in sent(world)
    assert "secret/b.c" in sent(world)
    assert job.configuration[0]["is_edited"]
    text = mail(world, job)
    assert "this change edits `.criticizer.yml`, which takes effect after merge." in text
    assert 'In the changed file: Configuration warning: field `min_severity` is invalid ("severe"' in text
    asked = len(world.llm.requests)
    later = reviewed(world, repo, {"a.c": BEFORE, "secret/b.c": BEFORE})
    assert later.status == "succeeded"
    assert len(world.llm.requests) == asked
    assert coverage(later) == {
        "//demo/a.c": "no language model by configuration, only the checks read it",
        "//demo/secret/b.c": "excluded by configuration, only the checks that protect read it",
    }
    assert "takes effect after merge" not in mail(world, later)


def test_what_is_excluded_goes_to_no_model_and_its_secrets_are_found(world: World, repo: GitRepo) -> None:
    repo.commit_files(
        {FILE: "paths: {exclude: [vendor/]}\nchecks: {conflict_markers: false}\n", "vendor/c.c": "x\n"}
    )
    job = reviewed(
        world, repo,
        {"a.c": "int kept;\n" + CONFLICT, "vendor/b.c": f'char *k = "{KEY}";\nint hidden_word;\n',
         "moved.c": "x\ny\n", "vendor/c.c": None},
    )  # fmt: skip
    assert "int kept;" in sent(world)
    assert "hidden_word" not in sent(world)
    sources = set(FindingRow.objects.filter(job=job).values_list("source", "file"))
    assert ("check:added_secrets", "//demo/vendor/b.c") in sources
    assert not any(source == "check:conflict_markers" for source, _ in sources)
    assert "excluded by configuration" in coverage(job)["//demo/vendor/b.c"]
    assert "excluded by configuration" in job.banner


def test_a_file_that_is_no_yaml_keeps_what_the_last_valid_one_protects(world: World, repo: GitRepo) -> None:
    repo.commit_files({FILE: STRICT})
    reviewed(world, repo, {"a.c": AFTER})
    assert RepositoryConfiguration.objects.get().protecting["paths.exclude"] == ["secret/"]
    repo.commit_files({FILE: "llm: [\n"})
    job = reviewed(world, repo, {"a.c": BEFORE, "secret/b.c": AFTER})
    assert world.llm.requests == []
    expected = "Configuration warning: `.criticizer.yml` has invalid YAML syntax. Using all default settings."
    assert expected in mail(world, job)
    (payload,) = [data for data in hooks(world) if data["changelist_id"] == job.changelist_id]
    assert payload["configuration"]["warnings"][0].startswith(expected)
    assert job.configuration[0]["warnings"][0]["text"].startswith(expected)
    assert "excluded by configuration" in coverage(job)["//demo/secret/b.c"]
    assert RepositoryConfiguration.objects.get().protecting["llm"] is False


def hooks(world: World) -> list[dict[str, Any]]:
    return [request.body["data"] for request in world.receiver.requests]


@pytest.mark.long
def test_a_file_that_is_a_link_or_too_large_keeps_what_the_last_valid_one_protects(
    world: World, repo: GitRepo
) -> None:
    repo.commit_files({FILE: STRICT})
    reviewed(world, repo, {"a.c": AFTER})
    (repo.path / FILE).unlink()
    (repo.path / FILE).symlink_to("elsewhere.yml")
    repo.commit_files({"elsewhere.yml": "{}\n"})
    for content in (BEFORE, AFTER):
        job = reviewed(world, repo, {"a.c": content, "secret/b.c": content})
        assert job.configuration[0]["name"] == FILE
        assert job.configuration[0]["values"]["llm"] is False
        assert "excluded by configuration" in coverage(job)["//demo/secret/b.c"]
        assert "`.criticizer.yml` is not used. Using all default settings. It is a link" in mail(world, job)
        (repo.path / FILE).unlink()
        repo.commit_files({FILE: "#" * 4_000_001})
    assert world.llm.requests == []


def test_a_first_file_that_is_no_yaml_means_no_model(world: World, repo: GitRepo) -> None:
    repo.commit_files({FILE: "- not\n- a mapping\n"})
    job = reviewed(world, repo, {"a.c": CONFLICT})
    assert (job.status, world.llm.requests) == ("succeeded", [])
    assert FindingRow.objects.filter(job=job, source="check:conflict_markers").exists()
    assert "No language model reads this change" in mail(world, job)


def test_what_the_repository_hides_is_counted_and_kept(world: World, repo: GitRepo) -> None:
    rules = (
        "min_severity: high\nsuppress: [{pattern: 'wrong int', file: 'a.*'}, {check: debugger_leftovers}]\n"
    )
    repo.commit_files({FILE: rules})
    finding = {
        "file": "//demo/a.c", "hunk": None, "quote": "int b;", "quote_end": None, "side": "new",
        "category": "bug", "rule_id": None, "severity": "high", "confidence": 90, "title": "The wrong int",
        "problem": "It is not a.", "trigger": "Always.", "suggestion": None,
    }  # fmt: skip
    low = {**finding, "title": "A small thing", "severity": "low", "quote": "int c;", "category": "tests"}
    kept = {**finding, "title": "The other int", "quote": "int d;", "category": "performance"}
    answer = {"findings": [finding, low, kept], "files_read": ["//demo/a.c"]}
    world.llm.script(Reply(answer=answer, repeat=9))
    job = reviewed(world, repo, {"a.c": f'int b;\n{FAR}int c;\n{FAR}int d;\n{FAR}char *k = "{KEY}";\n'})
    titles = set(FindingRow.objects.filter(job=job).values_list("title", flat=True))
    assert "The other int" in titles
    assert not titles & {"The wrong int", "A small thing"}
    assert FindingRow.objects.filter(job=job, source="check:added_secrets").exists()
    hidden = FindingFate.objects.filter(job=job, fate="suppressed").values_list("title", "reason")
    assert set(hidden) == {("The wrong int", "suppress #1"), ("A small thing", "min_severity")}
    assert "2 findings suppressed by `.criticizer.yml`." in mail(world, job)
    (payload,) = hooks(world)
    assert "2 findings suppressed by `.criticizer.yml`." in payload["configuration"]["warnings"]


def test_a_check_run_fails_at_the_severity_that_blocks(world: World, repo: GitRepo) -> None:
    repo.commit_files({FILE: "check: {block: medium}\n"})
    job = reviewed(world, repo, {"a.c": CONFLICT})
    assert told_of(job).conclusion == "failure"
    job.configuration[0]["values"]["check.block"] = "none"
    assert told_of(job).conclusion == "neutral"


def test_the_pages_and_the_api_show_the_warnings_and_what_holds(
    world: World, repo: GitRepo, client: Any
) -> None:
    repo.commit_files({FILE: f"min_severity: severe\nllm: true\n# {KEY}\n"})
    job = reviewed(world, repo, {"a.c": CONFLICT})
    text = 'field `min_severity` is invalid ("severe" is not one of: low, medium, high, critical)'
    client.force_login(factories.UserFactory(is_superuser=True))
    page = client.get(f"/reviews/{job.pk}/").content.decode()
    assert escape(text) in page
    row = RepositoryConfiguration.objects.get()
    address = f"/configurations/{row.pk}/"
    assert f'href="{address}"' in page
    shown = client.get(address).content.decode()
    assert escape(text) in shown
    assert "min_severity: severe" in shown
    assert "vendor" not in shown
    assert KEY not in shown
    assert "The repository's configuration now:" in page
    found = world.api.get(f"/api/v1/reviews/{job.pk}/").json()["configuration"]
    parent = repo.git("rev-parse", "HEAD^").strip()
    assert (found["source"], found["revision"], len(found["digest"])) == (f"//demo/{FILE}", parent, 64)
    assert text in found["warnings"][0]
    assert found["others"] == []
    reader = factories.UserFactory(reads=False)
    reader.user_permissions.add(Permission.objects.get(codename="view_reviewjob"))
    client.force_login(reader)
    assert client.get(address).status_code == 404


def test_every_warning_is_on_the_page_and_ten_are_in_a_message(
    world: World, repo: GitRepo, client: Any
) -> None:
    repo.commit_files({FILE: "".join(f"nokey{letter}: 1\n" for letter in "abcdefghijklmno")})
    job = reviewed(world, repo, {"a.c": CONFLICT})
    text = mail(world, job)
    assert text.count("unknown key") == 10
    assert "and 5 more configuration warnings: see the review's page." in text
    client.force_login(factories.UserFactory(is_superuser=True))
    page = client.get(f"/reviews/{job.pk}/").content.decode()
    assert page.count("unknown key") == 15
    assert "more configuration warnings" not in page


def test_a_run_without_raw_findings_hides_none(world: World, repo: GitRepo) -> None:
    repo.commit_files({FILE: "suppress: [{check: conflict_markers}]\n"})
    job = reviewed(world, repo, {"a.c": CONFLICT})
    assert suppressed_in(job) == 1
    run = job.stages.get(stage="llm")
    factories.AttemptFactory(stage_run=run, number=9, outcome="succeeded")
    assert suppressed_in(job) == 0
    assert "suppressed" not in " ".join(report_of(job).configuration_lines)


def test_lines_about_the_file_are_for_those_who_may_read_it(world: World, client: Any) -> None:
    world.settings.DEPOT_ALLOW_LIST = ["//depot/main/..."]
    world.depot.submit(added(f"//depot/main/{FILE}", "min_severity: severe\n"))
    change = world.depot.submit(added("//depot/main/open/a.c", CONFLICT))
    job = ReviewJob.objects.get(pk=world.job(change, MAIL))
    world.settle()
    job.refresh_from_db()
    assert [line.file for line in lines_of(job)] == [f"//depot/main/{FILE}"]
    scope = Scope(prefixes=("//depot/main/open/",))
    assert as_read_by(job.configuration, scope) is None
    assert as_read_by(job.configuration, EVERYTHING) is not None
    part = recipient_reports.part_of(report_of(job), scope)
    assert part.coverage
    assert part.configuration_lines == ()
    assert not any("severe" in notice.text for notice in notices_of(job, scope, for_operator=False))
    assert any("severe" in notice.text for notice in notices_of(job, EVERYTHING, for_operator=False))


# -- Perforce ------------------------------------------------------------------------------------------


def test_each_file_follows_the_file_of_its_own_allow_list_entry(world: World) -> None:
    world.settings.DEPOT_ALLOW_LIST = ["//depot/main/...", "//depot/other/..."]
    world.depot.submit(
        added(f"//depot/main/{FILE}", "llm: false\ncheck: {block: high}\n"),
        added(f"//depot/other/{FILE}", "check: {block: low}\n"),
    )
    change = world.depot.submit(
        added("//depot/main/a.c", "int in_main;\n"), added("//depot/other/b.c", "int in_other;\n")
    )
    job = ReviewJob.objects.get(pk=world.job(change, MAIL))
    world.settle()
    job.refresh_from_db()
    assert job.status == "succeeded"
    assert {each["root"] for each in job.configuration} == {"//depot/main/", "//depot/other/"}
    shown = world.api.get(f"/api/v1/reviews/{job.pk}/").json()["configuration"]
    assert [each["source"] for each in (shown, *shown["others"])] == [
        f"//depot/main/{FILE}", f"//depot/other/{FILE}",
    ]  # fmt: skip
    assert shown["revision"] == f"@{int(change) - 1}"
    assert "in_other" in sent(world)
    assert "in_main" not in sent(world)
    assert "no language model by configuration" in coverage(job)["//depot/main/a.c"]
    assert blocks_at(job) == "low"


def test_a_submitted_change_that_edits_the_file_is_reviewed_by_the_one_before(world: World) -> None:
    path = f"//depot/main/{FILE}"
    world.depot.submit(added(path, "paths: {exclude: [keep/]}\n"))
    change = world.depot.submit(
        edited(path, "paths: {exclude: [keep/]}\n", "{}\n"),
        added("//depot/main/keep/a.c", "int held_back;\n"),
    )
    job = ReviewJob.objects.get(pk=world.job(change, MAIL))
    world.settle()
    job.refresh_from_db()
    assert "held_back" not in sent(world)
    assert job.configuration[0]["is_edited"]


@pytest.mark.long
def test_a_file_that_the_server_does_not_give_as_text_means_no_model(world: World) -> None:
    path = f"//depot/main/{FILE}"
    for number, kind in enumerate(("binary", "symlink", "purge", "text+X", "denied")):
        if kind == "purge":
            world.depot.submit(purged(path))
        else:
            world.depot.submit(edited(path, "{}\n", "{}\n", "text" if kind == "denied" else kind))
        if kind == "denied":
            world.depot.deny(path)
        change = world.depot.submit(added(f"//depot/main/{number}.c", "int held_back;\n"))
        job = ReviewJob.objects.get(pk=world.job(change, MAIL, key=change))
        world.settle()
        job.refresh_from_db()
        (kept,) = job.configuration
        assert (kind, kept["name"], kept["values"]["llm"]) == (kind, FILE, False)
    world.depot.submit(deleted(path, "{}\n"))
    change = world.depot.submit(added("//depot/main/sent.c", "int sent_again;\n"))
    world.job(change, MAIL, key=change)
    world.settle()
    assert "sent_again" in sent(world)
    assert "held_back" not in sent(world)


def test_a_server_without_cases_finds_the_file_by_any_spelling(world: World) -> None:
    world.settings.DEPOT_ALLOW_LIST = ["//depot/Main/..."]
    world.depot.ignore_case()
    rules = "llm: false\nsuppress: [{check: conflict_markers}]\n"
    world.depot.submit(added(f"//depot/main/{FILE.upper()}", rules))
    change = world.depot.submit(
        added("//depot/MAIN/a.c", f"int held_back;\n{CONFLICT}"), added("//Depot/main/b.c", "int b;\n")
    )
    job = ReviewJob.objects.get(pk=world.job(change, MAIL))
    world.settle()
    job.refresh_from_db()
    (kept,) = job.configuration
    assert (job.status, kept["root"], kept["values"]["llm"]) == ("succeeded", "//depot/Main/", False)
    assert world.llm.requests == []
    assert FindingFate.objects.filter(job=job, fate="suppressed", reason="suppress #1").exists()
    assert RepositoryConfiguration.objects.get().root == "//depot/Main/"


@pytest.mark.long
def test_entries_over_the_bound_keep_what_protects_them_and_their_page(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.settings.DEPOT_ALLOW_LIST = ["//depot/main/...", "//depot/other/..."]
    world.depot.submit(added(f"//depot/other/{FILE}", "paths: {exclude: [secret/]}\n"))
    for text in ("int one;\n", "int two;\n"):
        change = world.depot.submit(
            added("//depot/main/a.c", text), added("//depot/other/a.c", text),
            added("//depot/other/secret/b.c", f"int held_back;\n{text}"),
        )  # fmt: skip
        job = ReviewJob.objects.get(pk=world.job(change, MAIL, key=change))
        world.settle()
        monkeypatch.setattr("reviews.repository_configuration.MAX_ROOTS", 1)
    job.refresh_from_db()
    assert "more than 20 allow-list entries. What the last valid file protects stays protected." in mail(
        world, job
    )
    assert "int two;" in sent(world)
    assert "held_back" not in sent(world)
    row = RepositoryConfiguration.objects.get(root="//depot/other/")
    assert (row.configuration["name"], row.job_id == job.pk) == (FILE, False)


@pytest.mark.long
def test_a_rerun_of_an_older_change_loosens_no_fallback(world: World) -> None:
    path = f"//depot/main/{FILE}"
    world.depot.submit(added(path, "{}\n"))
    older = world.depot.submit(added("//depot/main/a.c", "int one;\n"))
    world.depot.submit(edited(path, "{}\n", STRICT))
    for change in (world.depot.submit(added("//depot/main/b.c", "int two;\n")), older):
        world.job(change, MAIL, key=change)
        world.settle()
    assert "int one;" in sent(world)
    assert RepositoryConfiguration.objects.get().protecting["llm"] is False


def test_a_side_branch_loosens_no_fallback(world: World, repo: GitRepo) -> None:
    repo.commit_files({FILE: STRICT})
    reviewed(world, repo, {"a.c": AFTER})
    repo.git("checkout", "-q", "-b", "side")
    repo.commit_files({FILE: "{}\n"})
    change = f"git:demo@{repo.commit_files({'a.c': BEFORE})}"
    repo.git("checkout", "-q", "-")
    world.job(change, MAIL, key="side")
    world.settle()
    assert world.llm.requests != []
    assert RepositoryConfiguration.objects.get().protecting["llm"] is False


def test_a_server_in_trouble_loosens_nothing(world: World) -> None:
    world.depot.submit(added(f"//depot/main/{FILE}", STRICT))
    change = world.depot.submit(added("//depot/main/a.c", "int held_back;\n"))
    world.depot.misbehave("files", times=1, stderr=CONNECTION_REFUSED, exit=1)
    job = world.job(change, MAIL)
    world.work()
    assert world.stage(job, "fetch").status == "retry_wait"
    assert not ReviewJob.objects.get(pk=job).configuration
    world.settle()
    assert world.status(job) == "succeeded"
    assert [attempt.outcome for attempt in world.attempts(job, "fetch")] == ["failed", "succeeded"]
    assert world.llm.requests == []


def test_a_job_keeps_the_configuration_that_it_was_fetched_with(world: World) -> None:
    world.depot.submit(added(f"//depot/main/{FILE}", STRICT))
    change = world.depot.shelve(added("//depot/main/a.c", "int held_back;\n"))
    job = world.job(change, MAIL)
    world.settle()
    kept = ReviewJob.objects.get(pk=job).configuration
    assert kept[0]["values"]["llm"] is False
    world.depot.submit(edited(f"//depot/main/{FILE}", STRICT, "{}\n"))
    row = ReviewJob.objects.get(pk=job)
    source = config.source_of_job(row)
    fetched = ChangeFetcher(source, config.allow_list(), config.record_violation).fetch(row.changelist_id)
    again = Configurations(source, config.allow_list(), row)
    assert all(file.unsent for file in again.applied(fetched).files)
    assert as_json(again.frozen()) == kept
    fresh = Configurations(source, config.allow_list())
    assert not any(file.unsent for file in fresh.applied(fetched).files)
    # An older review replaces nothing that a newer one has seen.
    RepositoryConfiguration.objects.update(seen_at=timezone.now(), text="newer")
    row.configuration = []
    older = Configurations(source, config.allow_list(), row)
    older.applied(fetched)
    older.remember(row)
    assert RepositoryConfiguration.objects.get().text == "newer"
