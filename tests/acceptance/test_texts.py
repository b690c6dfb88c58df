"""Every text of `criticizer.texts`, word for word in each of its places."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.test import Client
from django.utils import timezone

from criticizer import texts
from criticizer.db import prepared
from criticizer.redaction import RedactionBlocked
from criticizer.redaction.redacted_text import RedactedText
from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure
from criticizer.texts import Place
from notifications.providers.pull_requests import markdown
from reviews.agents import expire
from reviews.artifacts import recipe
from reviews.drift import fetching, verify
from reviews.drift.claims import Reason
from reviews.drift.verify import uncheckable
from reviews.intake import api_keys
from reviews.intake import scans as scan_requests
from reviews.models import AgentTask, ApiKey, ScanTarget
from reviews.recipients import recipient_reports
from reviews.recipients.viewing_scopes import Scope
from reviews.reports import report_of
from reviews.reviewers import transport
from reviews.reviewers.prepare import ReviewLimits
from reviews.stages import fetch, scan
from tests.acceptance import shown as showing
from tests.acceptance import stages
from tests.acceptance.pulls import FINDING, OfPull
from tests.acceptance.shown import ROOT, SOURCE_OF_JOB, Shown
from tests.acceptance.test_documents_by_embeddings import meant
from tests.acceptance.test_documents_by_meaning import (
    AFTER,
    BEFORE,
    DRIFTED,
    FILES,
    INJECTION,
    SENTENCE,
    said,
)
from tests.acceptance.world import MAIL, World
from tests.agents.conftest import CHUNK, add_tasks, waiting_job
from tests.api.conftest import ApiClient
from tests.fakes.github import GitHubServer
from tests.fakes.llm import Reply, error
from tests.sources.gitrepo import GitRepo

Case = Callable[[Shown], None]
CASES: dict[str, tuple[Case, Mapping[str, str]]] = {}
CHANGED = {"src/retry.py": AFTER}
PLACE = f"{ROOT}docs/retries.md, line 1"


def shows(**expected: str) -> Callable[[Case], Case]:
    """Name the texts that a case lets appear, each with its values."""

    def add(case: Case) -> Case:
        CASES[case.__name__] = case, expected
        return case

    return add


@pytest.fixture
def shown(world: World, github: GitHubServer, tmp_path: Path) -> Shown:
    world.settings.DOCUMENT_SECTIONS = 5
    return showing.make(world, github, tmp_path, FILES)


# -- documents ------------------------------------------------------------------------------------


@shows(NO_CLAIMS="No verifiable claims found in the changed documentation files.")
def no_claims(shown: Shown) -> None:
    shown.review({"README.md": "# Demo\n\nA small library of nothing at all.\n"})


@shows(CLAIMS="1 claim of documents: 1 hold, 0 refuted, 0 ambiguous, 0 not checkable.")
def claims(shown: Shown) -> None:
    shown.review({"README.md": "See `src/retry.py`.\n"})


@shows(DOCUMENTS_FAILED="Documents were not verified: the tree has more than 1 files.")
def documents_failed(shown: Shown) -> None:
    shown.world.monkeypatch.setattr(fetching, "MAX_ENTRIES", 1)
    shown.review({"README.md": "See `src/retry.py`.\n"})


@shows(
    BY_MEANING="1 section of documents compared by meaning: 1 may be out of date, 0 hold, 0 uncertain.",
)
def by_meaning(shown: Shown) -> None:
    shown.world.llm.server.respond = said(DRIFTED)
    shown.review(CHANGED)


@shows(SECTION_UNUSABLE=f"Could not verify this section (analysis returned invalid output): {PLACE}.")
def section_unusable(shown: Shown) -> None:
    shown.world.llm.server.respond = said("I would rather talk about potatoes.")
    shown.review(CHANGED)


@shows(SECTION_NO_EVIDENCE=f"Insufficient evidence to verify this section: {PLACE}.")
def section_no_evidence(shown: Shown) -> None:
    shown.world.llm.server.respond = said({**DRIFTED, "quote_code": "wait(seconds=60)"})
    shown.review(CHANGED)


@shows(
    SECTION_TOO_LONG="Analysis of this section exceeded model context limits. Consider splitting it:"
    f" {PLACE}."
)
def section_too_long(shown: Shown) -> None:
    shown.world.llm.server.respond = said('{"verdict": "dri', finish_reason="length")
    shown.review(CHANGED)


@shows(SECTION_NO_MODEL=f"Not verified, because the language model could not be used: {PLACE}.")
def section_no_model(shown: Shown) -> None:
    shown.world.settings.LLM_REQUIRED = False
    shown.world.llm.server.respond = lambda request: error(401, "x")
    shown.review(CHANGED)


@shows(SECTION_OVER_LIMIT=f"Not verified, because the limit of tokens was reached: {PLACE}.")
def section_over_limit(shown: Shown) -> None:
    shown.world.llm.server.respond = lambda request: Reply(input_tokens=6_000)
    shown.world.settings.TOKEN_LIMIT_PER_REVIEW = 6_500
    shown.review(CHANGED)


@shows(
    STOPPED="Review timed out after 1 of 3 parts. Results shown are from the completed portion; the rest will"
    " be checked with the next version.",
    SECTION_NO_TIME=f"Not verified, because the review ran out of time: {PLACE}.",
    PARTIAL="neutral Partial scan no findings, 3 of 3 files read (2 by checks only). Review timed out",
)
def stopped(shown: Shown) -> None:
    limits = ReviewLimits(max_input_tokens=8_000, max_parallel_calls=1)
    shown.world.monkeypatch.setattr(recipe, "limits", lambda: limits)
    answers = iter([Reply()])
    shown.world.llm.server.respond = lambda request: next(answers, error(503, "x")) if request.raw else None
    long = {f"long{i}.py": "".join(f"v{i}_{n}\n" for n in range(600)) for i in range(2)}
    job = shown.open({**CHANGED, **long})
    shown.world.work()
    prepared.rows(
        "WITH job AS (UPDATE jobs SET deadline_at = now() + interval '100 s' WHERE id = %(job)s)"
        " UPDATE stage_runs SET started_at = now() - interval '1 hour'"
        " WHERE job_id = %(job)s AND stage = 'llm'",
        {"job": job},
    )
    shown.world.settle()


@shows(SECTION_STEERS=f"Not verified, because the text addresses an automated reviewer: {PLACE}.")
def section_steers(shown: Shown) -> None:
    shown.repo.commit_files({"docs/retries.md": f"# Retries\n\n{INJECTION}\n\n{SENTENCE}\n"})
    shown.review(CHANGED)


@shows(
    SECTION_NOT_CLEAN="Not verified, because the text could not be cleaned of secrets with certainty:"
    f" {PLACE}."
)
def section_not_clean(shown: Shown) -> None:
    guard = transport.guard

    def doubting(text: RedactedText) -> str:
        if "section of the document" in guard(text):
            raise RedactionBlocked("in_doubt")
        return guard(text)

    shown.world.monkeypatch.setattr(transport, "guard", doubting)
    shown.review(CHANGED)


@shows(
    SEMANTIC_OFF="Semantic search is disabled because the embedding model configuration changed."
    " Run a full scan to re-index.",
)
def semantic_off(shown: Shown) -> None:
    _embedded(shown)
    shown.review(CHANGED)
    shown.world.settings.EMBEDDINGS_MODEL, shown.world.settings.EMBEDDINGS_DIMENSIONS = "embed-64", 8
    shown.review({"src/retry.py": BEFORE})


@shows(SEMANTIC_AWAY="Semantic search was left out: the server of embeddings could not be used.")
def semantic_away(shown: Shown) -> None:
    _embedded(shown)
    shown.world.llm.server.respond = lambda request: (
        error(401, "x") if request.path.endswith("/embeddings") else None
    )
    shown.repo.commit_files({"docs/patience.md": "# Patience\n\nThe pause before another go lasts long.\n"})
    shown.review(CHANGED)


def _embedded(shown: Shown) -> None:
    settings = shown.world.settings
    settings.EMBEDDINGS_BASE_URL, settings.EMBEDDINGS_MODEL = shown.world.llm.base_url, "embed-256"
    settings.EMBEDDINGS_API_KEY = ["embedding-key"]
    shown.world.llm.server.embed = meant


def _scanned(shown: Shown) -> None:
    world, repo = shown.world, shown.repo
    world.settings.GIT_REPOSITORIES = {"demo": repo.path}
    world.settings.DEPOT_ALLOW_LIST = ["//demo/..."]
    world.monkeypatch.setattr(fetch.config, "source_of_job", SOURCE_OF_JOB)
    of = ScanTarget.objects.create(path="//demo/...", reason="DOC-1", recipients=f"{MAIL} {world.hook}")
    shown.job = scan_requests.request(of, "s-1", "ann").job_id or 0
    world.settle()


@shows(
    SCAN_PARTIAL="Scan timed out after verifying 1 of 2 claims. Results shown are from the completed portion."
    " Remaining claims will be checked by the next scan."
)
def scan_partial(shown: Shown) -> None:
    shown.repo.commit_files({"README.md": "See `src/retry.py`.\n", "docs/z.md": "See `src/retry.py`.\n"})
    stored = scan._Scan._store

    def stored_late(self: scan._Scan, *document: Any) -> None:
        stored(self, *document)
        self._until = time.monotonic()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan._Scan, "_store", stored_late)
        _scanned(shown)


@shows(
    SCAN_UNLISTED="Scan timed out before its documents were listed. They will be checked by the next scan."
)
def scan_unlisted(shown: Shown) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan._Scan, "_left", lambda self: 0.0)
        _scanned(shown)


@shows(SCAN_NO_CLAIMS="No verifiable claims found in the documentation files.")
def scan_without_claims(shown: Shown) -> None:
    shown.repo.commit_files(dict.fromkeys(FILES) | {"README.md": "# Demo\n\nA small library of nothing.\n"})
    _scanned(shown)


@shows(
    SCAN_NO_DOCUMENTS="No document was read: the path has none, or the allow-list or a skipped path"
    " shuts them out."
)
def scan_without_documents(shown: Shown) -> None:
    shown.repo.commit_files(dict.fromkeys(FILES) | {"src/retry.py": "PAUSE = 3\n"})
    _scanned(shown)


@shows(DOCUMENTS_OFF="The repository's configuration switches the verification of documents off.")
def documents_off(shown: Shown) -> None:
    shown.repo.commit_files({".criticizer.yml": "docs: {enabled: false}\n"})
    _scanned(shown)


# -- configuration of a repository ----------------------------------------------------------------


@shows(
    CONFIGURATION="Configuration warning: `.criticizer.yml` has invalid YAML syntax. Using all default"
    " settings.",
    NO_YAML="`.criticizer.yml` has invalid YAML syntax. Using all default settings.",
)
def no_yaml(shown: Shown) -> None:
    shown.repo.commit_files({".criticizer.yml": "llm: [\n"})
    shown.review(CHANGED)


@shows(FILE_NOT_USED="`.criticizer.yml` is not used. Using all default settings.")
def file_not_used(shown: Shown) -> None:
    shown.repo.commit_files({".criticizer.yml": "version: 2\n"})
    shown.review(CHANGED)


@shows(
    INVALID_VALUE='Configuration warning: field `min_severity` is invalid ("severe" is not one of: low,'
    " medium, high, critical), using default value `low`."
)
def invalid_value(shown: Shown) -> None:
    shown.repo.commit_files({".criticizer.yml": "min_severity: severe\n"})
    shown.review(CHANGED)


# -- reviews on code hosts ------------------------------------------------------------------------


def _findings(count: int) -> dict[str, Any]:
    found = [
        {**FINDING, "file": f"{ROOT}src/new.py", "quote": f"value_{n} = {n}", "title": f"Value {n} is wrong",
         "problem": f"The value {n} is wrong."}
        for n in range(count)
    ]  # fmt: skip
    return {"findings": found, "files_read": [f"{ROOT}src/new.py"]}


def _found(shown: Shown, count: int) -> None:
    shown.world.llm.script(Reply(answer=_findings(count), repeat=9))
    shown.review({"src/new.py": "".join(f"value_{n} = {n}\n\n\n" for n in range(count))})


@shows(
    COMMENT_TOO_LONG="Showing 3 of 5 findings. Full results are available on the page of the review.",
)
def comment_too_long(shown: Shown) -> None:
    shown.world.monkeypatch.setattr(markdown, "MAX_CHARACTERS", 600)
    _found(shown, 9)


@shows(
    COMMENTS_PENDING="Some review comments are pending due to GitHub API rate limits and will appear shortly."
)
def comments_pending(shown: Shown) -> None:
    def low() -> None:
        shown.github.remaining, shown.github.reset_seconds = 4, 2400

    stages.BEFORE["notify"] = low
    _found(shown, 1)


@shows(
    OLDER_COMMIT="Note: These results are from commit `HEAD`. The PR has been updated since this scan ran."
)
def older_commit(shown: Shown) -> None:
    stages.BEFORE["notify"] = lambda: setattr(shown.github.repos["acme/web"].pulls[7], "head", "f" * 40)
    shown.review(CHANGED)


@shows(
    NO_PERMISSION="failure Permission error Criticizer no longer has permission to access this repository."
    " Please check the app installation."
)
def no_permission(shown: Shown) -> None:
    class Refusing(OfPull):
        def describe(self, *given: Any, **more: Any) -> Any:
            raise PermanentFailure(ErrorClass.PERMISSION_DENIED, Component.SOURCE, "403")

    source = Refusing(shown.repo.path, shown.repo.git("rev-parse", "HEAD"))
    shown.open(CHANGED)
    shown.world.monkeypatch.setattr(fetch.config, "source_of_job", lambda job: source)
    shown.world.settle()


@shows(
    FAILED="failure The review failed Criticizer encountered an error reviewing this change: The language"
    " model"
)
def failed(shown: Shown) -> None:
    shown.world.llm.server.respond = lambda request: error(401, "x")
    shown.review(CHANGED)


# -- agents ---------------------------------------------------------------------------------------

TASKS = "/api/v1/agent-tasks/"


def _agent(shown: Shown, parts: int) -> ApiClient:
    """Offer the parts of a change to an agent."""
    shown.world.settings.LLM_PROVIDER = "agent"
    shown.world.monkeypatch.setattr(recipe, "limits", lambda: ReviewLimits(max_input_tokens=8_000))
    key = api_keys.create("agent", "agent", [f"{ROOT}..."])
    shown.open({f"f{i}.py": "".join(f"v{i}_{n}\n" for n in range(600)) for i in range(parts)})
    shown.world.work()
    assert AgentTask.objects.count() == parts
    return ApiClient(key)


def _claim(agent: ApiClient) -> tuple[str, str]:
    answer: Any = agent.post_json(f"{TASKS}claim/", {"agent": "ci-1"})
    return f"{TASKS}{answer.json()['id']}/result/", answer.json()["claim_token"]


def _finish(agent: ApiClient, count: int) -> None:
    for _ in range(count):
        path, token = _claim(agent)
        _send(agent, path, claim_token=token, success=True, data=CHUNK)


def _send(agent: ApiClient, path: str, **body: Any) -> Any:
    return agent.post_json(path, body)


def _expire(shown: Shown) -> None:
    AgentTask.objects.filter(status__in=("pending", "in_progress")).update(expires_at=timezone.now())
    expire.sweep()
    shown.world.settle()


@shows(
    NO_AGENT="Agent not configured. Only syntactic checks were performed.",
    AGENT_SETUP="action_required Agent setup required Criticizer requires the agent to be configured before a"
    " model can review this change. See the page on agents in the documentation for instructions.",
)
def no_agent(shown: Shown) -> None:
    shown.world.settings.LLM_PROVIDER = "agent"
    ApiKey.objects.filter(role="agent").delete()
    shown.review(CHANGED)


@shows(
    AGENTS_LATE="Warning: 33% of claims could not be verified because the agent did not complete in time."
    " Check your agent's configuration and model key.",
    AGENT_CRASHED="The agent encountered an error. 2 of 3 claims were verified.",
    PART_NO_RESULT="not reviewed: the agent did not respond within the time limit",
)
def agents_late(shown: Shown) -> None:
    agent = _agent(shown, 3)
    _finish(agent, 2)
    _claim(agent)
    _expire(shown)


@shows(AGENTS_LATE_FEW="1 claim(s) could not be verified due to timeout.")
def agents_late_few(shown: Shown) -> None:
    _finish(_agent(shown, 5), 4)
    _expire(shown)


@shows(
    SECTION_AGENT_TIMEOUT=f"Verification timed out. The agent did not respond within the time limit: {PLACE}."
)
def section_agent_timeout(shown: Shown) -> None:
    shown.world.settings.LLM_PROVIDER = "agent"
    api_keys.create("agent", "agent", [f"{ROOT}..."])
    shown.open(CHANGED)
    shown.world.work()
    _expire(shown)


@shows(
    PART_TOO_LONG="not reviewed: analysis exceeded the context limits of the agent's model; split the file or"
    " the change"
)
def part_too_long(shown: Shown) -> None:
    agent = _agent(shown, 1)
    path, token = _claim(agent)
    _send(agent, path, claim_token=token, success=False, error="token_limit_exceeded")
    shown.world.settle()


@shows(PART_UNUSABLE="not reviewed: the model's answer could not be used; a rerun may help")
def part_unusable(shown: Shown) -> None:
    agent = _agent(shown, 1)
    path, token = _claim(agent)
    for _ in range(2):
        _send(agent, path, claim_token=token, success=True, data={"type": "review_chunk", "findings": [{}]})
    shown.world.settle()


# The texts of these are also expected, in fewer places, by the tests of what they tell of.
_LONG = {
    "no_claims", "documents_failed", "section_no_evidence", "section_too_long", "section_no_model",
    "section_over_limit", "section_steers", "semantic_away", "scan_unlisted", "scan_without_claims",
    "scan_without_documents", "file_not_used", "invalid_value", "agents_late_few", "section_unusable",
    "section_not_clean", "semantic_off", "documents_off", "no_yaml", "section_agent_timeout", "part_too_long",
    "part_unusable", "comment_too_long", "older_commit", "agents_late", "stopped", "scan_partial",
    "by_meaning", "comments_pending",
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in _LONG else ()) for name in CASES]
)
def test_a_text_appears_in_each_of_its_places(shown: Shown, name: str) -> None:
    case, expected = CASES[name]
    case(shown)
    missing, table = [], texts.rows()
    for row, wording in expected.items():
        wording = wording.replace("`HEAD`", f"`{shown.repo.git('rev-parse', 'HEAD')}`")
        assert _is_of(table[row], wording)
        for place in table[row].places:
            missing += [(row, place, said) for said in shown.texts(place) if wording not in said]
    assert not missing, "\n".join(map(str, missing))


def _is_of(row: texts.Text, wording: str) -> bool:
    """Say whether a wording holds what is fixed of a row's text, or of its title."""
    fixed = re.split(r"\{\w+\}", row.text)
    return row.title in wording and (bool(row.title) or all(part in wording for part in fixed))


