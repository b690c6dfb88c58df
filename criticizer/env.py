"""The environment, read once and validated (contract: Environment).

A wrong value stops the start with the variable's name, what was wrong and what to set.
Every variable may come as `NAME_FILE`, the path of a file that holds the value.
"""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured

T = TypeVar("T")
SECRET_BEARING = {"DATABASE_URL", "ARTIFACT_KEYS"}


def wrong(name: str, problem: str, remedy: str) -> ImproperlyConfigured:
    """Return the error every bad variable ends in; it never repeats the value of a secret."""
    return ImproperlyConfigured(f"{name}: {problem}. Set {remedy}.")


class Environment:
    """Typed, validated access to environment variables."""

    def __init__(self, values: Mapping[str, str]) -> None:
        # FileAwareEnv looks up NAME_FILE first; it reads from a class attribute.
        reader = type("Reader", (environ.FileAwareEnv,), {"ENVIRON": dict(values)})
        self._env = reader()

    def _raw(self, name: str) -> str | None:
        try:
            value = self._env.str(name, default=None)
        except (OSError, ImproperlyConfigured) as error:
            raise wrong(f"{name}_FILE", "the file cannot be read", "the path of a readable file") from error
        return value.strip() if value and value.strip() else None

    def text(self, name: str, default: str = "") -> str:
        return self._raw(name) or default

    def required(self, name: str, remedy: str) -> str:
        value = self._raw(name)
        if value is None:
            raise wrong(name, "is not set", remedy)
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._raw(name)
        if value is None:
            return default
        if value.lower() in {"1", "true", "on", "yes"}:
            return True
        if value.lower() in {"0", "false", "off", "no"}:
            return False
        raise wrong(name, f"{value!r} is not a switch", "true or false")

    def number(
        self, name: str, default: float, *, minimum: float, maximum: float, whole: bool = True
    ) -> float:
        value = self._raw(name)
        if value is None:
            return default
        try:
            number: float = int(value) if whole else float(value)
        except ValueError:
            kind = "a whole number" if whole else "a number"
            raise wrong(name, f"{value!r} is not {kind}", f"{kind} from {minimum:g} to {maximum:g}") from None
        if not minimum <= number <= maximum:
            raise wrong(name, f"{value} is out of range", f"a value from {minimum:g} to {maximum:g}")
        return number

    def integer(self, name: str, default: int, *, minimum: int, maximum: int) -> int:
        return int(self.number(name, default, minimum=minimum, maximum=maximum))

    def words(self, name: str, default: str = "") -> list[str]:
        """Return the comma-separated items, trimmed, without empty ones."""
        return [item.strip() for item in self.text(name, default).split(",") if item.strip()]

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        value = self.text(name, default)
        if value not in choices:
            raise wrong(name, f"{value!r} is unknown", "one of " + ", ".join(choices))
        return value

    def checked(self, name: str, parse: Callable[[], T], remedy: str) -> T:
        """Run `parse`, turning its ValueError into the error of variable `name`."""
        try:
            return parse()
        except ValueError as error:
            # The parser's words may quote a part of the value, and the value may be a secret.
            problem = "is not valid" if name in SECRET_BEARING else str(error)
            raise wrong(name, problem, remedy) from None

    def url(self, name: str, schemes: tuple[str, ...]) -> str:
        value = self.text(name)
        if value:
            parts = urlsplit(value)
            if parts.scheme not in schemes or not parts.netloc:
                raise wrong(name, "is not a URL of a known scheme", f"a URL starting {schemes[0]}://")
        return value


_GIT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def git_repositories(env: Environment) -> dict[str, Path]:
    """Parse `GIT_REPOSITORIES`: `name=/abs/path,…`."""
    found: dict[str, Path] = {}
    for item in env.words("GIT_REPOSITORIES"):
        name, separator, path = item.partition("=")
        if not separator or not _GIT_NAME.fullmatch(name) or not Path(path).is_absolute():
            raise wrong("GIT_REPOSITORIES", f"{item!r} is not name=/absolute/path", "name=/path,name2=/path2")
        if name in found:
            raise wrong("GIT_REPOSITORIES", f"{name!r} is named twice", "each name once")
        found[name] = Path(path)
    return found


def networks(env: Environment, name: str) -> list[str]:
    """Parse a comma-separated list of IP networks, kept as text."""

    def parse() -> list[str]:
        return [str(ipaddress.ip_network(item, strict=False)) for item in env.words(name)]

    return env.checked(name, parse, "networks such as 10.0.0.0/8,fd00::/8")


def generated_secret(directory: Path, name: str, make: Callable[[], str]) -> str:
    """Return the secret kept in `directory`, making it (mode 0600) the first time.

    Two processes starting at once agree: the file appears whole, by link, or not at all.
    """
    path = directory / name
    if not path.exists():
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        candidate = directory / f".{name}.{os.getpid()}.{secrets.token_hex(4)}"
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
