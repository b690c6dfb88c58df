"""The wheel holds the whole product and runs on its own, in an empty virtual environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

BASE_DIR = Path(settings.BASE_DIR)
PACKAGES = ("criticizer", "reviews", "notifications", "deadletters")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=BASE_DIR, capture_output=True, timeout=120, check=True,
    )  # fmt: skip
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_code_migrations_static_files_templates_and_the_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (entry_points,) = (name for name in archive.namelist() if name.endswith("/entry_points.txt"))
        assert "criticizer = criticizer.__main__:main" in archive.read(entry_points).decode()
    code = {
        path.relative_to(BASE_DIR).as_posix()
        for package in PACKAGES
        for path in (BASE_DIR / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    templates = {
        f"criticizer/{path.relative_to(BASE_DIR).as_posix()}"
        for path in (BASE_DIR / "templates").rglob("*")
        if path.is_file()
    }
    assert names == code | templates


@pytest.fixture
def empty_folder() -> Iterator[Path]:
    """A folder that the account of the embedded database may enter, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="criticizer-wheel-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.long
def test_the_installed_wheel_runs_the_demo_in_an_empty_folder(wheel: Path, empty_folder: Path) -> None:
    venv.create(empty_folder / "venv", with_pip=True)
    bin_dir = empty_folder / "venv" / "bin"
    work = empty_folder / "work"
    work.mkdir()
    # What configures pip stays; nothing of the checkout or of its environment does.
    environment = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("PIP_") or name in {"HOME", "LANG"}
    }
    environment["PATH"] = f"{bin_dir}:{os.environ['PATH']}"

    def run(*command: str, timeout: float = 400) -> str:
        done = subprocess.run(
            command, cwd=work, env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    pip = (str(bin_dir / "pip"), "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "--require-hashes", "-r", str(BASE_DIR / "requirements" / "base.txt"))
    run(*pip, "--no-deps", "--no-index", str(wheel))
    shown = run(str(bin_dir / "criticizer"), "demo")
    assert "What to look at:" in shown  # after the last review
    assert "its dead letter is left for you" in shown
    assert {path.name for path in work.iterdir()} == {"var"}
    assert list((work / "var" / "demo" / "mail" / "new").iterdir())
    (work / ".env").write_text("DEPOT_ALLOW_LIST=depot/main\n")
    refused = subprocess.run(
        [bin_dir / "criticizer", "check"],
        cwd=work, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert refused.returncode == 1
    assert refused.stderr.startswith("criticizer: DEPOT_ALLOW_LIST: ")
