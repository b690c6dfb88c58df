"""deploy/install.sh, which the Containerfile runs, in a bare Debian: the command works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

from criticizer.environment.variables import VARIABLES

BASE_DIR = Path(settings.BASE_DIR)
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


@pytest.fixture
def debian() -> Iterator[Path]:
    """Make a bare Debian in a folder, with the repository's files and access to packages.

    Packages come the ways that this machine gets them.
    """
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        pytest.skip("A bare Debian needs root and mmdebstrap: apt-get install mmdebstrap")
    folder = Path(tempfile.mkdtemp(prefix="criticizer-debian-"))
    folder.chmod(0o755)
    root = folder / "root"
    made = subprocess.run(
        ["mmdebstrap", "--variant=minbase", "bookworm", str(root)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    if made.returncode != 0:
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"mmdebstrap could not make a bare Debian here: {made.stderr.splitlines()[-1:]}")
    files = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=BASE_DIR,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in files.stdout.split("\0"):
        if name and (BASE_DIR / name).is_file():
            (root / "src" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(BASE_DIR / name, root / "src" / name)
    # Not in its own place, which the package ca-certificates writes.
    copies = {
        "/etc/pip.conf": "pip.conf",
        "/etc/resolv.conf": "resolv.conf",
        str(CERTIFICATES): "machine.crt",
    }
    for path, name in copies.items():
        if Path(path).exists():
            (root / "etc" / name).unlink(missing_ok=True)
            shutil.copy(path, root / "etc" / name)
    yield root
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.long
def test_install_makes_the_command_the_account_and_the_data_directory(debian: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    environment |= {"PIP_CERT": "/etc/machine.crt"} if CERTIFICATES.exists() else {}
    environment["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

    def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/usr/sbin/chroot", str(debian), *command],
            env={**environment, **variables}, capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip

    installed = run("/src/deploy/install.sh")
    assert installed.returncode == 0, installed.stdout + installed.stderr
    assert "Criticizer is installed" in installed.stdout
    owner = run("stat", "-c", "%U %a", "/var/lib/criticizer").stdout
    assert owner == "criticizer 700\n"
    as_account = ("setpriv", "--reuid", "criticizer", "--regid", "criticizer", "--clear-groups", "criticizer")
    checked = run(
        *as_account, "check", CHANGE_SOURCES="git", GIT_REPOSITORIES="app=/srv/app",
        DEPOT_ALLOW_LIST="//app/...", CRITICIZER_DATA_DIR="/var/lib/criticizer",
    )  # fmt: skip
    assert "'/srv/app', named 'app', does not exist" in checked.stderr
    refused = run(*as_account, "check", CRITICIZER_DATA_DIR="/var/lib/criticizer")
    assert refused.stderr.startswith("criticizer: DEPOT_ALLOW_LIST: is not set. Set ")


def test_the_containerfile_runs_the_script_and_the_compose_file_names_known_variables() -> None:
    assert "RUN /src/deploy/install.sh" in (BASE_DIR / "Containerfile").read_text()
    compose = (BASE_DIR / "compose.yaml").read_text()
    named = re.findall(r"^ +([A-Z_]+)_FILE: /run/secrets/\w+$", compose, re.MULTILINE)
    assert set(named) - set(VARIABLES) == {"POSTGRES_PASSWORD"}
    assert (BASE_DIR / ".dockerignore").read_text() == (BASE_DIR / ".containerignore").read_text()
