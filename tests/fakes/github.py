"""Strict double of GitHub on loopback: an App, tokens, pull requests, comments, check runs.

Origin of the wire form: documented (github/docs, and GitHub's OpenAPI description, against whose schemas
request bodies are validated where the cut-out is there); nothing was captured from GitHub. Strict where
GitHub is: RS256 and its times, expiry on a clock that the test moves, permissions, paging by `Link`,
lengths, anchors inside the diff, refusals with a body, 404 for what an App may not see.

    with GitHubServer() as github:
        github.add("acme/web", pulls={7: Pull(HEAD)})
        github.script(Act(keep=True, then="reset"), on="POST /repos/acme/web/issues/7/comments")
"""

from __future__ import annotations

import gzip
import json
import re
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jsonschema import Draft4Validator

from tests.fakes.http import Asked, LoopbackServer, Said

APP_ID, SLUG, INSTALLATION = 4242, "criticizer-test", 9001
ACCOUNT = 77  # ours, on hosts that know us by an account's token
_MARKER = re.compile(
    r"<!-- criticizer:\w+ .*?token=(?P<token>\S+)(?: part=(?P<part>\S+))?(?: earlier=(?P<earlier>\S+))? -->"
)
HEAD, BASE = "1" * 40, "b" * 40
WEBHOOK_SECRET = "5ec2e7" * 6
MAX_COMMENT_BYTES = 262_144
MAX_OUTPUT_BYTES = 65_535
PAGE = b"<!DOCTYPE html><html><title>Sign in</title><p>Your session has expired.</p></html>"
VERSIONS = {"2022-11-28", "2026-03-10"}
_CUT_OUT = Path(__file__).resolve().parents[3] / "shared" / "data" / "github_openapi_subset.json.gz"
# method, path, permission; the name after `_` answers it.
_ROUTES: tuple[tuple[str, str, str, str], ...] = (
    ("GET", r"/pulls", "pull_requests:read", "list_pulls"),
    ("GET", r"/pulls/(\d+)", "pull_requests:read", "pull"),
    ("GET", r"/issues/(\d+)/comments", "pull_requests:read", "list_comments"),
    ("POST", r"/issues/(\d+)/comments", "pull_requests:write", "comment"),
    ("PATCH", r"/issues/comments/(\d+)", "pull_requests:write", "edit_comment"),
    ("GET", r"/pulls/(\d+)/reviews", "pull_requests:read", "list_reviews"),
    ("POST", r"/pulls/(\d+)/reviews", "pull_requests:write", "review"),
    ("POST", r"/check-runs", "checks:write", "check"),
    ("GET", r"/check-runs/(\d+)", "checks:read", "one_check"),
    ("PATCH", r"/check-runs/(\d+)", "checks:write", "edit_check"),
    ("GET", r"/commits/([0-9a-f]{40,64})/check-runs", "checks:read", "list_checks"),
)
_MANIFEST = {
    "name", "url", "hook_attributes", "redirect_url", "callback_urls", "setup_url", "description", "public",
    "default_events", "default_permissions", "request_oauth_on_install", "setup_on_update",
}  # fmt: skip
Hunk = tuple[int, int, int, int]  # old start, old end, new start, new end; ends included


def private_key(number: int = 1) -> str:
    """Return one of the App's keys, PKCS#1 PEM as GitHub makes it."""
    return _key(number)


@cache
def _key(number: int) -> str:
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def tokens_of(repo: Repo) -> list[str]:
    """Return the tokens that the markers of our comments have, in order of the comments."""
    markers = [marker for marker in _markers(repo.comments.values()) if not marker["part"]]
    return [token for m in markers for token in (m["token"], *filter(None, (m["earlier"] or "").split(",")))]


def reviewed_tokens_of(repo: Repo) -> list[str]:
    """Return the tokens of our reviews, and of our complete threads, as often as they stand."""
    found = [marker["token"] for marker in _markers(repo.reviews)]
    parts: dict[str, Counter[str]] = defaultdict(Counter)
    for marker in _markers(repo.comments.values()):
        if marker["part"]:
            parts[marker["token"]][marker["part"]] += 1
    for token, times in parts.items():
        wanted = int(next(iter(times)).partition("/")[2])
        found += [token] * (max(times.values()) if len(times) == wanted else 0)
    return found


