"""A model field that is encrypted at rest with ARTIFACT_KEYS."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import structlog
from django.conf import settings
from django.db import models

from criticizer.security.encryption import Vault, VaultError

log = structlog.get_logger(__name__)


def current_vault() -> Vault:
    """Return the vault of ARTIFACT_KEYS as they are now."""
    return Vault(settings.ARTIFACT_KEYS)


class SealedListField(models.TextField[Any, Any]):
    """A list of JSON values, stored as `key id:sealed text`; an empty list as an empty text.

    A value that no key opens is logged and read as an empty list, so that the rest of the page is shown.
    Text in the database that was never sealed is read as it is.
    """

    _pyi_private_set_type: Any
    _pyi_private_get_type: Any

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "blank": True, "default": list, "db_default": ""})

    def deconstruct(self) -> Any:
        name, path, args, options = super().deconstruct()
        for fixed in ("blank", "default", "db_default"):
            options.pop(fixed, None)
        return name, path, args, options

    def get_prep_value(self, value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            return value  # text as it is in the database, such as the default
        return seal(value) if value else ""

    def get_db_converters(self, connection: Any) -> list[Callable[..., Any]]:
        # The keys, which may be two files, are read once for each query, not for each row.
        vault = cache(current_vault)
        return [lambda value, *_: opened(value or "", vault)]


def seal(value: Any) -> str:
    """Return a JSON value as the field stores it, sealed with the newest key."""
    vault = current_vault()
    return f"{vault.newest}:{vault.seal(json.dumps(value, separators=(',', ':')).encode()).decode()}"


def opened(stored: str, vault: Callable[[], Vault] = current_vault) -> list[Any]:
    """Return the list of a stored text; an empty one when no key opens it."""
    if not stored:
        return []
    if stored.startswith("["):
        return list(json.loads(stored))
    try:
        return list(json.loads(vault().open(stored.partition(":")[2].encode())))
    except VaultError as error:
        log.error("sealed_value_unreadable", key=stored.partition(":")[0], reason=str(error))
        return []


def resealed(stored: str) -> str:
    """Return a stored text sealed with the newest key. Raises VaultError."""
    if stored.startswith("["):
        value = json.loads(stored)
        return seal(value) if value else ""
    vault = current_vault()
    return f"{vault.newest}:{vault.reseal(stored.partition(':')[2].encode()).decode()}"
