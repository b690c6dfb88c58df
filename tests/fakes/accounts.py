"""A strict Gitea and a strict GitLab on loopback, which know us by the token of an account.

Origin of the wire form: documented (Gitea's and GitLab's API pages); nothing was captured from either. What
they have in common with GitHub's double (scripted misbehaviour, comments, a clock) is its. Strict: token,
scheme, content type, and the fields of each body; every other request is a fault.

    with GitLabServer() as gitlab:
        gitlab.add("acme/web")
        gitlab.script(Act(keep=False, status=429, headers={"Retry-After": "2"}), on="POST /api/v4/")
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import unquote

from tests.fakes.github import ACCOUNT, BASE, GitHubServer, Pull, Repo
from tests.fakes.http import Asked, Said

TOKEN = "an-accounts-token-of-the-tests"
_FIELDS: Mapping[str, tuple[set[str], set[str]]] = {
    "comment": ({"body"}, set()),
    "edit": ({"body"}, set()),
    "gitea_status": ({"context", "state"}, {"description", "target_url"}),
    "review": ({"event", "body", "comments"}, {"commit_id"}),
    "discussion": ({"body", "position"}, set()),
    "gitlab_status": ({"state"}, {"name", "description", "target_url", "ref"}),
}


class AccountServer(GitHubServer):
    """Common part of the hosts that have accounts with tokens.

    `accepted`: the account's tokens. `statuses`: all that were set.
    """

    api: ClassVar[str]
    scheme: ClassVar[str]
    author: ClassVar[str]
    routes: ClassVar[tuple[tuple[str, str, str], ...]]  # method, path below the API, what answers it
    post: ClassVar[str]  # the call that comments on pull request 7 of `acme/web`
    edit: ClassVar[str]  # ... and those that edit a comment

    def __init__(self, *, page: int = 100) -> None:
        super().__init__(page=page)
        self.accepted = {TOKEN}
        self.account = ACCOUNT  # whose token it is
        self.statuses: list[dict[str, Any]] = []

    def accepts(self, value: str) -> bool:
        """Say whether a token is good now: here, and as git's password."""
        return value in self.accepted

    def _judged(self, asked: Asked) -> Said:
        if not asked.path.startswith(f"{self.api}/"):
            return self._fault(404, f"{asked.path} is not of the API")
        scheme, _, token = asked.headers.get("authorization", "").partition(" ")
        if scheme != self.scheme or not self.accepts(token):
            return Said(401, {"message": "401 Unauthorized"})
        path = asked.path.removeprefix(self.api)
        if asked.method == "GET" and path == "/user":
            return Said(body={"id": self.account, "login": "criticizer", "username": "criticizer"})
        for method, pattern, answer in self.routes:
            if asked.method == method and (found := re.fullmatch(pattern, path)):
                if method not in ("GET", "DELETE") and (wrong := _not_as_documented(asked, answer)):
                    return self._fault(400, wrong)
                return self._of(asked, answer, unquote(found[1]), found.groups()[1:])
        return self._fault(404, f"{asked.method} {path} is not documented")

    def _of(self, asked: Asked, answer: str, name: str, rest: tuple[str, ...]) -> Said:
        if name.lower() in self.moved:
            path = asked.path.replace(name, self.moved[name.lower()], 1)
            return Said(307, headers={"Location": f"{self.url}{path}"})
        known = [n for n, repo in self.repos.items() if name in (n, str(repo.number)) or name.lower() == n]
        if not known or self.repos[known[0]].is_hidden:
            return Said(404, {"message": "404 Not Found"})
        repo = self.repos[known[0]]
        said: Said = getattr(self, f"_{answer}")(repo, asked, *rest)
        return said

    def _list(self, repo: Repo, asked: Asked, number: str) -> Said:
        found = [c for c in repo.comments.values() if c["number"] == int(number)]
        return self._paged(asked, found)

    def _comment(self, repo: Repo, asked: Asked, number: str) -> Said:
        pull = repo.pulls.get(int(number))
        if pull is None:
            return Said(404, {"message": "404 Not Found"})
        if refused := self._closed(repo, is_locked=pull.is_locked):
            return refused
        return Said(201, self._keep_comment(repo, int(number), asked.body["body"]))

    def _keep_comment(self, repo: Repo, number: int, body: str, login: str = "") -> dict[str, Any]:
        by = 5 if login else ACCOUNT
        comment = {"id": self._id(), "number": number, "body": body, "by": by, self.author: {"id": by}}
        repo.comments[comment["id"]] = comment
        return comment

    def _edit(self, repo: Repo, asked: Asked, *path: str) -> Said:
        comment = repo.comments.get(int(path[-1]))
        if comment is None:
            return Said(404, {"message": "404 Not found"})
        if comment["by"] != ACCOUNT:
            return Said(403, {"message": "403 Forbidden"})
        if refused := self._closed(repo, is_locked=repo.pulls[comment["number"]].is_locked):
            return refused
        comment["body"] = asked.body["body"]
        return Said(200, comment)

    def _closed(self, repo: Repo, *, is_locked: bool) -> Said | None:
        return Said(403, {"message": "403 Forbidden"}) if is_locked or repo.is_archived else None

    def _keep_status(self, sha: str, body: Mapping[str, Any]) -> Said:
        status = {"id": self._id(), "sha": sha, **body}
        self.statuses.append(status)
        return Said(201, status)


