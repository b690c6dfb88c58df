"""Requests through the whole middleware stack."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _static_root(settings: Any) -> None:
    settings.STATIC_ROOT.mkdir(parents=True, exist_ok=True)  # whitenoise warns without it
