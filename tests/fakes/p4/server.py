r"""A fake Perforce depot for tests, served by a stand-in `p4` that runs as a real process.

    depot = FakeDepot(tmp_path)
    change = depot.submit(edited("//depot/main/a.c", "old\n", "new\n"))
    source = PerforceSource(depot.config())
    ...
    assert depot.calls("print") == []

The depot's content follows the documented record forms; the messages in `messages.json` each
say whether they were captured, documented or constructed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import marshal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reviews.sources.perforce.client import PerforceConfig

_HERE = Path(__file__).parent

# Text on stderr, exit 1, nothing on stdout, whatever the output form (captured, 2026.1).
CONNECTION_REFUSED = (
    "Perforce client error:\n\tConnect to server failed; check $P4PORT.\n"
    "\tTCP connect to 127.0.0.1:1 failed.\n\tconnect: 127.0.0.1:1: Connection refused\n"
)
UNKNOWN_HOST = (
    "Perforce client error:\n\tConnect to server failed; check $P4PORT.\n"
    "\tTCP connect to nohost.invalid:1666 failed.\n\tName or service not known\n"
)
BAD_PORT = (
    "Perforce client error:\n\tConnect to server failed; check $P4PORT.\n"
    "\tTCP connect to 127.0.0.1:99999 failed.\n\tTCP port number 99999 is out of range.\n"
)


@dataclass(frozen=True)
class FakeFile:
    """One file of a change to be. None is a side that does not exist. Paths are encoded."""

    path: str
    action: str
    old: bytes | None = None
    new: bytes | None = None
    type: str = "text"
    source: str | None = None


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def added(path: str, new: str | bytes, type: str = "text") -> FakeFile:  # noqa: A002
    return FakeFile(path, "add", None, _bytes(new), type)


def edited(path: str, old: str | bytes, new: str | bytes, type: str = "text") -> FakeFile:  # noqa: A002
    return FakeFile(path, "edit", _bytes(old), _bytes(new), type)


def deleted(path: str, old: str | bytes, type: str = "text") -> FakeFile:  # noqa: A002
    return FakeFile(path, "delete", _bytes(old), None, type)


def moved(source: str, path: str, old: str | bytes, new: str | bytes | None = None) -> FakeFile:
    """A rename; its content changes as well where `new` is given."""
    return FakeFile(path, "move/add", _bytes(old), _bytes(old if new is None else new), source=source)


def purged(path: str) -> FakeFile:
    return FakeFile(path, "purge")


@dataclass(frozen=True)
class Call:
    """One run of the stand-in."""

    argv: list[str]
    command: str
    stdin: list[str]
    environment: dict[str, str]
    cwd: str


class FakeDepot:
    """A depot in a directory. `executable` is its `p4`; `config()` a configuration that uses it."""

    def __init__(
        self,
        directory: Path,
        *,
        unicode: bool = False,
        info_needs_charset: bool = False,
        case_handling: str = "sensitive",
        client_version: str = "2024.2",
        exit_on_failure: int = 1,
        tells_shelved_moves: bool = True,
    ) -> None:
        self.directory = directory / "fake-p4"
        (self.directory / "blobs").mkdir(parents=True)
        self.executable = self.directory / "p4"
        # The child inherits no PATH, so the interpreter is named. It starts faster without site, and
        # with a program that has been compiled.
        (self.directory / "program").write_bytes(_program())
        self.executable.write_text(
            f"#!{sys.executable} -IS\nimport marshal\nHERE = {str(self.directory.resolve())!r}\n"
            "with open(f'{HERE}/program', 'rb') as file:\n    program = marshal.load(file)\nexec(program)\n"
        )
        self.executable.chmod(0o755)
        self._tells_shelved_moves = tells_shelved_moves
        self._next_change = 101
        self._heads: dict[str, int] = {}
        info = {
            "serverVersion": "P4D/LINUX26X86_64/2024.2/2697822 (2025/01/09)",
            "serverServices": "standard",
            "serverID": "fake",
            "caseHandling": case_handling,
            "clientName": "*unknown*",
            "userName": "criticizer",
        }
        if unicode:
            info["unicode"] = "enabled"
        self.scenario: dict[str, Any] = {
            "origin": "constructed from the documented record forms",
            "client_version": client_version,
            "unicode": unicode,
            "info_needs_charset": info_needs_charset,
            "exit_on_failure": exit_on_failure,
            "info": info,
            "changes": {},
            "contents": {},
            "moves": {},
            "paths": [],
            "denied": [],
            "untranslatable": [],
            "users": {},
            "faults": [],
        }
        self._save()

    def config(self, **overrides: Any) -> PerforceConfig:
        values: dict[str, Any] = {
            "executable": self.executable,
            "port": "127.0.0.1:1666",
            "user": "criticizer",
            "home": self.directory / "home",
        }
        return PerforceConfig(**{**values, **overrides})

    def submit(self, *files: FakeFile, user: str = "ann", description: str = "A change.\n") -> str:
        """Add a submitted changelist and return its number."""
        number = self._new_change(user, description, "submitted")
        rows = []
        for file in files:
            if file.old is not None and file.action != "move/add":
                self._have(file.path, file.old)
            if file.source is not None and file.old is not None:
                base = self._have(file.source, file.old)
                rows.append(
                    self._row(file.source, "move/delete", file.type, self._advance(file.source), None)
                )
                revision = self._advance(file.path)
                self.scenario["moves"][f"{file.path}#{revision}"] = [file.source, f"#{base}"]
            else:
                revision = self._advance(file.path)
            self._store(f"{file.path}#{revision}", file.new)
            rows.append(self._row(file.path, file.action, file.type, revision, file.new))
        self.scenario["changes"][number]["files"] = rows
        self._save()
        return number

    def shelve(
        self, *files: FakeFile, change: str | None = None, user: str = "ann", description: str = "A shelf.\n"
    ) -> str:
        """Add a pending changelist with a shelf, or replace that of `change`; return the number."""
        number = change or self._new_change(user, description, "pending")
        rows = []
        for file in files:
            revision = 1
            if file.old is not None:
                revision = self._have(file.source or file.path, file.old)
            if file.source is not None:
                rows.append(self._row(file.source, "move/delete", file.type, revision, None))
                revision = 1
                if self._tells_shelved_moves:
                    self.scenario["moves"][f"{file.path}@={number}"] = [file.source]
            self._store(f"{file.path}@={number}", file.new)
            rows.append(self._row(file.path, file.action, file.type, revision, file.new))
        self.scenario["changes"][number]["shelf"] = rows
        self._save()
        return number

    def submit_shelf(self, number: str) -> None:
        """Submit the shelf of a pending changelist under its own number (constructed)."""
        change = self.scenario["changes"][number]
        rows, change["shelf"] = change["shelf"], None
        change["header"]["status"] = "submitted"
        for row in rows:
            revision = self._advance(row["depotFile"])
            name = self.scenario["contents"].get(f"{row['depotFile']}@={number}")
            if name is not None:
                self.scenario["contents"][f"{row['depotFile']}#{revision}"] = name
            change["files"].append({**row, "rev": str(revision)})
        self._save()

    def skip_numbers(self, count: int) -> None:
        """Let the next change have a number that much higher."""
        self._next_change += count

    def pending(self, *files: FakeFile, user: str = "ann") -> str:
        """Add a pending changelist whose files are only opened, not shelved."""
        number = self._new_change(user, "Work in progress.\n", "pending")
        self.scenario["changes"][number]["files"] = [
            {"depotFile": file.path, "action": file.action, "type": file.type, "rev": "1"} for file in files
        ]
        self._save()
        return number

    def ignore_case(self) -> None:
        """Take names that differ in case for one."""
        self.scenario["info"]["caseHandling"] = "insensitive"
        self._save()

    def deny(self, path: str) -> None:
        """Let the server list a file but not print it."""
        self.scenario["denied"].append(path)
        self._save()

    def user(self, name: str, email: str, *reviews: str, full_name: str = "") -> None:
        """Add a user whose specification says `Reviews:` for these paths; `-` in front excludes."""
        self.scenario["users"][name] = {
            "email": email,
            "name": full_name or name.capitalize(),
            "reviews": list(reviews),
        }
        self._save()

    def cannot_translate(self, path: str) -> None:
        self.scenario["untranslatable"].append(path)
        self._save()

    def forget(self, path_and_revision: str) -> None:
        """Let a revision have no content any more."""
        self.scenario["contents"].pop(path_and_revision)
        self._save()

    def misbehave(
        self, command: str = "*", *, contains: str = "", times: int = 1, skip: int = 0, **fault: Any
    ) -> None:
        """Make the next `times` runs of a command go wrong, after `skip` good ones.

        `hang=True`; `kill_after=bytes` (killed in the middle of its output); `huge=bytes`
        more output; `stderr=text`; `exit=code`; `messages=[names]` or `stdout=text` instead
        of the normal answer.
        """
        replace = "messages" in fault or "stdout" in fault or "stderr" in fault
        self.scenario["faults"].append(
            {
                "command": command,
                "contains": contains,
                "times": times,
                "skip": skip,
                "replace": replace,
                **fault,
            }
        )
        self._save()

    def recover(self) -> None:
        """Take back all misbehaviour."""
        self.scenario["faults"] = []
        for used in self.directory.glob("fault-*"):
            used.unlink()
        self._save()

    def calls(self, command: str | None = None) -> list[Call]:
        """Return the runs so far, oldest first, of one command or of all."""
        log = io.BytesIO(
            (self.directory / "calls").read_bytes() if (self.directory / "calls").exists() else b""
        )
        calls = []
        with contextlib.suppress(EOFError):
            while True:
                calls.append(Call(**marshal.load(log)))
        return [call for call in calls if command in (None, call.command)]

    def _new_change(self, user: str, description: str, status: str) -> str:
        number = str(self._next_change)
        self._next_change += 1
        header = {
            "change": number,
            "user": user,
            "client": f"{user}-ws",
            "time": "1790849023",
            "desc": description,
            "status": status,
            "changeType": "public",
            "path": "//depot/main/*",
        }
        self.scenario["changes"][number] = {"header": header, "files": [], "shelf": None}
        return number

    def _have(self, path: str, content: bytes) -> int:
        """Return the head revision of a file, submitting one with this content where it differs."""
        head = self._heads.get(path, 0)
        if head == 0 or self.scenario["contents"].get(f"{path}#{head}") != _blob_name(content):
            head = self._advance(path)
            self._store(f"{path}#{head}", content)
        return head

    def _advance(self, path: str) -> int:
        self._heads[path] = self._heads.get(path, 0) + 1
        if path not in self.scenario["paths"]:
            self.scenario["paths"].append(path)
        return self._heads[path]

    def _store(self, key: str, content: bytes | None) -> None:
        if content is not None:
            name = _blob_name(content)
            (self.directory / "blobs" / name).write_bytes(content)
            self.scenario["contents"][key] = name

    def _row(
        self, path: str, action: str, file_type: str, revision: int, content: bytes | None
    ) -> dict[str, str]:
        row = {"depotFile": path, "action": action, "type": file_type, "rev": str(revision)}
        if content is not None:
            # The server counts and digests what it stores; deletes have neither.
            row["fileSize"] = str(len(content))
            row["digest"] = hashlib.md5(content, usedforsecurity=False).hexdigest().upper()
        return row

    def _save(self) -> None:
        # Whole or not at all: a stand-in may be reading.
        draft = self.directory / "scenario.new"
        draft.write_bytes(marshal.dumps(json.loads(json.dumps({**self.scenario, "messages": _messages()}))))
        draft.replace(self.directory / "scenario")


@functools.cache
def _program() -> bytes:
    return marshal.dumps(compile((_HERE / "p4").read_text(), "p4", "exec"))


@functools.cache
def _messages() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((_HERE / "messages.json").read_text())
    return found


def _blob_name(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
