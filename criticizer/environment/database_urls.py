"""Parsers of the URL of a PostgreSQL database, which may name several servers."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

import environ

from criticizer.environment.parsers import HOST_NAME, Invalid, Parser

_DATABASE_HOST = re.compile(rf"({HOST_NAME}\.?|\[[0-9A-Fa-f:.]+\]|/[^,:]+)(?::([1-9][0-9]{{0,4}}))?")


def _database(text: str) -> dict[str, Any]:
    """Return Django's settings of a PostgreSQL database."""
    # Checked before it is parsed: the parser's warnings repeat text that it does not understand.
    if not re.match(r"(?:postgres|postgresql|psql|pgsql)://", text):
        raise Invalid("is not a PostgreSQL URL")
    found: dict[str, Any] = environ.Env.db_url_config(text)
    if not found.get("NAME"):
        raise Invalid("names no database")
    options = found.get("OPTIONS", {})
    if "," in str(found["HOST"]):
        found["HOST"], found["PORT"] = _hosts_and_ports(text)
        found["ENGINE"] = "criticizer.db.several_servers"
        # Without this option a standby may answer, where every write fails.
        found["OPTIONS"] = options = {"target_session_attrs": "read-write", **options}
        if options["target_session_attrs"] not in {"read-write", "primary"}:
            raise Invalid("has several hosts: its target_session_attrs must be read-write or primary")
    elif options.get("target_session_attrs", "any") not in {"any", "read-write", "primary"}:
        raise Invalid("has a target_session_attrs other than read-write, primary or any")
    return found


def _hosts_and_ports(text: str) -> tuple[str, str]:
    """Return the hosts and the ports of a URL with several hosts, each joined by commas."""
    location = unquote(text.partition("://")[2].partition("/")[0].rpartition("@")[2])
    found = [_DATABASE_HOST.fullmatch(item) for item in location.split(",")]
    hosts = [match[1].strip("[]") for match in found if match]
    ports = [match[2] for match in found if match and match[2]]
    if len(hosts) < len(found) or any(int(port) > 65535 for port in ports):
        raise Invalid("names several hosts, of which one or its port is not valid")
    if ports and len(ports) != len(hosts):
        raise Invalid("names a port for some of its hosts: name one for each or for none")
    return ",".join(hosts), ",".join(ports)


def _database_owner(text: str) -> dict[str, str]:
    found = _database(text)
    if not found.get("USER"):
        raise Invalid("names no user")
    return {"USER": str(found["USER"]), "PASSWORD": str(found.get("PASSWORD") or "")}


_HOSTS = "or several hosts as in host1:5432,host2:5432"
DATABASE = Parser(_database, f"postgres://user:password@host:5432/name, {_HOSTS}", dict)
DATABASE_OWNER = Parser(_database_owner, f"postgres://owner:password@host:5432/name, {_HOSTS}", dict)
