"""Parsers of environment variables: from text to a checked value.

A parser raises ValueError, whose message says what is wrong with the text. That of `Invalid` repeats
nothing of the text, so it is also shown for secrets.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parseaddr
from functools import partial
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

HOST_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"{HOST_NAME}\.?")
_URL_HOST = re.compile(r"(?:[a-z0-9_](?:[a-z0-9._-]{0,251}[a-z0-9_])?|\[[0-9a-f:.]+\])(?::[1-9][0-9]{0,4})?")
_MAILBOX = re.compile(rf"[!#$%&'*+/=?^_`{{|}}~A-Za-z0-9.-]{{1,64}}@(?:{HOST_NAME}|\[[0-9A-Fa-f:.]+\])")
_ORIGIN = re.compile(rf"https?://(?:(?:\*\.)?{HOST_NAME}|\[[0-9A-Fa-f:]+\])(?::[1-9][0-9]{{0,4}})?")
_RATE = re.compile(r"[1-9][0-9]{0,11}/(?:s|sec|second|m|min|minute|h|hour|d|day)")
_P4_USER = re.compile(r"[^\s@#*%/\"'-][^\s@#*%/\"']{0,99}")
_GIT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_GIT_REFERENCE = re.compile(r"refs/[A-Za-z0-9_][A-Za-z0-9._/+-]{0,99}\*?")
_GIT_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+-]{0,99}")
_GLOB = r"[A-Za-z0-9._*?-]{1,100}"
_DEPENDENCY = re.compile(r"(?:llm|p4|provider)(?::[A-Za-z0-9._:\[\]#-]{1,120})?")
_PERIOD_SECONDS = {"s": 1, "m": 60, "h": 3600}
DEADLINE_SECONDS = 1200


class Invalid(ValueError):
    """The text is not valid; the message repeats nothing of it."""


@dataclass(frozen=True, slots=True)
class Parser:
    """A function from the text of a variable to its value, with the description of such texts.

    `accepts` describes them: it completes the sentence "Set ...". `unset` makes the value of a variable that
    is not set and has no default.
    """

    parse: Callable[[str], Any]
    accepts: str
    unset: Callable[[], Any] = str


def items(text: str) -> list[str]:
    """Return the comma-separated items, trimmed, without empty ones."""
    return [item.strip() for item in text.split(",") if item.strip()]


def matching(is_valid: Callable[[str], object], kind: str) -> Callable[[str], str]:
    """Return a parse function that returns text unchanged and refuses text that is not `kind`."""

    def parse(text: str) -> str:
        if not is_valid(text):
            raise ValueError(f"{text!r} is not {kind}")
        return text

    return parse


def list_of(parse: Callable[[str], object], accepts: str) -> Parser:
    """Return the parser of a comma-separated list; `parse` reads one item."""
    return Parser(lambda text: [parse(item) for item in items(text)], accepts, list)


def checked_list(check: Callable[[str], object], accepts: str) -> Parser:
    """Return the parser of a list whose items stay text.

    `check` raises ValueError for a wrong item.
    """

    def parse(item: str) -> str:
        check(item)
        return item

    return list_of(parse, accepts)


def without_password(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{parts.username}@{host}").geturl() if url else ""


def any_text(accepts: str) -> Parser:
    """Return the parser of any line of text."""
    return Parser(str, accepts)


def choice(*choices: str) -> Parser:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"{text!r} is unknown")
        return text

    return Parser(parse, "one of " + ", ".join(choices))


def choices(*known: str) -> Parser:
    """Return the parser of a list of known names, at least one."""

    def parse(text: str) -> list[str]:
        found = items(text)
        if unknown := sorted(set(found) - set(known)):
            raise ValueError(f"{', '.join(unknown)} is unknown")
        if not found:
            raise ValueError("is an empty list")
        return found

    return Parser(parse, "one or more of " + ", ".join(known))


def number(minimum: float, maximum: float, kind: type[int | float] = float) -> Parser:
    noun = "a whole number" if kind is int else "a number"

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise ValueError(f"{text!r} is not {noun}") from None
        if not minimum <= value <= maximum:
            raise ValueError(f"{text} is out of range")
        return value

    return Parser(parse, f"{noun} from {minimum:g} to {maximum:.15g}", lambda: None)


def integer(minimum: int, maximum: int) -> Parser:
    return number(minimum, maximum, int)


def _boolean(text: str) -> bool:
    if text.lower() not in {"1", "true", "on", "yes", "0", "false", "off", "no"}:
        raise ValueError(f"{text!r} is not true or false")
    return text.lower() in {"1", "true", "on", "yes"}


def url(*schemes: str) -> Parser:
    """Return the parser of a URL with a host and, if any, a valid port."""

    def parse(text: str) -> str:
        try:
            parts = urlsplit(text)
            is_valid = parts.scheme in schemes and parts.hostname and parts.port != 0 and " " not in text
        except ValueError:
            is_valid = False
        if not is_valid:
            raise Invalid("is not a valid URL")  # not repeated: it may hold a password
        return text

    starts = " or ".join(f"{scheme}://" for scheme in schemes)
    return Parser(parse, f"a URL with a host, beginning with {starts}")


def _data_directory(text: str) -> Path:
    """Return the absolute path of a directory, which is created if it is missing."""
    path = Path(text).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
        is_usable = os.access(path, os.R_OK | os.W_OK | os.X_OK)
    except OSError:
        is_usable = False
    if not is_usable:
        raise ValueError(f"{str(path)!r} is not a writable directory")
    return path


def data_directory(default: Path) -> Parser:
    accepts = "a directory for Criticizer alone, which it may write"
    return Parser(_data_directory, accepts, lambda: _data_directory(str(default)))


def _header(text: str) -> str:
    if not re.fullmatch(r"[!-~]*", text):
        raise Invalid("holds spaces or characters beyond ASCII")
    return text


# Fields that we set; a setting must not change what is sent or how the answer is read.
_OWN_FIELDS = frozenset((
    "model", "messages", "system", "stream", "response_format", "max_tokens", "max_completion_tokens", "n",
    "tools",
))  # fmt: skip


def _extra_body(text: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        raise Invalid("is not JSON") from None
    if not isinstance(body, dict) or len(text) > 4_000:
        raise Invalid("is not a JSON object of at most 4,000 characters")
    if own := sorted(_OWN_FIELDS & set(body)):
        raise Invalid(f"sets {', '.join(own)}, which Criticizer sets itself")
    return body


EXTRA_BODY = Parser(_extra_body, "a JSON object without model, messages, limits and formats", unset=dict)


def mail_address(*, with_name: bool = False) -> Parser:
    """Return the parser of one mail address; `with_name` also accepts `Criticizer <address>`."""

    def parse(text: str) -> str:
        address = parseaddr(text)[1]
        if not _MAILBOX.fullmatch(address) or not (with_name or address == text):
            raise Invalid("is not a mail address")
        if text != address and not re.fullmatch(r'(?:"[^"]*"|[^",;:<>@()]*)\s*<[^<>]+>', text):
            raise Invalid("is not one mail address")
        return text

    example = "Criticizer <criticizer@example.com>" if with_name else "criticizer@example.com"
    return Parser(parse, f"one address such as {example}")


def _git_repositories(text: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for item in items(text):
        name, separator, path = item.partition("=")
        if not separator or not _GIT_NAME.fullmatch(name) or not Path(path).is_absolute():
            raise ValueError(f"{item!r} is not name=/absolute/path")
        if name in found:
            raise ValueError(f"{name!r} is named twice")
        found[name] = Path(path)
    return found


def _git_watch(text: str) -> list[tuple[str, str]]:
    """Return (repository, branch) pairs, each once."""
    found: dict[tuple[str, str], None] = {}
    for item in items(text):
        name, _, branch = item.partition(":")
        if not _GIT_BRANCH.fullmatch(branch) or ".." in branch or "//" in branch:
            raise ValueError(f"{item!r} is not name:branch")
        found[name, branch] = None
    return list(found)


def _git_references(text: str) -> list[str]:
    """Return patterns of references below refs/, at least one."""
    found = items(text)
    if not found:
        raise ValueError("no reference is named, so that no commit could be reviewed")
    for item in found:
        if not _GIT_REFERENCE.fullmatch(item) or ".." in item or "//" in item:
            raise ValueError(f"{item!r} is not a reference such as refs/heads/*")
    return found


def _repository_globs(text: str, form: str = f"{_GLOB}/{_GLOB}") -> list[str]:
    found = items(text)
    for item in found:
        if not re.fullmatch(form, item):
            raise ValueError(f"{item!r} is not owner/repository")
    return [item.lower() for item in found]


def _limits(parse_limit: Callable[[str], float | None], accepts: str) -> Parser:
    """Return the parser of `<dependency>=<limit>,...`."""

    def parse(text: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for item in items(text):
            dependency, _, limit_text = item.rpartition("=")
            limit = parse_limit(limit_text)
            if limit is None or not _DEPENDENCY.fullmatch(dependency):
                raise ValueError(f"{item!r} is not a valid dependency=limit pair")
            if dependency in found:
                raise ValueError(f"{dependency!r} is named twice")
            found[dependency] = limit
        return found

    return Parser(parse, accepts, dict)


def deadlines(*names: str) -> Parser:
    """Return the parser of deadlines, in seconds, by source or kind of review.

    The key "" is the default.
    """
    seconds = integer(1, 7 * 86_400)

    def parse(text: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for item in items(text):
            name, _, limit = item.rpartition("=")
            if name not in ("", *names):
                raise ValueError(f"{name!r} is not one of: {', '.join(names)}")
            if name in found:
                raise ValueError(
                    f"{name!r} is named twice"
                    if name
                    else f"{item} is a second default; give at most one number without a name"
                )
            found[name] = seconds.parse(limit)
        return {"": DEADLINE_SECONDS, **found}

    example = "with others by source or kind such as 1200,shelved=600,github=900"
    return Parser(parse, f"{seconds.accepts}, {example}")


def _calls_per_second(text: str) -> float | None:
    count, _, period = text.partition("/")
    if not re.fullmatch(r"[0-9]{1,6}", count) or not int(count) or period not in _PERIOD_SECONDS:
        return None
    return int(count) / _PERIOD_SECONDS[period]


def _concurrent_calls(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[1-9][0-9]{0,3}", text) else None


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _is_address(text: str) -> bool:
    return _parses(ip_address, text.removeprefix("[").removesuffix("]"))


def _is_host(text: str) -> bool:
    return bool(_is_address(text) or _HOST_NAME.fullmatch(text))


def _is_allowed_host(text: str) -> bool:
    return text == "*" or _is_address(text) or bool(_HOST_NAME.fullmatch(text.removeprefix(".")))


def _is_outbound(text: str) -> bool:
    # A name whose last label is a number is a mistyped IPv4 address.
    is_numeric = text.rstrip(".").rpartition(".")[2].isdigit()
    is_network = _parses(lambda item: ip_network(item, strict=False), text.strip("[]"))
    return is_network or (bool(_HOST_NAME.fullmatch(text)) and not is_numeric)


def network(text: str) -> str:
    return str(ip_network(text, strict=False))


TEXT = any_text("one line of text")
TEXTS = Parser(items, "one line of text; items are separated by commas", list)
BOOLEAN = Parser(_boolean, "true or false", lambda: None)
HEADER = Parser(_header, "the bare token, without quotes")
HOST = Parser(matching(_is_host, "a host"), "its name or address alone, such as mail.example.com")
ALLOWED_HOSTS = list_of(
    matching(_is_allowed_host, "a host"), "hosts without scheme and port: criticizer.example.com"
)
ORIGINS = list_of(matching(_ORIGIN.fullmatch, "an origin"), "origins such as https://criticizer.example.com")
HTTP = url("https", "http")
OUTBOUND = list_of(
    matching(_is_outbound, "a host, address or network"),
    "hosts and networks such as ci.internal,10.0.0.0/8, without ports",
)
NETWORKS = list_of(network, "networks such as 10.0.0.0/8,fd00::/8")
URL_HOSTS = Parser(
    lambda text: frozenset(matching(_URL_HOST.fullmatch, "a host")(item.lower()) for item in items(text)),
    "hosts such as ci.example.com,hooks.example.com:8443",
    frozenset,
)
RATE = Parser(matching(_RATE.fullmatch, "a rate"), "a number of requests in a time, such as 6000/min")
P4_USER = Parser(matching(_P4_USER.fullmatch, "a user name"), "the name of the service account")
ABSOLUTE_PATH = Parser(
    matching(lambda text: Path(text).is_absolute(), "an absolute path"), "the file's path, beginning with /"
)
GIT_REPOSITORIES = Parser(_git_repositories, "name=/path,name2=/path2, each name once", dict)
GIT_WATCH = Parser(_git_watch, "name:branch,name2:branch with names of GIT_REPOSITORIES", list)
GIT_REFERENCES = Parser(_git_references, "references such as refs/heads/*,refs/pull/*", list)
REPOSITORY_GLOBS = Parser(_repository_globs, "repositories such as acme/website,acme/lib-*,octo/*", list)
PROJECT_GLOBS = Parser(
    partial(_repository_globs, form=f"{_GLOB}(?:/{_GLOB})+"), "projects such as acme/website,acme/lib/*", list
)
RATE_LIMITS = _limits(_calls_per_second, "limits such as llm:openai=60/m,provider:mail=10/s")
CONCURRENCY_LIMITS = _limits(_concurrent_calls, "limits such as llm:openai=200")
