from __future__ import annotations

from pathlib import Path

import pytest

from criticizer.resilience.failures import ErrorClass, PermanentFailure
from reviews.sources.git import GitSource
from reviews.sources.perforce.source import PerforceSource
from reviews.sources.registry import SourcesConfig, depot_prefix, source_for, validate_changelist_id
from tests.fakes.p4.server import FakeDepot
from tests.sources.gitrepo import GitRepo

SHA = "0123456789abcdef" * 2 + "01234567"


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("1", "1"),
        ("1234567890", "1234567890"),
        (f"git:app@{SHA}", f"git:app@{SHA}"),
        (f"git:my-app_2.x@{SHA.upper()}", f"git:my-app_2.x@{SHA}"),
        ("github:Acme/Web.site#7", "github:acme/web.site#7"),
    ],
)
def test_ids_of_changes_are_accepted_in_one_form(given: str, canonical: str) -> None:
    assert validate_changelist_id(given) == canonical


@pytest.mark.parametrize(
    "given",
    [
        None,
        12345,
        "",
        "0",
        "012",
        "12345678901",
        "-1",
        "12 ",
        "12\n",
        "١٢",
        "12;id",
        "--help",
        "git:app",
        f"git:@{SHA}",
        f"git:..@{SHA}",
        f"git:.hidden@{SHA}",
        f"git:a/b@{SHA}",
        f"git:a b@{SHA}",
        f"git:app@{SHA[:-1]}",
        f"git:app@{SHA}0",
        f"git:app@{SHA}\n",
        f"git:{'a' * 65}@{SHA}",
        f"hg:app@{SHA}",
        "git:app@HEAD",
        *("github:acme#7", "github:acme/a/b#7", "github:acme/web#0", "github:acme/web", "github:acme/w b#1"),
        *("github:../web#1", "github:acme/..#1", "github:acme/web#7\n", "github:\u212aim/web#1"),
    ],
)
def test_everything_else_is_refused_with_an_example(given: object) -> None:
    with pytest.raises(ValueError, match="12345, or git:"):
        validate_changelist_id(given)


def test_the_id_of_a_commit_tells_its_depot() -> None:
    assert depot_prefix(f"git:app@{SHA}") == "//app/"
    assert depot_prefix("github:acme/web#7") == "//github/acme/web/"
    assert depot_prefix("123") is None


def test_each_kind_of_id_leads_to_its_source(tmp_path: Path) -> None:
    depot, repo = FakeDepot(tmp_path), GitRepo(tmp_path / "repo")
    config = SourcesConfig(perforce=depot.config(), git={"app": repo.path})
    assert isinstance(source_for("12", config), PerforceSource)
    git = source_for(f"git:app@{SHA}", config)
    assert isinstance(git, GitSource)
    assert git.name == "git:app"
    assert depot.calls() == []


def test_server_info_is_requested_once_per_process(tmp_path: Path) -> None:
    depot = FakeDepot(tmp_path)
    config = SourcesConfig(perforce=depot.config())
    assert source_for("12", config).case_sensitive
    assert source_for("13", SourcesConfig(perforce=depot.config())).case_sensitive
    assert len(depot.calls("info")) == 1


@pytest.mark.parametrize(
    ("given", "error_class", "detail"),
    [
        ("12", ErrorClass.CONFIG_INVALID, "P4PORT"),
        (f"git:other@{SHA}", ErrorClass.NOT_FOUND, "GIT_REPOSITORIES"),
        ("nonsense", ErrorClass.NOT_FOUND, "a changelist is"),
        (f"git:gone@{SHA}", ErrorClass.CONFIG_INVALID, "no git repository"),
    ],
)
def test_what_is_not_configured_says_what_to_set(
    tmp_path: Path, given: str, error_class: ErrorClass, detail: str
) -> None:
    with pytest.raises(PermanentFailure, match=detail) as caught:
        source_for(given, SourcesConfig(git={"gone": tmp_path / "gone"}))
    assert caught.value.error_class is error_class
