"""The git source: reads commits of local repositories with plumbing commands.

A repository is data: nothing in it may run a program here. Hooks, external diffs, text
conversion, file-system monitors, replacement objects and transports are all disabled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from criticizer.resilience.failures import Component, ErrorClass, Failure, PermanentFailure, RetryableFailure
from criticizer.workers.subprocesses import SEARCH_PATH, CommandResult, resolve_executable, run
from reviews.sources.base import (
    Action,
    ChangeStatus,
    FileChange,
    ListedChange,
    ListedFile,
    SkipReason,
    version_key_of,
)
from reviews.sources.content import file_change, link_change, skipped
from reviews.sources.paths import encode_path, printable, storable

REPOSITORY_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_COMMIT_ID = re.compile(r"git:(?P<name>[A-Za-z0-9._-]+)@(?P<sha>[0-9a-f]{40})")
_SHA = re.compile(r"[0-9a-f]{40}")
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # known to every git, stored or not
_NO_OBJECT = "0" * 40
_TYPES = {"100644": "text", "100664": "text", "100755": "text+x", "120000": "symlink", "160000": "submodule"}
_MAX_LISTING_BYTES = 64_000_000
_MAX_MESSAGE_BYTES = 1_000_000
# Beyond this many new files git compares no contents for renames: the cost is quadratic.
_RENAME_LIMIT = 1000
# Messages of git (LC_ALL=C) when the machine or its file system failed,
_STRAINED = re.compile(
    r"Resource temporarily unavailable|Cannot allocate memory|[Oo]ut of memory|Too many open files"
    r"|Stale (?:NFS )?file handle|Input/output error|Connection timed out"
)
_FORBIDDEN = re.compile(r"Permission denied|Operation not permitted")
# and when objects of the commit are missing or damaged.
_LOST = re.compile(
    r"corrupt|inflate|object file .* is empty|bad (?:object|tree object|file)|missing (?:blob|tree|commit)"
    r"|unable to read|could not read|invalid object|hash mismatch|file .* is far too short"
)
# Settings that win over those of the repository.
_SETTINGS = (
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.attributesFile", "/dev/null"),
    ("diff.external", ""),
    ("log.showSignature", "false"),
)


@dataclass(frozen=True, slots=True)
class _Object:
    """Answer of `cat-file --batch-check` about an object that exists."""

    kind: str
    size_bytes: int


class GitSource:
    """One local repository (`Source`): bare, ordinary or a worktree, of any owner.

    Changelists are `git:<name>@<40 hex>`, depot paths `//<name>/<encoded path>`. A merge is
    reviewed against its first parent, a root commit against nothing.
    """

    case_sensitive = True
    literal_names = True

    def __init__(
        self, name: str, repository: Path, executable: str | Path = "git", *, timeout_seconds: float = 60
    ) -> None:
        """Raise PermanentFailure CONFIG_INVALID when there is no repository at the path."""
        if not REPOSITORY_NAME.fullmatch(name):
            raise _misconfigured(f"the repository name {printable(name, 80)!r} is not valid")
        self.name = f"git:{name}"
        self._depot = name
        self._repository = repository
        self._directory = _git_directory(repository)
        self._executable = resolve_executable(executable)
        self._timeout_seconds = timeout_seconds

    def check_health(self) -> None:
        """Check that git can read the repository."""
        result = self._git("rev-parse", "--is-bare-repository", max_stdout_bytes=1000)
        if result.exit_code != 0:
            raise self._broken(result)

    def describe(self, changelist_id: str) -> ListedChange:
        """List a commit's files against its first parent (see `Source.describe`)."""
        sha = self._sha_of(changelist_id)
        header = self._git(
            "rev-list",
            "--max-count=1",
            "--encoding=UTF-8",
            "--format=%H%x00%P%x00%an%x00%ct%x00%B",
            sha,
            max_stdout_bytes=_MAX_MESSAGE_BYTES,
        )
        if header.exit_code != 0 and not header.truncated:
            if re.search(r"bad object|unknown revision|bad revision", header.stderr):
                raise _not_found("the repository has no such commit")
            raise self._broken(header)
        fields = header.stdout.decode("utf-8", "replace").partition("\n")[2].split("\0", 4)
        # A tag's id leads to a commit with another id; a tree's or a file's to none.
        if len(fields) < 5 or fields[0] != sha:
            raise _not_found("this is the id of something else than a commit")
        _, parents, author, time, message = fields
        if not parents and sha in self._shallow_commits():
            raise _misconfigured(
                "the repository is a shallow clone that ends at this commit: run git fetch --unshallow",
            )
        files = self._listing(parents.split()[0] if parents else _EMPTY_TREE, sha)
        return ListedChange(
            changelist_id=changelist_id,
            author=storable(author),
            description=storable(message.rstrip("\n")),
            status=ChangeStatus.SUBMITTED,
            created_at_epoch=int(time) if time.isascii() and time.isdigit() else 0,
            version_key=version_key_of(
                (file.path, file.action, file.file_type, file.digest) for file in files
            ),
            files=tuple(files),
        )

    def head(self, branch: str) -> str:
        """Return the newest commit of a branch. Raises PermanentFailure CONFIG_INVALID without one."""
        name = f"refs/heads/{branch}"
        result = self._git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", max_stdout_bytes=1000)
        sha = result.stdout.decode("ascii", "replace").strip()
        if result.exit_code != 0 or not _SHA.fullmatch(sha):
            raise _misconfigured("the repository has no such branch: correct GIT_WATCH", branch=branch)
        return sha

    def commits(self, head: str, *, after: str | None, count: int | None = None) -> list[str] | None:
        """Return the commits up to `head` along first parents, oldest first: a merge counts as one.

        With `after`, those that `after` does not reach; with `count`, only the newest ones.
        Returns None when the repository does not hold `after` (any more).
        """
        for sha in filter(None, (head, after)):
            if not _SHA.fullmatch(sha):
                raise ValueError("a commit is named by 40 hexadecimal digits")
        if after and self._git("cat-file", "-e", f"{after}^{{commit}}", max_stdout_bytes=1000).exit_code != 0:
            return None
        limits = [f"--max-count={count}"] if count is not None else []
        revisions = [head, *([f"^{after}"] if after else [])]
        result = self._git(
            "rev-list", "--first-parent", *limits, *revisions, "--", max_stdout_bytes=_MAX_LISTING_BYTES
        )
        self._raise_for(result)
        return result.stdout.decode("ascii", "replace").split()[::-1]

    def read(self, files: Sequence[ListedFile], *, max_bytes: int) -> list[FileChange]:
        """Read both sides of files by object id: sizes first, then all contents from one process."""
        wanted = {sha for file in files if file.file_type != "submodule" for sha in _sides(file)}
        objects = self._sizes(sorted(wanted))
        # A file is read only if both its sides will be.
        readable = {
            sha
            for file in files
            if file.file_type != "submodule" and _obstacle(file, objects, max_bytes) is None
            for sha in _sides(file)
        }
        contents = self._contents(sorted(readable), objects)
        return [self._read_one(file, objects, contents, max_bytes) for file in files]

    def _read_one(
        self, file: ListedFile, objects: dict[str, _Object], contents: dict[str, bytes], max_bytes: int
    ) -> FileChange:
        if file.file_type == "submodule":
            moved = " → ".join(sha[:12] for sha in _sides(file))
            return skipped(file, SkipReason.SUBMODULE, f"commit {moved}")
        obstacle = _obstacle(file, objects, max_bytes)
        if obstacle is not None:
            sides = [objects[sha] for sha in _sides(file) if sha in objects]
            return skipped(file, *obstacle, size_bytes=sides[-1].size_bytes if sides else None)
        old, new = (
            contents[sha] if sha and not _is_submodule_side(file, side) else None
            for side, sha in (("old", file.old_revision), ("new", file.new_revision))
        )
        if file.file_type == "symlink":
            return link_change(file, old if file.old_file_type == "symlink" else None, new)
        return file_change(file, old, new)

    def _sha_of(self, changelist_id: str) -> str:
        found = _COMMIT_ID.fullmatch(changelist_id)
        if found is None or found["name"] != self._depot:
            raise _not_found("this is not the id of a commit in this repository")
        return found["sha"]

    def _listing(self, base: str, sha: str) -> list[ListedFile]:
        """Return the files that differ between two trees, renames paired by git."""
        arguments = ["diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-ext-diff", "--no-textconv"]
        renames = ["--find-renames=50%", f"-l{_RENAME_LIMIT}"]
        result = self._git(*arguments, *renames, base, sha, "--", max_stdout_bytes=_MAX_LISTING_BYTES)
        if result.truncated:
            raise PermanentFailure(
                ErrorClass.POLICY_REJECTED,
                Component.INTERNAL,
                "the commit's listing is larger than this installation reads",
                context={"limit_bytes": _MAX_LISTING_BYTES},
            )
        if result.exit_code != 0:
            raise self._broken(result)
        tokens = iter(result.stdout.decode("utf-8", "surrogateescape").split("\0"))
        files = []
        for token in tokens:
            if token.startswith(":"):
                old_mode, new_mode, old_sha, new_sha, status = token[1:].split(" ")
                first = next(tokens)
                second = next(tokens) if status[0] in "RC" else None
                files.append(self._listed(old_mode, new_mode, old_sha, new_sha, status[0], first, second))
        return files

    def _listed(
        self,
        old_mode: str,
        new_mode: str,
        old_sha: str,
        new_sha: str,
        status: str,
        first: str,
        second: str | None,
    ) -> ListedFile:
        action = {"A": Action.ADD, "C": Action.ADD, "D": Action.DELETE, "R": Action.RENAME}.get(
            status, Action.EDIT
        )
        has_old = status not in "AC"
        return ListedFile(
            path=self._path(second if second is not None else first),
            action=action,
            file_type=_TYPES.get(old_mode if action is Action.DELETE else new_mode, "text"),
            old_path=self._path(first) if action is Action.RENAME else None,
            old_file_type=_TYPES.get(old_mode, "text") if has_old else None,
            digest=old_sha if action is Action.DELETE else new_sha,
            old_revision=old_sha if has_old and old_sha != _NO_OBJECT else None,
            new_revision=new_sha if new_sha != _NO_OBJECT else None,
        )

    def _path(self, raw: str) -> str:
        return f"//{self._depot}/{encode_path(raw)}"

    def _sizes(self, shas: Sequence[str]) -> dict[str, _Object]:
        if not shas:
            return {}
        result = self._git(
            "cat-file", "--batch-check", stdin=_lines(shas), max_stdout_bytes=_MAX_LISTING_BYTES
        )
        self._raise_for(result)
        objects = {}
        for line in result.stdout.decode("ascii", "replace").splitlines():
            words = line.split(" ")
            if len(words) == 3 and words[2].isdigit():
                objects[words[0]] = _Object(words[1], int(words[2]))
        return objects

    def _contents(self, shas: Sequence[str], objects: dict[str, _Object]) -> dict[str, bytes]:
        if not shas:
            return {}
        # Each object comes as `<sha> <kind> <size>\n<bytes>\n`.
        room = sum(objects[sha].size_bytes + 100 for sha in shas)
        result = self._git("cat-file", "--batch", stdin=_lines(shas), max_stdout_bytes=room)
        self._raise_for(result)
        contents, position, data = {}, 0, result.stdout
        for sha in shas:
            start = data.find(b"\n", position) + 1
            end = start + objects[sha].size_bytes
            if not data.startswith(f"{sha} ".encode(), position) or len(data) <= end:
                raise RetryableFailure(
                    ErrorClass.UPSTREAM_UNAVAILABLE, Component.SOURCE, "git ended in the middle of its answer"
                )
            contents[sha] = data[start:end]
            position = end + 1
        return contents

    def _raise_for(self, result: CommandResult) -> None:
        if result.exit_code != 0 or result.truncated:
            raise self._broken(result)

    def _shallow_commits(self) -> set[str]:
        common = self._directory / "commondir"
        try:
            directory = self._directory / common.read_text().strip() if common.is_file() else self._directory
            return set((directory / "shallow").read_text().split())
        except OSError:
            return set()

    def _git(
        self, subcommand: str, *arguments: str, max_stdout_bytes: int, stdin: bytes = b""
    ) -> CommandResult:
        result = run(
            [str(self._executable), subcommand, *arguments],
            subcommand=subcommand,
            environment=self._environment(),
            timeout_seconds=self._timeout_seconds,
            max_stdout_bytes=max_stdout_bytes,
            stdin=stdin,
        )
        if result.timed_out:
            raise RetryableFailure(
                ErrorClass.NETWORK_TIMEOUT,
                Component.SOURCE,
                "git did not finish in its time",
                context={"subcommand": subcommand, "timeout_seconds": self._timeout_seconds},
            )
        if result.exit_code < 0 and not result.truncated:
            raise RetryableFailure(
                ErrorClass.UPSTREAM_UNAVAILABLE,
                Component.SOURCE,
                "git was killed in the middle of its work",
                context={"subcommand": subcommand, "exit": result.exit_code},
            )
        return result

    def _environment(self) -> dict[str, str]:
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
            "GIT_ALLOW_PROTOCOL": "none",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "/bin/false",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_PAGER": "cat",
        }
        settings = (*_SETTINGS, ("safe.directory", str(self._repository)))
        environment["GIT_CONFIG_COUNT"] = str(len(settings))
        for number, (key, value) in enumerate(settings):
            environment[f"GIT_CONFIG_KEY_{number}"] = key
            environment[f"GIT_CONFIG_VALUE_{number}"] = value
        return environment

    def _broken(self, result: CommandResult) -> Failure:
        """Return the failure for git's error message."""
        first_line = next((line for line in result.stderr.splitlines() if line.strip()), "")
        facts: dict[str, object] = {
            "repository": self._depot,
            "exit": result.exit_code,
            "git_message": printable(first_line, 300),
        }
        if _STRAINED.search(result.stderr):
            return RetryableFailure(
                ErrorClass.UPSTREAM_UNAVAILABLE,
                Component.SOURCE,
                "the machine or its file system failed under git",
                context=facts,
            )
        if _FORBIDDEN.search(result.stderr):
            return PermanentFailure(
                ErrorClass.PERMISSION_DENIED,
                Component.SOURCE,
                "our account may not read the repository's files",
                context=facts,
            )
        if _LOST.search(result.stderr):
            return PermanentFailure(
                ErrorClass.NOT_FOUND,
                Component.SOURCE,
                "the repository does not hold all of this commit: check it with git fsck",
                context=facts,
            )
        return _misconfigured("git cannot read the repository: check GIT_REPOSITORIES", **facts)


