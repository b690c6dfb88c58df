"""The guard returns only text that it has checked (guarantee G91)."""

from __future__ import annotations

import copy
import importlib
import pickle
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from criticizer.redaction import (
    RedactedText,
    RedactionBlocked,
    guard,
    known_secrets,
    redact,
    register_own_secrets,
    require_policy,
)
from criticizer.redaction.redacted_text import seal
from tests.redaction.fakes import ALNUM, begin, draw, end, pem_lines

guard_code = importlib.import_module("criticizer.redaction.guard")  # the package's name is the function


@pytest.fixture(autouse=True)
def clean_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(known_secrets, "_registered", known_secrets.OwnSecrets())
    yield
    require_policy(None)


def reason(text: object) -> str:
    with pytest.raises(RedactionBlocked) as caught:
        guard(cast("RedactedText", text))
    assert "secret words" not in repr(caught.value)
    return caught.value.reason_code


def current(text: str) -> RedactedText:
    """Seal a text as if an engine with a hole had made it."""
    made = redact("x")
    return seal(text, {}, made.ruleset, made.policy)


def test_redacted_text_passes_unchanged() -> None:
    made = redact('password = "hunter2!x"')
    assert guard(made) == made.text


@pytest.mark.parametrize("other", ["secret words", b"secret words", None, 3, ["secret words"]])
def test_anything_but_redacted_text_is_refused(other: object) -> None:
    assert reason(other) == "not_redacted"


def test_subclass_is_refused() -> None:
    class Other(RedactedText):
        def intact(self) -> bool:
            return True

    made = redact("x")
    other = object.__new__(Other)
    for name in ("text", "counts", "ruleset", "policy"):
        object.__setattr__(other, name, getattr(made, name))
    assert reason(other) == "not_redacted"


def test_text_cannot_be_made_or_changed_from_outside() -> None:
    with pytest.raises(TypeError):
        RedactedText(object(), "secret words", {}, "1", "x")
    made = redact("x")
    with pytest.raises(AttributeError):
        made.text = "secret words"
    with pytest.raises(AttributeError):
        del made.text
    with pytest.raises(TypeError):
        made.counts["x"] = 1  # type: ignore[index]


@pytest.mark.parametrize("copier", [pickle.dumps, copy.copy, copy.deepcopy])
def test_text_does_not_leave_the_process(copier: object) -> None:
    with pytest.raises(TypeError):
        copier(redact("x"))  # type: ignore[operator]


@pytest.mark.parametrize("name", ["text", "ruleset", "policy"])
def test_one_changed_byte_breaks_the_seal(name: str) -> None:
    made = redact("some text")
    value = getattr(made, name)
    object.__setattr__(made, name, value[:-1] + chr(ord(value[-1]) ^ 1))
    assert reason(made) == "seal_broken"


def test_seal_of_another_process_is_worth_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = redact("some text")
    monkeypatch.setattr("criticizer.redaction.redacted_text._KEY", b"another process's key, 32 bytes!")
    assert reason(made) == "seal_broken"


def test_stale_rules_are_refused_and_current_ones_pass_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = redact("some text")
    monkeypatch.setattr("criticizer.redaction.rules.issuer_tokens.RULESET", "another")
    assert reason(made) == "stale_ruleset"
    monkeypatch.undo()
    assert guard(made) == "some text"


def test_stale_policy_is_refused_and_the_required_one_passes() -> None:
    made = redact("some text")
    require_policy({"emails": True})
    assert reason(made) == "stale_policy"
    assert guard(redact("some text", {"emails": True})) == "some text"


LEAKS = {
    "prefix": "x ghp_" + draw(36),
    "cloud key": "AKIA" + draw(16, ALNUM[26:].upper()),
    "jwt": "eyJhbGciOi" + draw(60),
    "pem": begin() + "\n" + "\n".join(pem_lines()),
    "pem in a diff": "+" + begin() + "\n+" + "\n+".join(pem_lines()),
    "pem escaped": begin() + "\\n" + "\\n".join(pem_lines()),
    "userinfo": "postgres://app:" + draw(16) + "@db/x",
    "bearer": "Authorization: Bearer 1234aB" + draw(30),
    "password": 'password = "' + "Tr1cky#horse" + '7"',
}  # fmt: skip


