"""The stage llm opens the redacted change only; the redactor alone opens the raw one (G160)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from criticizer.models import SecurityEvent
from criticizer.redaction import known_secrets, register_own_secrets
from criticizer.security.configured_secrets import own_secrets
from deadletters.types import Failed
from reviews.artifacts import store
from reviews.models import Artifact, CoverageRow, FindingRow, ReviewJob
from reviews.replay.adapter import JobRecovery
from reviews.reviewers import redactor_child as child
from tests.acceptance import stages
from tests.acceptance.world import World
from tests.fakes.p4.server import added

SECRET = "Tr0mbone77xq"
CODE = f'password = "{SECRET}"\nbreakpoint()\n'


@pytest.fixture
def log() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as events:
        yield events


@pytest.fixture
def before_llm() -> Iterator[Callable[[Callable[[], object]], None]]:
    yield lambda happening: stages.BEFORE.update(llm=lambda: happening() and None)
    stages.BEFORE.pop("llm", None)


def opened(log: list[Any]) -> list[tuple[str, bool]]:
    return [(event["kind"], event["raw"]) for event in log if event["event"] == "artifact_opened"]


def test_a_review_opens_no_raw_artifact(world: World, log: list[Any]) -> None:
    job = world.job(world.change(), world.hook)
    world.settle()
    assert world.status(job) == "succeeded"
    assert opened(log) == [("redacted", False)]
    stored = Artifact.objects.filter(job_id=job).order_by("id").values_list("kind", "is_raw")
    assert list(stored)[:2] == [("change", True), ("redacted", False)]


@pytest.mark.long
def test_what_is_stored_for_the_model_holds_no_secret(world: World) -> None:
    job = world.job(world.depot.submit(added("//depot/main/a.py", CODE)), world.hook)
    world.settle()
    data = store.load(job, Artifact.Kind.REDACTED).decode()
    assert "breakpoint()" in data
    assert SECRET not in data
    assert SECRET in store.load(job, Artifact.Kind.CHANGE).decode()


@pytest.mark.long
def test_a_change_prepared_for_other_limits_is_redacted_again(
    world: World, log: list[Any], before_llm: Callable[[Callable[[], object]], None]
) -> None:
    before_llm(lambda: setattr(world.settings, "LLM_MAX_INPUT_TOKENS", 9_000))
    job = world.job(world.change(), world.hook)
    world.settle()
    assert world.status(job) == "succeeded"
    assert opened(log) == [("redacted", False), ("change", True)]
    assert "change_redacted_again" in [event["event"] for event in log]


@pytest.mark.long
def test_without_the_raw_change_a_stale_redacted_one_must_be_fetched_again(
    world: World, before_llm: Callable[[Callable[[], object]], None]
) -> None:
    def age() -> None:
        world.settings.LLM_MAX_INPUT_TOKENS = 9_000
        Artifact.objects.filter(kind="change").update(expires_at="2020-01-01T00:00Z")
        store.delete_expired()

    before_llm(age)
    job = world.job(world.change(), world.hook)
    world.settle()
    letter = world.letter(job)
    assert (letter.error_class, letter.stage) == ("NOT_FOUND", "llm")
    assert "restart from fetch" in letter.detail
    (expired,) = (
        c for c in JobRecovery().survey([Failed(job, "llm")], restart=False)[job] if c.is_hard and not c.ok
    )
    assert "restart from the first stage" in expired.message
    stages.BEFORE.pop("llm")
    world.replay(job, restart=True)
    world.settle()
    assert world.status(job) == "succeeded"


@pytest.mark.long
def test_a_redacted_change_outlives_the_raw_one(
    world: World, log: list[Any], before_llm: Callable[[Callable[[], object]], None]
) -> None:
    def expire() -> None:
        Artifact.objects.filter(kind="change").update(expires_at="2020-01-01T00:00Z")
        store.delete_expired()

    before_llm(expire)
    job = world.job(world.change(), world.hook)
    world.settle()
    assert world.status(job) == "succeeded"
    assert opened(log) == [("redacted", False)]


@pytest.mark.parametrize(
    ("secret", "expected"),
    [
        pytest.param("ticket", [("redacted", False)], marks=pytest.mark.long),
        ("password", [("redacted", False), ("change", True)]),
    ],
)
def test_a_new_configured_secret_is_another_recipe_and_a_renewed_ticket_is_not(
    world: World,
    log: list[Any],
    before_llm: Callable[[Callable[[], object]], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    secret: str,
    expected: list[tuple[str, bool]],
) -> None:
    """Each process reads the tickets when it starts: two of them would disagree for ever."""
    monkeypatch.setattr(known_secrets, "_registered", known_secrets.registered())

    def renew() -> None:
        if secret == "ticket":
            world.settings.P4TICKETS = str(tmp_path / "tickets")
            (tmp_path / "tickets").write_text(f"localhost:1666=robot:{'4F' * 16}\n")
        else:
            world.settings.SMTP_PASSWORD = ("planted" + "-password",)
        register_own_secrets(own_secrets())

    before_llm(renew)
    job = world.job(world.change(), world.hook)
    world.settle()
    assert world.status(job) == "succeeded"
    assert opened(log) == expected


def test_a_name_that_hides_a_secret_is_still_checked_with_the_allow_list(
    world: World, before_llm: Callable[[Callable[[], object]], None]
) -> None:
    """The stored name shows a placeholder; the real one decides."""
    path = f"//depot/main/{SECRET}/b.py"
    change = world.depot.submit(added("//depot/main/a.py", CODE), added(path, "x = 1\n"))
    before_llm(
        lambda: setattr(
            world.settings, "DEPOT_ALLOW_LIST", ["//depot/main/...", f"-//depot/main/{SECRET}/..."]
        )
    )
    job = world.job(change, world.hook)
    world.settle()
    letter = world.letter(job)
    assert (letter.error_class, letter.stage) == ("PATH_DENIED", "llm")
    assert world.llm.requests == []


def test_a_value_known_from_a_file_is_taken_out_of_title_author_names_and_findings(world: World) -> None:
    path = f"//depot/main/{SECRET}.py"
    files = [added("//depot/main/a.py", CODE), added(path, "breakpoint()\n")]
    job = world.job(world.depot.submit(*files, description=f"Use {SECRET} for the new database"), world.hook)
    world.settle()
    row = ReviewJob.objects.get(pk=job)
    assert row.title == "Use <REDACTED:password:1> for the new database"
    shown = [
        *CoverageRow.objects.filter(job=job).values_list("file", "reason"),
        *FindingRow.objects.filter(job=job).values_list("file", "title", "message", "suggestion"),
    ]
    assert "//depot/main/<REDACTED:password:1>.py" in {texts[0] for texts in shown}
    assert SECRET not in str([row.title, row.author, shown])
    assert SECRET not in str([received.body for received in world.receiver.requests])


@pytest.mark.long
def test_a_change_that_takes_too_much_ends_at_its_first_attempt_with_an_event(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(child, "MEMORY_BYTES", 60_000_000)
        text = "value = compute()\n" * 15_000
        job = world.job(
            world.depot.submit(*(added(f"//depot/main/{n}.py", text) for n in range(9))), world.hook
        )
        world.settle()
    letter = world.letter(job)
    assert (letter.error_class, letter.stage) == ("REDACTION_BLOCKED", "fetch")
    assert len(world.attempts(job, "fetch")) == 1
    event = SecurityEvent.objects.get(kind=SecurityEvent.Kind.REDACTION_BLOCKED)
    assert (event.reason, event.context["stage"]) == ("too_much_memory", "fetch")


@pytest.mark.long
def test_files_that_were_not_read_are_named_in_mail_webhook_and_api(world: World) -> None:
    changelist = world.depot.submit(
        added("//depot/main/logo.png", b"\0", type="binary"), added("//depot/main/a.py", "x = 1\n")
    )
    job = world.job(changelist, "mail:ann@example.com", world.hook)
    world.settle()
    said = "1 file was skipped: binary file (1)."
    assert ReviewJob.objects.get(pk=job).banner == said
    assert world.api.get(f"/api/v1/reviews/{job}/").json()["banner"] == said
    (mail,) = world.mails()
    text = mail.get_body(("plain",))
    assert text is not None
    assert said in text.get_content()
    assert said in str([received.body for received in world.receiver.requests])
