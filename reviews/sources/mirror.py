"""Bare mirror of a code host's repository, fetched by smart HTTP, for reviews to read.

The other side may be hostile: nothing it sends names a file, a program or another server here. Objects are
checked while they are received, redirects, submodules, dumb HTTP (plain files, of which git checks and
bounds less) and every other protocol are refused, and time, processor time and the size of a pack are
bounded (guarantee G245).
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from criticizer.redaction import register_own_secrets
from criticizer.resilience.failures import (
    Component,
    ErrorClass,
    Failure,
    PermanentFailure,
    RetryableFailure,
)
from criticizer.workers.subprocesses import CommandResult
from reviews.sources import mirror_space
from reviews.sources.failures import misconfigured, not_found, unavailable
from reviews.sources.git_command import (
    NEEDS_MEMORY,
    NEEDS_MEMORY_DETAIL,
    SHA,
    Faults,
    GitCommand,
    GitObject,
    Remote,
    facts_of,
    known_fault,
    make_bare,
)

log = structlog.get_logger(__name__)

FETCH_SECONDS = 240.0
FETCH_CPU_SECONDS = 180
MAX_PACK_BYTES = 2_000_000_000
MORE_SECONDS = 30.0  # all requests of a fetch may take together, beyond the time of each
LOCK_SECONDS = 300.0  # another fetch of the same repository
# The greatest depth is the whole history. git refuses any depth where a server does not speak smart HTTP,
# before it asks for an object.
_FETCH = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head",
          "--no-auto-maintenance", "--force", "--depth=2147483647", "--end-of-options")  # fmt: skip
_LIST = ("ls-remote", "--quiet", "--end-of-options")
_NO_COMMIT = f"{1:040x}"


class Redirected(PermanentFailure):
    """A host that answers at another address, which is not followed."""


_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
# Words of git (LC_ALL=C) and of its HTTP transport: first match wins.
_GONE = re.compile(r"not our ref|couldn't find remote ref|no such remote ref")
_DUMB = re.compile(r"dumb http transport")
_DAMAGED = re.compile(r"corrupt|bad object|inflate|object file .* is empty|packfile .*cannot|not a git repo")
_REMOTE_LINE = re.compile(r"^remote:.*$", re.MULTILINE)
_RECEIVED = re.compile(r"fsck error|index-pack")
_FAULTS: Faults = (
    (NEEDS_MEMORY, PermanentFailure, ErrorClass.POLICY_REJECTED, NEEDS_MEMORY_DETAIL),
    (r"returned error: 429|[Rr]ate limit", RetryableFailure, ErrorClass.RATE_LIMITED,
     "the host limits our fetches"),
    (r"returned error: 5\d\d", RetryableFailure, ErrorClass.UPSTREAM_UNAVAILABLE, "the host failed"),
    (r"Authentication failed|could not read (?:Username|Password)|returned error: 401|invalid credentials",
     PermanentFailure, ErrorClass.AUTH_DENIED, "the host refused our token"),
    (r"returned error: 403|access denied", PermanentFailure, ErrorClass.PERMISSION_DENIED,
     "the host does not let us read the repository: check our App's permission Contents, or the scope of our"
     " token"),
    (r"[Rr]epository .*not found|returned error: 404|not found: did you run", PermanentFailure,
     ErrorClass.NOT_FOUND, "the host has no such repository, or we may not see it"),
    (r"[Rr]edirect|returned error: 30\d", Redirected, ErrorClass.POLICY_REJECTED,
     "the host sends us to another address, which is not followed: the repository was renamed, or the"
     " variable of the host's address is to be corrected"),
    (_DUMB.pattern, PermanentFailure, ErrorClass.POLICY_REJECTED,
     "the host serves the repository as plain files (dumb HTTP), which is not accepted: let it speak git's"
     " smart HTTP, or correct the variable of the host's address"),
    (r"info/refs not valid|invalid server response", RetryableFailure, ErrorClass.UPSTREAM_UNAVAILABLE,
     "the host answered with something else than git's protocol: a proxy may answer in its place"),
    (r"transport '.*' not allowed", PermanentFailure, ErrorClass.POLICY_REJECTED,
     "the repository's address uses a protocol that is not allowed"),
    (r"File too large|pack exceeds maximum|SIGXFSZ|signal 25", PermanentFailure, ErrorClass.POLICY_REJECTED,
     "the repository is larger than this installation fetches"),
    (r"fsck error|error in object|badTree|badDate|hasDot|gitmodules", PermanentFailure,
     ErrorClass.POLICY_REJECTED, "the host sent objects that git refuses"),
    (r"SSL|certificate", PermanentFailure, ErrorClass.CONFIG_INVALID,
     "the host's certificate is not trusted here"),
    (r"timed out|[Oo]peration too slow", RetryableFailure, ErrorClass.NETWORK_TIMEOUT,
     "the host did not answer in time"),
    (r"Could not resolve host|Failed to connect|[Cc]onnection (?:refused|reset)|Empty reply",
     RetryableFailure, ErrorClass.NETWORK_UNREACHABLE, "the host could not be reached"),
    (r"early EOF|RPC failed|hung up|unexpected disconnect|expected flush|unable to access|protocol error"
     r"|No space left|bad line length|inflate|bad object|pack is corrupted",
     RetryableFailure, ErrorClass.UPSTREAM_UNAVAILABLE, "the fetch broke off"),
    # Without a word of why, after those that say it: its file became too large.
    (r"invalid index-pack", PermanentFailure, ErrorClass.POLICY_REJECTED,
     "the repository is larger than this installation fetches, or git refuses its objects"),
)  # fmt: skip
_IS_MISSING = frozenset({ErrorClass.NOT_FOUND, ErrorClass.CONFIG_INVALID})
# What a token that was made a moment ago may meet before every server of the host knows it.
_MAY_BE_LAG = frozenset({ErrorClass.AUTH_DENIED, ErrorClass.PERMISSION_DENIED, ErrorClass.NOT_FOUND})


@dataclass(frozen=True, slots=True)
class MirrorConfig:
    """Address that a repository is fetched from, and the place of its mirror.

    `token` returns the password of the host's git user, or "" for none. It is asked at each fetch, and once
    more with a password that the host refused, for one in its place. `lag_pauses_seconds`: pauses before a
    refused token is shown again. `lock_seconds`: the longest wait for another fetch of the repository.
    """

    url: str
    directory: Path
    token: Callable[[str], str] = field(repr=False)
    executable: str | Path = "git"
    timeout_seconds: float = FETCH_SECONDS
    lock_seconds: float = LOCK_SECONDS
    lag_pauses_seconds: Sequence[float] = ()


class Mirror:
    """The mirror of one repository on this machine. One fetch at a time, by a lock on its file."""

    def __init__(self, config: MirrorConfig) -> None:
        """Raise PermanentFailure CONFIG_INVALID for an address that is neither https nor loopback."""
        parts = urlsplit(config.url)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
            raise misconfigured(
                "repositories are fetched over https only: correct the variable of the host's address"
            )
        if parts.username or parts.password or parts.query or parts.fragment:
            raise misconfigured("the address of a repository holds more than host and path")
        self._config = config
        self._protocol = parts.scheme
        self._ends_at = 0.0  # of what is asked now: how often the host is asked depends on its answers

    def fetched(self, references: Sequence[str], wanted: Sequence[str]) -> GitCommand:
        """Fetch references, and commits that they did not bring; return git on the mirror.

        `wanted` are the commits. The first of them stays, whatever becomes of the references; the others may
        be missing. Raises NOT_FOUND when the host no longer has the first, and as `_FAULTS` say.
        """
        with self._locked():
            self._ends_at = time.monotonic() + self._config.timeout_seconds + MORE_SECONDS
            if mirror_space.is_too_large(self._config.directory):
                shutil.rmtree(self._config.directory)
            git = self._opened()
            try:
                self._fetch_all(git, references, wanted)
            except _Damaged:
                # By a full disk or a power cut: all of it is on the host.
                log.warning("mirror_rebuilt", mirror=self._config.directory.name)
                shutil.rmtree(self._config.directory)
                git = self._opened()
                try:
                    self._fetch_all(git, references, wanted)
                except _Damaged:
                    detail = "a new mirror cannot be read either: check the disk of the data directory"
                    raise unavailable(detail) from None
            os.utime(self._config.directory)
            mirror_space.keep_small(git, self._config.directory)
        return git

    def default_head(self) -> str:
        """Return the newest commit of the host's default branch. Nothing is fetched.

        Raises NOT_FOUND while there is none, UPSTREAM_UNAVAILABLE for a page instead of git's answer, and as
        `_FAULTS` say.
        """
        if (self._config.directory / "HEAD").is_file():
            git = self._command()
        else:
            with self._locked():
                git = self._opened()
        self._ends_at = time.monotonic() + self._config.timeout_seconds + MORE_SECONDS
        result, remote = self._asked(git, *_LIST, self._config.url, "HEAD")
        self._check_is_smart(git, remote)
        sha = result.text.partition("\t")[0]
        if not SHA.fullmatch(sha):
            raise not_found("the repository's default branch has no commit")
        return sha

    def commit_of(self, reference: str) -> str:
        """Return the commit of a reference as it was last fetched; "" where there is none."""
        if not (self._config.directory / "HEAD").is_file():
            return ""
        return self._command().commit_of(kept_as(reference))

    def _command(self) -> GitCommand:
        directory = self._config.directory
        return _MirrorCommand(
            directory.name, directory, self._config.executable, self._config.timeout_seconds
        )

    def _fetch_all(self, git: GitCommand, references: Sequence[str], wanted: Sequence[str]) -> None:
        specs = [f"+{name}:{kept_as(name)}" for name in references]
        if not self._fetch(git, specs):  # one that is gone keeps git from fetching the others
            for spec in specs:
                self._fetch(git, [spec])
        for sha in wanted:
            if SHA.fullmatch(sha) and not git.has_commit(sha):
                self._fetch(git, [sha])
        if not git.has_commit(wanted[0]):
            raise not_found("the host no longer has the commit: it was replaced by a force-push, or removed")
        # A force-push must not take away what a review, or its replay, still reads.
        git.output("update-ref", f"refs/versions/{wanted[0]}", wanted[0])
        os.utime(self._config.directory / "refs" / "versions" / wanted[0])  # also where it was there

    def _fetch(self, git: GitCommand, refspecs: Sequence[str]) -> bool:
        """Fetch; return False when the host has one of the references or commits no longer."""
        result, _ = self._asked(git, *_FETCH, self._config.url, *refspecs)
        return result.exit_code == 0

    def _asked(self, git: GitCommand, *command: str) -> tuple[CommandResult, Remote]:
        """Run a command on the host, again with another token, or later, where that may help.

        It fails only where the host has something no longer (_GONE). Raises as `_FAULTS` say.
        """
        pauses = iter(self._config.lag_pauses_seconds)
        token, is_renewed = self._config.token(""), False
        while True:
            remote = self._remote(token)
            result = git.run(*command, remote=remote)
            if result.exit_code == 0:
                return result, remote
            is_gone = _GONE.search(result.stderr) is not None
            if is_gone or _DUMB.search(result.stderr):
                self._check_has_reference(git, remote)
            if is_gone:
                return result, remote
            failure = _failure(result, self._config.url)
            if token and not is_renewed and failure.error_class is ErrorClass.AUTH_DENIED:
                is_renewed = True  # a token may end before its time: an owner suspends the App for a moment
                if (renewed := self._config.token(token)) != token:
                    token = renewed
                    continue
            pause = next(pauses, None) if token and failure.error_class in _MAY_BE_LAG else None
            if pause is None:
                raise failure
            time.sleep(pause)

    def _check_is_smart(self, git: GitCommand, remote: Remote) -> None:
        """Raise unless the host speaks smart HTTP.

        To `ls-remote` a page is a repository without a commit. So a commit that no repository has is asked
        for, which ends before anything is written.
        """
        result = git.run(*_FETCH, self._config.url, _NO_COMMIT, remote=remote)
        if _DUMB.search(result.stderr):
            self._check_has_reference(git, remote)
            raise _failure(result, self._config.url)

    def _check_has_reference(self, git: GitCommand, remote: Remote) -> None:
        """Raise RetryableFailure where what answers has no reference at all.

        To git a page that a proxy shows is a repository without references: nothing is gone for that. HEAD
        is asked for first, as there may be many references; it may name a branch that does not exist.
        """
        for asked in (["HEAD"], []):
            result = git.run(*_LIST, self._config.url, *asked, max_bytes=1000, remote=remote)
            if result.stdout:
                return
            if result.exit_code != 0:
                raise _failure(result, self._config.url)
        raise unavailable("the host's git server answered without a branch: a proxy may answer in its place")

    def _remote(self, token: str) -> Remote:
        settings = [
            ("http.followRedirects", "false"),
            ("http.lowSpeedLimit", "1000"),
            ("http.lowSpeedTime", "60"),
            ("transfer.fsckObjects", "true"),
            ("credential.helper", ""),
            ("protocol.allow", "never"),
            (f"protocol.{self._protocol}.allow", "always"),
            ("fetch.recurseSubmodules", "false"),
            ("fetch.unpackLimit", "1"),  # always one pack, whose size is bounded
            ("gc.auto", "0"),
            ("maintenance.auto", "false"),
        ]
        if token:
            login = base64.b64encode(f"x-access-token:{token}".encode()).decode()
            register_own_secrets([token, login])
            # In the environment of the child only, and for this address only.
            settings.append((f"http.{self._config.url}.extraHeader", f"Authorization: Basic {login}"))
        return Remote(self._protocol, tuple(settings), FETCH_CPU_SECONDS, MAX_PACK_BYTES, self._ends_at)

    def _opened(self) -> GitCommand:
        """Return git on the mirror, made where it is missing.

        Under the lock. What a killed git left is deleted.
        """
        directory = self._config.directory
        if not (directory / "HEAD").is_file():
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True, mode=0o700)
            made = make_bare(self._config.executable, directory)
            if made.exit_code != 0:
                raise misconfigured("no mirror can be made in the data directory", exit=made.exit_code)
        for left in (*directory.rglob("*.lock"), *(directory / "objects" / "pack").glob("tmp_*")):
            left.unlink(missing_ok=True)
        return self._command()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the mirror's lock, which the end of this process releases as well."""
        directory = self._config.directory
        directory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        deadline = time.monotonic() + self._config.lock_seconds
        with directory.with_name(f"{directory.name}.flock").open("w") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        detail = "another fetch of the repository takes long"
                        # Not of the source: it counts for no circuit.
                        raise RetryableFailure(
                            ErrorClass.NETWORK_TIMEOUT, Component.INTERNAL, detail
                        ) from None
                    time.sleep(0.1)
            yield


