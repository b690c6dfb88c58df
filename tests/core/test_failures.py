"""The taxonomy of failures."""

from __future__ import annotations

import re
from itertools import groupby

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import OperationalError

from criticizer.resilience.classification import classify
from criticizer.resilience.failures import TABLE, Component, ErrorClass, Failure, PermanentFailure, kind_of
from reviews.management.commands import state_diagrams

RETRYABLE = {
    ErrorClass.NETWORK_TIMEOUT,
    ErrorClass.NETWORK_UNREACHABLE,
    ErrorClass.UPSTREAM_UNAVAILABLE,
    ErrorClass.UPSTREAM_INTERNAL,
    ErrorClass.RATE_LIMITED,
    ErrorClass.WRITE_CONFLICT,
    ErrorClass.DATABASE_UNAVAILABLE,
}


@pytest.mark.parametrize("error_class", list(ErrorClass))
def test_every_class_has_a_row(error_class: ErrorClass) -> None:
    assert kind_of(error_class, Component.INTERNAL).error_class == error_class


@pytest.mark.parametrize(
    "kind", [kind for kind in TABLE.values() if kind.component != Component.QUEUE], ids=lambda k: k.code
)
def test_retryable_is_what_the_specification_says(kind: object) -> None:
    assert kind.retryable == (kind.error_class in RETRYABLE)  # type: ignore[attr-defined]


def test_codes_are_unique_and_name_their_place() -> None:
    codes = [kind.code for kind in TABLE.values()]
    assert len(set(codes)) == len(codes)
    for kind in TABLE.values():
        assert re.fullmatch(rf"CRITICIZER_E{kind.component.value}\d\d", kind.code)
    assert (
        TABLE[ErrorClass.SCHEMA_INVALID, Component.INTERNAL].code == "CRITICIZER_E401"
    )  # the contract's example


def test_codes_count_without_gaps() -> None:
    numbers = sorted(int(kind.code[-3:]) for kind in TABLE.values())
    for component, group in groupby(numbers, key=lambda number: number // 100):
        assert [number % 100 for number in group] == list(
            range(1, 1 + sum(k.component == component for k in TABLE.values()))
        )


def test_texts_are_whole_sentences() -> None:
    for kind in TABLE.values():
        for text in (kind.message, kind.hint):
            assert text[0].isupper()
            assert text.endswith(".")
            assert "{" not in text


def test_a_failure_is_itself_and_anything_else_is_our_bug() -> None:
    failure = PermanentFailure(ErrorClass.NOT_FOUND, Component.SOURCE)
    assert classify(failure) is failure
    lost = classify(ImproperlyConfigured("SMTP_PASSWORD_FILE: the file cannot be read."))
    assert (lost.error_class, lost.detail) == (
        ErrorClass.CONFIG_INVALID,
        "SMTP_PASSWORD_FILE: the file cannot be read.",
    )
    bug = classify(KeyError("x"))
    assert (bug.error_class, bug.retryable) == (ErrorClass.INTERNAL_BUG, False)


class _DriverError(Exception):
    def __init__(self, sqlstate: str | None) -> None:
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("sqlstate", "expected"),
    [
        ("40001", ErrorClass.WRITE_CONFLICT),  # serialization failure
        ("40P01", ErrorClass.WRITE_CONFLICT),  # deadlock
        ("55P03", ErrorClass.WRITE_CONFLICT),  # lock not available
        ("57P01", ErrorClass.DATABASE_UNAVAILABLE),
        (None, ErrorClass.DATABASE_UNAVAILABLE),
    ],
)
def test_database_errors_are_told_apart(sqlstate: str | None, expected: ErrorClass) -> None:
    error = OperationalError("x")
    error.__cause__ = _DriverError(sqlstate)
    found: Failure = classify(error)
    assert (found.error_class, found.retryable) == (expected, True)


def test_pages_are_generated_from_the_tables() -> None:
    call_command("failure_table", check=True)
    assert (settings.BASE_DIR / "docs" / "states.md").read_text() == state_diagrams.page()
