"""Adding of a code host: a class, a line in the registry, a run of the conformance suite."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Speaks as Gitea does, under other names, with a signature and limits of its own.
HOST = """
import hashlib
import hmac

from criticizer.codehosts.events import NotAuthentic
from criticizer.codehosts.gitea.host import GiteaHost
from criticizer.environment import parsers
from criticizer.environment.variable import Variable, secret_variable


class Sourcehouse(GiteaHost):
    name = "sourcehouse"
    label = "Sourcehouse"
    address = ("SOURCEHOUSE_URL", "https://sourcehouse.example.com")
    credentials = ("SOURCEHOUSE_URL", "SOURCEHOUSE_TOKEN")
    calls_at_once = 3
    calls_per_second = 2.5
    variables = (
        Variable("SOURCEHOUSE_URL", parsers.HTTP, "The site of Sourcehouse."),
        secret_variable("SOURCEHOUSE_TOKEN", parsers.HEADER, "Of its account."),
        secret_variable("SOURCEHOUSE_WEBHOOK_SECRETS", parsers.TEXTS, "Of its webhooks."),
        Variable("SOURCEHOUSE_REPOSITORIES", parsers.REPOSITORY_GLOBS, "Whose pull requests are reviewed."),
    )

    def authenticate(self, headers, body):
        given = headers.get("X-Sourcehouse-Proof") or ""
        proofs = [hmac.new(one.encode(), body, hashlib.sha512).hexdigest() for one in self._secrets]
        if not any([hmac.compare_digest(one, given) for one in proofs]):
            raise NotAuthentic
"""
RUN = """
import hashlib
import hmac
import sys
from dataclasses import replace

import pytest

from criticizer.codehosts.registry import HOSTS
from sourcehouse.host import Sourcehouse

HOSTS[Sourcehouse.name] = Sourcehouse

from tests.hosts.kinds import KINDS, SECRET, TOKEN, gitea_headers


def headers(body, event="pull_request", delivery=""):
    proof = hmac.new(SECRET.encode(), body, hashlib.sha512).hexdigest()
    return {**gitea_headers(body, event, delivery), "X-Sourcehouse-Proof": proof}


KINDS[Sourcehouse.name] = replace(
    KINDS["gitea"], name=Sourcehouse.name, headers=headers, proof="X-Sourcehouse-Proof",
    connected=lambda url: {"SOURCEHOUSE_URL": url, "SOURCEHOUSE_TOKEN": (TOKEN,)},
)
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.long
def test_a_new_host_passes_the_conformance_suite_with_one_line_in_the_registry(tmp_path: Path) -> None:
    folder = tmp_path / "sourcehouse"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "host.py").write_text(HOST)
    (tmp_path / "run.py").write_text(RUN)
    suite = str(Path(__file__).with_name("test_conformance.py"))
    command = [sys.executable, str(tmp_path / "run.py"), suite, "-k", "sourcehouse or registry", "-q"]
    command += ["-p", "no:cacheprovider", f"--basetemp={tmp_path / 'files'}"]
    path = os.pathsep.join((str(ROOT), str(tmp_path)))
    # A data directory of its own: at its end that run takes its database away.
    ours = ("PYTEST_", "COV_", "CRITICIZER_DATA_DIR")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    ran = subprocess.run(
        command, cwd=ROOT, env={**environment, "PYTHONPATH": path}, capture_output=True, text=True,
        timeout=500, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]
    assert " passed" in ran.stdout
    assert "failed" not in ran.stdout


@pytest.mark.parametrize("host", ["github", "gitea", "gitlab"])
def test_no_file_outside_a_hosts_folder_compares_with_its_name(host: str) -> None:
    quoted = (f'"{host}"', f"'{host}'")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for app in ("criticizer", "notifications", "reviews", "deadletters")
        for path in (ROOT / app).rglob("*.py")
        if "migrations" not in path.parts and f"codehosts/{host}" not in path.as_posix()
        for line in path.read_text().splitlines()
        if any(text in line for text in quoted)
    ]
    # The form of an App is GitHub's alone; the export is GitLab's own format, no host's.
    allowed = ("reviews/admin/github_app.py", "reviews/finding_exports.py")
    assert [line for line in found if not line.startswith(allowed)] == []
