"""Team rules from the table to the finding that cites one, on pages and in the API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from reviews.intake import api_keys
from reviews.models import AllowListEntry, FindingRow, ReviewJob, RuleUse, TeamRule
from reviews.recipients.recipient_reports import part_of
from reviews.recipients.viewing_scopes import Scope
from reviews.reports import report_of
from reviews.sources.base import Rule
from reviews.states import JobStatus
from reviews.web.review_results import results_of
from tests import changes
from tests.api.conftest import ApiClient
from tests.fakes.llm import Reply
from tests.pipeline.test_stage_fetch import depot  # noqa: F401 - a fixture
from tests.pipeline.test_stage_llm import Bench, bench, job_of  # noqa: F401 - a fixture
from tests.reviewers.build import change, edited
from tests.reviewers.test_answer import answer_of, raw_finding
from tests.reviewers.test_review import D
from tests.sources.gitrepo import GitRepo

pytestmark = pytest.mark.django_db(transaction=True)
FILE = f"{D}AGENTS.md"
LINE = "    total = price * count\n"
CHANGE = replace(
    change(edited(f"{D}a.py", "a\nold\n", f"a\n{LINE}")),
    rules=(
        Rule("no-floats", "Money is never a float.", (0,), "high"),
        Rule("", "- Totals are checked.\n", (0,), path=FILE),
    ),
)


def rule(name: str = "no-floats", **fields: Any) -> TeamRule:
    return TeamRule.objects.create(
        **{
            "name": name,
            "pattern": "//demo/pay/...",
            "severity": "high",
            "text": "Money is never a float.",
            "owner": "payments",
            "reason": "OPS-1",
            **fields,
        }
    )


@pytest.fixture
def git(depot: Any, settings: Any, tmp_path: Path) -> Callable[..., Any]:  # noqa: F811 - the fixture
    repository = GitRepo(tmp_path / "demo")
    settings.GIT_REPOSITORIES = {"demo": repository.path}
    settings.LLM_PROVIDER, settings.LLM_MAX_INPUT_TOKENS = "openai", 24_000
    repository.commit_files({"AGENTS.md": "- Old.\n", "pay/a.py": "1\n"})
    sha = repository.commit_files({"AGENTS.md": "- New.\n", "pay/a.py": "2\n"})
    return lambda **fields: changes.fetched(f"git:demo@{sha}", **fields)


def test_a_change_is_fetched_with_its_rules_where_a_model_will_read_it(
    git: Callable[..., Any], settings: Any
) -> None:
    rule()
    rule("later", since=timezone.now().date() + timedelta(days=1))
    rule("elsewhere", pattern="//other/...")
    fetched = git().rules
    assert [(one.name or one.path, one.text) for one in fetched] == [
        ("no-floats", "Money is never a float."),
        ("//demo/AGENTS.md", "- Old.\n"),
    ]
    scope = Scope(prefixes=("//demo/pay/",))
    assert [one.name for one in git(scope=scope).rules] == ["no-floats"]
    settings.LLM_SKIP_PATHS = ["*.md"]
    assert [one.name for one in git().rules] == ["no-floats"]
    settings.LLM_MAX_INPUT_TOKENS = 8_000
    assert git().rules == ()


@pytest.fixture
def reviewed(bench: Bench) -> Callable[[str], ReviewJob]:  # noqa: F811 - the fixture
    bench.settings.LLM_MAX_INPUT_TOKENS = 16_000

    def run(cites: str) -> ReviewJob:
        bench.llm.script(Reply(answer=answer_of(raw_finding(severity="low", rule_id=cites))))
        job = job_of(bench.job(CHANGE))
        bench.work()
        assert job_of(job.pk).status == JobStatus.SUCCEEDED
        return job_of(job.pk)

    return run


def test_the_rules_of_a_run_are_recorded_with_the_parts_that_had_them(
    reviewed: Callable[[str], ReviewJob],
) -> None:
    job = reviewed("no-floats")
    found = FindingRow.objects.get(job=job)
    assert (found.rule, found.severity, found.evidence) == ("no-floats", "high", [])
    uses = RuleUse.objects.filter(job=job).values_list("name", "text", "parts", "cited")
    assert list(uses) == [("no-floats", "Money is never a float.", [1], 1), (FILE, "", [1], 0)]


def test_the_rule_that_a_finding_cites_is_on_its_page_and_in_the_api(
    reviewed: Callable[[str], ReviewJob], admin_client: Client
) -> None:
    job = reviewed("no-floats")
    page = admin_client.get(f"/reviews/{job.pk}/").content.decode()
    assert "no-floats</span>: Money is never a float." in page
    assert "part 1, cited by 1 finding" in page
    api = ApiClient(api_keys.create("operator", "operator"))
    found = api.get(f"/api/v1/reviews/{job.pk}/").json()["findings"]
    assert [one["rule"] for one in found] == ["no-floats"]


def test_who_may_not_read_a_file_of_rules_sees_neither_it_nor_what_cites_it(
    reviewed: Callable[[str], ReviewJob],
) -> None:
    job = reviewed("B1")
    assert FindingRow.objects.get(job=job).evidence == [FILE]
    here, all_of_it = Scope(prefixes=(f"{D}a.py",)), Scope(prefixes=(D,))
    assert not FindingRow.objects.filter(here.findings(), job=job).exists()
    assert FindingRow.objects.filter(all_of_it.findings(), job=job).exists()
    assert [use.name for use in results_of(job, here).rules] == ["no-floats"]
    assert [use.name for use in results_of(job, all_of_it).rules] == ["no-floats", FILE]


@pytest.mark.parametrize(
    ("cites", "note", "of_part"),
    [("no-floats", "Rule no-floats: Money is never a float.", 1), ("B1", f"Rule {FILE}", 0)],
)
def test_messages_say_of_a_rule_what_the_page_says_to_the_same_reader(
    reviewed: Callable[[str], ReviewJob], cites: str, note: str, of_part: int
) -> None:
    whole = report_of(reviewed(cites))
    assert [one.rule_note for one in whole.findings] == [note]
    for path, shown in ((f"{D}a.py", of_part), (D, 1)):
        assert len(part_of(whole, Scope(prefixes=(path,))).findings) == shown


def test_a_file_of_rules_that_the_allow_list_excludes_by_now_is_not_sent(
    bench: Bench,  # noqa: F811 - the fixture
) -> None:
    bench.settings.LLM_MAX_INPUT_TOKENS = 16_000
    job = bench.job(CHANGE)
    AllowListEntry.objects.create(kind="exclude", pattern=FILE, reason="OPS-1")
    bench.work()
    assert job_of(job).status == JobStatus.SUCCEEDED
    (request,) = bench.llm.requests
    text = request.body["messages"][1]["content"]
    assert ("Money is never a float." in text, "Totals are checked." in text) == (True, False)


def test_the_admin_edits_rules_with_a_history_and_shows_how_often_they_are_cited(
    reviewed: Callable[[str], ReviewJob], admin_client: Client
) -> None:
    form = {
        "name": "no-floats",
        "pattern": "//depot/p/...",
        "severity": "high",
        "text": "Money is never a float.",
        "good": "",
        "bad": "",
        "owner": "payments",
        "since": "2026-01-01",
        "reason": "OPS-1",
    }
    address = "/admin/reviews/teamrule/"
    for field, wrong in (
        ("pattern", "-//depot/p/..."),
        ("pattern", "depot/p"),
        ("name", "No Floats"),
        ("text", "x" * 601),
        ("reason", ""),
    ):
        answer = admin_client.post(f"{address}add/", {**form, field: wrong})
        assert answer.status_code == 200, field
        assert field in answer.context["adminform"].form.errors
    assert admin_client.post(f"{address}add/", form).status_code == 302
    assert "not used yet" in admin_client.get(address).content.decode()
    reviewed("no-floats")
    assert "1 of 1 reviews" in admin_client.get(address).content.decode()
    row = TeamRule.objects.get()
    changed = {**form, "severity": "low", "reason": "OPS-2"}
    assert admin_client.post(f"{address}{row.pk}/change/", changed).status_code == 302
    history = admin_client.get(f"{address}{row.pk}/history/").content.decode()
    assert "severity: high \N{RIGHTWARDS ARROW} low" in history
