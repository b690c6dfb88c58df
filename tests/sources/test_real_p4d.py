"""Conformance of the Perforce source with a real server, where one is installed.

Starts a private server on a pipe (`rsh:`), so nothing listens and nothing outlives the test.
These tests also check what `describe` says of shelves, renames and types, and how a real `p4`
ends.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from criticizer.resilience.failures import ErrorClass, PermanentFailure
from reviews.sources.allowlist import AllowList
from reviews.sources.base import Action, ChangeStatus, FileChange, SkipReason
from reviews.sources.fetcher import ChangeFetcher
from reviews.sources.perforce.client import PerforceConfig
from reviews.sources.perforce.source import PerforceSource

P4, P4D = shutil.which("p4"), shutil.which("p4d")
pytestmark = [
    pytest.mark.p4d,
    pytest.mark.skipif(not (P4 and P4D), reason="needs p4 and p4d on PATH"),
]


class RealDepot:
    def __init__(self, directory: Path) -> None:
        self.root, self.workspace = directory / "root", directory / "ws"
        self.root.mkdir()
        self.workspace.mkdir()
        self.port = f"rsh:{P4D} -r {self.root} -L log -i"
        self.home = directory / "home"
        spec = f"Client: ws\nOwner: ann\nRoot: {self.workspace}\nView:\n\t//depot/... //ws/...\n"
        self.p4("client", "-i", stdin=spec)

    def p4(self, *arguments: str, stdin: str = "") -> str:
        assert P4 is not None
        done = subprocess.run(
            [P4, "-p", self.port, "-u", "ann", "-c", "ws", *arguments],
            cwd=self.workspace,
            input=stdin,
            text=True,
            capture_output=True,
            check=True,
            env={
                "PATH": "/usr/bin:/bin",
                "HOME": str(self.workspace),
                "P4CONFIG": "",
                "P4ENVIRO": "/dev/null",
            },
        )
        return done.stdout

    def write(self, name: str, content: str | bytes) -> str:
        target = self.workspace / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(target)

    def submit(self, description: str = "A change.") -> str:
        self.p4("submit", "-d", description)
        return self.p4("changes", "-m1", "-s", "submitted").split()[1]

    def shelve(self) -> str:
        spec = self.p4("change", "-o").replace("<enter description here>", "A shelf.")
        number = self.p4("change", "-i", stdin=spec).split()[1]
        self.p4("shelve", "-c", number)
        return number

    def fetch(self, change: str) -> dict[str, FileChange]:
        assert P4 is not None
        config = PerforceConfig(executable=P4, port=self.port, user="ann", home=self.home, allow_rsh=True)
        fetcher = ChangeFetcher(PerforceSource(config), AllowList(["//depot/..."]), pytest.fail)
        self.last = fetcher.fetch(change)
        return {file.path.removeprefix("//depot/"): file for file in self.last.files}


@pytest.fixture
def depot(tmp_path: Path) -> RealDepot:
    return RealDepot(tmp_path)


def prepare_all_actions(depot: RealDepot) -> None:
    for name in ("edit.c", "gone.c", "from.c"):
        depot.p4("add", depot.write(name, f"{name}\n"))
    depot.submit()
    depot.p4("edit", "edit.c", "from.c")
    depot.write("edit.c", "new\n")
    depot.p4("move", "from.c", "to.c")
    depot.p4("delete", "gone.c")
    depot.p4("add", "-f", depot.write("a@b.c", "special\n"))
    depot.p4("add", "-t", "binary", depot.write("x.bin", b"\0\1"))
    depot.p4("add", "-t", "text+k", depot.write("k.c", "$Id$\n"))


def check_all_actions(files: dict[str, FileChange]) -> None:
    assert {name: file.action for name, file in files.items()} == {
        "edit.c": Action.EDIT,
        "gone.c": Action.DELETE,
        "to.c": Action.RENAME,
        "a%40b.c": Action.ADD,
        "x.bin": Action.ADD,
        "k.c": Action.ADD,
    }
    assert (files["edit.c"].old_text, files["edit.c"].new_text) == ("edit.c\n", "new\n")
    assert files["gone.c"].old_text == "gone.c\n"
    assert files["to.c"].old_path == "//depot/from.c"
    assert files["a%40b.c"].new_text == "special\n"
    assert files["x.bin"].skipped is SkipReason.BINARY
    assert files["k.c"].new_text == "$Id$\n"


def test_a_submitted_changelist(depot: RealDepot) -> None:
    prepare_all_actions(depot)
    check_all_actions(depot.fetch(depot.submit()))
    assert depot.last.status is ChangeStatus.SUBMITTED


def test_a_shelved_changelist(depot: RealDepot) -> None:
    prepare_all_actions(depot)
    check_all_actions(depot.fetch(depot.shelve()))
    assert depot.last.status is ChangeStatus.SHELVED


def test_utf16_and_legacy_encodings(depot: RealDepot) -> None:
    depot.p4("add", "-t", "utf16", depot.write("wide.txt", "é\n".encode("utf-16")))
    depot.p4("add", "-t", "text", depot.write("latin.txt", b"caf\xe9\n"))
    files = depot.fetch(depot.submit())
    assert files["wide.txt"].new_text == "é\n"
    assert files["latin.txt"].new_text == "café\n"


def test_unknown_and_unshelved_changelists_are_not_found(depot: RealDepot) -> None:
    depot.p4("add", depot.write("a", "1\n"))
    spec = depot.p4("change", "-o").replace("<enter description here>", "Pending.")
    pending = depot.p4("change", "-i", stdin=spec).split()[1]
    for number in (pending, "9999"):
        with pytest.raises(PermanentFailure) as caught:
            depot.fetch(number)
        assert caught.value.error_class is ErrorClass.NOT_FOUND
