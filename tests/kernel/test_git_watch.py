"""`GIT_WATCH`: which branches are polled."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from criticizer.environment.reader import Environment, git_watch

REPOSITORIES = {"app": Path("/srv/app.git"), "lib": Path("/srv/lib.git")}


def watched(value: str) -> list[tuple[str, str]]:
    return git_watch(Environment({"GIT_WATCH": value} if value else {}), REPOSITORIES)


def test_branches_are_named_by_repository() -> None:
    assert watched("app:main, lib:release/1.x,app:main") == [("app", "main"), ("lib", "release/1.x")]
    assert watched("") == []


@pytest.mark.parametrize(
    "value", ["app", "app:", ":main", "app:-x", "app:a..b", "app:a//b", "app:a b", "app:@{1}", "other:main"]
)
def test_a_wrong_value_stops_the_start_and_says_what_to_set(value: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"GIT_WATCH: .* Set name"):
        watched(value)
