"""Fixtures of the notifications tests: triggers in place, a job, scripted providers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from ssl import SSLContext

import pytest

from reviews.models import ReviewJob
from tests.factories import ReviewJobFactory
from tests.fakes.dovecot import Dovecot, why_missing
from tests.notifications.samples import tls_contexts
from tests.notifications.scripted import ScriptedProvider


@pytest.fixture
def job(db: None) -> ReviewJob:
    return ReviewJobFactory(changelist_id="12345", review_version=1)


@pytest.fixture
def mail() -> ScriptedProvider:
    """Like plain SMTP: neither deduplicates nor can be asked."""
    return ScriptedProvider("smtp")


@pytest.fixture
def hook() -> ScriptedProvider:
    """Like a webhook receiver: deduplicates."""
    return ScriptedProvider("webhook", deduplicates=True)


@pytest.fixture
def asked() -> ScriptedProvider:
    """Like the maildir: can be asked."""
    return ScriptedProvider("maildir", can_look_up=True)


@pytest.fixture(scope="session")
def imap_pem(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SSLContext]:
    """Dovecot's certificate, and a context of clients that trust it."""
    folder = tmp_path_factory.mktemp("imap")
    _, client = tls_contexts(folder)
    return folder / "127.0.0.1.pem", client


@pytest.fixture(scope="session")
def dovecot(imap_pem: tuple[Path, SSLContext]) -> Iterator[Dovecot]:
    if reason := why_missing():
        pytest.skip(reason)
    with Dovecot(imap_pem[0]) as server:
        yield server


@pytest.fixture
def imap(dovecot: Dovecot) -> Dovecot:
    """A real IMAP server whose mailbox is empty."""
    dovecot.empty()
    return dovecot
