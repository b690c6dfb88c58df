"""Text that the redactor cannot clear is sent to no model and leaves an audit row (G92)."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import pytest

from criticizer.models import SecurityEvent
from criticizer.redaction import Redactor, engine, require_policy
from criticizer.redaction.rules import issuer_tokens
from reviews.reviewers import prepared_change_codec, redactor
from reviews.reviewers.prepare import ReviewLimits, prepare
from reviews.sources import change_codec
from tests.acceptance.world import World

guard = importlib.import_module("criticizer.redaction.guard")
SECRET = "return 2"  # stands in the diff, so it would stand in any copy of it


def _raises(*args: object) -> None:
    raise ValueError(f"cannot scan: {SECRET}")


def _redact_here(raw: bytes, policy: dict[str, object], limits: ReviewLimits, recipe: str) -> bytes:
    change = change_codec.from_json(raw)
    return prepared_change_codec.to_json(prepare(change, Redactor(policy), limits), recipe)


def _break_scan(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(redactor, "redact_change", _redact_here)  # the redacting process sees no patch
    patch.setattr(engine, "scan", _raises)


def _break_guard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(guard, "_finds_pem", _raises)


def _find_something(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(guard, "_finds_own", lambda text: True)


def _age_rules(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(issuer_tokens, "RULESET", "newer")


def _age_policy(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(guard, "_required", None)
    require_policy({"emails": True, "internal_domains": ["newer.internal"]})


def _use_up_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(guard, "MAX_SECONDS", -1.0)


TROUBLES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "internal_error": _break_scan,
    "guard_failed": _break_guard,
    "guard_found": _find_something,
    "stale_ruleset": _age_rules,
    "stale_policy": _age_policy,
    "too_slow": _use_up_time,
}


QUICK = {"internal_error", "guard_found", "stale_ruleset"}  # one at each place that refuses


@pytest.mark.parametrize(
    "reason", [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in TROUBLES]
)
def test_blocked_request_is_not_sent_and_leaves_an_audit_row_without_content(
    reason: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        TROUBLES[reason](patch)
        job = world.job(world.commit, world.hook)
        world.settle()
        letter = world.letter(job)
        stage = "fetch" if reason == "internal_error" else "llm"
        assert (letter.error_class, letter.stage) == ("REDACTION_BLOCKED", stage)
        assert world.llm.requests == []
        event = SecurityEvent.objects.get(kind=SecurityEvent.Kind.REDACTION_BLOCKED)
        assert (event.reason, event.changelist_id, event.path) == (reason, world.commit, "")
        assert event.context == {"stage": stage, "job": job, "attempt": 1}
        for kept in (str(letter.sanitized_context), letter.last_stack, letter.detail, str(event.context)):
            assert SECRET not in kept
    # The twin: the trouble is over, the replay goes through.
    world.replay(job)
    world.settle()
    assert world.status(job) == "succeeded"
    assert len(world.llm.requests) == 1
    assert SecurityEvent.objects.filter(kind=SecurityEvent.Kind.REDACTION_BLOCKED).count() == 1
