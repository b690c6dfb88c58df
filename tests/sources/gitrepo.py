"""Real git repositories for tests, made by the real git."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


class GitRepo:
    """A repository in a directory; nothing of the user's or machine's git settings applies."""

    def __init__(self, path: Path, *options: str, bare: bool = False) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.git("init", "-q", "-b", "main", *options, *(["--bare"] if bare else []))

    def git(self, *arguments: str, stdin: bytes = b"") -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.path,
            env=self._environment(),
            input=stdin,
            capture_output=True,
            check=True,
        )
        return done.stdout.decode("utf-8", "surrogateescape").strip()

    def write(self, name: str, content: str | bytes) -> Path:
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        return target

    def commit(self, message: str = "A change.") -> str:
        self.git("add", "-A", "-f")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def commit_files(self, files: dict[str, str | bytes | None], message: str = "A change.") -> str:
        """Write (or, for None, delete) files and commit them."""
        for name, content in files.items():
            if content is None:
                (self.path / name).unlink()
            else:
                self.write(name, content)
        return self.commit(message)

    @staticmethod
    def _environment() -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_AUTHOR_NAME": "Ann",
            "GIT_AUTHOR_EMAIL": "ann@example.com",
            "GIT_COMMITTER_NAME": "Ann",
            "GIT_COMMITTER_EMAIL": "ann@example.com",
            "GIT_COMMITTER_DATE": "1790849023 +0000",
        }
