"""The code hosts whose webhooks are read: one line each."""

from __future__ import annotations

from collections.abc import Mapping

from reviews.hosts.github import GitHub

# Name in the address of the webhook -> host, made from its secrets and the number of our App.
HOSTS: Mapping[str, type[GitHub]] = {"github": GitHub}