class GiteaServer(AccountServer):
    """Double of Gitea.

    Its list of comments is not paged. A review that breaks off stays, and is added to the next one.
    """

    api, scheme, author = "/api/v1", "token", "user"
    routes = (
        ("GET", r"/repos/([^/]+/[^/]+)", "repository"),
        ("GET", r"/repos/([^/]+/[^/]+)/pulls", "list_pulls"),
        ("GET", r"/repos/([^/]+/[^/]+)/pulls/(\d+)", "pull"),
        ("GET", r"/repos/([^/]+/[^/]+)/issues/(\d+)/comments", "list"),
        ("POST", r"/repos/([^/]+/[^/]+)/issues/(\d+)/comments", "comment"),
        ("PATCH", r"/repos/([^/]+/[^/]+)/issues/comments/(\d+)", "edit"),
        ("GET", r"/repos/([^/]+/[^/]+)/pulls/(\d+)/reviews", "list_reviews"),
        ("POST", r"/repos/([^/]+/[^/]+)/pulls/(\d+)/reviews", "review"),
        ("DELETE", r"/repos/([^/]+/[^/]+)/pulls/(\d+)/reviews/(\d+)", "delete_review"),
        ("POST", r"/repos/([^/]+/[^/]+)/statuses/([0-9a-f]{40,64})", "gitea_status"),
    )
    post, edit = (
        "POST /api/v1/repos/acme/web/issues/7/comments",
        "PATCH /api/v1/repos/acme/web/issues/comments/",
    )

    def _described(self, repo: Repo, number: int, pull: Pull) -> dict[str, Any]:
        return {
            **super()._described(repo, number, pull), "mergeable": True,
            "html_url": f"{self.url}/acme/web/pulls/{number}",
        }  # fmt: skip

    def _repository(self, repo: Repo, asked: Asked) -> Said:
        permissions = {"admin": False, "push": repo.level == "write", "pull": True}
        return Said(body={"id": repo.number, "full_name": repo.name, "permissions": permissions})

    breaks_off_after: int | None = None  # of a review's comments, once

    def _paged(self, asked: Asked, rows: list[dict[str, Any]], items: str = "") -> Said:
        query = {**asked.query, "per_page": asked.query.get("limit", "30")}
        return super()._paged(replace(asked, query=query), rows, items)

    def _review(self, repo: Repo, asked: Asked, number: str) -> Said:
        pull, body = repo.pulls[int(number)], asked.body
        if refused := self._closed(repo, is_locked=pull.is_locked):
            return refused
        for comment in body["comments"]:
            sides = {"new_position", "old_position"} & set(comment)
            if set(comment) - sides != {"path", "body"} or len(sides) != 1 or comment[sides.pop()] < 1:
                return self._fault(422, f"not a comment of a review: {comment}")
        left = [one for one in repo.reviews if one["state"] == "PENDING" and one["number"] == int(number)]
        review = left[0] if left else {
            "id": self._id(), "number": int(number), "comments": [], "by": ACCOUNT, "user": {"id": ACCOUNT},
            "state": "PENDING", "body": "", "commit_id": body.get("commit_id", pull.head),
        }  # fmt: skip
        if not left:
            repo.reviews.append(review)
        if self.breaks_off_after is not None:
            review["comments"] += body["comments"][: self.breaks_off_after]
            self.breaks_off_after = None
            return Said(500, {"message": "Internal Server Error"})
        review["comments"] += body["comments"]
        review |= {"state": body["event"], "body": body["body"]}
        return Said(200, review)

    def _delete_review(self, repo: Repo, asked: Asked, number: str, review: str) -> Said:
        repo.reviews = [one for one in repo.reviews if one["id"] != int(review)]
        return Said(204)

    def _list(self, repo: Repo, asked: Asked, number: str) -> Said:
        return Said(body=[c for c in repo.comments.values() if c["number"] == int(number)])

    def _closed(self, repo: Repo, *, is_locked: bool) -> Said | None:
        if repo.is_archived:
            return Said(423, {"message": "Repository is archived"})
        return Said(403, {"message": "You cannot comment on a locked issue."}) if is_locked else None

    def _gitea_status(self, repo: Repo, asked: Asked, sha: str) -> Said:
        if asked.body["state"] not in {"pending", "success", "error", "failure", "warning"}:
            return self._fault(422, "no such state")
        if refused := self._closed(repo, is_locked=False):
            return refused
        return self._keep_status(sha, asked.body)


