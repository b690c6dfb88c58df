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
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

T = TypeVar("T")
N = TypeVar("N", int, float)
SECRET_BEARING = {
    "DATABASE_URL",
    "DATABASE_OWNER_URL",
    "ARTIFACT_KEYS",
    "IMAP_ARCHIVE_URL",
    "RESEND_WEBHOOK_SECRETS",
    "WEBHOOK_SECRETS",
}


def wrong(name: str, problem: str, remedy: str) -> ImproperlyConfigured:
    """Return the error every bad variable ends in; it never repeats the value of a secret."""
    return ImproperlyConfigured(f"{name}: {problem}. Set {remedy}.")


@dataclass(frozen=True, slots=True)
class SecretSource:
    """Where a secret came from: `environment`, `file`, `generated`, or `unset`. Never its value.

    `set_at` is when its file was written, or what `NAME_SET_AT` says; None where nobody can
    tell: an environment has no dates.
    """

    name: str
    source: str
    set_at: datetime | None = None


class Environment:
    """Typed, validated access to environment variables."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def _raw(self, name: str) -> str | None:
        """Return a variable's text, that of its file first; None where there is none."""
        value, file = self._values.get(name, ""), self._values.get(f"{name}_FILE", "")
        if file:
            try:
                value = Path(file).read_text(encoding="utf-8")
            except (OSError, ValueError):
                raise wrong(
                    f"{name}_FILE", "the file cannot be read", "the path of a readable text file"
                ) from None
        value = value.strip()
        if not value.isprintable():
            problem = "holds line breaks or control characters"
            raise wrong(f"{name}_FILE" if file else name, problem, "one line of text; lists have commas")
        return value or None

    def source_of(self, name: str, generated: Path | None = None) -> SecretSource:
        """Return where the secret `name` comes from; `generated` is the file of a generated one."""
        file = Path(self._values[f"{name}_FILE"]) if self._values.get(f"{name}_FILE") else None
        kind = "file" if file else "environment"
        if self._raw(name) is None:
            file, kind = (generated, "generated") if generated and generated.exists() else (None, "unset")
        return SecretSource(name, kind, self._set_at(name) or (_written_at(file) if file else None))

    def _set_at(self, name: str) -> datetime | None:
        """Return the day that `NAME_SET_AT` gives for a secret from the environment."""
        declared = self._values.get(f"{name}_SET_AT", "").strip()
        if not declared:
            return None
        try:
            return datetime.combine(date.fromisoformat(declared), time(), UTC)
        except ValueError:
            raise wrong(f"{name}_SET_AT", "is not a date", "a date such as 2026-01-31") from None

    def text(self, name: str, default: str = "") -> str:
        return self._raw(name) or default

    def header(self, name: str) -> str:
        """Return a secret that travels in an HTTP header; refuse what none can hold."""
        value = self.text(name)
        if not re.fullmatch(r"[!-~]*", value):
            raise wrong(name, "holds spaces or characters beyond ASCII", "the bare token, without quotes")
        return value

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
        """Return a URL with a host, and a port that is one."""
        value = self.text(name)
        if not value:
            return value
        try:
            parts = urlsplit(value)
            is_good = parts.scheme in schemes and parts.hostname and parts.port != 0 and " " not in value
        except ValueError:
            is_good = False
        if not is_good:
            starts = " or ".join(f"{scheme}://" for scheme in schemes)
            raise wrong(name, "is not such a URL", f"a URL with a host that starts {starts}")
        return value


def _written_at(file: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(file.stat().st_mtime, UTC)
    except OSError:
        return None


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


_GIT_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+-]{0,99}")


def git_watch(env: Environment, repositories: Mapping[str, Path]) -> list[tuple[str, str]]:
    """Parse `GIT_WATCH`: `name:branch,…`, each name one of `GIT_REPOSITORIES`."""
    found: list[tuple[str, str]] = []
    for item in env.words("GIT_WATCH"):
        name, _, branch = item.partition(":")
        if not _GIT_BRANCH.fullmatch(branch) or ".." in branch or "//" in branch:
            raise wrong("GIT_WATCH", f"{item!r} is not name:branch", "name:branch,name2:branch")
        if name not in repositories:
            raise wrong("GIT_WATCH", f"{name!r} is not in GIT_REPOSITORIES", "names that are there")
        if (name, branch) not in found:
            found.append((name, branch))
    return found


def networks(env: Environment, name: str) -> list[str]:
    """Parse a comma-separated list of IP networks, kept as text."""

    def parse() -> list[str]:
        return [str(ipaddress.ip_network(item, strict=False)) for item in env.words(name)]

    return env.checked(name, parse, "networks such as 10.0.0.0/8,fd00::/8")


_HOST = re.compile(r"(?:[a-z0-9_](?:[a-z0-9._-]{0,251}[a-z0-9_])?|\[[0-9a-f:.]+\])(?::[1-9][0-9]{0,4})?")


