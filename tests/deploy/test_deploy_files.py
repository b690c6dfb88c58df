"""Files for other programs: systemd units, proxy and CI configuration, commit hooks."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.core.management import load_command_class

from criticizer.environment.variables import VARIABLES
from criticizer.workers.supervisor import clusters, web

DOCS = Path(settings.BASE_DIR) / "docs"
DEPLOY = Path(settings.BASE_DIR) / "deploy"
UNITS = ("criticizer-web.service", "criticizer-cluster@.service")


def command_of(unit: str) -> list[str]:
    text = (DEPLOY / unit).read_text().replace("\\\n", " ")
    found = re.search(r"^ExecStart=(.+)$", text, re.MULTILINE)
    assert found is not None
    return shlex.split(found[1])


def test_web_unit_starts_the_web_server_like_the_supervisor() -> None:
    ours = web("127.0.0.1", 8000, {}).command[2:]
    expected = ["manage.py", *[word for word in ours if word != "--skip-checks"]]  # `up` has checked
    assert command_of("criticizer-web.service")[1:] == expected


def test_installation_page_has_a_cluster_unit_for_every_queue() -> None:
    queues = sorted({queue for _, queue in settings.STAGES.values()})
    page = (DOCS / "installation.md").read_text()
    assert sorted(set(re.findall(r"criticizer-cluster@(\w+)", page))) == queues
    (child,) = clusters(["%i"], {})
    assert command_of("criticizer-cluster@.service")[1:] == [
        "manage.py",
        *[word for word in child.command[2:] if word != "--skip-checks"],  # `up` has checked; systemd has not
    ]


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_accepts_the_units(tmp_path: Path, unit: str) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd is not installed here")
    copy = tmp_path / unit.replace("@", "@stages")
    copy.write_text(re.sub(r"/opt/criticizer/\.venv/bin/\w+", "/bin/true", (DEPLOY / unit).read_text()))
    done = subprocess.run(
        [analyze, "verify", str(copy)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_proxy_sets_the_headers_that_the_service_trusts() -> None:
    text = (DEPLOY / "nginx.conf").read_text()
    headers = dict(re.findall(r"proxy_set_header ([\w-]+) +([^;]+);", text))
    assert headers["X-Forwarded-For"] == "$remote_addr"  # not $proxy_add_x_forwarded_for
    assert headers["X-Forwarded-Proto"] == "https"
    assert headers["Host"] == "$host"
    # Queries hold keys of feeds.
    assert text.count("access_log /var/log/nginx/access.log without_query;") == text.count("server {")
    assert not re.search(
        r"\$(request|request_uri|args|query_string|http_referer)\b", text.partition("server {")[0]
    )


def test_ci_definitions_only_call_the_ci_script() -> None:
    root = Path(settings.BASE_DIR)
    assert os.access(root / ".ci" / "run", os.X_OK)
    github = yaml.safe_load((root / ".github" / "workflows" / "ci.yml").read_text())
    (job,) = github["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    gitlab = yaml.safe_load((root / ".gitlab-ci.yml").read_text())
    assert [job["script"] for job in gitlab.values()] == [[".ci/run"]]


def test_pre_commit_hooks_are_local() -> None:
    config = yaml.safe_load((Path(settings.BASE_DIR) / ".pre-commit-config.yaml").read_text())
    assert [repository["repo"] for repository in config["repos"]] == ["local"]
    hooks = config["repos"][0]["hooks"]
    assert {hook["language"] for hook in hooks} == {"system"}
    assert [hook["entry"] for hook in hooks if not hook["entry"].startswith(".venv/bin/")] == []


def test_compose_file_of_several_machines_has_a_service_for_each_part() -> None:
    """A machine starts what its profiles name; each part is one that `up --only` knows."""
    found = yaml.safe_load((Path(settings.BASE_DIR) / "deploy" / "compose.hosts.yaml").read_text())
    parts = {"web", *(queue for _, queue in settings.STAGES.values())}
    assert set(found["services"]) == set(found["volumes"]) == parts
    for name, service in found["services"].items():
        assert service["profiles"] == [name]
        name_of_command, *arguments = service["command"]
        command = load_command_class("criticizer", name_of_command)
        given: Any = command.create_parser("criticizer", name_of_command).parse_args(arguments)
        assert given.only == [name]
        assert set(service["secrets"]) == set(found["secrets"])
        for variable, file in service["environment"].items():
            assert variable.removesuffix("_FILE") in VARIABLES
            assert file.removeprefix("/run/secrets/") in found["secrets"]
