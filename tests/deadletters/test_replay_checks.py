"""Circuits in a letter's validation: rows and current answers, with what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from criticizer.db import prepared
from criticizer.models import Circuit
from criticizer.resilience import overrides
from criticizer.resilience.circuit_breaker import create
from criticizer.resilience.health_checks import CHECKS
from criticizer.resilience.states import CircuitState
from deadletters import batches, workflow
from deadletters.models import DeadLetter
from deadletters.ports import recovery
from deadletters.types import Check, Failed
from notifications.recipients import missing_provider_reason
from reviews import config
from reviews.health_checks import model as ask_model
from reviews.models import Artifact, FindingRow, ReviewJob
from reviews.pipeline.dependencies import dependencies_of, why_not_configured
from reviews.replay.effects import _review
from tests import factories
from tests.deadletters.test_workflow import Fail, denied
from tests.fakes.llm import FakeLlm

pytestmark = pytest.mark.django_db
LLM = "llm:openai"


@pytest.fixture
def letter(fail: Fail, settings: Any) -> DeadLetter:
    """A remediated letter of the stage that asks the model, whose circuit has a row."""
    made = fail()
    workflow.triage(made.pk, actor="ann", category="transient")
    workflow.remediate(made.pk, actor="ann", evidence_note="OPS-1")
    settings.LLM_PROVIDER, settings.LLM_MODEL, settings.LLM_API_KEYS = "openai", "m", []
    CHECKS["llm"] = ask_model
    create(LLM)
    return made


def stand(state: CircuitState) -> None:
    if state == CircuitState.FORCED_OPEN:
        overrides.force(LLM, state, actor="ann", reason="INC-7", seconds=60)
        return
    Circuit.objects.update(state="open")
    prepared.rows("UPDATE circuits SET retry_at = now() + interval '20 seconds'")
    if state == CircuitState.HALF_OPEN:
        Circuit.objects.update(state=state)


def validated(letter: DeadLetter) -> tuple[bool, dict[str, str]]:
    """Validate; return whether it passed and what was said, by check."""
    result = workflow.validate(letter.pk, actor="ann")
    return result.ok, {check.name: check.message for check in result.checks}


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (
            CircuitState.OPEN,
            "is open, but llm:openai answers: a replay waits for it, and uses no attempt",
        ),
        (CircuitState.HALF_OPEN, "is half-open: the next call tries it, and uses no attempt"),
    ],
)
def test_open_circuit_passes_validation_while_the_server_answers(
    letter: DeadLetter, settings: Any, state: CircuitState, says: str
) -> None:
    stand(state)
    with FakeLlm() as server:
        settings.LLM_BASE_URL = server.base_url
        passed, said = validated(letter)
    assert passed
    assert said[f"circuit {LLM}"] == f"the circuit of {LLM} {says}"
    assert said[f"answers {LLM}"] == f"{LLM} answers and accepts the credentials"
    # What passed now is not refused a moment later.
    assert workflow.replay(letter.pk, actor="ann", reason="OPS-1").ok
    assert Circuit.objects.get(pk=LLM).state == state


def test_open_circuit_of_a_silent_server_advises_the_operator(letter: DeadLetter, settings: Any) -> None:
    stand(CircuitState.OPEN)
    with FakeLlm() as server:
        settings.LLM_BASE_URL = server.base_url
    passed, said = validated(letter)  # the server is gone
    assert not passed
    assert said[f"circuit {LLM}"] == (
        f"the circuit of {LLM} is open: validate again when it is half-open or closed, or override"
        " the check for a single dead letter: its replay then waits, and a batch would stop"
    )
    assert (
        f"the model server at 127.0.0.1:{server.server.port} could not be reached" in said[f"answers {LLM}"]
    )


def test_forced_open_circuit_fails_validation(letter: DeadLetter, settings: Any) -> None:
    stand(CircuitState.FORCED_OPEN)
    with FakeLlm() as server:
        settings.LLM_BASE_URL = server.base_url
        passed, said = validated(letter)
    assert not passed
    assert said[f"circuit {LLM}"] == (
        f"the circuit of {LLM} is forced open: an operator stopped all calls;"
        " release it in the admin, under Circuits"
    )


def test_open_circuit_without_health_check_fails_validation(letter: DeadLetter, settings: Any) -> None:
    CHECKS.clear()
    stand(CircuitState.OPEN)
    passed, said = validated(letter)
    assert not passed
    assert said[f"answers {LLM}"] == f"{LLM} has no health check: the first call of the replay will show"


# -- a restart needs what all stages need -------------------------------------------------------


@pytest.fixture
def p4(settings: Any) -> str:
    """Return the name of a Perforce server whose circuit has a row."""
    settings.P4PORT = "perforce.example.com:1666"
    name = config.perforce_dependency()
    create(name)
    return name


def test_a_restart_needs_the_source_the_model_and_the_channels(letter: DeadLetter, p4: str) -> None:
    failed = Failed(letter.job_id, "llm")
    ReviewJob.objects.filter(pk=letter.job_id).update(
        recipients=["mail:ann@example.com", "slack:C0123ABCD", "webhook:https://told.example.com/x"]
    )
    factories.DeliveryFactory(
        job=letter.job, recipient="webhook:https://told.example.com/x", status="abandoned"
    )
    assert dependencies_of([failed]) == {letter.job_id: [LLM]}
    assert dependencies_of([failed], restarted=[letter.job_id]) == {
        letter.job_id: [p4, LLM, "provider:maildir", "provider:slack"]
    }
    other = factories.ReviewJobFactory(changelist_id=f"git:demo@{'a' * 40}", recipients=[]).pk
    assert dependencies_of([Failed(other, "notify")], restarted=[other]) == {other: [LLM]}


@pytest.mark.parametrize(("restart", "verdict"), [(True, "circuit_open"), (False, "eligible")])
def test_the_dry_run_of_a_restart_looks_at_the_source(
    letter: DeadLetter, p4: str, restart: bool, verdict: str
) -> None:
    overrides.force(p4, CircuitState.FORCED_OPEN, actor="ann", reason="INC-7", seconds=60)
    batch = batches.draft(
        filter={}, ids=[letter.pk], actor="ann", reason="OPS-1", evidence_note="OPS-1", is_restart=restart
    )
    assert batches.dry_run(batch.pk)["verdicts"] == {verdict: 1}


def test_restart_without_artifact_reports_its_sources_check(letter: DeadLetter, p4: str) -> None:
    Artifact.objects.update(deleted_at=timezone.now())
    failed = Failed(letter.job_id, "llm")

    def artifact(restart: bool) -> Check:
        checks = recovery().survey([failed], restart=restart)[letter.job_id]
        return next(check for check in checks if check.name == "artifact")

    passed, refused = artifact(True), artifact(False)
    assert (passed.ok, passed.message) == (
        True,
        f"the change artifact has expired and will be fetched again: the circuit of {p4} is closed",
    )
    assert (refused.ok, refused.is_hard) == (False, True)
    assert refused.message == "the change artifact has expired; restart from the first stage instead"
    overrides.force(p4, CircuitState.FORCED_OPEN, actor="ann", reason="INC-7", seconds=60)
    stopped = artifact(True)
    assert (stopped.ok, stopped.is_hard) == (False, False)
    assert stopped.message.endswith(f"cannot be fetched again now: the circuit of {p4} is forced open")
    # Nobody decided yet: only a restart can work, so that its source is asked as well.
    assert [check.name for check in recovery().circuits([failed], restart=None)] == [
        f"circuit {LLM}",
        f"circuit {p4}",
    ]


@pytest.mark.parametrize(
    ("recipient", "says"),
    [
        ("slack:C0123ABCD", "no provider is configured for slack recipients: set SLACK_BOT_TOKEN"),
        (
            "swarm:review-123",
            "no provider is configured for swarm recipients: set SWARM_URL, SWARM_USER and SWARM_TICKET",
        ),
    ],
)
def test_a_channel_without_its_variables_does_not_answer(
    fail: Callable[..., DeadLetter], settings: Any, recipient: str, says: str
) -> None:
    settings.SLACK_BOT_TOKEN = settings.SWARM_URL = ""
    made = fail(stage="notify", failure=denied())
    factories.DeliveryFactory(job=made.job, recipient=recipient, status="failed")
    workflow.triage(made.pk, actor="ann", category="transient")
    workflow.remediate(made.pk, actor="ann", evidence_note="OPS-1")
    passed, said = validated(made)
    assert not passed
    assert said[f"answers provider:{recipient.partition(':')[0]}"] == says


def test_a_pull_request_waits_for_its_host_as_a_send_does(
    fail: Callable[..., DeadLetter], settings: Any
) -> None:
    settings.GITHUB_API_URL = "https://api.github.test"
    made = fail(stage="notify", failure=denied())
    for recipient in ("github:acme/web#7", "github-review:acme/web#7"):
        factories.DeliveryFactory(job=made.job, recipient=recipient, status="failed")
    failed = Failed(made.job_id, "notify")
    assert dependencies_of([failed]) == {made.job_id: ["github:api.github.test:443:acme"]}
    assert why_not_configured("github:api.github.test:443:acme") == (
        "no provider is configured for github recipients: set GITHUB_APP_ID and GITHUB_PRIVATE_KEY"
    )


def test_channels_that_are_served_and_other_dependencies_lack_nothing(settings: Any) -> None:
    settings.SLACK_BOT_TOKEN = ("xoxb-for-tests",)
    names = ["provider:slack", "provider:mail", "provider:maildir", "provider:webhook:a.example.com", LLM]
    assert [why_not_configured(name) for name in [*names, "p4:main:1666"]] == [""] * 6


def test_unusable_provider_settings_are_reported() -> None:
    assert missing_provider_reason("webhook", "WEBHOOK_SECRETS holds what is no secret") == (
        "the provider of webhook recipients cannot be made: WEBHOOK_SECRETS holds what is no secret"
    )
    assert missing_provider_reason("mail") == "no provider is configured for mail recipients"


@pytest.mark.parametrize(
    ("findings", "coverage", "says"),
    [
        (1, 1, "1 finding and the coverage of 1 file are stored"),
        (0, 2, "0 findings and the coverage of 2 files are stored"),
    ],
)
def test_stored_findings_and_coverage_are_counted(findings: int, coverage: int, says: str) -> None:
    job = factories.ReviewJobFactory()
    for _ in range(findings):
        FindingRow.objects.create(job=job, file="//depot/a.c", severity="low", category="bug", title="A leak")
    factories.CoverageRowFactory.create_batch(coverage, job=job)
    assert _review(job).message == says
