"""Registry of the code hosts, with one line for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from criticizer.codehosts.gitea.host import GiteaHost
from criticizer.codehosts.github.host import GitHubHost
from criticizer.codehosts.gitlab.host import GitLabHost
from criticizer.codehosts.names import Repository
from criticizer.resilience.failures import Component

# Name in ids, depot paths and addresses -> class of the host.
HOSTS: Mapping[str, type[Any]] = {
    GitHubHost.name: GitHubHost,
    GiteaHost.name: GiteaHost,
    GitLabHost.name: GitLabHost,
}


@lru_cache(maxsize=16)
def client_of(name: str, config: Any, component: Component) -> Any:
    """Return the process's client of a host, which keeps its tokens and the accepted secret."""
    return HOSTS[name](config, component=component).client


def made(name: str, setting: Callable[[str], Any], component: Component = Component.PROVIDER) -> Any:
    """Return a host with the present settings, also without credentials and secrets."""
    kind = HOSTS[name]
    config = kind.configured(setting)
    return kind(config, setting(secrets_variable(name)), component, client_of(name, config, component))


def label_of(name: str) -> str:
    """Return the label of a host; the name itself if it is no longer registered."""
    return HOSTS[name].label if name in HOSTS else name


def secrets_variable(name: str) -> str:
    """Return the variable of the secrets of a host's webhooks."""
    return f"{name.upper()}_WEBHOOK_SECRETS"


def repositories_variable(name: str) -> str:
    """Return the variable of a host's enabled repositories."""
    return f"{name.upper()}_REPOSITORIES"


def sign_of(name: str) -> str:
    """Return the sign before the number of a pull request; "#" if the host is not registered."""
    return HOSTS[name].repositories.sign if name in HOSTS else Repository.sign


def in_words(form: str, last: str = " or ") -> str:
    """Return `form` of each host, as a list in words.

    `{shape}`: of its repositories; `{pull}`: of its pull requests, without the host's `{name}`.
    """
    shapes = {name: kind.repositories.shape for name, kind in HOSTS.items()}
    *first, final = (
        form.format(name=name, shape=shape, pull=f"{shape}{sign_of(name)}<number>")
        for name, shape in shapes.items()
    )
    return f"{', '.join(first)}{last}{final}"
