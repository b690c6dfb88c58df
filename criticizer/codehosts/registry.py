"""The code hosts: one line each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from criticizer.codehosts.gitea.host import GiteaHost
from criticizer.codehosts.github.host import GitHubHost
from criticizer.codehosts.gitlab.host import GitLabHost
from criticizer.resilience.failures import Component

# Name in ids, depot paths and addresses -> host, made from its configuration and its webhook's secrets.
HOSTS: Mapping[str, type[Any]] = {"github": GitHubHost, "gitea": GiteaHost, "gitlab": GitLabHost}


@lru_cache(maxsize=16)
def client_of(name: str, config: Any, place: Component) -> Any:
    """Return one client a process, which keeps its tokens and knows which secret is accepted."""
    return HOSTS[name](config, place=place).client
