"""The code hosts: one line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from criticizer.codehosts.gitea.host import GiteaHost
from criticizer.codehosts.github.host import GitHubHost
from criticizer.codehosts.gitlab.host import GitLabHost

# Name in ids, depot paths and addresses -> host, made from its configuration and its webhook's secrets.
HOSTS: Mapping[str, type[Any]] = {"github": GitHubHost, "gitea": GiteaHost, "gitlab": GitLabHost}
