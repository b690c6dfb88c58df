"""System checks of an installation, and the commands that they may stop."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as configured
from django.core.checks import CheckMessage, Error, registry

from criticizer.checks import environment as start_checks
from criticizer.checks import settings as checks
from notifications import checks as channel_checks
from tests.sources.gitrepo import GitRepo


def ids(found: Sequence[CheckMessage]) -> list[str]:
    """Return the ids of what was found; each says what to do."""
    assert all(message.hint for message in found)
    return [str(message.id).removeprefix("criticizer.") for message in found]


# -- sources --------------------------------------------------------------------------------------


def test_git_without_repositories_is_an_error(settings: Any) -> None:
    settings.CHANGE_SOURCES, settings.GIT_REPOSITORIES = ["git"], {}
    assert ids(start_checks.git_repositories(None)) == ["E005"]
    settings.CHANGE_SOURCES = ["perforce"]
    assert start_checks.git_repositories(None) == []


def test_pull_requests_need_no_repository_of_this_machine(settings: Any) -> None:
    settings.CHANGE_SOURCES, settings.GIT_REPOSITORIES = ["git"], {}
    settings.GITLAB_WEBHOOK_SECRETS = ["0123456789abcdef"]
    assert start_checks.git_repositories(None) == []


def test_the_app_of_a_code_host_can_be_made_in_an_installation_that_only_allows_its_files(
    settings: Any,
) -> None:
    settings.CHANGE_SOURCES, settings.GIT_REPOSITORIES = ["git"], {}
    settings.DEPOT_ALLOW_LIST = ["//github/acme/website/..."]
    assert start_checks.git_repositories(None) == []


def test_variables_of_github_are_checked_together(settings: Any) -> None:
    assert start_checks.code_hosts(None) == []
    settings.GITHUB_WEBHOOK_SECRETS = ["0123456789abcdef"]
    assert ids(start_checks.code_hosts(None)) == ["W019"]
    settings.DEPOT_ALLOW_LIST = ["//github/acme/website/Src/..."]
    assert start_checks.code_hosts(None) == []
    settings.GITHUB_WEBHOOK_SECRETS = ["0123456789abcdef", "short"]
    settings.DEPOT_ALLOW_LIST = ["//github/Acme/website/..."]
    settings.GITHUB_API_URL = "http://ghe.example.com/api/v3"
    assert ids(start_checks.code_hosts(None)) == ["E008", "W018", "W019"]


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"GITHUB_APP_ID": "7"}, "GITHUB_PRIVATE_KEY"),
        ({"GITHUB_PRIVATE_KEY": ("key",)}, "GITHUB_APP_ID"),
        ({"GITEA_TOKEN": ("token",)}, "GITEA_URL"),
    ],
)
def test_half_of_a_hosts_credentials_is_an_error_that_names_the_other_half(
    settings: Any, given: dict[str, Any], missing: str
) -> None:
    for name, value in given.items():
        setattr(settings, name, value)
    (found,) = start_checks.code_hosts(None)
    assert ids([found]) == ["W022"]
    assert found.msg.startswith(f"{missing}: is not set while {next(iter(given))} is")


def test_public_repositories_need_an_address_only(settings: Any) -> None:
    settings.GITEA_URL = "https://gitea.example.com"
    assert start_checks.code_hosts(None) == []


@pytest.mark.parametrize("host", ["GITHUB", "GITEA", "GITLAB"])
def test_a_connected_host_without_the_secret_of_its_webhook_is_named(settings: Any, host: str) -> None:
    settings.GITHUB_APP_ID, settings.GITHUB_PRIVATE_KEY = ("7", ("key",)) if host == "GITHUB" else ("", ())
    settings.GITEA_URL = "https://gitea.example.com" if host == "GITEA" else ""
    for other in ("GITEA", "GITLAB"):
        setattr(settings, f"{other}_TOKEN", ("token",) if host == other else ())
    settings.SOURCE_POLL_SECONDS = 300
    setattr(settings, f"{host}_REPOSITORIES", ["acme/*"])

    def said() -> str:
        (found,) = start_checks.code_hosts(None)
        assert ids([found]) == ["W023"]
        assert found.msg.startswith(f"{host}_WEBHOOK_SECRETS: is not set")
        return str(found.msg)

    assert "only requests to the API and scans" in said()
    # Where the poll knows what to ask for, reviews come without webhooks.
    setattr(settings, f"{host}_REPOSITORIES", ["acme/website"])
    assert "only the poll" in said()
    settings.SOURCE_POLL_SECONDS = 0
    assert "only requests to the API and scans" in said()
    setattr(settings, f"{host}_WEBHOOK_SECRETS", ["0123456789abcdef"])
    settings.DEPOT_ALLOW_LIST = [f"//{host.lower()}/acme/website/..."]
    assert start_checks.code_hosts(None) == []


def test_a_secret_of_two_code_hosts_is_named(settings: Any) -> None:
    settings.DEPOT_ALLOW_LIST = ["//github/acme/...", "//gitea/acme/..."]
    settings.GITHUB_WEBHOOK_SECRETS = ["0123456789abcdef"]
    settings.GITEA_WEBHOOK_SECRETS = ["another 0123456789", "0123456789abcdef"]
    (found,) = start_checks.code_hosts(None)
    assert ids([found]) == ["W020"]
    assert "GITHUB_WEBHOOK_SECRETS and GITEA_WEBHOOK_SECRETS" in found.msg
    assert "0123456789" not in found.msg


@pytest.mark.parametrize("kind", ["missing", "file", "no repository"])
def test_a_path_that_holds_no_repository_is_named(settings: Any, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "app"
    if kind == "file":
        path.touch()
    elif kind == "no repository":
        path.mkdir()
    settings.CHANGE_SOURCES, settings.GIT_REPOSITORIES = ["git"], {"app": path}
    (found,) = start_checks.git_repositories(None)
    assert isinstance(found, Error)
    assert ids([found]) == ["E006"]
    assert str(path) in found.msg


def test_repositories_with_and_without_a_working_tree_are_found(settings: Any, tmp_path: Path) -> None:
    (tmp_path / "tree" / ".git").mkdir(parents=True)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / ".git").write_text("gitdir: elsewhere\n")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "HEAD").touch()
    settings.CHANGE_SOURCES = ["git"]
    settings.GIT_REPOSITORIES = {name: tmp_path / name for name in ("tree", "linked", "bare")}
    assert start_checks.git_repositories(None) == []


def test_a_program_that_a_variable_names_must_be_there(settings: Any, tmp_path: Path) -> None:
    settings.CHANGE_SOURCES = ["perforce", "git"]
    settings.P4_EXECUTABLE, settings.GIT_EXECUTABLE = str(tmp_path / "p4"), ""
    assert ids(start_checks.named_programs(None)) == ["E007"]
    settings.P4_EXECUTABLE = sys.executable
    assert start_checks.named_programs(None) == []
    assert checks.executables(None) == []


def test_the_files_of_perforce_are_looked_for(settings: Any, tmp_path: Path) -> None:
    settings.P4TICKETS, settings.P4TRUST = str(tmp_path / "tickets"), ""
    assert ids(start_checks.perforce_files(None)) == ["W007"]
    (tmp_path / "tickets").touch()
    assert start_checks.perforce_files(None) == []


def test_perforce_without_an_address_is_a_warning(settings: Any) -> None:
    settings.CHANGE_SOURCES, settings.P4PORT, settings.P4USER = ["perforce"], "", ""
    (found,) = checks.perforce_server(None)
    assert ids([found]) == ["W004"]
    assert "P4PORT and P4USER" in found.msg
    settings.P4PORT, settings.P4USER = "host:1666", "criticizer"
    assert checks.perforce_server(None) == []


def run(tmp_path: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "CRITICIZER_DATA_DIR": str(tmp_path),
        "DEPOT_ALLOW_LIST": "//app/...",
        "CHANGE_SOURCES": "git",
        "GIT_REPOSITORIES": f"app={tmp_path / 'away'}",
        **variables,
    }
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=configured.BASE_DIR, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("command", [pytest.param(name, marks=pytest.mark.long) for name in ("check", "up")])
def test_a_repository_that_is_not_there_stops_check_and_up(tmp_path: Path, command: str) -> None:
    done = run(tmp_path, command)
    assert done.returncode != 0
    assert "GIT_REPOSITORIES" in done.stderr
    assert "does not exist" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "postgres").exists()


@pytest.mark.long
def test_a_repository_that_is_away_stops_neither_migrate_nor_a_worker(tmp_path: Path) -> None:
    """Their checks are those that are registered without `check` and `up`."""
    code = (
        "import django; django.setup()\n"
        "from django.core.management import get_commands, load_command_class\n"
        "from django.core.checks import run_checks\n"
        "load_command_class(get_commands()['migrate'], 'migrate')\n"
        "load_command_class(get_commands()['cluster'], 'cluster')\n"
        "print([m.id for m in run_checks() if m.level >= 40])"
    )
    done = run(tmp_path, "shell", "-c", code, DATABASE_URL="postgres://u@127.0.0.1:1/none",
               SECRET_KEY="not-a-real-key-" * 4, ARTIFACT_KEYS="A" * 43 + "=")  # fmt: skip
    assert done.stdout.strip().endswith("[]"), done.stderr


@pytest.mark.long
def test_check_and_up_are_satisfied_with_a_real_repository(tmp_path: Path) -> None:
    repository = GitRepo(tmp_path / "app")
    done = run(tmp_path, "check", GIT_REPOSITORIES=f"app={repository.path}")
    assert done.returncode == 0, done.stderr


# -- SECRET_KEY -----------------------------------------------------------------------------------

LONG = "".join(chr(33 + (7 * n) % 90) for n in range(50))


@pytest.mark.parametrize(
    ("key", "warnings"),
    [(LONG, []), (LONG[:-1], ["W008"]), ("abcd" * 20, ["W008"]), ("django-insecure-" + LONG, ["W008"])],
)
def test_a_key_that_can_be_guessed_is_a_warning(settings: Any, key: str, warnings: list[str]) -> None:
    settings.SECRET_KEY = key
    assert ids(checks.secret_key(None)) == warnings
    settings.DEBUG = True
    assert checks.secret_key(None) == []


@pytest.mark.long
def test_a_service_with_a_short_key_starts_all_the_same_and_says_so(tmp_path: Path) -> None:
    done = run(tmp_path, "check", CHANGE_SOURCES="perforce", SECRET_KEY="short")
    assert done.returncode == 0
    assert "criticizer.W008" in done.stderr
    assert "short " not in done.stderr.replace("is short", "")


# -- recipients -----------------------------------------------------------------------------------


def test_configured_webhooks_without_a_secret_are_a_warning(settings: Any) -> None:
    settings.DEFAULT_RECIPIENTS = ["ann@example.com", "webhook:https://ci.example.com/hook"]
    settings.WEBHOOK_SECRETS = []
    (found,) = channel_checks.configured_recipients(None)
    assert ids([found]) == ["W005"]
    assert "DEFAULT_RECIPIENTS names webhooks, which are sent unsigned" in found.msg
    settings.WEBHOOK_SECRETS = ["whsec_bm90LWEtcmVhbC1zZWNyZXQ="]
    assert channel_checks.configured_recipients(None) == []


def test_configured_recipients_of_a_channel_without_a_provider_are_a_warning(settings: Any) -> None:
    settings.DEFAULT_RECIPIENTS, settings.OPERATOR_ALERTS = ["slack:C0123ABCD"], ["swarm:review-1"]
    settings.SLACK_BOT_TOKEN = settings.SWARM_URL = ""
    assert len(channel_checks.configured_recipients(None)) == 4
    settings.SLACK_BOT_TOKEN, settings.SWARM_URL = ("xoxb",), "https://swarm.example.com"
    found = channel_checks.configured_recipients(None)
    assert ids(found) == ["W006", "W006"]
    assert [one.hint for one in found] == [
        f"Set {name}, or remove the recipient." for name in ("SWARM_USER", "SWARM_TICKET")
    ]
    settings.SWARM_USER, settings.SWARM_TICKET = "bot", ("t",)
    assert channel_checks.configured_recipients(None) == []


# -- check --deploy -------------------------------------------------------------------------------

PRODUCTION = {
    "DATABASE_URL": "postgres://criticizer@127.0.0.1:5432/criticizer",
    "SECRET_KEY": "".join(chr(33 + (7 * n) % 90) for n in range(64)),
    "ARTIFACT_KEYS": "A" * 43 + "=",
    "CHANGE_SOURCES": "perforce",
    "P4_EXECUTABLE": sys.executable,
    "P4PORT": "ssl:perforce.example.com:1666",
    "P4USER": "criticizer",
    "BASE_URL": "https://criticizer.example.com",
    "SMTP_HOST": "mail.example.com",
    "MAIL_FROM": "criticizer@example.com",
    "WEBHOOK_SECRETS": "whsec_" + "A" * 43 + "=",
    "OPERATOR_ALERTS": "mail:ops@example.com",
}


DEPLOYED = {
    "EMBEDDED_DATABASE": False,
    "BASE_URL": "https://criticizer.example.com",
    "MAIL_PROVIDER": "",
    "SMTP_HOST": "mail.example.com",
    "MAIL_FROM": "Criticizer <criticizer@example.com>",
    "WEBHOOK_SECRETS": ["whsec_bm90LWEtcmVhbC1zZWNyZXQ="],
    "OPERATOR_ALERTS": ["mail:ops@example.com"],
}


@pytest.mark.parametrize(
    ("changes", "warnings"),
    [
        ({}, []),
        ({"EMBEDDED_DATABASE": True}, ["W010"]),
        ({"BASE_URL": "http://127.0.0.1:8000"}, ["W011"]),
        ({"BASE_URL": "https://localhost"}, ["W011"]),
        ({"BASE_URL": "http://0.0.0.0:8000"}, ["W011"]),
        ({"BASE_URL": "http://[::1]:8000"}, ["W011"]),
        ({"BASE_URL": "http://criticizer.example.com"}, ["W012"]),
        ({"BASE_URL": "http://192.0.2.1"}, ["W012"]),
        ({"SMTP_HOST": ""}, ["I013"]),
        ({"MAIL_PROVIDER": "maildir"}, ["I013"]),
        ({"SMTP_HOST": "", "MAIL_PROVIDER": "resend"}, []),
        ({"MAIL_FROM": "criticizer@localhost"}, ["W014"]),
        ({"MAIL_FROM": "Criticizer <criticizer@localhost>"}, ["W014"]),
        ({"WEBHOOK_SECRETS": []}, ["I015"]),
        ({"OPERATOR_ALERTS": []}, ["W016"]),
        ({"LLM_PROVIDER": "agent", "DOCUMENT_SECTIONS": 5}, ["I021"]),
        ({"LLM_PROVIDER": "agent", "DOCUMENT_SECTIONS": 0}, []),
    ],
)
def test_the_deployment_check_says_what_is_missing(
    settings: Any, changes: dict[str, Any], warnings: list[str]
) -> None:
    for name, value in {**DEPLOYED, **changes}.items():
        setattr(settings, name, value)
    ours = (
        checks.own_database,
        checks.public_address,
        checks.mail_leaves,
        checks.alerted_operators,
        checks.sections_by_agents,
        checks.signed_webhooks,
    )
    assert [name for check in ours for name in ids(check(None))] == warnings


def test_a_complete_installation_passes_without_a_warning(tmp_path: Path) -> None:
    done = run(tmp_path, "check", "--deploy", "--fail-level", "WARNING", **PRODUCTION)
    assert done.returncode == 0, done.stderr
    assert "no issues" in done.stdout + done.stderr


@pytest.mark.long
def test_what_was_only_tried_out_is_told_all_it_lacks(tmp_path: Path) -> None:
    done = run(tmp_path, "check", "--deploy", CHANGE_SOURCES="perforce", DEBUG="true")
    for wanted in ("W004", "W010", "W011", "I013", "I015", "W016", "security.W018"):
        assert f"{wanted})" in done.stderr, done.stderr


def test_deployment_checks_stay_out_of_every_other_command() -> None:
    ours = {check for check in registry.registry.deployment_checks if check.__module__ == checks.__name__}
    assert len(ours) == 6
    assert not ours & set(registry.registry.get_checks())
