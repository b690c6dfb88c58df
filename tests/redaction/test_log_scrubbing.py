"""Logs, stacks and contexts of a run carry no secret (guarantee G30)."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import pytest
import structlog

from criticizer.redaction import (
    SecretsFilter,
    clean,
    clean_context,
    clean_stack,
    known_secrets,
    redact_event,
    register_own_secrets,
)
from criticizer.redaction.log_scrubbing import WITHHELD
from tests.redaction.fakes import draw, password

P = password()
TOKEN = "ghp_" + draw(36)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError(P)


def failing() -> None:
    local = TOKEN  # noqa: F841 - must not show
    try:
        raise KeyError(f'password="{P}"')
    except KeyError as error:
        raise RuntimeError(f"cannot reach https://bob:{draw(16)}@example.com") from error


def caught() -> BaseException:
    try:
        failing()
    except RuntimeError as error:
        return error
    raise AssertionError


def test_clean_redacts_then_cuts() -> None:
    assert clean(f"token {TOKEN}") == "token <REDACTED:github-token:1>"
    cut = clean("x" * 90 + f" {TOKEN}", limit=110)
    assert len(cut) <= 110
    assert TOKEN[:8] not in cut


def test_secret_registered_later_is_taken_out_of_a_text_seen_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_secrets, "_registered", known_secrets.OwnSecrets())
    assert clean("a short-own-value b") == "a short-own-value b"
    register_own_secrets(["short-own-value"])
    assert clean("a short-own-value b") == "a <REDACTED:own-secret:1> b"


def test_clean_never_raises_and_withholds_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    assert clean(f"a\0b\ud800c {TOKEN}") == "a\ufffdb\\ud800c <REDACTED:github-token:1>"
    assert len(clean("word " * 200_000)) <= 20_000
    assert clean(None) == WITHHELD  # type: ignore[arg-type]

    def fail(text: str) -> None:
        raise ValueError(text)

    monkeypatch.setattr("criticizer.redaction.log_scrubbing.redact", fail)
    assert clean(f"{P} not seen before") == WITHHELD


def test_stack_has_chain_frames_and_functions_and_no_secret() -> None:
    stack = clean_stack(caught())
    assert "RuntimeError: cannot reach https://bob:<REDACTED:uri-password:1>@example.com" in stack
    assert "caused by KeyError" in stack
    assert "tests/redaction/test_log_scrubbing.py:" in stack
    assert " failing" in stack
    for gone in (P, TOKEN, draw(16), "/work", "local"):
        assert gone not in stack


def test_stack_of_groups_loops_and_unprintable_errors_is_made_all_the_same() -> None:
    first, second = ValueError("one"), Unprintable()
    first.__context__, second.__context__ = second, first
    stack = clean_stack(ExceptionGroup("several", [first, second]))
    assert "contains ValueError: one" in stack
    assert f"Unprintable: {WITHHELD}" in stack
    deep: BaseException = ValueError("bottom")
    for n in range(100):
        above = ValueError(str(n))
        above.__cause__ = deep
        deep = above
    assert len(clean_stack(deep, limit=500)) <= 500


def test_context_is_json_bounded_and_without_secrets() -> None:
    context = {
        "job": 7,
        "ratio": float("nan"),
        "password": P,
        "note": f"see {TOKEN}",
        "raw": b"\x00" * 9,
        "key_id": "a-1",
        "nested": {"authorization": "x y", "list": [TOKEN, {1, 2}], "error": caught()},
        "none": None,
        "token_count": 5,
    }
    cleaned = clean_context(context)
    text = json.dumps(cleaned)
    assert cleaned["job"] == 7
    assert cleaned["key_id"] == "a-1"
    assert cleaned["token_count"] == 5
    assert cleaned["raw"] == "<9 bytes>"
    for gone in (P, TOKEN, "x y"):
        assert gone not in text


def test_context_that_does_not_fit_says_so() -> None:
    cleaned = clean_context({f"k{n}": "word " * 300 for n in range(50)}, limit_bytes=2_000)
    assert len(json.dumps(cleaned)) <= 2_000
    assert cleaned["truncated"] is True
    loop: dict[str, object] = {}
    loop["self"] = loop
    assert "too deep" in json.dumps(clean_context(loop))


def test_structlog_event_is_cleaned_with_its_error() -> None:
    error = caught()
    event = redact_event(
        None,
        "info",
        {
            "event": "call_failed",
            "url": f"https://h/?api_key={draw(32)}",
            "api_key": "x" * 9,
            "attempt": 2,
            "exc_info": error,
        },
    )
    text = repr(event)
    assert event["event"] == "call_failed"
    assert event["attempt"] == 2
    assert "exc_info" not in event
    assert "caused by KeyError" in event["stack"]
    for gone in (draw(32), P, "x" * 9):
        assert gone not in text


def test_processor_works_inside_structlog() -> None:
    out = io.StringIO()
    chain: list[Any] = [redact_event, structlog.processors.JSONRenderer()]
    log = structlog.wrap_logger(structlog.PrintLogger(out), processors=chain)
    try:
        failing()
    except RuntimeError:
        log.exception("stage_failed", job=7, note=TOKEN)
    entry = json.loads(out.getvalue())
    assert entry["job"] == 7
    assert "RuntimeError" in entry["stack"]
    assert TOKEN not in out.getvalue()
    assert P not in out.getvalue()


def test_standard_logging_is_cleaned_with_arguments_extras_and_errors() -> None:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.addFilter(SecretsFilter())
    handler.setFormatter(logging.Formatter("%(message)s %(extra_note)s %(api_token)s"))
    logger = logging.Logger("redaction-test")
    logger.addHandler(handler)
    try:
        failing()
    except RuntimeError:
        logger.exception("sent %s", TOKEN, extra={"extra_note": f"password={P}", "api_token": "abc"})
    logger.warning("bad %d arguments", "x", extra={"extra_note": 1, "api_token": None})
    text = out.getvalue()
    assert "sent <REDACTED:github-token:1>" in text
    assert "caused by KeyError" in text
    assert "bad %d arguments" in text
    for gone in (TOKEN, P, "abc"):
        assert gone not in text


def test_mail_and_answers_of_a_model_are_cleaned() -> None:
    """Answers of a model may repeat a secret, and a mail server may quote one."""
    answer = json.dumps(
        {"findings": [{"message": f"The key {TOKEN} is hard-coded", "quote": f'password = "{P}"'}]}
    )
    mail = f"Subject: review of 7\nX-Note: https://bob:{P}@example.com/x\n\nSee {TOKEN}.\n"
    for text in (answer, mail):
        cleaned = clean(text)
        assert TOKEN not in cleaned
        assert P not in cleaned
        assert cleaned.count("\n") == text.count("\n")
    assert json.loads(clean(answer))["findings"][0]["message"].startswith("The key <REDACTED:")
