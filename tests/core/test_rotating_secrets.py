"""Secrets that rotate: which is shown when, also to calls that overlap."""

from __future__ import annotations

import pytest

from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure
from criticizer.resilience.rotating_secrets import RotatingSecrets


class Server:
    """A server that accepts some secrets, and keeps those that it was shown."""

    def __init__(self, *accepted: str) -> None:
        self.accepted = set(accepted)
        self.shown: list[str] = []

    def ask(self, secret: str) -> str:
        self.shown.append(secret)
        if secret not in self.accepted:
            raise PermanentFailure(ErrorClass.AUTH_DENIED, Component.PROVIDER, "refused")
        return secret


def test_the_next_secret_serves_when_the_first_is_refused_and_stays_in_use() -> None:
    server, secrets = Server("new"), RotatingSecrets("refused", ["old", "new"], "")
    assert [secrets.call(server.ask), secrets.call(server.ask)] == ["new", "new"]
    assert server.shown == ["old", "new", "new"]


def test_a_call_tries_every_secret_while_another_thread_finds_the_accepted_one() -> None:
    server, secrets = Server("new"), RotatingSecrets("refused", ["old", "new"], "")

    def ask(secret: str) -> str:
        """Be refused only after another call, begun in the meantime, was through."""
        if not server.shown:
            server.shown.append(secret)
            secrets.call(server.ask)
            return server.ask(secret)
        return server.ask(secret)

    assert secrets.call(ask) == "new"


def test_secrets_that_are_all_refused_are_shown_once_each() -> None:
    server, secrets = Server(), RotatingSecrets("refused", ["old", "new"], "")
    with pytest.raises(PermanentFailure):
        secrets.call(server.ask)
    assert server.shown == ["old", "new"]
