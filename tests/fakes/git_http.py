"""Git server of a code host: the real `git http-backend` behind a small HTTP server.

It asks for a password and serves the bare repositories below a directory by smart HTTP, as
`/<owner>/<name>.git`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any, Self
from urllib.parse import parse_qsl
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from tests.fakes.http import Asked, Said
from tests.sources.gitrepo import GitRepo
from tests.stack import PATIENCE_SECONDS

Start = Callable[[str, list[tuple[str, str]]], Any]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Do nothing: a client that hangs up is part of the tests."""


class _Quiet(WSGIRequestHandler):
    def get_environ(self) -> dict[str, Any]:
        # As it was asked: an encoded slash is part of a name.
        return {**super().get_environ(), "RAW_PATH": self.path.partition("?")[0]}

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


class GitHost:
    """Git server of a code host, which can also answer in the place of git.

    `token`: the password that is asked for, or "" for none. `accepts` says of a password whether it is good,
    instead of `token`. `answers`: statuses instead of git's answers, each for one request. `page`: the body
    of an answer of "200 OK". `is_dumb`: repositories are served as plain files. `moved`: the new names of
    repositories, whose old ones are redirected there. `api` answers what lies in no repository: some hosts
    serve both under one address.
    """

    def __init__(self, root: Path, token: str = "") -> None:
        self.root, self.token = root, token
        self.answers: list[str] = []  # each serves one request; then git again
        self.location = "http://127.0.0.1:9/elsewhere"
        self.page = b"<!DOCTYPE html><title>Sign in</title>"
        self.is_dumb = False
        self.asked: list[str] = []
        self.moved: dict[str, str] = {}
        self.accepts: Callable[[str], bool] | None = None
        self.api: Callable[[Asked], Said] | None = None
        self.waits_for: threading.Event | None = None  # silent until then
        self.changes_pack: Callable[[bytes], bytes] | None = None
        self.changes_references: Callable[[bytes], Iterable[bytes]] | None = None
        self._server = make_server("127.0.0.1", 0, self._serve, _Server, _Quiet)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def repository(self, full_name: str) -> GitRepo:
        """Return a new bare repository that gives every commit it holds, as GitHub does."""
        made = GitRepo(self.root / f"{full_name}.git", bare=True)
        made.git("config", "uploadpack.allowAnySHA1InWant", "true")
        return made

    def rename(self, full_name: str, to: str) -> None:
        """Give a repository another name, as GitHub, Gitea and GitLab do."""
        path = self.root / f"{to}.git"
        path.parent.mkdir(parents=True, exist_ok=True)
        (self.root / f"{full_name}.git").rename(path)
        self.moved[full_name] = to

    def _serve(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        if self.api is not None and ".git/" not in environ["PATH_INFO"]:
            return _answered(self.api, environ, start)
        self.asked.append(environ["PATH_INFO"])
        if self.waits_for is not None:
            self.waits_for.wait(PATIENCE_SECONDS)
        name = environ["PATH_INFO"].strip("/").partition(".git/")[0]
        if name in self.moved:
            location = f"{self.url}{environ['PATH_INFO'].replace(name, self.moved[name], 1)}"
            start("301 Moved Permanently", [("Location", f"{location}?{environ['QUERY_STRING']}")])
            return [b""]
        if self.answers:
            answer = self.answers.pop(0)
            is_page = answer.startswith("200")
            headers = [("Location", self.location)] if answer.startswith("30") else []
            start(answer, [("Content-Type", "text/html")] if is_page else headers)
            return [self.page if is_page else b""]
        if not self._is_let_in(environ.get("HTTP_AUTHORIZATION", "")):
            start("401 Unauthorized", [("WWW-Authenticate", 'Basic realm="git"')])
            return [b""]
        if self.is_dumb:
            return self._served_as_file(environ["PATH_INFO"], start)
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        done = subprocess.run(
            ["git", "http-backend"], input=body, capture_output=True, check=False, env=self._cgi(environ)
        )  # a refusal is in its answer, and its exit status
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        status = headers.pop("Status", "200 OK")
        start(status, list(headers.items()))
        if self.changes_pack is not None and b"PACK" in content:
            content = self.changes_pack(content)
        if self.changes_references is not None and b"command=ls-refs" in body:
            return self.changes_references(content)
        return [content]

    def _served_as_file(self, name: str, start: Start) -> list[bytes]:
        file = self.root / name.lstrip("/")
        start("200 OK" if file.is_file() else "404 Not Found", [("Content-Type", "text/plain")])
        return [file.read_bytes() if file.is_file() else b""]

    def _is_let_in(self, authorization: str) -> bool:
        if not self.token and self.accepts is None:
            return True
        with contextlib.suppress(ValueError):
            login = base64.b64decode(authorization.removeprefix("Basic ")).decode()
            user, _, password = login.partition(":")
            is_good = password == self.token if self.accepts is None else self.accepts(password)
            return user == "x-access-token" and is_good
        return False

    def _cgi(self, environ: dict[str, Any]) -> dict[str, str]:
        kept = ("PATH_INFO", "QUERY_STRING", "REQUEST_METHOD", "CONTENT_TYPE", "HTTP_CONTENT_ENCODING")
        found = {name: str(environ[name]) for name in kept if environ.get(name)}
        protocol = str(environ.get("HTTP_GIT_PROTOCOL", ""))
        return {
            **found,
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": protocol,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "PATH": os.environ["PATH"],
            "REMOTE_ADDR": "127.0.0.1",
        }


def _answered(api: Callable[[Asked], Said], environ: dict[str, Any], start: Start) -> list[bytes]:
    headers = {
        name.removeprefix("HTTP_").replace("_", "-").lower(): value
        for name, value in environ.items()
        if name.startswith("HTTP_") or name == "CONTENT_TYPE"
    }
    raw = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    query = dict(parse_qsl(environ.get("QUERY_STRING", "")))
    said = api(Asked(environ["REQUEST_METHOD"], environ["RAW_PATH"], query, headers, raw))
    start(f"{said.status} said", [("Content-Type", "application/json"), *said.headers.items()])
    return [said.body if isinstance(said.body, bytes) else json.dumps(said.body).encode()]


class PullRequests:
    """A repository on a host with a branch `main` and pull requests, made in a clone of its own."""

    def __init__(self, host: GitHost, directory: Path, full_name: str = "acme/website") -> None:
        self.full_name = full_name
        self.bare = host.repository(full_name)
        self.work = GitRepo(directory / "work")
        self.base = self.work.commit_files({"README.md": "Start.\n", "src/a.py": "one = 1\n"}, "Start.")
        self.push("refs/heads/main")

    def push(self, reference: str, commit: str = "HEAD") -> None:
        self.work.git("push", "-q", "--force", str(self.bare.path), f"{commit}:{reference}")

    def branch(self, name: str, start: str = "main") -> None:
        self.work.git("checkout", "-q", "-B", name, start)

    def pull(self, number: int, files: dict[str, str | bytes | None], message: str = "A change.") -> str:
        """Commit files on the branch that is checked out, and push it as a pull request's head."""
        head = self.work.commit_files(files, message)
        self.push(f"refs/pull/{number}/head")
        return head