def _git_directory(repository: Path) -> Path:
    """Return the directory that holds a repository's objects, as git would name it in GIT_DIR."""
    if not repository.is_absolute():
        raise _misconfigured(
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
        raise _misconfigured(
            f"the repository at {printable(str(repository), 200)} cannot be opened: {error.strerror}"
        ) from error
    raise _misconfigured(
        f"there is no git repository at {printable(str(repository), 200)}: correct GIT_REPOSITORIES"
    )


def _sides(file: ListedFile) -> list[str]:
    """Return the ids of the objects on the old and the new side, without those of submodules."""
    sides = (("old", file.old_revision), ("new", file.new_revision))
    if file.file_type == "submodule":
        return [sha for _, sha in sides if sha]
    return [sha for side, sha in sides if sha and not _is_submodule_side(file, side)]


def _is_submodule_side(file: ListedFile, side: str) -> bool:
    return (file.old_file_type if side == "old" else file.file_type) == "submodule"


def _obstacle(file: ListedFile, objects: dict[str, _Object], max_bytes: int) -> tuple[SkipReason, str] | None:
    """Return why a file's content is not read, or None."""
    for sha in _sides(file):
        found = objects.get(sha)
        if found is None or found.kind != "blob":
            return SkipReason.UNREADABLE, "the repository does not hold the content"
        if found.size_bytes > max_bytes:
            return SkipReason.TOO_LARGE, f"{found.size_bytes} bytes, over {max_bytes}"
    return None


def _lines(shas: Sequence[str]) -> bytes:
    return "".join(f"{sha}\n" for sha in shas if _SHA.fullmatch(sha)).encode("ascii")


def _not_found(detail: str) -> PermanentFailure:
    return PermanentFailure(ErrorClass.NOT_FOUND, Component.SOURCE, detail)


def _misconfigured(detail: str, **context: object) -> PermanentFailure:
    return PermanentFailure(ErrorClass.CONFIG_INVALID, Component.CONFIGURATION, detail, context=context)
