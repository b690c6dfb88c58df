"""API keys: made once, stored as a digest, revoked at once."""

from __future__ import annotations

import hashlib
import secrets

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from reviews.models import ApiKey

PREFIX = "crz_"
_NAME_LIMIT = 64


def digest(key: str) -> str:
    """Return the hexadecimal SHA-256 under which `key` is stored.

    A plain digest is enough: keys carry 256 random bits, so there is nothing to guess.
    """
    return hashlib.sha256(key.encode()).hexdigest()


def create(name: str, role: str) -> str:
    """Make a key called `name` with `role` and return it: the only time it is seen.

    Raises ValueError with a sentence for the user: bad name, unknown role, name taken.
    """
    if not name.strip() or len(name) > _NAME_LIMIT or not name.isprintable():
        raise ValueError(f"The name must be 1 to {_NAME_LIMIT} printable characters.")
    if role not in ApiKey.Role.values:
        raise ValueError(f"The role must be one of {', '.join(ApiKey.Role.values)}.")
    key = PREFIX + secrets.token_urlsafe(32)
    try:
        with transaction.atomic():
            ApiKey.objects.create(name=name, role=role, key_sha256=digest(key), prefix=key[:12])
    except IntegrityError:
        raise ValueError(f"There is already an API key called {name!r}. Choose another name.") from None
    return key


def revoke(name: str) -> bool:
    """Refuse the key called `name` from now on. False when it was revoked before.

    Raises ApiKey.DoesNotExist.
    """
    if ApiKey.objects.filter(name=name, revoked_at=None).update(revoked_at=Now()) == 1:
        return True
    ApiKey.objects.get(name=name)
    return False
