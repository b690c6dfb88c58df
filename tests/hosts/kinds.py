"""The code hosts of the conformance suite, with their signatures and forms of events."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from criticizer.codehosts.registry import repositories_variable, secrets_variable, sign_of
from tests.fakes.accounts import TOKEN, GiteaServer, GitLabServer
from tests.fakes.github import APP_ID, GitHubServer, private_key
from tests.hosts import deliveries
from tests.hosts.deliveries import HEAD, SECRET

Json = dict[str, Any]
SIGNING_KEY = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="  # the bytes 0 to 31


@dataclass(frozen=True)
class Kind:
    """One code host of the conformance suite.

    `event(action, ...)`: a pull request's event in the host's own words, by GitHub's action. `proof`: the
    header that proves the sender, by `secret`. `connected(url)`: the settings of a connection to its double,
    `server`, at an address.
    """

    name: str
    event: Callable[..., Json]
    headers: Callable[..., dict[str, str]]
    proof: str
    secret: str
    server: type[GitHubServer]
    connected: Callable[[str], Json]
    unknown: tuple[str, Json]  # an event that asks for nothing
    # Name and content of the event of a comment on pull request 7: `comment(text, has_rights=True)`.
    comment: Callable[..., tuple[str, Json]]
    needed: tuple[str, ...]  # paths of fields without which a pull request's event is unreadable
    head: str = "refs/pull/7/head"  # the reference of pull request 7

    @property
    def path(self) -> str:
        return f"/api/v1/hosts/{self.name}/webhook/"

    @property
    def pull(self) -> str:
        return f"{self.name}:acme/website{self.sign}7"

    @property
    def sign(self) -> str:
        return sign_of(self.name)


def github_event(action: str = "opened", **given: Any) -> Json:
    changes: Json = {"changes": {"base": {}}} if action == "edited" else {}
    return {**deliveries.pull_request(action, **given), **changes}


def gitea_event(action: str = "opened", **given: Any) -> Json:
    """Return an event of Gitea: GitHub's names, but for new commits, drafts and the branch.

    So it is in Gitea's `services/webhook`.
    """
    changes: Json = {}
    if action in {"ready_for_review", "converted_to_draft"}:
        changes = {"title": {"from": "WIP: x"}}
    if action == "edited":
        changes = {"ref": {"from": "main"}}
    content = deliveries.pull_request(action, **given)
    del content["installation"]
    names = {"synchronize": "synchronized", "ready_for_review": "edited", "converted_to_draft": "edited"}
    return {**content, "action": names.get(action, action), **({"changes": changes} if changes else {})}


def gitea_headers(body: bytes, event: str = "pull_request", delivery: str = "") -> dict[str, str]:
    """Return Gitea's headers, beside which it sends copies of GitHub's."""
    sent = deliveries.headers(body, event, delivery=delivery or str(uuid.uuid4()))
    return {
        **sent,
        "X-Gitea-Event": event,
        "X-Gitea-Delivery": sent["X-GitHub-Delivery"],
        "X-Gitea-Signature": sent["X-Hub-Signature-256"].removeprefix("sha256="),
    }


_GITLAB_ACTIONS = {
    "opened": "open", "reopened": "reopen", "closed": "close", "synchronize": "update", "edited": "update",
    "ready_for_review": "update", "converted_to_draft": "update", "labeled": "approved",
}  # fmt: skip


def gitlab_event(action: str = "opened", *, head: str = HEAD, at: int = 0, **given: Any) -> Json:
    repository = given.pop("repository", {"id": 500, "full_name": "Acme/Website"})
    attributes: Json = {
        "iid": given.pop("number", 7), "action": _GITLAB_ACTIONS[action],
        "state": "closed" if action == "closed" else "opened",
        "draft": given.pop("draft", action == "converted_to_draft"),
        "last_commit": {"id": head}, "source_branch": "topic",
        "target_branch": given.pop("base_ref", "main"), "updated_at": f"2026-01-31 12:{at:02}:00 UTC",
        **given,
    }  # fmt: skip
    changes: Json = {}
    if action == "synchronize":
        attributes["oldrev"] = "0" * 40
    if action in {"ready_for_review", "converted_to_draft"}:
        changes = {"draft": {"previous": True, "current": False}}
    if action == "edited":
        changes = {"target_branch": {"previous": "main", "current": attributes["target_branch"]}}
    return {
        "object_kind": "merge_request",
        "project": {"id": repository["id"], "path_with_namespace": repository["full_name"]},
        "object_attributes": attributes,
        "changes": changes,
    }


def gitlab_headers(
    body: bytes, event: str = "", delivery: str = "", at: float | None = None
) -> dict[str, str]:
    """Return headers signed as GitLab signs with a signing token: Standard Webhooks."""
    delivery = delivery or str(uuid.uuid4())
    sent_at = str(int(time.time() if at is None else at))
    key = base64.b64decode(SIGNING_KEY.removeprefix("whsec_"))
    digest = hmac.new(key, f"{delivery}.{sent_at}.".encode() + body, hashlib.sha256).digest()
    return {
        "Content-Type": "application/json", "X-Gitlab-Event": "Merge Request Hook",
        "Idempotency-Key": delivery, "X-Gitlab-Webhook-UUID": str(uuid.uuid4()), "Webhook-Id": delivery,
        "Webhook-Timestamp": sent_at, "Webhook-Signature": f"v1,{base64.b64encode(digest).decode()}",
    }  # fmt: skip


def github_comment(body: str, *, has_rights: bool = True, number: int = 1) -> tuple[str, Json]:
    made = deliveries.comment(body, association="MEMBER" if has_rights else "NONE")
    made["comment"]["id"] = number
    return "issue_comment", made


def gitea_comment(body: str, *, has_rights: bool = True, number: int = 1) -> tuple[str, Json]:
    """Return Gitea's event: permissions of its repository are those of the comment's author.

    So it is in Gitea's `services/webhook`.
    """
    name, content = github_comment(body, has_rights=False, number=number)
    del content["comment"]["author_association"]
    permissions = {"admin": False, "push": has_rights, "pull": True}
    return name, {**content, "repository": {**content["repository"], "permissions": permissions}}


def gitlab_comment(body: str, *, has_rights: bool = True, number: int = 1) -> tuple[str, Json]:
    return "", {
        "object_kind": "note",
        "project": {"id": 500, "path_with_namespace": "Acme/Website"},
        "object_attributes": {
            "id": number, "note": body, "noteable_type": "MergeRequest", "author_id": 5,
        },
        "merge_request": {
            "iid": 7, "state": "opened", "assignee_ids": [6], "reviewer_ids": [5] if has_rights else [],
        },
    }  # fmt: skip


def github_headers(body: bytes, event: str = "pull_request", delivery: str = "") -> dict[str, str]:
    return deliveries.headers(body, event, delivery=delivery)


_NEEDED = (
    "number", "pull_request", "pull_request.head", "pull_request.base", "pull_request.state",
    "pull_request.updated_at", "pull_request.head.sha", "pull_request.base.sha", "pull_request.base.ref",
    "repository", "repository.id", "repository.full_name",
)  # fmt: skip
KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "github", github_event, github_headers, "X-Hub-Signature-256", SECRET, GitHubServer,
            lambda url: {
                "GITHUB_APP_ID": str(APP_ID), "GITHUB_PRIVATE_KEY": (private_key(),), "GITHUB_API_URL": url,
            },
            ("star", {"action": "created"}), github_comment, _NEEDED,
        ),
        Kind(
            "gitea", gitea_event, gitea_headers, "X-Hub-Signature-256", SECRET, GiteaServer,
            lambda url: {"GITEA_URL": url, "GITEA_TOKEN": (TOKEN,)},
            ("push", {"ref": "refs/heads/main"}), gitea_comment, _NEEDED,
        ),
        Kind(
            "gitlab", gitlab_event, gitlab_headers, "Webhook-Signature", SIGNING_KEY, GitLabServer,
            lambda url: {"GITLAB_URL": url, "GITLAB_TOKEN": (TOKEN,)},
            ("", {"object_kind": "push"}), gitlab_comment,
            (
                "object_kind", "object_attributes.iid", "object_attributes.state",
                "object_attributes.updated_at", "object_attributes.target_branch",
                "object_attributes.last_commit.id", "project", "project.id", "project.path_with_namespace",
            ),
            "refs/merge-requests/7/head",
        ),
    )
}  # fmt: skip


def as_bytes(content: Any) -> bytes:
    return content if isinstance(content, bytes) else json.dumps(content).encode()


def webhook_settings() -> Json:
    """Return the settings under which webhooks of every host are accepted."""
    found: Json = {}
    for name, kind in KINDS.items():
        found[secrets_variable(name)] = [kind.secret]
        found[repositories_variable(name)] = ["acme/*"]
    return found
