"""Memory of a process of the product, forgotten before each test."""

from __future__ import annotations

import copy
import importlib
from functools import cache
from typing import Any, Final
from unittest.mock import ANY

from reviews.api.auth import REFUSALS
from reviews.api.throttling import ApiKeyThrottle

# By module: names that its functions assign or fill, which a test finds as they are after the import.
FORGOTTEN: Final = {
    "criticizer.db.reconnect": ("_lost_at",),
    "criticizer.db.several_servers.base": ("_last",),
    "criticizer.queue.outbox": ("_after",),
    "criticizer.resilience.gate": ("_free",),
    "criticizer.resilience.receivers": ("_counted",),
    "criticizer.security.expired_copies": ("_ran_at",),
    "deadletters.retention.letter_archive": ("_resealed_to",),
    "deadletters.retention.policy": ("_walked_at",),
    "reviews.artifacts.integrity": ("_walked_at",),
    "reviews.artifacts.reader": ("_shown",),
    "reviews.intake.kept_requests": ("_kept", "_characters", "_known", "_changed_at", "_is_due"),
    "reviews.intake.refusals": ("_written",),
    "reviews.intake.unknown_changes": ("_requests", "_refused_until"),
    "reviews.pipeline.sweep": ("_after", "_whole_at"),
    "reviews.token_counts": ("_known",),
}
# What stays, as no test can tell whether it is remembered, or as it is made once for the process.
KEPT: Final = {
    "criticizer.codehosts.github.variables": {"_sound_keys": "a key that was checked stays sound"},
    "criticizer.observability.health": {"_migrated": "the tests' database has its migrations from the start"},
    "criticizer.redaction.guard": {"_required": "set once at the start of a process"},
    "criticizer.redaction.known_secrets": {
        "_registered": "secrets are only added, and no test has another's",
        "current": "the apps add to it as they load",
    },
    "criticizer.redaction.patterns": {"_caches": "the modules add to it as they load"},
    "reviews.config": {
        "_recorded": "set below: writing the ceiling once would be an event of some first test"
    },
    "reviews.drift.grammar_code": {"_parsers": "a parser is the same whenever it was made"},
    "reviews.pipeline.async_executor": {
        "_pools": "threads of a loop, which end with it",
        "_lone_threads": "threads of a loop, which end with it",
    },
    "reviews.reviewers.redactor": {"_current": "a process of its own, ended by the fixtures that start it"},
}


@cache
def _as_imported() -> list[tuple[Any, str, Any]]:
    modules = {name: importlib.import_module(name) for name in FORGOTTEN}
    return [
        (modules[name], key, getattr(modules[name], key)) for name, keys in FORGOTTEN.items() for key in keys
    ]


def forget() -> None:
    """Set the memory of the process back to what it was after its imports.

    The first call takes note of that state, so it must come before any test.
    """
    for module, name, value in _as_imported():
        setattr(module, name, copy.copy(value))
    importlib.import_module("reviews.config")._recorded = ANY
    ApiKeyThrottle.reset()
    REFUSALS.reset()