@pytest.mark.parametrize("leak", LEAKS)
def test_second_engine_stops_what_a_hole_in_the_first_lets_through(leak: str) -> None:
    assert reason(current(LEAKS[leak])) == "guard_found"
    assert guard(redact(LEAKS[leak])).count("<REDACTED:") >= 1


def test_own_secret_registered_after_redaction_is_stopped() -> None:
    made = redact("some words of ours-and-ours-only")
    register_own_secrets(["ours-and-ours-only"])
    assert reason(made) == "guard_found"
    assert guard(redact(made.text)) == "some words of <REDACTED:own-secret:1>"


def test_a_key_of_ours_does_not_stop_a_text_with_another_key() -> None:
    lines = pem_lines(seed=8)
    made = redact("\n".join((begin(), *pem_lines(), end())))  # by a process that does not know ours
    register_own_secrets(["\n".join((begin(), *lines, end()))])
    assert "<REDACTED:" in guard(made)
    assert not any(line in guard(redact(f"x = {line}")) for line in lines)


@pytest.mark.parametrize("stage", ["prefix", "pem", "userinfo", "bearer", "password", "own"])
def test_failing_stage_of_the_guard_blocks(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str) -> bool:
        raise MemoryError("secret words")

    monkeypatch.setattr(guard_code, f"_finds_{stage}", fail)
    assert reason(redact("some text")) == "guard_failed"


def test_oversized_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_code, "MAX_CHARACTERS", 8)
    assert reason(redact("nine char")) == "too_large"
    assert guard(redact("eight ch")) == "eight ch"


def test_prompt_is_built_from_literals_numbers_and_redacted_parts_only() -> None:
    part = redact('password = "hunter2!x"')
    made = RedactedText.template("{{n}}={n}\n{diff}\n{diff}", n=3, diff=part)
    assert guard(made) == f"{{n}}=3\n{part.text}\n{part.text}"
    assert dict(made.counts) == {"password": 1}
    assert guard(RedactedText.joined([part, made], sep="\n--\n")) == f"{part.text}\n--\n{made.text}"


@pytest.mark.parametrize("form", ["{a.text}", "{a[0]}", "{a!r}", "{a:>9}", "{b}", "{}", "{a", "no field"])
def test_template_that_reaches_into_parts_is_refused(form: str) -> None:
    with pytest.raises(RedactionBlocked) as caught:
        RedactedText.template(form, a=redact("x"))
    assert caught.value.reason_code == "bad_template"


def test_parts_must_be_redacted_intact_and_of_one_policy() -> None:
    part = redact("x")
    with pytest.raises(RedactionBlocked, match="not_redacted"):
        RedactedText.template("{a}", a=cast("RedactedText", "secret words"))
    with pytest.raises(RedactionBlocked, match="mixed_policy"):
        RedactedText.joined([part, redact("x", {"emails": True})])
    broken = redact("y")
    object.__setattr__(broken, "text", "secret words")
    uses: list[Callable[[], RedactedText]] = [
        lambda: RedactedText.joined([part, broken]),
        lambda: broken.lines(1, 1),
        lambda: broken.truncated(3),
    ]
    for use in uses:
        with pytest.raises(RedactionBlocked, match="seal_broken"):
            use()


def test_slices_of_redacted_text_are_redacted_text() -> None:
    made = redact("one\ntwo\nthree")
    assert guard(made.lines(2, 3)) == "two\nthree"
    found = redact('password = "hunter2!x"\npassword = "hunter3!x"\nx')
    assert dict(found.lines(2, 3).counts) == {"password": 1}
    assert guard(made.truncated(5)) == "one\nt"
    with pytest.raises(ValueError):
        made.lines(0, 1)