def _markers(texts: Iterable[Mapping[str, Any]]) -> list[re.Match[str]]:
    ours = [text["body"] for text in list(texts) if _is_ours(text)]
    return [marker for body in ours if (marker := _MARKER.match(body))]


def _is_ours(text: Mapping[str, Any]) -> bool:
    return text["by"] == ACCOUNT if "by" in text else text["user"]["login"] == f"{SLUG}[bot]"


@cache
def _public(key: str) -> Any:
    return serialization.load_pem_private_key(key.encode(), None).public_key()


@dataclass(slots=True)
class Pull:
    head: str = HEAD
    state: str = "open"
    is_locked: bool = False
    is_draft: bool = False
    hunks: Mapping[str, tuple[Hunk, ...]] = field(default_factory=dict)
    # What GitLab knows better: (old, new) number of each line of the diff, 0 for the side that lacks it.
    lines: Mapping[str, Iterable[tuple[int, int]]] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)  # new name -> old name
    updated_at: str = "2026-01-31T12:00:00Z"


@dataclass(slots=True)
class Repo:
    number: int
    pulls: dict[int, Pull]
    is_archived: bool = False
    is_hidden: bool = False
    comments: dict[int, dict[str, Any]] = field(default_factory=dict)  # ids ascend over all pulls
    reviews: list[dict[str, Any]] = field(default_factory=list)
    checks: dict[int, dict[str, Any]] = field(default_factory=dict)
    name: str = ""  # as the host writes it; it is asked for in any case
    level: str = "write"  # of an account's token


@dataclass(frozen=True, slots=True)
class Act:
    """Behaviour of one call: it is done if `keep`, and then answered, dropped or refused.

    `then` is `reply`, `hang`, `reset`, `cut` (closed in the middle of the answer) or `page` (a proxy's, or
    `body`, with status 200 instead of it); a `status` from 300 replaces the answer. `before` runs first, and
    `after` once it is done, before its answer.
    """

    keep: bool = True
    then: str = "reply"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    before: Callable[[], object] | None = None
    after: Callable[[], object] | None = None


@dataclass(slots=True)
class _Token:
    repositories: set[int]  # their numbers
    permissions: Mapping[str, str]
    made_at: float
    expires_at: float


