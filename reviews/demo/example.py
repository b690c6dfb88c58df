"""The demo's own changes: a small git repository whose newest commit triggers the checks.

The findings are assembled from pieces here, because this file is reviewed too: by `make demo REPO=.`, and by
scanners for secrets.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from criticizer.workers import subprocesses

NAME = "example"  # in GIT_REPOSITORIES, and so in its depot paths
FILE = "src/payments.py"
SUBJECT = "Retry payments that the gateway refuses"
UNPAID_SUBJECT = "Report the payments of a day"  # its review is left as an open dead letter

# Recognised by its form as a token of a code host; its text shows that it is not real.
_PLANTED = "gh" + "p_" + "NotARealToken" * 3
_DEBUGGER = "break" + "point()"

_BEFORE = '''"""Takes payments."""

from gateway import Gateway, Refused

ATTEMPTS = 1


def pay(gateway: Gateway, order: int, cents: int) -> str:
    """Return the receipt's number."""
    return gateway.charge(order, cents)
'''
_AFTER = f'''"""Takes payments."""

from gateway import Gateway, Refused

{"<" * 7} HEAD
ATTEMPTS = 3
{"=" * 7}
ATTEMPTS = 5
{">" * 7} retry-payments
GATEWAY_TOKEN = "{_PLANTED}"


def pay(gateway: Gateway, order: int, cents: int) -> str:
    """Return the receipt's number. Raises Refused."""
    for attempt in range(ATTEMPTS):
        try:
            return gateway.charge(order, cents)
        except Refused:
            {_DEBUGGER}
    raise Refused(order)
'''
_REFUNDS = '''"""Gives payments back."""

from gateway import Gateway


def refund(gateway: Gateway, order: int, cents: int, paid: int) -> int:
    """Return what is left of the payment."""
    gateway.pay_out(order, cents)
    return paid - cents
'''
_REPORT = '''"""Reports what was paid."""


def mean(payments: list[int]) -> int:
    """Return the mean of the payments of a day, in cents."""
    return sum(payments) // len(payments)
'''
# A scan finds one claim that holds and one that does not any more.
_README = """# Shop

Payments are taken in `src/payments.py`. Receipts are printed by `src/receipts.py`.
"""
_RECEIPTS = '"""Prints receipts."""\n'
_PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(2_000)
_LOCKED = '{\n  "name": "shop",\n  "lockfileVersion": 3,\n  "packages": {}\n}\n'
_COMMITS: tuple[tuple[str, dict[str, str | bytes | None]], ...] = (  # None: the file is deleted
    ("Take payments", {FILE: _BEFORE, "src/receipts.py": _RECEIPTS, "README.md": _README}),
    ("Leave the receipts to the gateway", {"src/receipts.py": None}),
    (UNPAID_SUBJECT, {"src/report.py": _REPORT}),
    ("Give payments back", {"src/refunds.py": _REFUNDS}),
    # Beside the code what a model does not read, so that the coverage has something to explain.
    (SUBJECT, {FILE: _AFTER, "web/retries.png": _PICTURE, "web/package-lock.json": _LOCKED}),
)


class ExampleError(Exception):
    """The repository could not be created; the message quotes git."""


def make(directory: Path, git: str) -> str:
    """Make the repository at `directory`; return the id of its newest commit.

    It takes the place of an older one. `git` is the absolute path of the command. Neither the user's nor the
    machine's settings for git are read or written. Raises ExampleError, OSError.
    """
    draft = directory.with_name(f".{directory.name}.{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        draft.mkdir(parents=True)
        _git(git, draft, "init", "--quiet", "--template=")
        for subject, files in _COMMITS:
            for name, content in files.items():
                if content is None:
                    _git(git, draft, "rm", "--quiet", name)
                    continue
                (draft / name).parent.mkdir(exist_ok=True)
                (draft / name).write_bytes(content if isinstance(content, bytes) else content.encode())
                _git(git, draft, "add", name)
            _git(git, draft, "commit", "--quiet", f"--message={subject}")
        commit = _git(git, draft, "rev-parse", "HEAD")
        shutil.rmtree(directory, ignore_errors=True)
        draft.rename(directory)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return commit


def _git(git: str, directory: Path, *arguments: str) -> str:
    person = {"NAME": "Ann Example", "EMAIL": "ann@example.com", "DATE": "2026-01-05T09:00:00+0000"}
    environment = {
        "PATH": os.defpath,
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        **{f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in person.items()},
    }
    done = subprocesses.run([git, *arguments], environment=environment, timeout_seconds=30, cwd=directory)
    if done.exit_code != 0:
        problem = " ".join(done.stderr.split()) or f"status {done.exit_code}"
        raise ExampleError(f"git {arguments[0]}: {problem}")
    return done.text.strip()