@pytest.mark.long
def test_counts_of_the_whole_tree_are_only_for_who_may_read_all_of_it(shown: Shown) -> None:
    claims(shown)
    report = report_of(shown.ended())
    whole, part = (Scope(prefixes=(prefix,)) for prefix in (ROOT, f"{ROOT}src/"))
    assert recipient_reports.part_of(report, whole).documents == CASES["claims"][1]["CLAIMS"]
    assert recipient_reports.part_of(report, part).documents == ""


# -- answers --------------------------------------------------------------------------------------

ANSWERS = {
    "RESULT_NOT_JSON": "Result data is not valid JSON. Retry with valid JSON.",
    "RESULT_INVALID": "Result validation failed. See `details` for specific field errors.",
    "TASK_NOT_FOUND": "Task not found.",
    "TASK_DONE": "Task already completed by another run.",
    "TASK_EXPIRED": "Task has expired. Result rejected.",
    "TASK_CLAIMED": "Task is claimed by another run.",
    "CLAIM_LOST": "The claim is no longer yours: claim again.",
    "NO_KEY": "Invalid or missing key. Send Authorization: Bearer <key>.",
    "BODY_TOO_LARGE": "The body is over 64 KiB, the limit of this address.",
    "KEY_NOT_ALLOWED": "The role or the prefixes of this API key do not allow the request.",
}


