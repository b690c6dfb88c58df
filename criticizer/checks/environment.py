"""Checks outside the settings: repositories, programs and files that variables name.

Only `check` and `up` import this module and so register its checks. A repository that is away for
a moment must stop neither `migrate` nor a worker that starts again: its stage retries or fails.
"""

from __future__ import annotations

import shutil
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from criticizer.checks import OUTSIDE, Messages, check, message
from criticizer.codehosts.names import has_no_wildcard
from criticizer.codehosts.registry import HOSTS, repositories_variable, secrets_variable

SHORTEST_SECRET = 16  # characters


@check()
def git_repositories() -> Messages:
    """Check that the repositories of the source git exist (criticizer.E005, E006)."""
    if "git" not in settings.CHANGE_SOURCES:
        return
    # Who allows the files of a code host is about to connect it: its App is made in the running installation.
    takes_pull_requests = any(
        getattr(settings, secrets_variable(host))
        or any(pattern.startswith(f"//{host}/") for pattern in settings.DEPOT_ALLOW_LIST)
        for host in HOSTS
    )
    if not settings.GIT_REPOSITORIES and not takes_pull_requests:
        yield message(
            "E005",
            "GIT_REPOSITORIES: is not set while git is in CHANGE_SOURCES, and no code host is either.",
            "Set GIT_REPOSITORIES to name=/absolute/path,name2=/path2, or connect a code host.",
        )
    for name, path in settings.GIT_REPOSITORIES.items():
        if problem := _problem_of_repository(path):
            yield message(
                "E006",
                f"GIT_REPOSITORIES: {str(path)!r}, named {name!r}, {problem}.",
                "Set the absolute path of a repository that Criticizer may read, bare or not.",
            )


def _problem_of_repository(path: Path) -> str:
    try:
        if not path.is_dir():
            return "is not a directory" if path.exists() else "does not exist"
        if not (path / ".git").exists() and not (path / "HEAD").is_file():
            return "is not a git repository"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return ""


@check()
def code_hosts() -> Messages:
    """Check the variables of code hosts together (criticizer.E008, W018-W020, W022, W023)."""
    for host, kind in HOSTS.items():
        variable, example = kind.address
        site = urlsplit(getattr(settings, variable))
        if site.scheme == "http" and site.hostname not in {"127.0.0.1", "::1", "localhost"}:
            yield message(
                "E008",
                f"{variable}: is not https, so that tokens would be sent in clear.",
                f"Set the https address of the server, such as {example}.",
            )
        yield from _credentials(kind)
        yield from _webhooks(host, secrets_variable(host))
    for one, other in combinations(map(secrets_variable, HOSTS), 2):
        if set(getattr(settings, one)) & set(getattr(settings, other)):
            yield message(
                "W020",
                f"{one} and {other} have a secret in common: with it, one host can sign for the other.",
                "Make one for each with: openssl rand -hex 32.",
            )


def _credentials(kind: type[Any]) -> Messages:
    """Check that a host's credentials are whole and that its pull requests are reported.

    Its address alone is enough for public repositories.
    """
    is_set = {name: bool(getattr(settings, name)) for name in kind.credentials}
    missing = [name for name in is_set if not is_set[name]]
    given = [name for name in is_set if is_set[name] and name != kind.address[0]]
    if given and missing:
        lacking, others = " and ".join(missing), " and ".join(given)
        yield message(
            "W022",
            f"{lacking}: is not set while {others} is: {kind.label} is not connected.",
            f"Set {lacking} as docs/{kind.name}.md says, or take {others} away.",
        )
    secrets, repositories = secrets_variable(kind.name), repositories_variable(kind.name)
    if not given or missing or getattr(settings, secrets):
        return
    has_poll = settings.SOURCE_POLL_SECONDS and any(map(has_no_wildcard, getattr(settings, repositories)))
    left = "only the poll finds" if has_poll else "only requests to the API and scans ask for"
    also = "" if has_poll else f" Or set SOURCE_POLL_SECONDS, and names without a * in {repositories}."
    yield message(
        "W023",
        f"{secrets}: is not set, so that every webhook is refused and {left} reviews.",
        f"Set {secrets} to the secret of the webhook on {kind.label}.{also}",
    )


def _webhooks(host: str, variable: str) -> Messages:
    secrets = list(getattr(settings, variable))
    if any(len(secret) < SHORTEST_SECRET for secret in secrets):
        yield message(
            "W018",
            f"{variable}: one is shorter than {SHORTEST_SECRET} characters: it can be guessed.",
            "Make one with: openssl rand -hex 32. Set it first in the list, then on the host.",
        )
    lines = [line.lstrip("-") for line in settings.DEPOT_ALLOW_LIST]
    below = [line.split("/")[:5] for line in lines if line.startswith(f"//{host}/")]
    if secrets and not below:
        yield message(
            "W019",
            f"DEPOT_ALLOW_LIST: nothing below //{host}/ is in it, so no pull request can be read.",
            f"Add the repositories, such as //{host}/acme/website/..., in lower case.",
        )
    if any(name != name.lower() for names in below for name in names):
        yield message(
            "W019",
            f"DEPOT_ALLOW_LIST: a line below //{host}/ has capitals in its owner or repository.",
            "Write them in lower case, as the paths of pull requests are.",
        )


@check()
def servers() -> Messages:
    """Run what other apps check of their servers (criticizer.W017)."""
    for found in OUTSIDE:
        yield from found()


@check()
def named_programs() -> Messages:
    """Check that the programs named by variables can be run (criticizer.E007)."""
    for source, variable in {"perforce": "P4_EXECUTABLE", "git": "GIT_EXECUTABLE"}.items():
        value = getattr(settings, variable)
        if source in settings.CHANGE_SOURCES and value and shutil.which(value) is None:
            yield message(
                "E007",
                f"{variable}: {value!r} is not a program that can be run.",
                f"Set {variable} to the program's path, or leave it unset to search along PATH.",
            )


@check()
def perforce_files() -> Messages:
    """Check that the ticket and trust files of Perforce can be read (criticizer.W007)."""
    if "perforce" not in settings.CHANGE_SOURCES:
        return
    for name, command in {"P4TICKETS": "p4 login", "P4TRUST": "p4 trust"}.items():
        path = getattr(settings, name)
        try:
            if path:
                Path(path).open("rb").close()
        except OSError:
            yield message(
                "W007",
                f"{name}: the file {path!r} does not exist or cannot be read.",
                f"Create it with {command} as the user that runs Criticizer, or correct {name}.",
            )
