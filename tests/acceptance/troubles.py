"""Troubles outside or inside, each made for real; every trouble returns how it ends."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
from cryptography.fernet import Fernet
from django.db import connection, transaction

from criticizer.resilience.failures import Component, ErrorClass
from notifications import config as notification_config
from reviews import config as review_config
from reviews.models import ReviewJob
from tests.acceptance import stages
from tests.acceptance.world import World
from tests.beside import session
from tests.fakes.closed import closed_port
from tests.fakes.llm import Reply, error
from tests.fakes.p4.server import CONNECTION_REFUSED, UNKNOWN_HOST
from tests.fakes.smtp import SmtpServer, Switches
from tests.fakes.webhook import Behaviour
from tests.stack import eventually

End = Callable[[], None]
Trouble = Callable[[World], End]
OFTEN = 1000


@dataclass(frozen=True)
class Case:
    """One failure: the stage that it hits, and the class and component to be stored.

    `wait` is the Retry-After of its answer, in seconds.
    """

    name: str
    stage: str
    trouble: Trouble
    error_class: ErrorClass
    component: Component
    wait: float = 0.0
    retryable: bool = True
    restart: bool = False


def setting(**values: object) -> Trouble:
    """Deploy wrong settings; a callable value is given the world."""

    def begin(world: World) -> End:
        before = {name: getattr(world.settings, name) for name in values}
        for name, value in values.items():
            setattr(world.settings, name, value(world) if callable(value) else value)

        def end() -> None:
            for name, value in before.items():
                setattr(world.settings, name, value)

        return end

    return begin


# -- source: a `p4` that is a real process -----------------------------------------------------


def p4(command: str = "*", **fault: Any) -> Trouble:
    def begin(world: World) -> End:
        world.depot.misbehave(command, times=OFTEN, **fault)
        return world.depot.recover

    return begin


def p4_text(text: str) -> Trouble:
    return p4("info", stderr=text, exit=1)


def p4_says(message: str, command: str = "describe") -> Trouble:
    return p4(command, messages=[message])


def p4_never_answers(world: World) -> End:
    world.depot.misbehave("describe", hang=True, times=1)
    short = functools.partial(review_config.PerforceConfig, describe_timeout_seconds=0.3)
    world.monkeypatch.setattr(review_config, "PerforceConfig", short)

    def end() -> None:
        world.monkeypatch.setattr(review_config, "PerforceConfig", short.func)
        world.depot.recover()

    return end


# -- reviewer: a model server on a real socket -------------------------------------------------


def llm(reply: Reply) -> Trouble:
    def begin(world: World) -> End:
        world.llm.server.respond = lambda _: reply

        def end() -> None:
            world.llm.server.respond = None

        return end

    return begin


def llm_status(status: int, code: str = "", **headers: str) -> Trouble:
    return llm(error(status, "constructed", code or None, **headers))


def llm_line(mode: str) -> Trouble:
    """Put a troubled line before the model server."""
    url = lambda world: f"http://127.0.0.1:{world.lines(world.llm.server.port, mode).port}/v1"  # noqa: E731
    return setting(LLM_BASE_URL=url, LLM_TIMEOUT_SECONDS=0.3 if mode == "silent" else 10)


def llm_key_refused(world: World) -> End:
    world.llm.server.refused_keys = frozenset(world.settings.LLM_API_KEYS)

    def end() -> None:
        world.llm.server.refused_keys = frozenset()

    return end


# -- provider: a webhook receiver, a mail server, a maildir ------------------------------------


def hook(**behaviour: Any) -> Trouble:
    def begin(world: World) -> End:
        world.receiver.always(Behaviour(**behaviour))
        return lambda: world.receiver.always(Behaviour())

    return begin


def hook_line(mode: str) -> Trouble:
    def begin(world: World) -> End:
        line = world.lines(world.receiver.port, mode)
        world.hook = f"webhook:http://127.0.0.1:{line.port}/hook"
        usual = notification_config.WebhookConfig
        if mode == "silent":
            short = functools.partial(usual, total_timeout_seconds=1.0)
            world.monkeypatch.setattr(notification_config, "WebhookConfig", short)

        def end() -> None:
            world.monkeypatch.setattr(notification_config, "WebhookConfig", usual)
            line.mend()

        return end

    return begin


def smtp(switches: Switches, **values: object) -> Trouble:
    """Send mail through a server that misbehaves, until it does not."""

    def begin(world: World) -> End:
        world.smtp = world.enter(SmtpServer(switches))
        world.settings.SMTP_HOST, world.settings.SMTP_PORT = "127.0.0.1", world.smtp.port
        mended = setting(**values)(world)

        def end() -> None:
            assert world.smtp is not None
            world.smtp.switches = Switches()
            mended()

        return end

    return begin


def smtp_refused(world: World) -> End:
    world.settings.SMTP_HOST, world.settings.SMTP_PORT = "127.0.0.1", world.enter(closed_port())

    def end() -> None:
        world.smtp = world.enter(SmtpServer())
        world.settings.SMTP_PORT = world.smtp.port

    return end


# -- inside: what happens right before a stage does its work -----------------------------------


def before(stage: str, happening: Callable[[World], object]) -> Trouble:
    def begin(world: World) -> End:
        stages.BEFORE[stage] = lambda: happening(world)
        return lambda: stages.BEFORE.pop(stage, None) and None

    return begin


def serialization_failure(world: World) -> None:
    """Update from an old snapshot what another session has changed since."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("SELECT count(*) FROM api_keys")
        with session() as other:
            other.execute("UPDATE api_keys SET name = 'another'")
        cursor.execute("UPDATE api_keys SET name = 'mine'")


