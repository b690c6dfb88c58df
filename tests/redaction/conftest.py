"""Policies of redaction tests: their own, not an installation's."""

from __future__ import annotations

import sys

import pytest

import criticizer.redaction

# The package's function `guard` hides the module of the same name.
_GUARD = sys.modules[f"{criticizer.redaction.__name__}.guard"]


@pytest.fixture(autouse=True)
def _any_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lift the requirement that the application makes at its start."""
    monkeypatch.setattr(_GUARD, "_required", None)