def _answer(name: str) -> Any:
    agent = ApiClient(api_keys.create("ci", "agent", ["//depot/main/..."]))
    if name == "TASK_NOT_FOUND":
        return _send(agent, f"{TASKS}{uuid.uuid4()}/result/", claim_token="x", success=True)
    if name == "BODY_TOO_LARGE":
        return agent.post_json(f"{TASKS}claim/", {"agent": "x" * 70_000})
    if name == "NO_KEY":
        return ApiClient("nothing").get(TASKS)
    if name == "KEY_NOT_ALLOWED":
        return ApiClient(api_keys.create("r", "reviewer")).get(TASKS)
    (task,) = add_tasks(waiting_job())
    path, token = _claim(agent)
    result = {"claim_token": token, "success": True, "data": CHUNK}
    if name == "RESULT_NOT_JSON":
        return _send(agent, path, **{**result, "data": "{"})
    if name == "RESULT_INVALID":
        return _send(agent, path, **{**result, "data": {"type": "review_chunk"}})
    if name == "TASK_CLAIMED":
        return agent.post_json(f"{TASKS}{task.pk}/claim/", {})
    if name == "CLAIM_LOST":
        return _send(agent, path, **{**result, "claim_token": "crt_other"})
    if name == "TASK_DONE":
        _send(agent, path, **result)
        return _send(agent, path, **result, error="another body")
    assert name == "TASK_EXPIRED"
    AgentTask.objects.update(expires_at=timezone.now())
    return _send(agent, path, **result)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ANSWERS)
