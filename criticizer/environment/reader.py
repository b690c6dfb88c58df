"""Texts of environment variables, or of their files (`NAME_FILE`), and sources of secrets."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

_PEM = "-----BEGIN "


def wrong(name: str, problem: str, remedy: str) -> ImproperlyConfigured:
    """Return the error for a wrong variable."""
    return ImproperlyConfigured(f"{name}: {problem}. Set {remedy}.")


@dataclass(frozen=True, slots=True)
class SecretSource:
    """The place that a secret comes from, never its value.

    `set_at` is when its file was written, or the date in `NAME_SET_AT`; None where it is unknown.
    """

    name: str
    source: str  # environment, file, generated or unset
    set_at: datetime | None = None


class Environment:
    """The texts of environment variables, read from `values` at each call."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def text(self, name: str) -> str:
        """Return a variable's text, from its file if it has one; "" when it is not set.

        The lines of a PEM key are joined by a backslash and an n, as people write them in environments.
        """
        value, file = self._values.get(name, ""), self._values.get(f"{name}_FILE", "")
        if file:
            try:
                value = Path(file).read_text(encoding="utf-8")
            except (OSError, ValueError):
                raise wrong(
                    f"{name}_FILE", "the file cannot be read", "the path of a readable text file"
                ) from None
        value = value.strip()
        if value.startswith(_PEM) and value.endswith("-----"):
            value = "\\n".join(value.splitlines())
        if not value.isprintable():
            problem = "holds line breaks or control characters"
            raise wrong(f"{name}_FILE" if file else name, problem, "one line of text; lists have commas")
        return value

    def source_of(self, name: str, generated: Path | None = None) -> SecretSource:
        """Return where the secret `name` comes from; `generated` is the file of a generated one."""
        file = Path(self._values[f"{name}_FILE"]) if self._values.get(f"{name}_FILE") else None
        kind = "file" if file else "environment"
        if not self.text(name):
            file, kind = (generated, "generated") if generated and generated.exists() else (None, "unset")
        return SecretSource(name, kind, self._set_at(name) or (_written_at(file) if file else None))

    def _set_at(self, name: str) -> datetime | None:
        declared = self._values.get(f"{name}_SET_AT", "").strip()
        if not declared:
            return None
        try:
            return datetime.combine(date.fromisoformat(declared), time(), UTC)
        except ValueError:
            raise wrong(f"{name}_SET_AT", "is not a date", "a date such as 2026-01-31") from None


def _written_at(file: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(file.stat().st_mtime, UTC)
    except OSError:
        return None


def generated_secret(path: Path, make: Callable[[], str]) -> str:
    """Return the secret in the file `path`, which is generated (mode 0600) the first time.

    Processes that start at the same moment get the same one: the file is linked into place when it is whole.
    """
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        candidate = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        descriptor = os.open(candidate, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(make())
        try:
            os.link(candidate, path)
        except FileExistsError:
            pass
        finally:
            candidate.unlink()
    return path.read_text().strip()
