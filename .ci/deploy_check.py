"""`manage.py check --deploy` as a production installation would see it."""

import os
import sys
from pathlib import Path

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "DATABASE_URL": "postgres://criticizer@127.0.0.1:5432/criticizer",
    "SECRET_KEY": "".join(chr(33 + (7 * n) % 90) for n in range(64)),
    "ARTIFACT_KEYS": "A" * 43 + "=",
    "DEPOT_ALLOW_LIST": "//depot/project/...",
    "CHANGE_SOURCES": "git",
    "BASE_URL": "https://criticizer.example.com",
}
manage = Path(__file__).resolve().parent.parent / "manage.py"
command = [sys.executable, str(manage), "check", "--deploy", "--fail-level", "WARNING"]
os.execve(sys.executable, command, ENVIRONMENT)