def deadlock(world: World) -> None:
    """Lock two rows in the opposite order of another session; this one is the victim."""
    with transaction.atomic(), connection.cursor() as cursor, session() as other:
        # Only this session looks for deadlocks in time, so it is the one that fails.
        other.execute("SET LOCAL deadlock_timeout = '60s'")
        cursor.execute("SET LOCAL deadlock_timeout = '10ms'")
        other.execute("SELECT pg_advisory_xact_lock(2)")
        cursor.execute("SELECT pg_advisory_xact_lock(1)")
        pid = other.info.backend_pid
        waiting = threading.Thread(target=_wait_for_the_first_lock, args=(other,))
        waiting.start()
        try:
            # PostgreSQL looks once, after the timeout: the other session has to wait by then.
            eventually(lambda: _waits_for_a_lock(cursor, pid))
            cursor.execute("SELECT pg_advisory_xact_lock(2)")
        finally:
            other.cancel()
            waiting.join()


def _wait_for_the_first_lock(other: psycopg.Connection[Any]) -> None:
    with contextlib.suppress(psycopg.errors.QueryCanceled):
        other.execute("SELECT pg_advisory_xact_lock(1)")


def _waits_for_a_lock(cursor: Any, pid: int) -> bool:
    cursor.execute(
        "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = %s AND locktype = 'advisory' AND NOT granted)", [pid]
    )
    return bool(cursor.fetchone()[0])


def lock_not_available(world: World) -> None:
    with session() as other, transaction.atomic(), connection.cursor() as cursor:
        other.execute("LOCK TABLE api_keys")
        cursor.execute("LOCK TABLE api_keys NOWAIT")


def duplicate_write(world: World) -> None:
    """Insert what another writer has inserted first."""
    job = ReviewJob.objects.get()
    job.pk = None
    job.save(force_insert=True)


def connection_lost(world: World) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid = cursor.fetchone()[0]
        with session() as other:
            other.execute("SELECT pg_terminate_backend(%s)", [pid])
        cursor.execute("SELECT 1")


def null_dereference(world: World) -> None:
    None.attribute  # type: ignore[attr-defined]  # noqa: B018


def illegal_state(world: World) -> None:
    with transaction.atomic():
        ReviewJob.objects.update(review_version=-1)


