"""GitHub's webhooks: the proof of their sender (`X-Hub-Signature-256`), and their events."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from criticizer.codehosts import fields
from criticizer.codehosts.events import (
    Asked,
    HostEvent,
    Ignored,
    InstallationChanged,
    Noted,
    PullRequest,
    RepositoriesRemoved,
    RepositoryRenamed,
    Rerun,
    Stopped,
    Unreadable,
    Wanted,
    is_command,
)
from criticizer.codehosts.signatures import ProvenWebhooks, is_signed, known_id, refusal

MAY_COMMAND = frozenset(("OWNER", "MEMBER", "COLLABORATOR"))
RERUN_BUTTON = "rerun"  # identifier of the button that `host` puts on our check run
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
# The signature covers the body alone (guarantee G313): a captured body, for example of a deleted comment, may
# be sent with the name of an event in which "deleted" is about the repository or the App. Bodies of these two
# events are recognised by the fields they lack; all others by the fields that are read.
_OF_REPOSITORIES = frozenset(
    ("action", "repository", "sender", "organization", "enterprise", "installation", "changes")
)
_NAME = re.compile(r"[a-z0-9_]{1,31}")
Handler = Callable[[str, Mapping[str, Any]], Asked]


class Webhooks(ProvenWebhooks):
    """Webhooks of a GitHub App, or of a repository's own hook: their part of `Host`.

    `app_id` is that of our App; checks of other Apps are not rerun.
    """

    def __init__(self, secrets: Sequence[str], app_id: str = "") -> None:
        super().__init__(secrets)
        self._app_id = app_id

    def authenticate(self, headers: Mapping[str, str], body: bytes) -> None:
        """Check the signature of the bytes as they came, in constant time (guarantee G240)."""
        given = str(headers.get("X-Hub-Signature-256") or "")
        if not is_signed(body, given.encode("utf-8", "surrogateescape"), self._secrets):
            raise refusal(self._secrets, given)

    def delivery_id(self, headers: Mapping[str, str], body: bytes) -> str:
        return known_id(headers.get("X-GitHub-Delivery"), body)

    def handler_of(self, kind: str) -> Handler | None:
        """Return the function that reads events of a kind; None for one that asks for nothing."""
        is_check = kind in ("check_run", "check_suite")
        return partial(_check, kind, self._app_id) if is_check else _HANDLERS.get(kind)

    def kind_of(self, headers: Mapping[str, str]) -> str:
        """Return the name of the event from the headers; "" without one."""
        return str(headers.get("X-GitHub-Event") or "")

    def event(self, headers: Mapping[str, str], content: Mapping[str, Any]) -> HostEvent:
        """Return the event of an authentic webhook (`Host`); unknown ones are ignored."""
        kind = self.kind_of(headers)
        if not _NAME.fullmatch(kind):
            raise Unreadable("X-GitHub-Event", "the name of an event")
        handler = self.handler_of(kind)
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


def of_pull_request(action: str, content: Mapping[str, Any]) -> Asked:
    has_new_base = action == "edited" and fields.at(content, "changes", "base") is not None
    if action not in _WANTED | {"closed", "converted_to_draft"} and not has_new_base:
        return Ignored(f"pull_request.{action} asks for nothing here")
    pull = pull_of(content)
    if action == "closed":
        return Stopped(pull, "the pull request was merged" if pull.state == "merged" else "it was closed")
    if action == "converted_to_draft":
        return Stopped(pull, "the pull request became a draft")
    if pull.state == "draft":
        return Noted(pull, "the pull request is a draft")
    if pull.state != "open":
        return Noted(pull, "the pull request is closed")
    return Wanted(pull, is_opening=action in _OPENING)


def open_pull(pull: Mapping[str, Any]) -> HostEvent | None:
    """Return the event of one open pull request of a list, as its webhook would report it.

    None where a field is unreadable, and for an archived repository, which accepts no comment.
    """
    content = {"number": pull.get("number"), "pull_request": pull}
    if fields.at(pull, "base", "repo", "archived") is True:
        return None
    try:
        asked = of_pull_request("opened", content)
        return HostEvent("poll.pull_request", asked, fields.repository(pull, "base", "repo"))
    except Unreadable:
        return None


def _check(kind: str, app_id: str, action: str, content: Mapping[str, Any]) -> Asked:
    is_button = kind == "check_run" and action == "requested_action"
    if is_button and fields.at(content, "requested_action", "identifier") != RERUN_BUTTON:
        return Ignored("the button is not one of ours")
    if action != "rerequested" and not is_button:
        return Ignored(f"{kind}.{action} asks for nothing here")
    if not app_id or str(fields.at(content, kind, "app", "id")) != app_id:
        return Ignored("the check is another App's")
    # The list is empty for pull requests from forks, which are found by their head. It also holds pull
    # requests in a fork, with the same head.
    ours = fields.at(content, "repository", "id")
    numbers = [
        fields.whole(one, "number", maximum=fields.MAX_NUMBER)
        for one in fields.objects(content, kind, "pull_requests")
        if fields.at(one, "base", "repo", "id") in (None, ours)
    ]
    head = fields.sha(content, kind, "head_sha")
    return Rerun(numbers[0] if len(numbers) == 1 else None, head)


def _issue_comment(action: str, content: Mapping[str, Any]) -> Asked:
    return of_comment(action, content, fields.at(content, "comment", "author_association") in MAY_COMMAND)


def of_comment(action: str, content: Mapping[str, Any], has_rights: bool) -> Asked:
    """Read a comment. `has_rights`: its author may write to the repository."""
    if action != "created":
        return Ignored(f"issue_comment.{action} asks for nothing here")
    if not fields.at(content, "issue", "pull_request"):
        return Ignored("the comment is not on a pull request")
    if not is_command(fields.text(content, "comment", "body")):
        return Ignored("the comment is no command")
    authors = (fields.at(content, "sender", "type"), fields.at(content, "comment", "user", "type"))
    if "Bot" in authors or fields.at(content, "comment", "performed_via_github_app"):
        return Ignored("the command is a program's")
    if not has_rights:
        return Ignored("the author of the command has no rights to the repository")
    if fields.at(content, "issue", "state") == "closed":
        return Ignored("the pull request is closed")
    number = fields.whole(content, "issue", "number", maximum=fields.MAX_NUMBER)
    return Rerun(number, comment=fields.whole(content, "comment", "id"))


def _installation(action: str, content: Mapping[str, Any]) -> Asked:
    if action not in _INSTALLATION:
        return Ignored(f"installation.{action} asks for nothing here")
    _require_installation(content)
    status, reason = _INSTALLATION[action]
    return InstallationChanged(_account_of(content), status, reason)


def _require_installation(content: Mapping[str, Any]) -> None:
    """Raise Unreadable unless the body is about the installation itself."""
    fields.whole(content, "installation", "id")
    if "repository" in content or not isinstance(fields.at(content, "installation", "account"), dict):
        raise Unreadable("X-GitHub-Event", "the event that the body is of")


def _installation_repositories(action: str, content: Mapping[str, Any]) -> Asked:
    _require_installation(content)
    if action == "added":
        return InstallationChanged(_account_of(content), "", "repositories were added")
    if action != "removed":
        return Ignored(f"installation_repositories.{action} asks for nothing here")
    removed = fields.objects(content, "repositories_removed")
    numbers = tuple(fields.whole(one, "id") for one in removed)
    return RepositoriesRemoved(numbers, "the repository left the installation")


def of_repository(action: str, content: Mapping[str, Any]) -> Asked:
    if not content.keys() <= _OF_REPOSITORIES:
        raise Unreadable("X-GitHub-Event", "the event that the body is of")
    if action in _REPOSITORY_NAMED:
        return RepositoryRenamed(_REPOSITORY_NAMED[action])
    if action in _REPOSITORY_ENDS:
        number = fields.whole(content, "repository", "id")
        return RepositoriesRemoved((number,), _REPOSITORY_ENDS[action])
    return Ignored(f"repository.{action} asks for nothing here")


_HANDLERS: Mapping[str, Handler] = {
    "pull_request": of_pull_request,
    "issue_comment": _issue_comment,
    "installation": _installation,
    "installation_repositories": _installation_repositories,
    "repository": of_repository,
}


def pull_of(content: Mapping[str, Any]) -> PullRequest:
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
        is_mergeable=fields.known_flag(content, pull, "mergeable"),
    )


def _account_of(content: Mapping[str, Any]) -> str:
    login = fields.known_text(content, "installation", "account", "login")
    return login if re.fullmatch(r"[A-Za-z0-9._-]{1,255}", login) else ""
