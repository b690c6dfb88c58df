"""A wrong variable stops the start and says its name and what to set (contract: Environment)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings


def start(tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Read the settings in a process of their own, as every command does."""
    environment = {
        "PATH": os.environ["PATH"],
        "CRITICIZER_DATA_DIR": str(tmp_path),
        "DEPOT_ALLOW_LIST": "//depot/main/...",
        "DATABASE_URL": "postgres://user@127.0.0.1:1/nothing",
        "SECRET_KEY": "not-a-real-key-" * 4,
        "ARTIFACT_KEYS": "A" * 43 + "=",
        **variables,
    }
    return subprocess.run(
        [sys.executable, "-c", "from criticizer.settings import DEFAULT_RECIPIENTS as d; print(d)"],
        env=environment, cwd=settings.BASE_DIR, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        (
            {"DEFAULT_RECIPIENTS": "ann@example.com,pager:5"},
            "DEFAULT_RECIPIENTS: The channel 'pager'",
        ),
        (
            {"DEFAULT_RECIPIENTS": "mail:Ann <ann@example.com>"},
            "DEFAULT_RECIPIENTS: A mail recipient",
        ),
        ({"UNKNOWN_RECIPIENTS": "all"}, "UNKNOWN_RECIPIENTS"),
    ],
)
def test_recipients_are_checked_at_the_start(tmp_path: Path, variables: dict[str, str], words: str) -> None:
    failed = start(tmp_path, **variables)
    assert failed.returncode != 0
    assert words in failed.stderr
    assert "Set it to" in failed.stderr or "Set " in failed.stderr


def test_good_ones_start(tmp_path: Path) -> None:
    started = start(tmp_path, DEFAULT_RECIPIENTS="ann@example.com,webhook:https://ci.example.com/x")
    assert started.returncode == 0, started.stderr
    assert "ann@example.com" in started.stdout


ARCHIVE = "archive@example.com"


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"MAIL_PROVIDER": "pigeon"}, "MAIL_PROVIDER: 'pigeon' is unknown"),
        ({"MAIL_PROVIDER": "resend"}, "RESEND_API_KEY: is not set while MAIL_PROVIDER is resend"),
        ({"IMAP_ARCHIVE_URL": "imaps://u:p@h/x"}, "IMAP_ARCHIVE_ADDRESS: is not a mail address"),
        (
            {"IMAP_ARCHIVE_ADDRESS": ARCHIVE, "IMAP_ARCHIVE_URL": "https://h/"},
            "IMAP_ARCHIVE_URL: is not valid",
        ),
        ({"POSTMARK_WEBHOOK_AUTH": "nothing"}, "POSTMARK_WEBHOOK_AUTH: is not user:password"),
    ],
)
def test_ways_of_mail_are_checked_at_the_start(tmp_path: Path, variables: dict[str, str], words: str) -> None:
    failed = start(tmp_path, **variables)
    assert failed.returncode != 0
    assert words in failed.stderr
    assert "Set " in failed.stderr
