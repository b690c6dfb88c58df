"""Fingerprints: failures that are the same, and failures that are not."""

from __future__ import annotations

from typing import Any

import pytest

from criticizer.redaction import clean_stack
from deadletters.fingerprint import exception_of, fingerprint, frames_of, normalize
from tests.letters import draft_of_a_letter

_STACK = """criticizer.resilience.failures.PermanentFailure: key expired
  reviews/pipeline/executor.py:120 _work
  reviews/stages/llm.py:41 run
  reviews/reviewers/openai.py:88 ask
  site-packages/httpx/_client.py:9 send
  reviews/reviewers/transport.py:30 post
caused by httpx.ConnectError: no
  reviews/reviewers/other.py:1 deep"""


def _made(**other: Any) -> str:
    return fingerprint(draft_of_a_letter(**{"last_stack": _STACK, **other})).id


def test_the_version_is_part_of_the_id() -> None:
    assert _made().startswith("v1:")
    assert len(_made()) == len("v1:") + 32


@pytest.mark.parametrize(
    "other",
    [
        {"stage": "notify"},
        {"source": "llm:anthropic"},
        {"error_class": "NOT_FOUND"},
        {"sanitized_context": {"status": 403}},
        {"detail": "another sentence"},
        {"last_stack": _STACK.replace("transport.py:30 post", "transport.py:30 get")},
        {"last_stack": _STACK.replace("PermanentFailure", "RetryableFailure")},
    ],
)
def test_different_failures_have_different_fingerprints(other: dict[str, Any]) -> None:
    assert _made(**other) != _made()


@pytest.mark.parametrize(
    "other",
    [
        {"last_stack": _STACK.replace(":30 post", ":31 post")},  # an edit above the place
        {"last_stack": _STACK.replace("httpx/_client.py:9 send", "httpx/_client.py:9 request")},
        {"last_stack": _STACK.replace("other.py:1 deep", "other.py:1 deeper")},
        {"last_stack": _STACK.replace("key expired", "key 1234567 expired")},
    ],
)
def test_volatile_parts_do_not_change_the_fingerprint(other: dict[str, Any]) -> None:
    assert _made(**other) == _made()


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("change 12345 took 3.5 s", "change <n> took <n> s"),
        ("job 6f9619ff-8b86-d011-b42d-00c04fc964ff is gone", "job <uuid> is gone"),
        ("commit deadbeef01 is unknown", "commit <hex> is unknown"),
        ("no rights on //depot/main/a b.txt", "no rights on <path> b.txt"),
        ("cannot mail ann@example.com", "cannot mail <address>"),
        ("POST https://host:8080/v1?x=1 failed", "POST <url> failed"),
        ("file \"secret name\" and 'other'", "file <quoted> and <quoted>"),
        ("key <REDACTED:aws_key:3> refused", "key <secret> refused"),
        ("cannot open /var/lib/x/data.bin", "cannot open <path>"),
        ("facade and decade stay", "facade and decade stay"),
    ],
)
def test_messages_lose_volatile_parts(text: str, normalized: str) -> None:
    assert normalize(text) == normalized


def test_huge_message_is_normalized_quickly() -> None:
    assert len(normalize("x" * 1_000_000)) == 500
    assert len(normalize("'" * 100_000)) <= 500


def test_the_deepest_frames_of_our_own_code_count() -> None:
    assert frames_of(_STACK) == [
        "reviews.stages.llm:run",
        "reviews.reviewers.openai:ask",
        "reviews.reviewers.transport:post",
    ]


def test_a_real_stack_is_understood() -> None:
    from deadletters.categories import checklist

    try:
        checklist(object())  # type: ignore[arg-type]
    except TypeError as error:  # pragma: no cover
        stack = clean_stack(error)
    else:
        try:
            normalize(None)  # type: ignore[arg-type]
        except TypeError as error:
            stack = clean_stack(error)
    assert exception_of(stack) == "TypeError"
    assert frames_of(stack) == ["deadletters.fingerprint:normalize"]
