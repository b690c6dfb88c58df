"""GitHub's webhooks: who sent one (`X-Hub-Signature-256`), and what it asks for."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from reviews.hosts import fields
from reviews.hosts.base import (
    Asked,
    HostEvent,
    Ignored,
    InstallationChanged,
    NotAuthentic,
    Noted,
    PullRequest,
    RepositoriesRemoved,
    RepositoryRenamed,
    Rerun,
    Stopped,
    Unreadable,
    Wanted,
)

COMMAND = "/review"
MAY_COMMAND = frozenset(("OWNER", "MEMBER", "COLLABORATOR"))
RERUN_BUTTON = "rerun"  # identifier of the button of our check run
_WANTED = frozenset(("opened", "reopened", "ready_for_review", "synchronize", "synchronized"))
_OPENING = frozenset(("reopened", "ready_for_review"))
_INSTALLATION = {
    "created": ("active", "the App was installed"),
    "unsuspend": ("active", "the installation is no longer suspended"),
    "new_permissions_accepted": ("", "new permissions were accepted"),
    "suspend": ("suspended", "the installation was suspended"),
    "deleted": ("deleted", "the App was uninstalled"),
}
_REPOSITORY_ENDS = {"archived": "the repository was archived", "deleted": "the repository was deleted"}
_REPOSITORY_NAMED = {"renamed": "the repository was renamed", "transferred": "the repository was transferred"}
_NAME = re.compile(r"[a-z0-9_]{1,31}")
_GUID = re.compile(r"[!-~]{1,128}")


@dataclass(frozen=True, slots=True)
class GitHub:
    """Webhooks of a GitHub App, or of a repository's own hook (`Host`).

    `secrets`: newest first, each of them accepted. `app_id`: ours; checks of other Apps are not rerun.
    """

    secrets: Sequence[str]
    app_id: str = ""
    name: str = "github"

    def authenticate(self, headers: Mapping[str, str], body: bytes) -> None:
        """Check the signature of the bytes as they came, in constant time (guarantee G240)."""
        given = str(headers.get("X-Hub-Signature-256") or "").encode("utf-8", "surrogateescape")
        expected = [b"sha256=" + _digest(secret, body) for secret in self.secrets if secret]
        matches = [hmac.compare_digest(one, given) for one in expected]
        if not any(matches):
            raise NotAuthentic

    def delivery_id(self, headers: Mapping[str, str], body: bytes) -> str:
        given = str(headers.get("X-GitHub-Delivery") or "")
        return given if _GUID.fullmatch(given) else f"sha256:{hashlib.sha256(body).hexdigest()}"

    def event(self, headers: Mapping[str, str], content: Mapping[str, Any]) -> HostEvent:
        """Return what an authentic event asks for (`Host.event`). Unknown events and actions are ignored."""
        kind = str(headers.get("X-GitHub-Event") or "")
        if not _NAME.fullmatch(kind):
            raise Unreadable("X-GitHub-Event", "the name of an event")
        is_check = kind in ("check_run", "check_suite")
        handler = partial(_check, kind, self.app_id) if is_check else _HANDLERS.get(kind)
        action = content.get("action")
        if not (isinstance(action, str) and _NAME.fullmatch(action)):
            if handler is not None:
                raise Unreadable("action", "the name of an action")
            action = ""
        name = f"{kind}.{action}" if action else kind
        asked = handler(action, content) if handler else Ignored(f"{name} asks for nothing here")
        repository = None
        if isinstance(asked, Ignored):
            with contextlib.suppress(Unreadable):  # for the list of deliveries only
                repository = fields.repository(content, "repository")
            return HostEvent(name, asked, repository)
        if kind not in ("installation", "installation_repositories"):
            repository = fields.repository(content, "repository")
        return HostEvent(name, asked, repository, fields.whole_or_none(content, "installation", "id"))


def _pull_request(action: str, content: Mapping[str, Any]) -> Asked:
    has_new_base = action == "edited" and fields.at(content, "changes", "base") is not None
    if action not in _WANTED | {"closed", "converted_to_draft"} and not has_new_base:
        return Ignored(f"pull_request.{action} asks for nothing here")
    pull = _pull_of(content)
    if action == "closed":
        return Stopped(pull, "the pull request was merged" if pull.state == "merged" else "it was closed")
    if action == "converted_to_draft":
        return Stopped(pull, "the pull request became a draft")
    if pull.state == "draft":
        return Noted(pull, "the pull request is a draft")
    if pull.state != "open":
        return Noted(pull, "the pull request is closed")
    return Wanted(pull, is_opening=action in _OPENING)


def _check(kind: str, app_id: str, action: str, content: Mapping[str, Any]) -> Asked:
    is_button = kind == "check_run" and action == "requested_action"
    if is_button and fields.at(content, "requested_action", "identifier") != RERUN_BUTTON:
        return Ignored("the button is not one of ours")
    if action != "rerequested" and not is_button:
        return Ignored(f"{kind}.{action} asks for nothing here")
    if not app_id or str(fields.at(content, kind, "app", "id")) != app_id:
        return Ignored("the check is another App's")
    # Empty for the pull requests of forks: they are found by their head. A fork's own ones, of the same head,
    # are in the list as well.
    ours = fields.at(content, "repository", "id")
    numbers = [
        fields.whole(one, "number", maximum=fields.MAX_NUMBER)
        for one in fields.objects(content, kind, "pull_requests")
        if fields.at(one, "base", "repo", "id") in (None, ours)
    ]
    head = fields.sha(content, kind, "head_sha")
    return Rerun(numbers[0] if len(numbers) == 1 else None, head)


def _issue_comment(action: str, content: Mapping[str, Any]) -> Asked:
    if action != "created":
        return Ignored(f"issue_comment.{action} asks for nothing here")
    if not fields.at(content, "issue", "pull_request"):
        return Ignored("the comment is not on a pull request")
    if fields.text(content, "comment", "body").strip().partition("\n")[0].strip() != COMMAND:
        return Ignored("the comment is no command")
    authors = (fields.at(content, "sender", "type"), fields.at(content, "comment", "user", "type"))
    if "Bot" in authors or fields.at(content, "comment", "performed_via_github_app"):
        return Ignored("the command is a program's")
    if fields.at(content, "comment", "author_association") not in MAY_COMMAND:
        return Ignored("the author of the command has no rights to the repository")
    if fields.at(content, "issue", "state") == "closed":
        return Ignored("the pull request is closed")
    return Rerun(fields.whole(content, "issue", "number", maximum=fields.MAX_NUMBER))


def _installation(action: str, content: Mapping[str, Any]) -> Asked:
    if action not in _INSTALLATION:
        return Ignored(f"installation.{action} asks for nothing here")
    fields.whole(content, "installation", "id")
    status, reason = _INSTALLATION[action]
    return InstallationChanged(_account_of(content), status, reason)


def _installation_repositories(action: str, content: Mapping[str, Any]) -> Asked:
    fields.whole(content, "installation", "id")
    if action == "added":
        return InstallationChanged(_account_of(content), "", "repositories were added")
    if action != "removed":
        return Ignored(f"installation_repositories.{action} asks for nothing here")
    removed = fields.objects(content, "repositories_removed")
    numbers = tuple(fields.whole(one, "id") for one in removed)
    return RepositoriesRemoved(numbers, "the repository left the installation")


def _repository(action: str, content: Mapping[str, Any]) -> Asked:
    if action in _REPOSITORY_NAMED:
        return RepositoryRenamed(_REPOSITORY_NAMED[action])
    if action in _REPOSITORY_ENDS:
        number = fields.whole(content, "repository", "id")
        return RepositoriesRemoved((number,), _REPOSITORY_ENDS[action])
    return Ignored(f"repository.{action} asks for nothing here")


_HANDLERS: Mapping[str, Callable[[str, Mapping[str, Any]], Asked]] = {
    "pull_request": _pull_request,
    "issue_comment": _issue_comment,
    "installation": _installation,
    "installation_repositories": _installation_repositories,
    "repository": _repository,
}


def _digest(secret: str, body: bytes) -> bytes:
    return hmac.new(secret.encode("utf-8", "surrogateescape"), body, hashlib.sha256).hexdigest().encode()


def _pull_of(content: Mapping[str, Any]) -> PullRequest:
    pull = "pull_request"
    state = fields.text(content, pull, "state")
    if state not in ("open", "closed"):
        raise Unreadable(f"{pull}.state", "open or closed")
    if fields.flag(content, pull, "merged"):
        state = "merged"
    elif state == "open" and fields.flag(content, pull, "draft"):
        state = "draft"
    return PullRequest(
        number=fields.whole(content, "number", maximum=fields.MAX_NUMBER),
        head_sha=fields.sha(content, pull, "head", "sha"),
        base_sha=fields.sha(content, pull, "base", "sha"),
        base_ref=fields.branch(content, pull, "base", "ref"),
        state=state,
        reported_at=fields.moment(content, pull, "updated_at"),
    )


def _account_of(content: Mapping[str, Any]) -> str:
    login = fields.at(content, "installation", "account", "login")
    return login if isinstance(login, str) and re.fullmatch(r"[A-Za-z0-9._-]{1,255}", login) else ""
