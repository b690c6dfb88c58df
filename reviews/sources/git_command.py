"""Runner of git's plumbing commands on one repository, which names the failures of git.

A repository is data: nothing in it may run a program here. Hooks, external diffs, text conversion,
file-system monitors, replacement objects and transports are all disabled.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from criticizer.resilience.failures import ErrorClass, Failure, PermanentFailure, RetryableFailure
from criticizer.workers.subprocesses import SEARCH_PATH, CommandResult, resolve_executable, run
from reviews.sources.failures import misconfigured, place_of, retryable, too_large, unavailable
from reviews.sources.paths import printable

SHA = re.compile(r"[0-9a-f]{40}")
# Of a processor: what one commit costs does not depend on the load of the machine.
CPU_SECONDS = 30
MAX_OUTPUT_BYTES = 64_000_000
# Of each process: a tree of some megabytes on the wire may be one of gigabytes, and references have no end.
MAX_MEMORY_BYTES = 2_000_000_000
NEEDS_MEMORY = r"[Oo]ut of memory, \w+ failed"
NEEDS_MEMORY_DETAIL = "git needs more memory than this installation gives it for one change"
# Messages of git (LC_ALL=C): first match wins.
Faults = Sequence[tuple[str, type[Failure], ErrorClass, str]]
# The machine or its file system failed; files may not be read; objects of the commit are missing or damaged.
_FAULTS: Faults = (
    (NEEDS_MEMORY, PermanentFailure, ErrorClass.POLICY_REJECTED, NEEDS_MEMORY_DETAIL),
    (
        r"Resource temporarily unavailable|Cannot allocate memory|[Oo]ut of memory|Too many open files"
        r"|Stale (?:NFS )?file handle|Input/output error|Connection timed out",
        RetryableFailure,
        ErrorClass.UPSTREAM_UNAVAILABLE,
        "the machine or its file system failed under git",
    ),
    (
        r"Permission denied|Operation not permitted",
        PermanentFailure,
        ErrorClass.PERMISSION_DENIED,
        "our account may not read the repository's files",
    ),
    (
        r"corrupt|inflate|object file .* is empty|bad (?:object|tree object|file)"
        r"|missing (?:blob|tree|commit)|unable to read|could not read|invalid object"
        r"|hash mismatch|file .* is far too short",
        PermanentFailure,
        ErrorClass.NOT_FOUND,
        "the repository does not hold all of this commit: check it with git fsck",
    ),
)
# Settings that win over those of the repository.
_SETTINGS = (
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.attributesFile", "/dev/null"),
    ("diff.external", ""),
    ("log.showSignature", "false"),
    ("pack.threads", "2"),  # each has memory of its own
)


@dataclass(frozen=True, slots=True)
class GitObject:
    """Answer of `cat-file --batch-check` about an object that exists."""

    kind: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Remote:
    """The server that a command may speak to, and what it may cost.

    `settings` may hold its credential. `ends_at`, by `time.monotonic`, is for all commands that speak to it
    together.
    """

    protocol: str
    settings: tuple[tuple[str, str], ...] = field(repr=False)
    cpu_seconds: int
    max_file_bytes: int  # of each file it writes: a pack is one
    ends_at: float = inf


class GitCommand:
    """git on one repository: bare, ordinary or a worktree, of any owner."""

    def __init__(self, name: str, repository: Path, executable: str | Path, timeout_seconds: float) -> None:
        """Raise PermanentFailure CONFIG_INVALID when there is no repository at the path."""
        self._name = name
        self._repository = repository
        self._directory = _git_directory(repository)
        self._executable = resolve_executable(executable)
        self._timeout_seconds = timeout_seconds

    @property
    def location(self) -> tuple[str, str, str]:
        """Return what another process needs for the same command: name, repository and executable."""
        return self._name, str(self._repository), str(self._executable)

    def run(
        self,
        subcommand: str,
        *arguments: str,
        max_bytes: int = MAX_OUTPUT_BYTES,
        stdin: bytes = b"",
        timeout_seconds: float | None = None,
        remote: Remote | None = None,
    ) -> CommandResult:
        """Run a command whatever its exit status; one with a `remote` may speak to that server.

        Raises RetryableFailure when it hangs or is killed, PermanentFailure POLICY_REJECTED when it needs
        more than CPU_SECONDS: it would need them again.
        """
        seconds = min(timeout_seconds or self._timeout_seconds, self._timeout_seconds)
        if remote and (seconds := min(seconds, remote.ends_at - time.monotonic())) <= 0:
            detail = "the host answered too slowly, each time that it was asked"
            raise retryable(ErrorClass.NETWORK_TIMEOUT, detail)
        cpu_seconds = remote.cpu_seconds if remote else CPU_SECONDS
        result = run(
            [str(self._executable), subcommand, *arguments],
            subcommand=subcommand,
            environment=self._environment(remote),
            timeout_seconds=seconds,
            cpu_seconds=cpu_seconds,
            max_file_bytes=remote.max_file_bytes if remote else None,
            max_memory_bytes=MAX_MEMORY_BYTES,
            max_stdout_bytes=max_bytes,
            stdin=stdin,
        )
        facts: dict[str, object] = {"subcommand": subcommand, "exit": result.exit_code}
        if result.exit_code == -signal.SIGXCPU:
            raise too_large(f"git needs more than {cpu_seconds} s of processor time for this commit", **facts)
        if result.timed_out:
            detail = "git did not finish in its time"
            raise retryable(ErrorClass.NETWORK_TIMEOUT, detail, **facts, timeout_seconds=seconds)
        if result.exit_code < 0 and not result.truncated:
            raise unavailable("git was killed in the middle of its work", **facts)
        return result

    def output(
        self,
        subcommand: str,
        *arguments: str,
        max_bytes: int = MAX_OUTPUT_BYTES,
        stdin: bytes = b"",
        timeout_seconds: float | None = None,
    ) -> bytes:
        """Return what a command prints; raise `failure` unless it succeeds."""
        result = self.run(
            subcommand, *arguments, max_bytes=max_bytes, stdin=stdin, timeout_seconds=timeout_seconds
        )
        if result.exit_code != 0 or result.truncated:
            raise self.failure(result)
        return result.stdout

    def failure(self, result: CommandResult) -> Failure:
        """Return the failure for git's error message."""
        facts = {"repository": self._name, **facts_of(result)}
        known = known_fault(_FAULTS, result.stderr, facts)
        return known or misconfigured("git cannot read the repository: check GIT_REPOSITORIES", **facts)

    def commit_of(self, name: str) -> str:
        """Return the commit that a reference leads to, or "": also of a repository with longer ids."""
        sha = self.run("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").text.strip()
        return sha if SHA.fullmatch(sha) else ""

    def has_commit(self, sha: str) -> bool:
        """Return whether the repository holds a commit; False for text that is no id."""
        return bool(SHA.fullmatch(sha)) and self.run("cat-file", "-e", f"{sha}^{{commit}}").exit_code == 0

    def objects(self, shas: Sequence[str]) -> dict[str, GitObject]:
        """Return kind and size of those of the objects that exist."""
        if not shas:
            return {}
        found = self.output("cat-file", "--batch-check", stdin=_lines(shas))
        objects = {}
        for line in found.decode("ascii", "replace").splitlines():
            words = line.split(" ")
            if len(words) == 3 and words[2].isdigit():
                objects[words[0]] = GitObject(words[1], int(words[2]))
        return objects

    def contents(self, shas: Sequence[str], objects: Mapping[str, GitObject]) -> dict[str, bytes]:
        """Return the contents of objects that exist; all are in memory."""
        if not shas:
            return {}
        # Each object comes as `<sha> <kind> <size>\n<bytes>\n`.
        room = sum(objects[sha].size_bytes + 100 for sha in shas)
        data = self.output("cat-file", "--batch", stdin=_lines(shas), max_bytes=room)
        contents, position = {}, 0
        for sha in shas:
            start = data.find(b"\n", position) + 1
            end = start + objects[sha].size_bytes
            if not data.startswith(f"{sha} ".encode(), position) or len(data) <= end:
                raise unavailable("git ended in the middle of its answer")
            contents[sha] = data[start:end]
            position = end + 1
        return contents

    def shallow_commits(self) -> set[str]:
        """Return the commits at which a shallow clone ends."""
        common = self._directory / "commondir"
        try:
            directory = self._directory / common.read_text().strip() if common.is_file() else self._directory
            return set((directory / "shallow").read_text().split())
        except OSError:
            return set()

    def _environment(self, remote: Remote | None = None) -> dict[str, str]:
        environment = {
            "PATH": SEARCH_PATH,
            "LC_ALL": "C",  # error messages in the words that are looked for
            "HOME": "/nonexistent",
            # An explicit directory means no search upwards and no check of its owner: the
            # configuration chose this repository.
            "GIT_DIR": str(self._directory),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_SYSTEM": "/dev/null",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            # A partial clone must fail, not fetch: the first for new gits, the second for old
            # ones, where it wins over whatever the repository sets for a protocol.
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_ALLOW_PROTOCOL": remote.protocol if remote else "none",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "/bin/false",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_PAGER": "cat",
        }
        settings = [
            *_SETTINGS,
            ("safe.directory", str(self._repository)),
            *(remote.settings if remote else ()),
        ]
        environment["GIT_CONFIG_COUNT"] = str(len(settings))
        for number, (key, value) in enumerate(settings):
            environment[f"GIT_CONFIG_KEY_{number}"] = key
            environment[f"GIT_CONFIG_VALUE_{number}"] = value
        return environment


