"""The table of keys, the JSON Schema, the page and the example agree."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
import yaml
from django.core.management import CommandError, call_command
from jsonschema import Draft202012Validator

from reviews.configuration.keys import KEYS, Ceiling
from reviews.configuration.resolving import FILE, resolve
from reviews.management.commands import configuration_table
from tests.configuration.test_resolving import STRICT_FILE, WRONG, _written


def validator() -> Draft202012Validator:
    schema = json.loads(configuration_table.schema())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def test_the_example_sets_every_key_without_a_warning() -> None:
    found = resolve(configuration_table.example().encode(), Ceiling(max_findings=200))
    assert found.warnings == ()
    assert set(found.sources.values()) == {FILE}
    assert validator().is_valid(yaml.safe_load(configuration_table.example()))


def test_the_schema_refuses_what_the_table_refuses() -> None:
    schema = validator()
    assert schema.is_valid(json.loads(json.dumps(yaml.safe_load(STRICT_FILE), default=str)))
    for path, value, _ in WRONG:
        document = yaml.safe_load(_written({path: value}))
        assert not schema.is_valid(document), (path, value)
    for text in (
        "pathes: {}",
        "paths: {exlude: []}",
        "checks: {added_secrets: false}",
        "suppress: [{until: x}]",
    ):
        assert not schema.is_valid(yaml.safe_load(text)), text


def test_the_page_names_every_key_with_its_meaning() -> None:
    page = configuration_table.page()
    for path, key in KEYS.items():
        assert f"| `{path}` |" in page
        assert key.doc in page


def test_check_config_prints_what_holds_and_fails_on_warnings(tmp_path: Path) -> None:
    file = tmp_path / "some.yml"
    file.write_text("min_severity: high\n")
    out, errors = StringIO(), StringIO()
    call_command("check_config", str(file), stdout=out, stderr=errors)
    assert 'min_severity = "high"  (file)' in out.getvalue()
    assert f"{file} is valid." in out.getvalue()
    file.write_text("min_severity: severe\nzzzzz: 1\n")
    with pytest.raises(CommandError, match="has 2 warnings"):
        call_command("check_config", str(file), stdout=out, stderr=errors)
    assert "line 1: Configuration warning: field `min_severity` is invalid" in errors.getvalue()
    with pytest.raises(CommandError, match="cannot be read: No such file"):
        call_command("check_config", str(tmp_path / "none.yml"), stdout=out, stderr=errors)