def hosts(env: Environment, name: str) -> frozenset[str]:
    """Parse `host,host:port,…` of URLs; return them in lower case."""
    found = frozenset(item.lower() for item in env.words(name))
    for item in sorted(found):
        if not _HOST.fullmatch(item):
            raise wrong(
                name, f"{item!r} is not a host", "hosts such as ci.example.com,hooks.example.com:8443"
            )
    return found


_PERIODS = {"s": 1, "m": 60, "h": 3600}
_DEPENDENCY = re.compile(r"(?:llm|p4|provider)(?::[A-Za-z0-9._:\[\]#-]{1,120})?")


def rate_limits(env: Environment, name: str) -> dict[str, float]:
    """Parse `<dependency>=<calls>/<s|m|h>,…`; return calls a second by dependency."""

    def rate(text: str) -> float | None:
        count, _, period = text.partition("/")
        if not re.fullmatch(r"[0-9]{1,6}", count) or not int(count) or period not in _PERIODS:
            return None
        return int(count) / _PERIODS[period]

    return _limits(env, name, rate, "llm:openai=60/m,provider:mail=10/s")


def concurrency_limits(env: Environment, name: str) -> dict[str, int]:
    """Parse `<dependency>=<calls at once>,…`."""

    def count(text: str) -> int | None:
        return int(text) if re.fullmatch(r"[1-9][0-9]{0,3}", text) else None

    return _limits(env, name, count, "llm:openai=200")


def _limits(env: Environment, name: str, parse: Callable[[str], N | None], example: str) -> dict[str, N]:
    found: dict[str, N] = {}
    for item in env.words(name):
        dependency, _, text = item.rpartition("=")
        limit = parse(text)
        if limit is None or not _DEPENDENCY.fullmatch(dependency):
            raise wrong(name, f"{item!r} is no limit of a dependency", f"limits such as {example}")
        if dependency in found:
            raise wrong(name, f"{dependency!r} is named twice", "each dependency once")
        found[dependency] = limit
    return found


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


_FILE_STORAGE = "django.core.files.storage.FileSystemStorage"
_DURABLE = {"letter_archive": "criticizer.storage.DurableFileStorage"}  # the only copy of what was removed
_PRIVATE = {"file_permissions_mode": 0o600, "directory_permissions_mode": 0o700}
_BUCKETS = {
    "artifacts_raw": "ARTIFACT_S3_BUCKET_RAW",
    "artifacts_redacted": "ARTIFACT_S3_BUCKET_REDACTED",
    "letter_archive": "ARTIFACT_S3_BUCKET_LETTERS",
}


def artifact_storages(env: Environment, data_dir: Path) -> dict[str, dict[str, Any]]:
    """Return the STORAGES of raw and redacted artifacts and of removed dead letters.

    None shares the place of another (001, 9.4). `ARTIFACT_STORAGE=s3` keeps them in three buckets
    through django-storages (extra `s3`).
    """
    if env.choice("ARTIFACT_STORAGE", "file", ("file", "s3")) == "file":
        places = {
            "artifacts_raw": data_dir / "artifacts" / "raw",
            "artifacts_redacted": data_dir / "artifacts" / "redacted",
            "letter_archive": data_dir / "letters",
        }
        return {
            alias: {"BACKEND": _DURABLE.get(alias, _FILE_STORAGE), "OPTIONS": {"location": place, **_PRIVATE}}
            for alias, place in places.items()
        }
    buckets: dict[str, str] = {}
    for alias, name in _BUCKETS.items():
        bucket = env.required(name, "the name of a bucket of its own")
        if bucket in buckets.values():
            raise wrong(name, "is the bucket of other files", "another bucket: no two share one")
        buckets[alias] = bucket
    common = {
        "endpoint_url": env.url("ARTIFACT_S3_ENDPOINT", ("https", "http")) or None,
        "region_name": env.text("ARTIFACT_S3_REGION") or None,
        "access_key": env.text("ARTIFACT_S3_ACCESS_KEY") or None,
        "secret_key": env.text("ARTIFACT_S3_SECRET_KEY") or None,
        "default_acl": None,
        "file_overwrite": False,
        "querystring_auth": True,
        **_s3_client(),
    }
    return {
        alias: {
            "BACKEND": "storages.backends.s3.S3Storage",
            "OPTIONS": {**common, "bucket_name": bucket},
        }
        for alias, bucket in buckets.items()
    }


def _s3_client() -> dict[str, Any]:
    """Return how long the S3 client waits; repeating is the stages' business, with their budgets."""
    try:
        from botocore.config import Config
    except ImportError:  # the system check criticizer.E004 says so
        return {}
    return {
        "client_config": Config(
            connect_timeout=5, read_timeout=30, retries={"total_max_attempts": 1}, signature_version="s3v4"
        )
    }
