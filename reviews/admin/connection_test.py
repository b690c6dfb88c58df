"""*Test the connection* of a code host: questions to the host, and what our access lacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from django.conf import settings

from criticizer.codehosts.base import HasInstallations, Host, Lack
from criticizer.codehosts.names import has_no_wildcard
from criticizer.codehosts.registry import repositories_variable
from criticizer.redaction import clean
from criticizer.resilience.classification import classify
from reviews.intake import host_poll

T = TypeVar("T")
MAX_TESTED = 10  # repositories of one test, in random order; owners
MAX_PROBLEMS = 10  # then nothing further is asked for
TEST_SECONDS = 15.0  # the same
MAX_NAMED = 20  # owners with the App that the answer names


@dataclass(frozen=True, slots=True)
class Problem:
    """Problem of a connection, and what to do; `code` is its failure class, where it has one."""

    text: str
    advice: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class Tested:
    """The result for one host: it works, where there are no problems.

    `text` says what was asked, and what could not be. `is_refused`: the credentials are, so nothing else was.
    """

    name: str
    text: str
    problems: Sequence[Problem] = ()
    is_refused: bool = False


def run(host: Host) -> Tested:
    """Ask a host who we are and what we lack; nothing is written there.

    First everywhere, then on the enabled repositories that are known or named, then on owners of which the
    settings name no repository; as many as there is time for.
    """
    text, problems = _asked(host.probe, "")
    if problems:
        return Tested(host.name, text, problems, is_refused=True)
    until = time.monotonic() + TEST_SECONDS
    lacks: list[Lack] = []

    def may_ask() -> bool:
        return len(problems) + len(lacks) < MAX_PROBLEMS and time.monotonic() < until

    def ask(question: Callable[[], list[Lack]]) -> None:
        found, failed = _asked(question, list[Lack]())
        lacks.extend(found)
        problems.extend(failed)

    ask(host.lacks)
    names = {**_named_by_allow_list(host), **host_poll.known_repositories(host)}
    repositories, asked = list(host_poll.chosen(host, names)), list[str]()
    for repository in repositories[:MAX_TESTED]:
        if not may_ask():
            break
        ask(partial(host.lacks_on, repository))
        asked.append(repository.name)
    sentences = [text, _of_repositories(host, asked, len(repositories))]
    if isinstance(host, HasInstallations):
        named = {repository.name.partition("/")[0].lower() for repository in repositories}
        owners = []
        for owner in [one for one in named_owners(host.name) if one not in named][:MAX_TESTED]:
            if not may_ask():
                break
            ask(partial(host.lacks_on_owner, owner))
            owners.append(owner)
        sentences += _of_owners(owners)
        none: Mapping[str, str] = {}
        installed, failed = _asked(host.installed_on, none)
        problems.extend(failed)
        sentences += _of_installations(installed)
    found = [Problem(f"Missing: {clean(lack.what, 300)}.", lack.advice) for lack in lacks]
    return Tested(host.name, clean(" ".join(sentences), 2000), [*found, *problems])


def _asked(ask: Callable[[], T], otherwise: T) -> tuple[T, list[Problem]]:
    """Return the answer, or what kept us from it."""
    try:
        return ask(), []
    except Exception as error:  # noqa: BLE001 - whatever the other side or its address does
        failure = classify(error)
        problem = Problem(clean(failure.detail, 300), failure.kind.hint, str(failure.error_class))
        return otherwise, [problem]


# -- what the settings name -----------------------------------------------------------------------


def _named_by_allow_list(host: Host) -> dict[str, int]:
    """Return the repositories that lines of the allow-list are for, each with the id 0.

    None of a host whose names have any number of parts: the line may name a folder, too.
    """
    if host.repositories.is_nested:
        return {}
    lines = (parts for parts in _allowed(host.name) if len(parts) > 2 and _are_literal(parts[:2]))
    return {"/".join(parts[:2]): 0 for parts in lines}


def named_owners(name: str) -> list[str]:
    """Return the owners on a host that the settings name.

    Its variable of repositories names them, or else the allow-list.
    """
    enabled = [one.lower().split("/") for one in getattr(settings, repositories_variable(name))]
    return sorted({parts[0] for parts in enabled or _allowed(name) if _are_literal(parts[:1])})


def _allowed(name: str) -> Iterator[list[str]]:
    start = f"//{name}/"
    for line in settings.DEPOT_ALLOW_LIST:
        if line.startswith(start):
            yield line.removeprefix(start).split("/")


def _are_literal(parts: Iterable[str]) -> bool:
    return all(has_no_wildcard(part) and "..." not in part for part in parts)


# -- what was asked, in words -----------------------------------------------------------------------


def _of_repositories(host: Host, asked: Sequence[str], count: int) -> str:
    if asked:
        many = f"{len(asked)} of {count} repositories: " if len(asked) < count else ""
        return f"Asked about {many}{', '.join(sorted(asked))}."
    if count:
        return f"Asked about none of {count} repositories: it took too long, or the problems here come first."
    places = repositories_variable(host.name) + ("" if host.repositories.is_nested else " or the allow-list")
    return (
        f"Asked about no repository: none has sent an event, and {places} names none without a wildcard. Name"
        " one there, or open a pull request, and test again."
    )


def _of_owners(owners: Sequence[str]) -> Iterator[str]:
    if owners:
        yield (
            f"Asked whether the App is installed on {', '.join(owners)}; which repositories it includes there"
            " was not asked, since none is named."
        )


def _of_installations(installed: Mapping[str, str]) -> Iterator[str]:
    if installed:
        shown = [f"{owner} ({included})" for owner, included in sorted(installed.items())]
        more = f" and {len(shown) - MAX_NAMED} more" if len(shown) > MAX_NAMED else ""
        yield f"The App is installed on {', '.join(shown[:MAX_NAMED])}{more}."
