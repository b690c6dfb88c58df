"""Login throttling per account, per address and per pair of both, counted in PostgreSQL.

A refused login looks like a wrong password and takes as long. No lock lasts longer than
`LOCK_SECONDS`, and attempts during a lock do not extend it. An account under attack stays open to
the addresses it logged in from in the last `KNOWN_DAYS`, so attackers cannot lock its owner out.

The table holds keyed digests and at most `MAX_ROWS` rows; `manage.py unlock_login` deletes an
account's failures.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import structlog
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.backends import ModelBackend
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest

from criticizer.db import prepared
from criticizer.models import LoginTry, SecurityEvent
from criticizer.security.client_ip import client_ip, rate_limit_subnet

log = structlog.get_logger(__name__)

WINDOW_SECONDS = 15 * 60
LOCK_SECONDS = 15 * 60
MAX_ROWS = 20_000
KNOWN_DAYS = 30
# Failures within the window that lock: of one account from one address, of an account, of an address.
PAIR_LIMIT, ACCOUNT_LIMIT, ADDRESS_LIMIT = 5, 50, 50
_NAME_LIMIT = 150

_LOCKED = """
SELECT subject, locked_until IS NOT NULL AND locked_until > now() AS is_locked,
       succeeded_at IS NOT NULL AND succeeded_at > now() - make_interval(days => %(days)s) AS is_known
  FROM login_tries WHERE subject = ANY(%(subjects)s)"""
# One statement counts, begins a new window when the old one is over, and locks at the limit.
_COUNT = """
INSERT INTO login_tries AS t (subject, failures, window_ends_at, locked_until)
VALUES (%(subject)s, 1, now() + make_interval(secs => %(window)s), NULL)
ON CONFLICT (subject) DO UPDATE SET
  failures = CASE WHEN t.window_ends_at <= now() THEN 1 ELSE t.failures + 1 END,
  window_ends_at = CASE WHEN t.window_ends_at <= now()
                        THEN now() + make_interval(secs => %(window)s) ELSE t.window_ends_at END,
  locked_until = CASE
    WHEN t.locked_until > now() THEN t.locked_until
    WHEN t.window_ends_at > now() AND t.failures + 1 >= %(limit)s
      THEN now() + make_interval(secs => %(lock)s) END
RETURNING failures, locked_until > now() AS is_locked"""
_SUCCESS = """
INSERT INTO login_tries AS t (subject, failures, window_ends_at, succeeded_at)
VALUES (%(subject)s, 0, now(), now())
ON CONFLICT (subject) DO UPDATE SET failures = 0, locked_until = NULL, window_ends_at = now(),
  succeeded_at = now()"""
# Expired rows without a success go first, then the oldest, so that a flood cannot fill the table.
_PRUNE = """
DELETE FROM login_tries WHERE subject IN (
  SELECT subject FROM login_tries
   WHERE window_ends_at < now() AND coalesce(locked_until, now()) <= now()
     AND (succeeded_at IS NULL OR succeeded_at < now() - make_interval(days => %(days)s))
   ORDER BY window_ends_at LIMIT 1000)
OR subject IN (
  SELECT subject FROM login_tries WHERE succeeded_at IS NULL
   ORDER BY window_ends_at DESC, subject OFFSET %(rows)s)"""


class ThrottledBackend(ModelBackend):
    """Django's own backend behind the throttle, for logins and for confirmed passwords."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **_: Any
    ) -> Any:
        """Return the user, or None when the login fails.

        Raises PermissionDenied while locked; `django.contrib.auth.authenticate` then returns None.
        """
        if request is None or username is None or password is None:
            return super().authenticate(request, username, password)
        name = str(username)[:_NAME_LIMIT]
        address = client_ip(request)
        if is_locked(name, address):
            # The same work as for a wrong password: the response time must not reveal the lock.
            get_user_model()().set_password(password)
            raise PermissionDenied
        user = super().authenticate(request, username, password)
        if user is None:
            note_failure(name, address)
        else:
            note_success(name, address)
        return user


def is_locked(username: str, address: str) -> bool:
    """Return whether a login is refused with any password."""
    pair, account, place = _subjects(username, address)
    found = {row["subject"]: row for row in prepared.rows(_LOCKED, {"subjects": [pair, account, place],
                                                               "days": KNOWN_DAYS})}  # fmt: skip
    if pair in found and found[pair]["is_locked"]:
        return True
    if pair in found and found[pair]["is_known"]:
        return False  # a known address is most likely the owner's: only its own failures count
    return any(found[subject]["is_locked"] for subject in (account, place) if subject in found)


def note_failure(username: str, address: str) -> None:
    """Count a failed login; lock and record a security event when a limit is reached."""
    limits = (PAIR_LIMIT, ACCOUNT_LIMIT, ADDRESS_LIMIT)
    with transaction.atomic():
        for subject, limit, what in zip(
            _subjects(username, address), limits, ("pair", "account", "address"), strict=True
        ):
            found = prepared.row(_COUNT, {"subject": subject, "limit": limit, "window": WINDOW_SECONDS,
                                     "lock": LOCK_SECONDS})  # fmt: skip
            # One event for each lock: at its first failure.
            if found and found["is_locked"] and found["failures"] == limit:
                _lock_event(what, username, address, limit)
        prepared.rows(_PRUNE, {"days": KNOWN_DAYS, "rows": MAX_ROWS})
    log.warning("login_failed")


def note_success(username: str, address: str) -> None:
    """Reset the failures of this account from this address and record the address as known."""
    pair, _, _ = _subjects(username, address)
    prepared.rows(_SUCCESS, {"subject": pair})


def unlock(username: str) -> int:
    """Delete the failures of an account from every address; return the number of rows changed.

    Pairs are stored as digests and cannot be searched by account, so all locks end.
    """
    _, account, _ = _subjects(username, "")
    gone, _ = LoginTry.objects.filter(subject=account).delete()
    ended = LoginTry.objects.filter(locked_until__isnull=False).update(locked_until=None, failures=0)
    return gone + ended


def _lock_event(what: str, username: str, address: str, failures: int) -> None:
    SecurityEvent.objects.create(
        kind=SecurityEvent.Kind.LOGIN_LOCKED,
        reason=f"{failures} failed logins of one {what}",
        actor="" if what == "address" else _printable(username),
        context={"address": address[:64], "seconds": LOCK_SECONDS},
    )
    log.warning("security_event", kind=SecurityEvent.Kind.LOGIN_LOCKED.value, what=what)


def _printable(username: str) -> str:
    # People type their password into the wrong field: only names of existing accounts are recorded.
    exists = get_user_model().objects.filter(username=username).exists()
    return username if exists else "(unknown account)"


def _subjects(username: str, address: str) -> tuple[str, str, str]:
    name, place = username.casefold(), rate_limit_subnet(address)
    return _digest("pair", name, place), _digest("account", name), _digest("address", place)


def _digest(*parts: str) -> str:
    text = "\0".join(("login", *parts)).encode("utf-8", "replace")
    return hmac.new(settings.SECRET_KEY.encode(), text, hashlib.sha256).hexdigest()