def _git_directory(repository: Path) -> Path:
    """Return the directory that holds a repository's objects, as git would name it in GIT_DIR."""
    if not repository.is_absolute():
        raise misconfigured(
            f"the path of a repository must be absolute, not {printable(str(repository), 200)}"
        )
    link = repository / ".git"
    try:
        if link.is_file():  # a worktree or a submodule
            target = link.read_text().removeprefix("gitdir:").strip()
            directory = (repository / target).resolve()
        else:
            directory = link if link.is_dir() else repository
        if (directory / "HEAD").is_file():
            return directory
    except OSError as error:
        raise misconfigured(
            f"the repository at {printable(str(repository), 200)} cannot be opened: {error.strerror}"
        ) from error
    raise misconfigured(
        f"there is no git repository at {printable(str(repository), 200)}: correct GIT_REPOSITORIES"
    )


def make_bare(executable: str | Path, directory: Path) -> CommandResult:
    """Make an empty bare repository.

    No template and no configuration of this machine has a part in it.
    """
    return run(
        [str(resolve_executable(executable)), "init", "--quiet", "--bare", "--template=", str(directory)],
        environment={"PATH": SEARCH_PATH, "LC_ALL": "C", "HOME": "/nonexistent",
                     "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"},
        timeout_seconds=30,
    )  # fmt: skip


def facts_of(result: CommandResult) -> dict[str, object]:
    """Return how a command ended, with the first line that git said about it."""
    first_line = next((line for line in result.stderr.splitlines() if line.strip()), "")
    return {"exit": result.exit_code, "git_message": printable(first_line, 300)}


def known_fault(faults: Faults, said: str, facts: Mapping[str, object]) -> Failure | None:
    """Return the failure that git's words mean, by the first row whose pattern they match."""
    for pattern, failure, error_class, detail in faults:
        if re.search(pattern, said):
            return failure(error_class, place_of(error_class), detail, context=facts)
    return None


def _lines(shas: Sequence[str]) -> bytes:
    return "".join(f"{sha}\n" for sha in shas if SHA.fullmatch(sha)).encode("ascii")