def invariant_violation(world: World) -> None:
    raise AssertionError("an invariant does not hold")


def artifact_gone(world: World) -> None:
    for storage in ("artifacts_raw", "artifacts_redacted"):
        for path in (world.files / storage).rglob("*.bin"):
            path.unlink()


def artifact_key_lost(world: World) -> None:
    world.settings.ARTIFACT_KEYS = [Fernet.generate_key().decode()]


# -- the table ---------------------------------------------------------------------------------

_E, _P = ErrorClass, Component
_FINDING_WITHOUT_FIELDS = {"findings": [{"file": "//depot/main/a.c"}], "files_read": []}

NETWORK = [
    Case("p4-refused", "fetch", p4_text(CONNECTION_REFUSED), _E.NETWORK_UNREACHABLE, _P.SOURCE),
    Case("p4-dns", "fetch", p4_text(UNKNOWN_HOST), _E.NETWORK_UNREACHABLE, _P.SOURCE),
    Case("p4-receive-timeout", "fetch", p4_says("receive_timeout"), _E.NETWORK_TIMEOUT, _P.SOURCE),
    Case("p4-never-answers", "fetch", p4_never_answers, _E.NETWORK_TIMEOUT, _P.SOURCE),
    Case("p4-partner-exited", "fetch", p4_says("partner_exited"), _E.NETWORK_UNREACHABLE, _P.SOURCE),
    Case("p4-maintenance", "fetch", p4_says("maintenance"), _E.UPSTREAM_UNAVAILABLE, _P.SOURCE, wait=120),
    Case("llm-refused", "llm", llm_line("refuse"), _E.NETWORK_UNREACHABLE, _P.REVIEWER),
    Case(
        "llm-dns", "llm", setting(LLM_BASE_URL="http://model.invalid/v1"),
        _E.NETWORK_UNREACHABLE, _P.REVIEWER,
    ),
    Case("llm-silent", "llm", llm_line("silent"), _E.NETWORK_TIMEOUT, _P.REVIEWER),
    Case("llm-reset", "llm", llm_line("reset"), _E.NETWORK_UNREACHABLE, _P.REVIEWER),
    Case("llm-truncated", "llm", llm(Reply(truncate=True)), _E.NETWORK_UNREACHABLE, _P.REVIEWER),
    Case("llm-502", "llm", llm_status(502), _E.UPSTREAM_UNAVAILABLE, _P.REVIEWER),
    Case("llm-503", "llm", llm_status(503), _E.UPSTREAM_UNAVAILABLE, _P.REVIEWER),
    Case(
        "llm-503-retry-after", "llm", llm_status(503, Retry_After="11"),
        _E.UPSTREAM_UNAVAILABLE, _P.REVIEWER, wait=11,
    ),
    Case("llm-504", "llm", llm_status(504), _E.UPSTREAM_UNAVAILABLE, _P.REVIEWER),
    Case("hook-refused", "notify", hook_line("refuse"), _E.NETWORK_UNREACHABLE, _P.PROVIDER),
    Case("hook-silent", "notify", hook_line("silent"), _E.NETWORK_TIMEOUT, _P.PROVIDER),
    Case("hook-reset", "notify", hook_line("reset"), _E.NETWORK_UNREACHABLE, _P.PROVIDER),
    Case("hook-502", "notify", hook(status=502), _E.UPSTREAM_UNAVAILABLE, _P.PROVIDER),
    Case("hook-503", "notify", hook(status=503), _E.UPSTREAM_UNAVAILABLE, _P.PROVIDER),
    Case("hook-504", "notify", hook(status=504), _E.NETWORK_TIMEOUT, _P.PROVIDER),
    Case("smtp-refused", "notify", smtp_refused, _E.NETWORK_UNREACHABLE, _P.PROVIDER),
    Case(
        "smtp-421", "notify", smtp(Switches(greeting="421 4.3.2 try later")),
        _E.UPSTREAM_UNAVAILABLE, _P.PROVIDER,
    ),
]  # fmt: skip

