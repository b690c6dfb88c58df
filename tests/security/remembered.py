"""People whose session, account and permissions are read once, for tests of many requests.

Each request reads them with four queries, two thirds of what it asks of the database.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from django.contrib.sessions.backends.db import SessionStore

from criticizer.security.login_throttle import ThrottledBackend


@contextmanager
def remembered() -> Iterator[None]:
    """Keep sessions until they are saved or deleted, and accounts with permissions for good.

    Not for a test that changes a person after its first request.
    """
    sessions: dict[str | None, Any] = {}
    users: dict[Any, Any] = {}
    read, save, delete = SessionStore._get_session_from_db, SessionStore.save, SessionStore.delete
    get_user = ThrottledBackend.get_user

    def session_of(self: SessionStore) -> Any:
        if not sessions.get(self.session_key):
            sessions[self.session_key] = read(self)
        return sessions[self.session_key]

    def saved(self: SessionStore, must_create: bool = False) -> None:
        sessions.pop(self.session_key, None)
        save(self, must_create)

    def deleted(self: SessionStore, session_key: str | None = None) -> None:
        sessions.pop(session_key or self.session_key, None)
        delete(self, session_key)

    def user_of(self: ThrottledBackend, user_id: Any) -> Any:
        if user_id not in users:
            users[user_id] = get_user(self, user_id)
        return users[user_id]

    with (
        patch.object(SessionStore, "_get_session_from_db", session_of),
        patch.object(SessionStore, "save", saved),
        patch.object(SessionStore, "delete", deleted),
        patch.object(ThrottledBackend, "get_user", user_of),
    ):
        yield
