"""What single variables of the environment must look like (contract: Environment).

Each function reads one variable, and raises ImproperlyConfigured with its name, what is wrong
and what to set.
"""

from __future__ import annotations

import os
import re
from email.utils import parseaddr
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import environ

from criticizer.environment.reader import Environment, wrong

_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?"
_HOST = re.compile(rf"{_NAME}\.?")
_DATABASE = "postgres://user:password@host:5432/name"
_MAILBOX = re.compile(rf"[!#$%&'*+/=?^_`{{|}}~A-Za-z0-9.-]{{1,64}}@(?:{_NAME}|\[[0-9A-Fa-f:.]+\])")
_ORIGIN = re.compile(rf"https?://(?:(?:\*\.)?{_NAME}|\[[0-9A-Fa-f:]+\])(?::[1-9][0-9]{{0,4}})?")
_RATE = re.compile(r"[1-9][0-9]{0,11}/(?:s|sec|second|m|min|minute|h|hour|d|day)")
_P4_USER = re.compile(r"[^\s@#*%/\"'-][^\s@#*%/\"']{0,99}")


def data_directory(env: Environment, default: Path) -> Path:
    """Return CRITICIZER_DATA_DIR, made where it is missing."""
    name = "CRITICIZER_DATA_DIR"
    path = Path(env.text(name, str(default))).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
        is_ours = os.access(path, os.R_OK | os.W_OK | os.X_OK)
    except OSError:
        is_ours = False
    if not is_ours:
        raise wrong(
            name, f"{str(path)!r} is no directory that may be written", "a directory of Criticizer's own"
        )
    return path


def database(env: Environment, name: str) -> dict[str, Any]:
    """Parse a PostgreSQL URL into Django's settings of a database."""
    url = env.text(name)
    # Looked at before it is parsed: the parser's warnings repeat what it does not understand.
    if not re.match(r"(?:postgres|postgresql|psql|pgsql)://", url):
        raise wrong(name, "is not a PostgreSQL URL", _DATABASE)
    found: dict[str, Any] = env.checked(name, lambda: environ.Env.db_url_config(url), _DATABASE)
    if not found.get("NAME"):
        raise wrong(name, "names no database", _DATABASE)
    return found


def owner_of_tables(env: Environment) -> dict[str, str]:
    """Return USER and PASSWORD of DATABASE_OWNER_URL, which `migrate` connects with; empty when unset."""
    if not env.text("DATABASE_OWNER_URL"):
        return {}
    found = database(env, "DATABASE_OWNER_URL")
    if not found.get("USER"):
        raise wrong("DATABASE_OWNER_URL", "names no user", "postgres://owner:password@host:5432/name")
    return {"USER": str(found["USER"]), "PASSWORD": str(found.get("PASSWORD") or "")}


def host(env: Environment, name: str) -> str:
    """Return the name or address of one host, without scheme and port."""
    value = env.text(name)
    if value and not _is_address(value) and not _HOST.fullmatch(value):
        raise wrong(name, f"{value!r} is not a host", "its name or address alone, such as mail.example.com")
    return value


def allowed_hosts(env: Environment, name: str, default: str) -> list[str]:
    """Return what Django compares the Host header with: names, `.domain` with all below it, or `*`."""
    found = env.words(name, default)
    for item in found:
        if item != "*" and not _is_address(item) and not _HOST.fullmatch(item.removeprefix(".")):
            raise wrong(
                name, f"{item!r} is not a host", "hosts without scheme and port: criticizer.example.com"
            )
    return found


def origins(env: Environment, name: str) -> list[str]:
    """Return origins: scheme, host and port, nothing behind them."""
    found = env.words(name)
    for item in found:
        if not _ORIGIN.fullmatch(item):
            raise wrong(name, f"{item!r} is not an origin", "origins such as https://criticizer.example.com")
    return found


def outbound(env: Environment, name: str) -> list[str]:
    """Return the hosts, addresses and networks that webhooks may reach besides public ones."""
    found = env.words(name)
    for item in found:
        if not _is_network(item) and not (_HOST.fullmatch(item) and not _is_numeric(item)):
            raise wrong(
                name,
                f"{item!r} is no host, address or network",
                "hosts and networks such as ci.internal,10.0.0.0/8, without ports",
            )
    return found


def rate(env: Environment, name: str, default: str) -> str:
    """Return a number of requests in a time, as the REST framework's throttle takes it."""
    value = env.text(name, default)
    if not _RATE.fullmatch(value):
        raise wrong(name, f"{value!r} is not a rate", "requests in a time, such as 6000/min")
    return value


def mail_address(env: Environment, name: str, default: str = "", *, display_name: bool = False) -> str:
    """Return a mail address; with `display_name`, also `Criticizer <address>`. Intranet hosts will do."""
    value = env.text(name, default)
    address = parseaddr(value)[1]
    if value and (not _MAILBOX.fullmatch(address) or not (display_name or address == value)):
        raise wrong(name, "is not a mail address", "one such as criticizer@example.com")
    if value != address and not re.fullmatch(r'(?:"[^"]*"|[^",;:<>@()]*)\s*<[^<>]+>', value):
        raise wrong(name, "is not one mail address", "one such as Criticizer <criticizer@example.com>")
    return value


def p4_user(env: Environment, name: str) -> str:
    """Return the name of a Perforce user."""
    value = env.text(name)
    if value and not _P4_USER.fullmatch(value):
        raise wrong(name, f"{value!r} is not a user name", "the service account's name")
    return value


def absolute_path(env: Environment, name: str) -> str:
    """Return the path of a file that commands get to read, whose directory is not ours."""
    value = env.text(name)
    if value and not Path(value).is_absolute():
        raise wrong(name, f"{value!r} is not an absolute path", "the file's path from / on")
    return value


def _is_address(text: str) -> bool:
    try:
        ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _is_network(text: str) -> bool:
    try:
        ip_network(text.strip("[]"), strict=False)
    except ValueError:
        return False
    return True


def _is_numeric(text: str) -> bool:
    """Say whether a text was meant as an IPv4 address: no host's last label is a number."""
    return text.rstrip(".").rpartition(".")[2].isdigit()