def test_a_refused_request_is_answered_with_its_text(name: str) -> None:
    answer = _answer(name)
    assert (answer.status_code, answer.json()["message"]) == (texts.rows()[name].status, ANSWERS[name])


@pytest.mark.django_db
def test_a_link_that_is_not_valid_says_so() -> None:
    answer = Client().get("/verdict/?key=forged")
    assert answer.status_code == texts.LINK_NOT_VALID.status
    assert texts.LINK_NOT_VALID.text in answer.content.decode()
    assert texts.LINK_NOT_VALID.text.startswith("It is too old, its review is gone, or its recipient may no ")


@pytest.mark.django_db
def test_health_names_a_database_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(connection, "cursor", refuse)
    answer = Client().get("/health")
    assert (answer.status_code, answer.json()) == (
        503,
        {"status": "degraded", "reason": "database_unavailable"},
    )


def test_a_scan_that_is_out_of_time_says_how_far_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = GitRepo(tmp_path / "scanned")
    repo.commit_files({"README.md": "See `a.py` and `b.py`.\n", "a.py": "", "b.py": ""})
    late, judge = iter([False, True]), verify.judge
    monkeypatch.setattr(
        "reviews.drift.walk.judged",
        lambda *asked: uncheckable(Reason.NO_TIME) if next(late) else judge(*asked),
    )
    said = StringIO()
    call_command("check_docs", "HEAD", all=True, repository=repo.path, stdout=said)
    assert "Scan timed out after verifying 1 of 2 claims." in said.getvalue()


