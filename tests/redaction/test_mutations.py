"""The engine and the guard, broken on purpose piece by piece: nothing gets out (G92).

A bypass is a request whose text, as returned by the guard, still holds the secret. Each mutant
is tried against each leak; it must end blocked or clean.
"""

from __future__ import annotations

import base64
import importlib
import itertools
import pickle
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from criticizer.redaction import (
    RedactedText,
    RedactionBlocked,
    Redactor,
    guard,
    known_secrets,
    redact,
    register_own_secrets,
    require_policy,
)
from criticizer.redaction import engine as engine_code
from criticizer.redaction import scan as scan_code
from criticizer.redaction.redacted_text import seal
from criticizer.redaction.rules import token_matching
from criticizer.redaction.rules.issuer_tokens import TOKEN_RULES
from criticizer.redaction.work import Work
from tests.redaction.fakes import ALNUM, begin, diff, draw, end, pem_lines

guard_code = importlib.import_module("criticizer.redaction.guard")
OWN = "ours-alone-" + draw(12)
ENCODED = base64.b64encode(OWN.encode()).decode()
CHOSEN = "Zq" + draw(6, "abcdef") + "7#kV" + draw(3)
BODY = pem_lines()
# name: the text, and what must not be in what is sent
LEAKS: dict[str, tuple[str, str]] = {
    "github": ("token ghp_" + draw(36), "ghp_" + draw(36)),
    "aws": ("id AKIA" + draw(16, ALNUM[26:].upper()), "AKIA" + draw(16, ALNUM[26:].upper())),
    "model key": ("x sk-ant-" + draw(40), "sk-ant-" + draw(40)),
    "chat token": ("x xoxb-1234567890-" + draw(30), draw(30)),
    "payment key": ("x sk_live_" + draw(30), "sk_live_" + draw(30)),
    "vault": ("x hvs." + draw(60), "hvs." + draw(60)),
    "package registry": ("x npm_" + draw(36), "npm_" + draw(36)),
    "jwt": ("x eyJhbGciOi" + draw(60), draw(60)),
    "key block": ("\n".join([begin(), *BODY, end()]), BODY[1]),
    "key block in a diff": (diff(*(f"+{line}" for line in (begin(), *BODY, end()))), BODY[1]),
    "key block escaped": (begin() + "\\n" + "\\n".join(BODY), BODY[0][:40]),
    "key block cut short": ("\n".join([begin(), *BODY[:3]]), BODY[1]),
    "address": ("postgres://app:" + draw(16) + "@db.example.com/x", draw(16)),
    "bearer": ("Authorization: Bearer " + draw(40), draw(40)),
    "password": (f'password = "{CHOSEN}"', CHOSEN),
    "own secret": (f"see {OWN} there", OWN),
    "own secret, encoded": ("see " + ENCODED, ENCODED),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _own_secret(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(known_secrets, "_registered", known_secrets.OwnSecrets())
    register_own_secrets([OWN])
    yield
    require_policy(None)


def bypasses(leak: str) -> bool:
    """Send a leak through whatever is left; return whether the secret gets out."""
    text, secret = LEAKS[leak]
    try:
        return secret in guard(redact(text))
    except RedactionBlocked as blocked:
        return secret in repr(blocked) or blocked.__cause__ is not None


@pytest.mark.parametrize("leak", LEAKS)
def test_nothing_broken_takes_the_secret_out(leak: str) -> None:
    text, secret = LEAKS[leak]
    assert secret in text
    assert secret not in guard(redact(text))


NOTHING: dict[str, tuple[str, Callable[..., Any]]] = {
    "no scan": ("engine.scan", lambda *a: []),
    "no merge": ("engine.merge", lambda finds: []),
    "one find only": ("engine.merge", lambda finds: finds[:1]),
    "no line rules": ("scan._lines", lambda *a: []),
    "no lines put together": ("scan._joined", lambda *a: []),
    "no tokens": ("scan.tokens", lambda *a: []),
    "no prefilter hits": ("scan._hits", lambda *a, **k: []),
    "half of the prefilter hits": ("scan._hits", lambda auto, data, work, overlapping: []),
    "every token refused": ("rules.token_matching._is_token", lambda *a: False),
    "every token inside a word": ("rules.token_matching._in_word", lambda *a: True),
    "no random tokens": ("rules.entropy.spans", lambda *a: []),
    "no shadows": ("scan.shadows", lambda document: ()),
    "no key blocks": ("rules.pem.blocks", lambda document, public: ()),
    "no orphaned keys": ("rules.pem.orphans", lambda document: ()),
    "no pieces": ("engine._per_line", lambda data, start, end: []),
    "first piece only": ("engine._per_line", lambda data, start, end: [(start, start + 1)]),
    "no own secrets": ("known_secrets.OwnSecrets.spans", lambda self, data: []),
    "every value a dummy": ("rules.value_heuristics.is_dummy", lambda value: True),
    "no value judged a secret": ("rules.named_values.judge", lambda *a, **k: False),
    "one pass": ("engine.Redactor._pass", lambda self, work: False),
    "nothing replaced": ("engine.Redactor._replace", lambda self, part, finds: False),
}


@pytest.mark.parametrize("mutant", NOTHING)
def test_skipped_stage_lets_nothing_out(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, instead = NOTHING[mutant]
    monkeypatch.setattr(f"criticizer.redaction.{target}", instead)
    assert [leak for leak in LEAKS if bypasses(leak)] == []


@pytest.mark.parametrize(
    "stage",
    [
        *("engine.encode", "engine.read", "engine.scan", "engine.merge", "engine.seal", "engine._per_line"),
        *("engine.registered", "engine._without_forgeries", "scan._lines", "scan.tokens", "scan._hits"),
        *(
            "scan._joined",
            "input.concatenation.blocks",
            "rules.token_matching._is_token",
            "rules.entropy.spans",
            "scan.shadows",
            "rules.pem.blocks",
            "work.Work.spend",
        ),
        *(
            "rules.named_values.judge",
            "known_secrets.OwnSecrets.spans",
            "policy.Policy.spans",
            "guard._finds_prefix",
        ),
        *("guard._finds_pem", "guard._finds_userinfo", "guard._finds_bearer", "guard._finds_password"),
        *("guard._finds_own", "redacted_text.RedactedText.intact"),
    ],
)
@pytest.mark.parametrize("error", [ValueError, MemoryError, RecursionError, AssertionError])
def test_raising_stage_lets_nothing_out(
    stage: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise error(OWN)

    folder, *path = stage.split(".")
    module = f"{folder}.{path.pop(0)}" if folder in {"input", "rules"} else folder
    target = guard_code if module == "guard" else importlib.import_module(f"criticizer.redaction.{module}")
    *path, last = path
    for part in path:
        target = getattr(target, part)
    monkeypatch.setattr(target, last, fail)
    assert [leak for leak in LEAKS if bypasses(leak)] == []


@pytest.mark.parametrize("kind", sorted({rule.kind for rule in TOKEN_RULES}))
def test_removed_rule_lets_nothing_out(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = token_matching._is_token
    monkeypatch.setattr(token_matching, "_is_token", lambda rule, *a: rule.kind != kind and real(rule, *a))
    assert [leak for leak in LEAKS if bypasses(leak)] == []


def refused(text: object) -> str:
    with pytest.raises(RedactionBlocked) as caught:
        guard(cast("RedactedText", text))
    return caught.value.reason_code


@pytest.mark.parametrize("leak", LEAKS)
def test_sealed_by_an_engine_that_finds_nothing_is_stopped(leak: str) -> None:
    made = redact("x")
    assert refused(seal(LEAKS[leak][0], {}, made.ruleset, made.policy)) == "guard_found"


class _Fake:
    def __init__(self, text: str) -> None:
        self.text = text

    def intact(self) -> bool:
        return True


@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.parametrize("wrap", [str, str.encode, list, _Fake])
def test_anything_but_redacted_text_is_stopped(leak: str, wrap: Callable[[str], object]) -> None:
    assert refused(wrap(LEAKS[leak][0])) == "not_redacted"


def _tampered(name: str, value: object) -> RedactedText:
    made = redact("harmless")
    object.__setattr__(made, name, value)
    return made


def _blank(cls: type[RedactedText]) -> RedactedText:
    made = redact("harmless")
    other: RedactedText = object.__new__(cls)
    for name in ("text", "counts", "ruleset", "policy", "_mac"):
        object.__setattr__(other, name, getattr(made, name))
    object.__setattr__(other, "text", f"see {OWN}")
    return other


class _Believer(RedactedText):
    __slots__ = ()

    def intact(self) -> bool:
        return True


class _Text(str):
    """A string that looks harmless when it is checked, and is another one when it is sent."""

    __slots__ = ()

    def encode(self, *args: object, **kwargs: object) -> bytes:
        return b"harmless"


TRICKS: dict[str, Callable[[], object]] = {
    "changed text": lambda: _tampered("text", f"see {OWN}"),
    "one byte more": lambda: _tampered("text", "harmless "),
    "another rule set": lambda: _tampered("ruleset", "0"),
    "another policy": lambda: _tampered("policy", "0" * 16),
    "another seal": lambda: _tampered("_mac", b"\0" * 32),
    "no seal": lambda: _tampered("_mac", b""),
    "a seal that is no bytes": lambda: _tampered("_mac", None),
    "text that is no text": lambda: _tampered("text", 7),
    "text that lies": lambda: _tampered("text", _Text(f"see {OWN}")),
    "never initialised": lambda: object.__new__(RedactedText),
    "made without the maker": lambda: _blank(RedactedText),
    "subclass that believes": lambda: _blank(_Believer),
    "copied attributes": lambda: type("Copy", (), dict.fromkeys(("text", "ruleset", "policy"), "x"))(),
    "the class itself": lambda: RedactedText,
}


@pytest.mark.parametrize("trick", TRICKS)
def test_trick_with_the_seal_is_stopped(trick: str) -> None:
    assert refused(TRICKS[trick]()) in ("not_redacted", "seal_broken", "guard_failed")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_of_any_protocol_is_refused(protocol: int) -> None:
    with pytest.raises(TypeError):
        pickle.dumps(redact("x"), protocol)


@pytest.mark.parametrize("version", ["", "0", "1", "999"])
def test_any_other_version_of_the_rules_is_stopped(version: str) -> None:
    made = redact("x")
    assert refused(seal(made.text, {}, version, made.policy)) == "stale_ruleset"
    assert guard(seal(made.text, {}, made.ruleset, made.policy)) == "x"


def test_any_other_policy_than_the_required_one_is_stopped() -> None:
    policies: list[dict[str, object]] = [
        {},
        {"emails": True},
        {"internal_domains": ["corp.internal"]},
        {"internal_nets": ["10.0.0.0/8"]},
        {"public_pem": False},
    ]
    for required, applied in itertools.product(policies, policies):
        require_policy(required)
        if required == applied:
            assert guard(redact("x", applied)) == "x"
        else:
            assert refused(redact("x", applied)) == "stale_policy"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a\0b", "nul_byte"),
        ("a\ud800b", "undecodable"),
        (b"\xff\xfe".decode("utf-8", "surrogateescape"), "undecodable"),
        (b"bytes", "not_text"),
        (None, "not_text"),
        ("x" * (9 << 20), "too_large"),
    ],
)
def test_file_that_cannot_be_read_with_certainty_is_stopped(text: object, reason: str) -> None:
    with pytest.raises(RedactionBlocked) as caught:
        Redactor().redact_all(["fine", cast("str", text)])
    assert caught.value.reason_code == reason


def test_time_used_up_stops_the_engine_and_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    made = redact("x")
    ticks = itertools.count(step=1_000)
    with monkeypatch.context() as patch:
        patch.setattr("time.thread_time", lambda: float(next(ticks)))
        assert refused(made) == "too_slow"
        with pytest.raises(RedactionBlocked) as caught:
            redact(f'password = "{CHOSEN}"')
        assert caught.value.reason_code == "too_slow"
    assert guard(redact("x")) == "x"


def test_work_used_up_stops_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    class Spent(Work):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.left = 0

    monkeypatch.setattr(scan_code, "Work", Spent)
    with pytest.raises(RedactionBlocked) as caught:
        redact(f'password = "{CHOSEN}"')
    assert caught.value.reason_code == "budget"


def test_line_that_is_lost_stops_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(data: bytes, start: int, end: int) -> list[tuple[int, int]]:
        return [(start, end)]

    monkeypatch.setattr(engine_code, "_per_line", careless)
    text = f"data:\n{OWN[:12]}\n{OWN[12:]}"
    monkeypatch.setattr(engine_code, "scan", lambda *a: [scan_code.Find(2, len(text) - 2, "secret")])
    with pytest.raises(RedactionBlocked):
        redact(text)