class _MirrorCommand(GitCommand):
    """git on a mirror.

    What is missing there, or all of it, is fetched again by the next attempt.
    """

    def failure(self, result: CommandResult) -> Failure:
        failure = super().failure(result)
        return made_anew() if failure.error_class in _IS_MISSING else failure

    def objects(self, shas: Sequence[str]) -> dict[str, GitObject]:
        found = super().objects(shas)
        if len(found) < len(set(shas)):
            raise made_anew()
        return found


def made_anew() -> RetryableFailure:
    return unavailable(
        "the mirror lacks objects that were fetched: it was fetched again meanwhile, or is damaged"
    )


class _Damaged(Exception):
    """A mirror that cannot be read."""


def kept_as(reference: str) -> str:
    """Return a reference's name in the mirror.

    `a` and `a/b` are both kept, though never at the same time on the host.
    """
    name = reference.removeprefix("refs/heads/")
    return reference if name == reference else f"refs/heads/{hashlib.sha256(name.encode()).hexdigest()}"


def _failure(result: CommandResult, url: str) -> Failure:
    """Return the failure for what git and its transport say of `url`. Raises _Damaged."""
    message = result.stderr.replace(url, "")  # its words are the repository's name
    # What arrives damaged (index-pack), or is damaged on the host, says nothing of the mirror.
    if _DAMAGED.search(_REMOTE_LINE.sub("", message)) and not _RECEIVED.search(message):
        raise _Damaged
    facts = facts_of(result)
    return known_fault(_FAULTS, message, facts) or unavailable("the fetch failed", **facts)