# -- the table ------------------------------------------------------------------------------------

ELSEWHERE = {"LINK_NOT_VALID", "DATABASE_AWAY", "SCAN_TIMED_OUT"}


def test_every_text_of_the_table_has_a_case() -> None:
    in_cases = [row for _, expected in CASES.values() for row in expected]
    assert sorted([*in_cases, *ANSWERS, *ELSEWHERE]) == sorted(texts.rows())
    reviewed = set(Place) - {Place.ANSWER, Place.HEALTH, Place.COMMAND}
    assert all(set(texts.rows()[row].places) <= reviewed for row in in_cases)
    assert all(texts.rows()[row].places == (Place.ANSWER,) for row in ANSWERS)


def test_the_page_of_the_docs_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    call_command("text_table", check=True)
    monkeypatch.setattr(texts, "_HEAD", "# Other\n")
    with pytest.raises(CommandError, match="not current"):
        call_command("text_table", check=True)


def test_no_sentence_of_the_table_stands_a_second_time_in_the_product() -> None:
    root = Path(texts.__file__).parent.parent
    sources = [
        file
        for app in ("criticizer", "reviews", "notifications", "deadletters", "templates")
        for file in (root / app).rglob("*.*")
        if file.suffix in {".py", ".html", ".txt"} and file != Path(texts.__file__)
    ]
    product = {file.name: _letters(file.read_text()) for file in sources}
    for row, text in texts.rows().items():
        longest = max((_letters(part) for part in re.split(r"\{\w+\}", text.text)), key=len)
        if len(longest) >= 25:
            assert [name for name, said in product.items() if longest in said] == [], row


def _letters(text: str) -> str:
    return re.sub(r"[^a-z]", "", text.lower())
