"""Rules for Prometheus and the Grafana dashboard name what `/metrics` really has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.core.management import call_command
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from criticizer.management.commands import metric_table
from criticizer.observability.metrics import EXTRA, GAUGES, ROWS_INSERTED

DEPLOY = Path(settings.BASE_DIR) / "deploy"
RULES = DEPLOY / "prometheus-alerts.yml"
TABLE = {gauge.name: gauge for gauge in (*GAUGES, ROWS_INSERTED, *EXTRA)}


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return list(group["rules"])


def expressions() -> list[str]:
    panels = json.loads(metric_table.grafana())["panels"]
    return [rule["expr"] for rule in rules()] + [panel["targets"][0]["expr"] for panel in panels]


@pytest.mark.django_db
def test_the_table_is_what_metrics_returns(settings: Any) -> None:
    answer = Client().get("/metrics", REMOTE_ADDR="127.0.0.1").content.decode()
    found = {family.name for family in text_string_to_metric_families(answer)}
    assert {name for name in found if name.startswith("criticizer_")} == set(TABLE)


def test_rules_and_panels_name_metrics_and_labels_that_exist() -> None:
    for text in expressions():
        names = set(re.findall(r"\bcriticizer_\w+", text))
        assert names <= set(TABLE), text
        labels = {label for name in names for label in TABLE[name].labels}
        for listed in re.findall(r"by \(([^)]*)\)", text):
            assert {label for label in listed.split(", ") if label} <= labels, text
        for label in re.findall(r"criticizer_\w+\{(\w+)=", text):
            assert label in labels, text
    assert {name for text in expressions() for name in re.findall(r"\bcriticizer_\w+", text)} == set(TABLE)


def test_each_rule_says_what_to_do_with_a_page_that_exists() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in {"page", "ticket"}, rule["alert"]
        labels = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        names = re.findall(r"\bcriticizer_\w+", rule["expr"])
        assert labels <= {"instance", *(label for name in names for label in TABLE[name].labels)}
        for page in re.findall(r"docs/[\w/-]+\.md", " ".join(rule["annotations"].values())):
            assert (Path(settings.BASE_DIR) / page).exists(), page


def test_promtool_accepts_the_rules() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed here")
    done = subprocess.run(
        [promtool, "check", "rules", str(RULES)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(rules())} rules found" in done.stdout


def test_the_page_and_the_dashboard_are_current() -> None:
    call_command("metric_table", check=True)
