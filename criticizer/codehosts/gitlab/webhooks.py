"""GitLab's webhooks: the proof of their sender (a signature, or a token), and their events."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from criticizer.codehosts import fields
from criticizer.codehosts.events import (
    Asked,
    HostEvent,
    Ignored,
    NotAuthentic,
    Noted,
    PullRequest,
    Refused,
    Rerun,
    Stopped,
    Unreadable,
    Wanted,
    is_command,
)
from criticizer.codehosts.names import Project
from criticizer.codehosts.signatures import ProvenWebhooks, any_equal, known_id, refusal
from criticizer.security.standard_webhooks import KEY_PREFIX, TOLERANCE_SECONDS, key_of, signed_at

_KIND = re.compile(r"[a-z0-9_]{1,31}")
_MERGEABLE = {"can_be_merged": True, "cannot_be_merged": False}
_STATES = {"opened": "open", "reopened": "open", "closed": "closed", "merged": "merged", "locked": "merged"}


class Webhooks(ProvenWebhooks):
    """Webhooks of GitLab projects and groups: their part of `Host`.

    `secrets`: signing tokens (`whsec_` and base64), and secret tokens in clear.
    """

    def __init__(self, secrets: Sequence[str], clock: Callable[[], float] = time.time) -> None:
        super().__init__(secrets)
        self._clock = clock

    def authenticate(self, headers: Mapping[str, str], body: bytes) -> None:
        """Check the signature, or the token where GitLab sent no signature.

        The token proves the sender, but not the body. Once a key is set, a webhook with a wrong signature is
        refused, whatever its token is.
        """
        secrets = list(self._secrets)
        keys = [secret for secret in secrets if secret.startswith(KEY_PREFIX)]
        signature = str(headers.get("Webhook-Signature") or "")
        if signature and keys:
            is_authentic = self._is_signed(headers, body, keys)
        else:
            signature = str(headers.get("X-Gitlab-Token") or "")
            tokens = [one.encode("utf-8", "surrogateescape") for one in secrets if one and one not in keys]
            is_authentic = any_equal(tokens, signature.encode("utf-8", "surrogateescape"))
        if not is_authentic:
            raise refusal(secrets, signature)

    def delivery_id(self, headers: Mapping[str, str], body: bytes) -> str:
        """Return the key that all tries have; `X-Gitlab-Webhook-UUID` is another one on each."""
        return known_id(headers.get("Idempotency-Key") or headers.get("Webhook-Id"), body)

    def event(self, headers: Mapping[str, str], content: Mapping[str, Any]) -> HostEvent:
        """Return the event of an authentic webhook (`Host`); unknown ones are ignored."""
        kind = content.get("object_kind")
        if not (isinstance(kind, str) and _KIND.fullmatch(kind)):
            raise Unreadable("object_kind", "the name of an event")
        if kind not in _HANDLERS:
            return HostEvent(kind, Ignored(f"{kind} asks for nothing here"))
        action = fields.at(content, "object_attributes", "action")
        if kind == "note" and action is None:
            action = "create"  # older versions report no other action
        if not (isinstance(action, str) and _KIND.fullmatch(action)):
            return HostEvent(kind, Ignored(f"a {kind} without an action asks for nothing here"))
        name = f"{kind}.{action}"
        asked = _HANDLERS[kind](action, content)
        repository = None
        with contextlib.suppress(Unreadable) if isinstance(asked, Ignored) else contextlib.nullcontext():
            repository = fields.repository(content, "project", name="path_with_namespace", kind=Project)
        return HostEvent(name, asked, repository)

    def _is_signed(self, headers: Mapping[str, str], body: bytes, keys: Sequence[str]) -> bool:
        sent_at = signed_at(map(key_of, keys), headers, body)
        if sent_at is not None and abs(self._clock() - sent_at) > TOLERANCE_SECONDS:
            raise NotAuthentic(Refused.LATE)
        return sent_at is not None


def _merge_request(action: str, content: Mapping[str, Any]) -> Asked:
    changed = fields.at(content, "changes")
    changed = changed if isinstance(changed, Mapping) else {}
    has_new_state = "draft" in changed or "work_in_progress" in changed
    has_news = has_new_state or "target_branch" in changed
    if action == "update" and not (fields.at(content, "object_attributes", "oldrev") or has_news):
        return Ignored("merge_request.update without new commits asks for nothing here")
    if action not in ("open", "reopen", "update", "close", "merge"):
        return Ignored(f"merge_request.{action} asks for nothing here")
    pull = _pull_of(content)
    if action in ("close", "merge"):
        return Stopped(pull, "the merge request was merged" if pull.state == "merged" else "it was closed")
    if pull.state == "draft" and has_new_state:
        return Stopped(pull, "the merge request became a draft")
    if not pull.head_sha:
        return Ignored("the merge request has no commits")
    if pull.state == "draft":
        return Noted(pull, "the merge request is a draft")
    if pull.state != "open":
        return Noted(pull, "the merge request is closed")
    return Wanted(pull, is_opening=action == "reopen" or has_new_state)


def _note(action: str, content: Mapping[str, Any]) -> Asked:
    """Read a comment, whose author may command as an assignee or reviewer.

    An event does not hold the rights of its author, but only members of a project choose its assignees and
    reviewers.
    """
    found, request = "object_attributes", "merge_request"
    if action != "create" or fields.at(content, found, "noteable_type") != "MergeRequest":
        return Ignored("the comment is not a new one on a merge request")
    if not is_command(fields.text(content, found, "note")):
        return Ignored("the comment is no command")
    chosen = [fields.at(content, request, name) for name in ("assignee_ids", "reviewer_ids")]
    author = fields.whole(content, found, "author_id")
    if not any(isinstance(people, list) and author in people for people in chosen):
        return Ignored("the author of the command is neither assignee nor reviewer of the merge request")
    if fields.at(content, request, "state") != "opened":
        return Ignored("the merge request is closed")
    number = fields.whole(content, request, "iid", maximum=fields.MAX_NUMBER)
    return Rerun(number, comment=fields.whole(content, found, "id"))


def open_merge_request(row: Mapping[str, Any]) -> HostEvent | None:
    """Return the event of one open merge request of a list, as its webhook would report it.

    None where a field is unreadable.
    """
    try:
        content = {"object_attributes": {**row, "last_commit": {"id": row.get("sha")}}}
        name = fields.text(row, "references", "full").rpartition("!")[0]
        project = {"id": row.get("project_id"), "path_with_namespace": name}
        repository = fields.repository(
            {"project": project}, "project", name="path_with_namespace", kind=Project
        )
        return HostEvent("poll.merge_request", _merge_request("open", content), repository)
    except Unreadable:
        return None


_HANDLERS: Mapping[str, Callable[[str, Mapping[str, Any]], Asked]] = {
    "merge_request": _merge_request,
    "note": _note,
}


def _pull_of(content: Mapping[str, Any]) -> PullRequest:
    found = "object_attributes"
    state = _STATES.get(fields.text(content, found, "state"))
    if state is None:
        raise Unreadable(f"{found}.state", "opened, closed, merged or locked")
    is_draft = fields.flag(content, found, "draft") or fields.flag(content, found, "work_in_progress")
    return PullRequest(
        number=fields.whole(content, found, "iid", maximum=fields.MAX_NUMBER),
        # A merge request without commits has no head, also when it is closed.
        head_sha=fields.sha(content, found, "last_commit", "id")
        if fields.at(content, found, "last_commit")
        else "",
        base_sha="",  # an event does not hold it
        base_ref=fields.branch(content, found, "target_branch"),
        state="draft" if state == "open" and is_draft else state,
        reported_at=fields.moment(content, found, "updated_at"),
        is_mergeable=_MERGEABLE.get(str(fields.at(content, found, "merge_status"))),
    )