RATE_LIMIT = [
    Case("p4-busy", "fetch", p4_says("busy"), _E.RATE_LIMITED, _P.SOURCE),
    Case("llm-429", "llm", llm_status(429), _E.RATE_LIMITED, _P.REVIEWER),
    Case(
        "llm-429-retry-after", "llm", llm_status(429, Retry_After="7"), _E.RATE_LIMITED, _P.REVIEWER, wait=7
    ),
    Case(
        "llm-429-above-the-ceiling", "llm", llm_status(429, Retry_After="4000"),
        _E.RATE_LIMITED, _P.REVIEWER, wait=4000,
    ),
    Case(
        "llm-rate-limit-exceeded", "llm", llm_status(400, "rate_limit_exceeded"),
        _E.RATE_LIMITED, _P.REVIEWER,
    ),
    Case("llm-quota", "llm", llm_status(429, "insufficient_quota"), _E.RATE_LIMITED, _P.REVIEWER),
    Case("hook-429", "notify", hook(status=429), _E.RATE_LIMITED, _P.PROVIDER),
    Case(
        "hook-429-retry-after", "notify", hook(status=429, headers={"Retry-After": "9"}),
        _E.RATE_LIMITED, _P.PROVIDER, wait=9,
    ),
]  # fmt: skip

UPSTREAM = [
    Case("p4-fault", "fetch", p4_says("foreign_fault"), _E.UPSTREAM_INTERNAL, _P.SOURCE),
    Case(
        "llm-internal-error", "llm", llm_status(500, "internal_error"), _E.UPSTREAM_INTERNAL, _P.REVIEWER
    ),
    Case("llm-500", "llm", llm_status(500), _E.UPSTREAM_INTERNAL, _P.REVIEWER),
    Case(
        "llm-error-with-200", "llm", llm(Reply(body='{"error": {"code": "server_error"}}')),
        _E.UPSTREAM_INTERNAL, _P.REVIEWER,
    ),
    Case("hook-500", "notify", hook(status=500), _E.UPSTREAM_INTERNAL, _P.PROVIDER),
]  # fmt: skip

CONFLICT = [
    Case(name, "fetch", before("fetch", happening), error_class, _P.DATABASE)
    for name, happening, error_class in (
        ("serialization-failure", serialization_failure, _E.WRITE_CONFLICT),
        ("deadlock", deadlock, _E.WRITE_CONFLICT),
        ("lock-not-available", lock_not_available, _E.WRITE_CONFLICT),
        ("duplicate-write", duplicate_write, _E.WRITE_CONFLICT),
        ("connection-lost", connection_lost, _E.DATABASE_UNAVAILABLE),
    )
]

SCHEMA = [
    Case("p4-unknown-message", "fetch", p4_says("foreign_usage"), _E.SCHEMA_INVALID, _P.SOURCE),
    Case("llm-malformed-twice", "llm", llm(Reply(answer="no JSON {")), _E.SCHEMA_INVALID, _P.REVIEWER),
    Case(
        "llm-schema-mismatch", "llm", llm(Reply(answer=_FINDING_WITHOUT_FIELDS)),
        _E.SCHEMA_INVALID, _P.REVIEWER,
    ),
    Case("llm-no-completion", "llm", llm(Reply(body="{}")), _E.SCHEMA_INVALID, _P.REVIEWER),
    Case("llm-422", "llm", llm_status(422), _E.SCHEMA_INVALID, _P.REVIEWER),
]  # fmt: skip

AUTHORISATION = [
    Case("p4-ticket-expired", "fetch", p4_says("session_expired"), _E.AUTH_DENIED, _P.SOURCE),
    Case("p4-permission", "fetch", p4_says("no_permission"), _E.PERMISSION_DENIED, _P.SOURCE),
    Case("llm-key-refused", "llm", llm_key_refused, _E.AUTH_DENIED, _P.REVIEWER),
    Case("llm-403", "llm", llm_status(403), _E.PERMISSION_DENIED, _P.REVIEWER),
    Case("hook-401", "notify", hook(status=401), _E.AUTH_DENIED, _P.PROVIDER),
    Case("hook-403", "notify", hook(status=403), _E.PERMISSION_DENIED, _P.PROVIDER),
    Case(
        "smtp-login", "notify",
        smtp(
            Switches(user="criticizer", password="right", refuse_login="535 5.7.8 no"),
            SMTP_USER="criticizer", SMTP_PASSWORD=("wrong",),
        ),
        _E.AUTH_DENIED, _P.PROVIDER,
    ),
]  # fmt: skip