class GitHubServer:
    """One GitHub with one App.

    `granted`: the App's permissions. `keys`: the numbers of its valid keys. `lag_seconds`: how long a fresh
    token is not known. `has_long_tokens`: the form since 2026.
    """

    def __init__(self, *, page: int = 100, port: int = 0) -> None:
        self.keys = {1}
        self.granted = {
            "checks": "write", "contents": "read", "metadata": "read", "pull_requests": "write",
        }  # fmt: skip
        self.is_installed = True
        self.owners = {"acme"}  # where the App is installed
        self.selection = "all"  # or selected: which of their repositories it includes
        self.accepted: dict[str, str] | None = None  # what they granted; None: all that the App wants
        self.suspended_at: str | None = None
        self.lag_seconds = 0.0
        self.has_long_tokens = True
        self.remaining, self.reset_seconds = 4290, 3000  # as every answer says
        self.page = page
        self.repos: dict[str, Repo] = {}
        self.moved: dict[str, str] = {}  # earlier name -> name
        self.tokens: dict[str, _Token] = {}
        self.codes: set[str] = set()  # of manifests, each exchanged once
        self.manifests: list[tuple[str, dict[str, Any]]] = []  # where a form was sent, and what it asked for
        self.deliveries: list[dict[str, Any]] = []  # of its webhook, the newest first
        self.deliver_again: Callable[[int], object] = lambda number: None
        self.calls: list[Asked] = []
        self.said: list[tuple[str, int]] = []  # method and path, status
        self.faults: list[str] = []  # requests that no client of GitHub may make
        self._offset = 0.0
        self._next_id = 100
        self._acts: dict[str, deque[Act]] = defaultdict(deque)
        self._lock = threading.RLock()
        self._server = LoopbackServer(self.answer)
        self.url = self._server.url

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.__exit__(*exc)

    # -- what tests set and ask ---------------------------------------------------------------

    def now(self) -> float:
        return time.time() + self._offset

    def forward(self, seconds: float) -> None:
        """Move the clock; also the `pause` of a client whose clock is `now`."""
        self._offset += seconds

    def add(self, name: str, pulls: Mapping[int, Pull] | None = None) -> Repo:
        repo = self.repos[name.lower()] = Repo(self._id(), dict(pulls or {7: Pull()}), name=name)
        return repo

    def script(self, *acts: Act, on: str = "") -> None:
        """Queue acts for calls whose `METHOD path` begins with `on`; afterwards calls are answered."""
        self._acts[on].extend(acts)

    def say(self, repo: str, number: int, body: str, login: str = "mallory") -> dict[str, Any]:
        """Comment as another user, who may paste anything."""
        with self._lock:
            return self._keep_comment(self.repos[repo.lower()], number, body, login)

    def accepts(self, value: str) -> bool:
        """Say whether a token of an installation is good now: here, and as git's password."""
        token, now = self.tokens.get(value), self.now()
        is_known = token is not None and now - token.made_at >= self.lag_seconds
        return is_known and self.is_installed and token is not None and token.expires_at > now

    def count(self, method: str, path: str) -> int:
        return sum(call.method == method and re.fullmatch(path, call.path) is not None for call in self.calls)

    # -- the server ---------------------------------------------------------------------------

    def _id(self) -> int:
        self._next_id += 1
        return self._next_id

    def answer(self, asked: Asked) -> Said:
        with self._lock:
            self.calls.append(asked)
            said = self._acted(asked)
            self.said.append((f"{asked.method} {asked.path}", said.status))
            date = datetime.fromtimestamp(self.now(), UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
            limits = {"x-ratelimit-limit": "5000", "x-ratelimit-remaining": str(self.remaining),
                      "x-ratelimit-reset": str(int(self.now()) + self.reset_seconds)}  # fmt: skip
            headers = {"Date": date, **limits, **said.headers}
            return replace(said, headers=headers)

    def _acted(self, asked: Asked) -> Said:
        call = f"{asked.method} {asked.path}"
        acts = next((acts for on, acts in self._acts.items() if acts and call.startswith(on)), None)
        act = acts.popleft() if acts else Act()
        if act.before is not None:
            act.before()
        if act.status >= 300 and not act.keep:
            return Said(act.status, act.body or {"message": "scripted"}, act.headers)
        said = self._judged(asked) if act.keep else Said()
        if wrong := _not_as_described(asked, said):
            self.faults.append(f"the double's own answer to {call}: {wrong}")
        if act.after is not None:
            act.after()
        if act.then == "page":
            return Said(200, act.body or PAGE, {"Content-Type": "text/html"})
        if act.then != "reply":
            return replace(said, **{act.then: True})
        return Said(act.status, act.body or {}, act.headers) if act.status >= 300 else said

    def _judged(self, asked: Asked) -> Said:
        if re.fullmatch(r"(?:/organizations/[^/]+)?/settings/apps/new", asked.path):
            return self._make_app(asked)
        headers = asked.headers
        if not headers.get("user-agent"):
            return self._fault(403, "Request forbidden by administrative rules.")
        if asked.path.endswith("/"):
            return self._fault(404, "Not Found")
        if headers.get("x-github-api-version") not in VERSIONS:
            return self._fault(400, "The API version is not supported.")
        if headers.get("accept") != "application/vnd.github+json":
            return self._fault(415, "Unsupported Accept header.")
        if found := re.fullmatch(r"/app-manifests/([^/]+)/conversions", asked.path):
            return self._convert(asked, found[1])
        if asked.method != "GET" and (wrong := _not_in_schema(asked)):
            return self._fault(422, f"Invalid request. {wrong}")
        token = headers.get("authorization", "").removeprefix("Bearer ")
        found = re.fullmatch(r"/repos/([^/]+/[^/]+)(/.+)", asked.path)
        if found and found[2] != "/installation":
            return self._of_repository(asked, found[1].lower(), found[2], token)
        return self._of_app(asked, token)

    def _of_app(self, asked: Asked, token: str) -> Said:
        if wrong := self._not_the_app(token):
            return _refusal(401, wrong)
        if asked.path == "/app":
            return Said(body={"id": APP_ID, "slug": SLUG, "permissions": self.granted})
        if found := re.fullmatch(r"/repos/([^/]+/[^/]+)/installation", asked.path):
            if moved := self._moved(asked, found[1].lower(), "/installation"):
                return moved
            repo = self.repos.get(found[1].lower())
            if not self.is_installed or repo is None or repo.is_hidden:
                return _refusal(404, "Not Found")
            return Said(body=self._installation(found[1].partition("/")[0]))
        if asked.path == "/app/installations" and asked.method == "GET":
            found_on = self.owners if self.is_installed else ()
            return self._paged(asked, [self._installation(owner) for owner in sorted(found_on)])
        if asked.path == f"/app/installations/{INSTALLATION}/access_tokens" and self.is_installed:
            return self._mint(asked.body)
        if asked.path == "/app/hook/deliveries" and asked.method == "GET":
            wanted = asked.query.get("status", "")
            return self._paged(asked, [one for one in self.deliveries if wanted in ("", one["status"])])
        if found := re.fullmatch(r"/app/hook/deliveries/(\d+)/attempts", asked.path):
            self.deliver_again(int(found[1]))
            return Said(202, {})
        return _refusal(404, "Not Found")

    def _installation(self, owner: str) -> dict[str, Any]:
        granted = self.granted if self.accepted is None else self.accepted
        return {
            "id": INSTALLATION, "app_id": APP_ID, "permissions": granted, "account": {"login": owner},
            "suspended_at": self.suspended_at, "repository_selection": self.selection,
        }  # fmt: skip

    def _make_app(self, asked: Asked) -> Said:
        """Take the form that a browser sends, and redirect it with a code (docs: App manifest)."""
        manifest = json.loads(dict(parse_qsl(asked.raw.decode())).get("manifest", "{}"))
        unknown = manifest.keys() - _MANIFEST
        if asked.method != "POST" or unknown or not manifest.get("url") or len(manifest.get("name", "")) > 34:
            return self._fault(422, f"The manifest is not one: {sorted(unknown)}")
        self.manifests.append((asked.path, manifest))
        code = f"{self._id():040d}"
        self.codes.add(code)
        back = urlencode({"code": code, "state": asked.query.get("state", "")})
        return Said(302, {}, {"Location": f"{manifest['redirect_url']}?{back}"})

    def _convert(self, asked: Asked, code: str) -> Said:
        if asked.method != "POST" or code not in self.codes:
            return _refusal(404, "Not Found")
        self.codes.remove(code)
        return Said(201, {
            "id": APP_ID, "slug": SLUG, "name": "Criticizer", "client_id": "Iv1.0", "client_secret": "0" * 40,
            "webhook_secret": WEBHOOK_SECRET, "pem": private_key(),
        })  # fmt: skip

    def _not_the_app(self, token: str) -> str:
        for number in self.keys:
            try:
                claims = jwt.decode(
                    token, _public(private_key(number)), algorithms=["RS256"],
                    options={"verify_exp": False, "verify_iat": False, "verify_iss": False},
                )  # fmt: skip
            except jwt.PyJWTError:
                continue
            if str(claims.get("iss")) != str(APP_ID):
                return "Integration not found"
            if type(claims.get("iat")) is not int or type(claims.get("exp")) is not int:
                return "'Issued at' claim ('iat') must be an Integer representing the time"
            if claims["exp"] - self.now() > 600:
                return "'Expiration time' claim ('exp') is too far in the future"
            if claims["exp"] < self.now() or claims["iat"] > self.now():
                return "'Expiration time' claim ('exp') must be a numeric value in the future"
            return ""
        return "A JSON web token could not be decoded"

    def _mint(self, wanted: Mapping[str, Any]) -> Said:
        names = {
            name
            for name, repo in self.repos.items()
            if name.partition("/")[2] in {str(known).lower() for known in wanted.get("repositories", ())}
            or repo.number in wanted.get("repository_ids", ())
        }
        permissions = wanted.get("permissions", self.granted)
        if not names:
            return _refusal(422, "There is at least one repository that does not exist or is not accessible.")
        if any(_LEVELS[level] > _LEVELS[self.granted.get(name, "")] for name, level in permissions.items()):
            return _refusal(422, "The permissions requested are not granted to this installation.")
        number = self._id()
        value = f"ghs_{number:036d}"
        if self.has_long_tokens:
            value = f"ghs_{APP_ID}_" + ".".join(f"{part}{number:06d}_" + "a-Z" * 60 for part in "eyJhb")
        self.tokens[value] = _Token(
            {self.repos[name].number for name in names}, permissions, self.now(), self.now() + 3600
        )
        expires = datetime.fromtimestamp(self.now() + 3600, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return Said(201, {"token": value, "expires_at": expires, "permissions": permissions})

    def _of_repository(self, asked: Asked, name: str, path: str, value: str) -> Said:
        token = self.tokens.get(value)
        if token is None or not self.accepts(value):
            return _refusal(401, "Bad credentials")
        if moved := self._moved(asked, name, path):
            return moved
        repo = self.repos.get(name)
        if repo is None or repo.is_hidden or repo.number not in token.repositories:
            return _refusal(404, "Not Found")
        for method, pattern, permission, answer in _ROUTES:
            if asked.method == method and (found := re.fullmatch(pattern, path)):
                wanted, _, level = permission.partition(":")
                if _LEVELS[token.permissions.get(wanted, "")] < _LEVELS[level]:
                    needed = {"X-Accepted-GitHub-Permissions": f"{wanted}={level}"}
                    return _refusal(403, "Resource not accessible by integration", headers=needed)
                if repo.is_archived and method != "GET":
                    return _refusal(403, "Repository was archived so is read-only.")
                said: Said = getattr(self, f"_{answer}")(repo, asked, *found.groups())
                return said
        return self._fault(404, "Not Found")

    def _moved(self, asked: Asked, name: str, path: str) -> Said | None:
        if name not in self.moved:
            return None
        location = f"{self.url}/repos/{self.moved[name]}{path}"
        status = 301 if asked.method == "GET" else 307
        return Said(status, {"message": "Moved Permanently", "url": location}, {"Location": location})

    def rename(self, name: str, to: str) -> None:
        self.repos[to] = self.repos.pop(name)
        self.repos[to].name = to
        self.moved[name] = to

    def _fault(self, status: int, words: str) -> Said:
        self.faults.append(words)
        return _refusal(status, words)

    # -- what repositories have ---------------------------------------------------------------

    def _pull(self, repo: Repo, asked: Asked, number: str) -> Said:
        pull = repo.pulls.get(int(number))
        if pull is None:
            return _refusal(404, "Not Found")
        return Said(body={**self._described(repo, int(number), pull), "merged": False})

    def _described(self, repo: Repo, number: int, pull: Pull) -> dict[str, Any]:
        name = repo.name or next(name for name, known in self.repos.items() if known is repo)
        return {
            "number": number, "state": pull.state, "draft": pull.is_draft, "locked": pull.is_locked,
            "head": {"sha": pull.head}, "updated_at": pull.updated_at, "base": {
                "sha": BASE, "ref": "main",
                "repo": {"id": repo.number, "full_name": name, "archived": repo.is_archived},
            },
        }  # fmt: skip

    def _list_pulls(self, repo: Repo, asked: Asked) -> Said:
        wanted = asked.query.get("state", "open")
        pulls = sorted(repo.pulls.items(), key=lambda one: one[1].updated_at, reverse=True)
        found = [
            self._described(repo, *one) for one in pulls if one[1].state == wanted.replace("opened", "open")
        ]
        return self._paged(asked, found)

    def _list_comments(self, repo: Repo, asked: Asked, number: str) -> Said:
        found = [c for c in repo.comments.values() if c["number"] == int(number)]
        since = asked.query.get("since", "")
        return self._paged(asked, [c for c in found if c["updated_at"] >= since])

    def _comment(self, repo: Repo, asked: Asked, number: str) -> Said:
        pull = repo.pulls.get(int(number))
        if pull is None:
            return _refusal(404, "Not Found")
        if pull.is_locked:
            return _refusal(403, "Unable to create comment because issue is locked.")
        if refused := _too_long(asked.body["body"]):
            return refused
        return Said(201, self._keep_comment(repo, int(number), asked.body["body"]))

    def _keep_comment(self, repo: Repo, number: int, body: str, login: str = "") -> dict[str, Any]:
        ours = {"login": f"{SLUG}[bot]", "type": "Bot"}
        at = datetime.fromtimestamp(self.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        comment = {
            "id": self._id(), "number": number, "body": body, "created_at": at, "updated_at": at,
            "user": {"login": login, "type": "User"} if login else ours,
            "performed_via_github_app": None if login else {"id": APP_ID, "slug": SLUG},
        }  # fmt: skip
        repo.comments[comment["id"]] = comment
        return comment

    def _edit_comment(self, repo: Repo, asked: Asked, number: str) -> Said:
        comment = repo.comments.get(int(number))
        if comment is None:
            return _refusal(404, "Not Found")
        if comment["performed_via_github_app"] is None:
            return _refusal(403, "Resource not accessible by integration")
        if repo.pulls[comment["number"]].is_locked:
            return _refusal(403, "Unable to update comment because issue is locked.")
        if refused := _too_long(asked.body["body"]):
            return refused
        comment["body"] = asked.body["body"]
        return Said(body=comment)

    def _list_reviews(self, repo: Repo, asked: Asked, number: str) -> Said:
        return self._paged(asked, [r for r in repo.reviews if r["number"] == int(number)])

    def _review(self, repo: Repo, asked: Asked, number: str) -> Said:
        pull, body = repo.pulls[int(number)], asked.body
        if pull.is_locked:
            return _refusal(403, "Unable to create review because issue is locked.")
        if body.get("event") == "COMMENT" and not body.get("body"):
            return _refusal(422, "Unprocessable Entity", ["Body can't be blank"])
        if body.get("commit_id", pull.head) != pull.head:
            return _refusal(422, "Unprocessable Entity", ["Commit is not part of the pull request"])
        for comment in body.get("comments", ()):
            if wrong := _off_the_diff(pull, comment):
                return _refusal(422, "Unprocessable Entity", [wrong])
        review = {
            "id": self._id(), "number": int(number), "body": body.get("body", ""),
            "state": "COMMENTED" if body.get("event") else "PENDING", "commit_id": pull.head,
            "comments": body.get("comments", []), "user": {"login": f"{SLUG}[bot]", "type": "Bot"},
        }  # fmt: skip
        repo.reviews.append(review)
        return Said(200, review)

    def _check(self, repo: Repo, asked: Asked) -> Said:
        check = {"id": self._id(), "app": {"id": APP_ID, "slug": SLUG}, "status": "queued",
                 "conclusion": None, "annotations": [], "external_id": "", "output": {}}  # fmt: skip
        return self._kept_check(repo, check, asked.body, 201)

    def _edit_check(self, repo: Repo, asked: Asked, number: str) -> Said:
        check = repo.checks.get(int(number))
        return self._kept_check(repo, check, asked.body, 200) if check else _refusal(404, "Not Found")

    def _kept_check(self, repo: Repo, check: dict[str, Any], body: Mapping[str, Any], status: int) -> Said:
        output = dict(body.get("output") or {})
        annotations = output.pop("annotations", [])
        if len(annotations) > 50:
            return _refusal(422, "Invalid request. No more than 50 items are allowed; 51 were supplied.")
        if any(len(output.get(key, "").encode()) > MAX_OUTPUT_BYTES for key in ("summary", "text")):
            return _refusal(422, "Invalid request. Only 65535 characters are allowed.")
        actions = body.get("actions", ())
        if len(actions) > 3 or any(len(one[key]) > most for one in actions for key, most in _BUTTON.items()):
            return self._fault(422, "Invalid request. An action is too long, or there are more than three.")
        if body.get("status") == "completed" and not body.get("conclusion"):
            return _refusal(422, "Invalid request. conclusion is missing.")
        kept = {key: value for key, value in body.items() if key != "output"}
        check |= kept | ({"status": "completed"} if body.get("conclusion") else {})
        check["annotations"] += annotations  # appended, never replaced
        check["output"] = {**check["output"], **output, "annotations_count": len(check["annotations"])}
        repo.checks[check["id"]] = check
        return Said(status, check)

    def _one_check(self, repo: Repo, asked: Asked, number: str) -> Said:
        check = repo.checks.get(int(number))
        return Said(body=check) if check else _refusal(404, "Not Found")

    def _list_checks(self, repo: Repo, asked: Asked, sha: str) -> Said:
        query = asked.query
        found = [
            check
            for check in repo.checks.values()
            if check["head_sha"] == sha
            and query.get("check_name", check["name"]) == check["name"]
            and query.get("app_id", str(APP_ID)) == str(APP_ID)
        ]
        if query.get("filter", "latest") == "latest":
            found = list({check["name"]: check for check in found}.values())
        return self._paged(asked, found, "check_runs")

    def _paged(self, asked: Asked, rows: list[dict[str, Any]], items: str = "") -> Said:
        size = min(int(asked.query.get("per_page", "30")), self.page, 100)
        page = int(asked.query.get("page", "1"))
        shown = rows[(page - 1) * size : page * size]
        headers = {}
        if len(rows) > page * size:
            further = urlencode({**asked.query, "page": page + 1})
            last = urlencode({**asked.query, "page": -(-len(rows) // size)})
            address = f"{self.url}{asked.path}"
            headers["Link"] = f'<{address}?{further}>; rel="next", <{address}?{last}>; rel="last"'
        return Said(200, {"total_count": len(rows), items: shown} if items else shown, headers)


_BUTTON = {"label": 20, "description": 40, "identifier": 20}  # characters
_LEVELS = {"": 0, "read": 1, "write": 2}


def _refusal(
    status: int, words: str, errors: object = None, headers: Mapping[str, str] | None = None
) -> Said:
    body: dict[str, Any] = {
        "message": words, "documentation_url": "https://docs.github.com/rest", "status": str(status),
    }  # fmt: skip
    return Said(status, body | ({"errors": errors} if errors else {}), headers or {})


def _too_long(text: str) -> Said | None:
    if len(text.encode()) <= MAX_COMMENT_BYTES:
        return None
    error = {
        "resource": "IssueComment", "code": "unprocessable", "field": "data",
        "message": "Body is too long (maximum is 65536 characters)",
    }  # fmt: skip
    return _refusal(422, "Validation Failed", [error])


def _off_the_diff(pull: Pull, comment: Mapping[str, Any]) -> str:
    hunks = pull.hunks.get(comment["path"])
    if hunks is None:
        return "Path is invalid"
    first = 2 if comment.get("side", "RIGHT") == "RIGHT" else 0
    line, start = comment["line"], comment.get("start_line", comment["line"])
    if "start_line" in comment and start >= line:
        return "Pull request review thread start line must precede the end line"
    if any(hunk[first] <= start and line <= hunk[first + 1] for hunk in hunks):
        return ""
    return "Pull request review thread line must be part of the diff, and line must be inside a hunk"


def _not_in_schema(asked: Asked) -> str:
    """Return what is wrong with a request's body by GitHub's own description, if we have that."""
    try:
        body = asked.body
    except ValueError:
        return "Problems parsing JSON"
    if not isinstance(body, dict):
        return "Body should be a JSON object"
    validator = _validator(asked.method.lower(), asked.path)
    error = next(validator.iter_errors(body), None) if validator else None
    return f"{'/'.join(map(str, error.path))}: {error.message[:100]}" if error else ""


def _not_as_described(asked: Asked, said: Said) -> str:
    """Return which field of an answer has another form than GitHub's description says.

    The double leaves out fields that nobody reads.
    """
    for pattern, method, status, validator in _answers():
        if (asked.method, said.status) == (method, status) and pattern.fullmatch(asked.path):
            error = next(validator.iter_errors(said.body), None)
            return f"{'/'.join(map(str, error.path))}: {error.message[:100]}" if error else ""
    return ""


@cache
def _answers() -> tuple[tuple[re.Pattern[str], str, int, Draft4Validator], ...]:
    described = _without_required(_described())
    found = []
    for pattern, method, operation in _operations(described):
        for status, response in operation.get("responses", {}).items():
            schema = response.get("content", {}).get("application/json", {}).get("schema")
            if schema is not None:
                whole = {**schema, "components": described["components"]}
                found.append((pattern, method.upper(), int(status), Draft4Validator(whole)))
    return tuple(found)


def _without_required(part: Any) -> Any:
    if isinstance(part, list):
        return [_without_required(item) for item in part]
    if not isinstance(part, dict):
        return part
    return {
        key: _without_required(value)
        for key, value in part.items()
        if key != "required" or not isinstance(value, list)
    }


def _validator(method: str, path: str) -> Draft4Validator | None:
    for pattern, method_of_it, validator in _validators():
        if method == method_of_it and pattern.fullmatch(path):
            return validator
    return None


@cache
def _validators() -> tuple[tuple[re.Pattern[str], str, Draft4Validator], ...]:
    described = _described()
    found = []
    for pattern, method, operation in _operations(described):
        content = operation.get("requestBody", {}).get("content", {})
        schema = content.get("application/json", {}).get("schema")
        if schema is not None:
            whole = {**schema, "components": described["components"]}
            found.append((pattern, method, Draft4Validator(whole)))
    return tuple(found)


def _described() -> Any:
    if _CUT_OUT.exists():
        return _with_null(json.loads(gzip.decompress(_CUT_OUT.read_bytes())))
    return _with_null({"paths": _OWN_SCHEMAS, "components": {}})


def _operations(described: Any) -> Iterator[tuple[re.Pattern[str], str, Any]]:
    for path, operations in described["paths"].items():
        pattern = re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)))
        yield from ((pattern, method, operation) for method, operation in operations.items())


def _with_null(part: Any) -> Any:
    """Return an OpenAPI 3.0 description as JSON Schema: `nullable` is a type of its own there."""
    if isinstance(part, list):
        return [_with_null(item) for item in part]
    if not isinstance(part, dict):
        return part
    whole = {key: _with_null(value) for key, value in part.items()}
    if whole.get("nullable") is True and isinstance(whole.get("type"), str):
        whole["type"] = [whole["type"], "null"]
        if "enum" in whole:
            whole["enum"] = [*whole["enum"], None]
    return whole


def _body(**properties: str) -> dict[str, Any]:
    """Return the description of an operation whose body must have these properties, by type."""
    schema = {
        "type": "object", "required": list(properties),
        "properties": {name: {"type": kind} for name, kind in properties.items()},
    }  # fmt: skip
    return {"requestBody": {"content": {"application/json": {"schema": schema}}}}


# Where GitHub's description is not there: what the calls must have.
_OWN_SCHEMAS = {
    "/app/installations/{id}/access_tokens": {"post": _body(permissions="object")},
    "/repos/{owner}/{repo}/issues/{number}/comments": {"post": _body(body="string")},
    "/repos/{owner}/{repo}/issues/comments/{id}": {"patch": _body(body="string")},
    "/repos/{owner}/{repo}/pulls/{number}/reviews": {"post": _body(event="string", body="string")},
    "/repos/{owner}/{repo}/check-runs": {"post": _body(name="string", head_sha="string")},
    "/repos/{owner}/{repo}/check-runs/{id}": {"patch": _body()},
}