class GitLabServer(AccountServer):
    """Double of GitLab.

    Projects go by number or by encoded path; a status of a commit moves as GitLab's state machine allows.
    """

    api, scheme, author = "/api/v4", "Bearer", "author"
    routes = (
        ("GET", r"/projects/([^/]+)", "repository"),
        ("GET", r"/projects/([^/]+)/merge_requests", "list_pulls"),
        ("GET", r"/projects/([^/]+)/merge_requests/(\d+)", "pull"),
        ("GET", r"/projects/([^/]+)/merge_requests/(\d+)/notes", "list"),
        ("POST", r"/projects/([^/]+)/merge_requests/(\d+)/notes", "comment"),
        ("PUT", r"/projects/([^/]+)/merge_requests/(\d+)/notes/(\d+)", "edit"),
        ("GET", r"/projects/([^/]+)/merge_requests/(\d+)/versions", "versions"),
        ("POST", r"/projects/([^/]+)/merge_requests/(\d+)/discussions", "discussion"),
        ("POST", r"/projects/([^/]+)/statuses/([0-9a-f]{40,64})", "gitlab_status"),
    )
    post, edit = "POST /api/v4/projects/", "PUT /api/v4/projects/"

    def _described(self, repo: Repo, number: int, pull: Pull) -> dict[str, Any]:
        name = repo.name or next(name for name, known in self.repos.items() if known is repo)
        return {
            "references": {"full": f"{name}!{number}"}, "target_branch": "main",
            "updated_at": pull.updated_at, "iid": number, "sha": pull.head,
            "state": "opened" if pull.state == "open" else pull.state,
            "draft": pull.is_draft, "has_conflicts": False, "project_id": repo.number,
            "web_url": f"{self.url}/acme/web/-/merge_requests/{number}",
        }  # fmt: skip

    def _repository(self, repo: Repo, asked: Asked) -> Said:
        level = {"access_level": 30 if repo.level == "write" else 20, "notification_level": 3}
        permissions = {"project_access": None, "group_access": level}
        return Said(body={"id": repo.number, "path_with_namespace": repo.name, "permissions": permissions})

    def _versions(self, repo: Repo, asked: Asked, number: str) -> Said:
        head = repo.pulls[int(number)].head
        newest = {"base_commit_sha": BASE, "start_commit_sha": "c" * 40, "head_commit_sha": head}
        older = {**newest, "head_commit_sha": "0" * 40}
        return self._paged(asked, [{"id": 2, **newest}, {"id": 1, **older}])

    def _discussion(self, repo: Repo, asked: Asked, number: str) -> Said:
        pull, position = repo.pulls[int(number)], asked.body["position"]
        if refused := self._closed(repo, is_locked=pull.is_locked):
            return refused
        if wrong := _not_in_diff(pull, position):
            words = f'400 Bad request - Note {{:line_code=>["can\'t be blank", "{wrong}"]}}'
            return Said(400, {"message": words})
        note = self._keep_comment(repo, int(number), asked.body["body"])
        note |= {"type": "DiffNote", "position": position}
        return Said(201, {"id": f"{note['id']:040x}", "individual_note": False, "notes": [note]})

    def _gitlab_status(self, repo: Repo, asked: Asked, sha: str) -> Said:
        body = asked.body
        if body["state"] not in {"pending", "running", "success", "failed", "canceled", "skipped"}:
            return self._fault(400, "state does not have a valid value")
        if refused := self._closed(repo, is_locked=False):
            return refused
        if len(body.get("description", "")) > 255:
            return Said(400, {"message": {"description": ["is too long (maximum is 255 characters)"]}})
        same = [one for one in self.statuses if one["sha"] == sha and one.get("name") == body.get("name")]
        if body["state"] == "running" and same and same[-1]["state"] == "running":
            reason = 'Status cannot transition via "run"'
            words = f"Cannot transition status via :run from :running (Reason(s): {reason})"
            return Said(400, {"message": words})
        return self._keep_status(sha, body)


def _not_in_diff(pull: Pull, position: Mapping[str, Any]) -> str:
    commits = {"base_sha": BASE, "start_sha": "c" * 40, "head_sha": pull.head, "position_type": "text"}
    if any(position.get(name) != value for name, value in commits.items()):
        return "position is incomplete"
    path, old, new = position["new_path"], position.get("old_line", 0), position.get("new_line", 0)
    if position["old_path"] != pull.renamed.get(path, path):
        return "must be a valid line code"
    if path in pull.lines:
        return "" if (old, new) in set(pull.lines[path]) else "must be a valid line code"
    fits = [
        (not old or hunk[0] <= old <= hunk[1]) and (not new or hunk[2] <= new <= hunk[3])
        for hunk in pull.hunks.get(path, ())
    ]
    return "" if (old or new) and any(fits) else "must be a valid line code"


def _not_as_documented(asked: Asked, answer: str) -> str:
    if asked.headers.get("content-type") != "application/json":
        return "the content type is not application/json"
    needed, further = _FIELDS[answer]
    if not isinstance(asked.body, dict) or not needed <= set(asked.body) <= needed | further:
        return f"the fields of the body are not {sorted(needed | further)}"
    values = [value for name, value in asked.body.items() if name not in {"comments", "position"}]
    return "" if all(isinstance(value, str) for value in values) and asked.body.get("body", "x") else "empty"
