"""API keys: created, stored as digests, revoked."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from reviews.agents import claim
from reviews.models import ApiKey
from reviews.sources.allowlist import validate_line

PREFIX = "crz_"
_NAME_LIMIT = 64


def digest(key: str) -> str:
    """Return the hexadecimal SHA-256 under which `key` is stored.

    A plain digest is enough: keys carry 256 random bits, so there is nothing to guess.
    """
    return hashlib.sha256(key.encode()).hexdigest()


def create(name: str, role: str, prefixes: Sequence[str] = ()) -> str:
    """Create a key called `name` with `role` and return it.

    It is not stored and cannot be shown again. With `prefixes` (depot trees such as `//depot/main/...`) it
    sees only files below them. Raises ValueError with a sentence for the user: bad name, unknown role, name
    taken, bad prefix.
    """
    if not name.strip() or len(name) > _NAME_LIMIT or not name.isprintable():
        raise ValueError(f"The name must be 1 to {_NAME_LIMIT} printable characters.")
    if role not in ApiKey.Role.values:
        raise ValueError(f"The role must be one of {', '.join(ApiKey.Role.values)}.")
    for prefix in prefixes:
        check_tree(prefix)
    if role == ApiKey.Role.AGENT and not prefixes:
        raise ValueError(
            "A key of the role agent needs prefixes, such as //depot/main/...: it is handed code."
        )
    key = PREFIX + secrets.token_urlsafe(32)
    try:
        with transaction.atomic():
            ApiKey.objects.create(
                name=name, role=role, key_sha256=digest(key), prefix=key[:12], prefixes=list(prefixes)
            )
    except IntegrityError:
        raise ValueError(f"There is already an API key called {name!r}. Choose another name.") from None
    return key


def check_tree(prefix: str) -> str:
    """Return a depot tree. Raises ValueError, with what to write instead, for anything else."""
    validate_line(prefix)
    if prefix != prefix.strip() or prefix.startswith("-") or not prefix.endswith("/...") or "*" in prefix:
        raise ValueError("A viewing scope is a whole depot tree: write //depot/directory/... instead.")
    return prefix


def revoke(name: str) -> bool:
    """Revoke the key called `name`. Returns False when it was revoked before.

    Tasks that an agent holds by it are offered to others at once; those that a call is changing at that
    moment, within 30 seconds. Raises ApiKey.DoesNotExist.
    """
    with transaction.atomic():
        if ApiKey.objects.filter(name=name, revoked_at=None).update(revoked_at=Now()) == 1:
            claim.release_of(name)
            return True
    ApiKey.objects.get(name=name)
    return False
