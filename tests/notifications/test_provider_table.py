"""docs/providers.md matches the providers' code."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from notifications.admin import capability_table
from notifications.providers.registry import PROVIDERS


def test_the_page_is_current() -> None:
    call_command("provider_table", check=True)


def test_a_page_that_is_not_current_is_noticed(settings: object, tmp_path: Path) -> None:
    settings.BASE_DIR = tmp_path  # type: ignore[attr-defined]
    (tmp_path / "docs").mkdir()
    with pytest.raises(CommandError, match="not current"):
        call_command("provider_table", check=True)
    call_command("provider_table")
    call_command("provider_table", check=True)


def test_every_provider_stands_in_it_with_its_proof_of_absence() -> None:
    page = capability_table.markdown()
    named = [name for _, name, _ in capability_table.variants()]
    assert len(named) > len(PROVIDERS)
    assert {channel for channel, _, _ in capability_table.variants()} == {
        entry.channel for entry in PROVIDERS
    }
    for _, name, can in capability_table.variants():
        assert f"| {name} |" in page
        assert f"- **{name}**: {can.absence}" in page