NOT_FOUND = [
    Case("p4-no-such-changelist", "fetch", p4_says("no_such_changelist"), _E.NOT_FOUND, _P.SOURCE),
    Case(
        "artifact-gone", "llm", before("llm", artifact_gone), _E.NOT_FOUND, _P.SOURCE, restart=True
    ),
    Case("llm-no-such-model", "llm", llm_status(404, "model_not_found"), _E.NOT_FOUND, _P.REVIEWER),
    Case("hook-404", "notify", hook(status=404), _E.NOT_FOUND, _P.PROVIDER),
    Case("hook-gone", "notify", hook(status=410), _E.RECIPIENT_REJECTED, _P.PROVIDER),
    Case(
        "smtp-no-such-user", "notify", smtp(Switches(rcpt="550 5.1.1 no such user")),
        _E.RECIPIENT_REJECTED, _P.PROVIDER,
    ),
]  # fmt: skip

POLICY = [
    Case(
        "path-denied", "fetch", setting(DEPOT_ALLOW_LIST=["//demo/docs/..."]), _E.PATH_DENIED, _P.INTERNAL
    ),
    Case(
        "llm-content-filter", "llm", llm_status(400, "content_filter"), _E.POLICY_REJECTED, _P.REVIEWER
    ),
    Case("llm-refusal", "llm", llm(Reply(refusal="I cannot.")), _E.POLICY_REJECTED, _P.REVIEWER),
    Case(
        "llm-filtered-answer", "llm", llm(Reply(finish_reason="content_filter")),
        _E.POLICY_REJECTED, _P.REVIEWER,
    ),
    Case("hook-private", "notify", setting(OUTBOUND_ALLOW=[]), _E.POLICY_REJECTED, _P.PROVIDER),
]  # fmt: skip

CONFIGURATION = [
    Case("null-dereference", "fetch", before("fetch", null_dereference), _E.INTERNAL_BUG, _P.INTERNAL),
    Case("illegal-state", "fetch", before("fetch", illegal_state), _E.INTERNAL_BUG, _P.INTERNAL),
    Case("invariant", "notify", before("notify", invariant_violation), _E.INTERNAL_BUG, _P.INTERNAL),
    Case(
        "p4-missing", "fetch", setting(P4_EXECUTABLE="/nonexistent/p4"), _E.CONFIG_INVALID, _P.CONFIGURATION
    ),
    Case("p4port-unset", "fetch", setting(P4PORT=""), _E.CONFIG_INVALID, _P.CONFIGURATION),
    Case(
        "artifact-key-lost", "llm",
        before("llm", artifact_key_lost),
        _E.CONFIG_INVALID, _P.CONFIGURATION, restart=True,
    ),
    Case("llm-no-room", "fetch", setting(LLM_MAX_INPUT_TOKENS=500), _E.CONFIG_INVALID, _P.CONFIGURATION),
    Case("llm-redirects", "llm", llm(Reply(status=302)), _E.CONFIG_INVALID, _P.REVIEWER),
    Case(
        "smtp-no-starttls", "notify", smtp(Switches(), SMTP_SECURITY="starttls"),
        _E.CONFIG_INVALID, _P.CONFIGURATION,
    ),
]  # fmt: skip

RETRYABLE = [*NETWORK, *RATE_LIMIT, *UPSTREAM, *CONFLICT]
NOT_RETRYABLE = [*SCHEMA, *AUTHORISATION, *NOT_FOUND, *POLICY, *CONFIGURATION]
