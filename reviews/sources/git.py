"""The git source: reads commits of local repositories with plumbing commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from reviews.sources import git_search
from reviews.sources.base import (
    Action,
    Change,
    ChangeStatus,
    FileChange,
    ListedChange,
    ListedFile,
    Mention,
    SkipReason,
    TreeEntry,
    version_key_of,
)
from reviews.sources.content import file_change, link_change, skipped
from reviews.sources.failures import misconfigured, not_found, too_large
from reviews.sources.git_command import MAX_OUTPUT_BYTES, SHA, GitCommand, GitObject
from reviews.sources.paths import encode_path, printable, storable

REPOSITORY_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_COMMIT_ID = re.compile(r"git:(?P<name>[A-Za-z0-9._-]+)@(?P<sha>[0-9a-f]{40})")
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # known to every git, stored or not
_NO_OBJECT = "0" * 40
_TYPES = {"100644": "text", "100664": "text", "100755": "text+x", "120000": "symlink", "160000": "submodule"}
_ACTIONS = {"A": Action.ADD, "C": Action.ADD, "D": Action.DELETE, "R": Action.RENAME}
_MAX_MESSAGE_BYTES = 1_000_000
# Contents are compared for renames up to these sums; beyond, only equal ones are found, by their ids.
_RENAME_BYTES = 8_000_000
_RENAME_PAIRS = 100_000
BRANCHES = ("refs/heads/*",)


class GitSource:
    """One local repository (`Source`).

    Changelists are `git:<name>@<40 hex>`, depot paths `//<name>/<encoded path>`. A merge is
    reviewed against its first parent, a root commit against nothing. A commit that no reference of
    `references` leads to is unknown, wherever its objects are (guarantee G143).
    """

    case_sensitive = True
    literal_names = True
    can_search = True
    _last_before = "", ""  # the commit that was asked of last, and what was before it

    def __init__(
        self,
        name: str,
        repository: Path,
        executable: str | Path = "git",
        *,
        references: Sequence[str] = BRANCHES,
        timeout_seconds: float = 60,
    ) -> None:
        """Raise PermanentFailure CONFIG_INVALID when there is no repository at the path."""
        if not REPOSITORY_NAME.fullmatch(name):
            raise misconfigured(f"the repository name {printable(name, 80)!r} is not valid")
        self.name = f"git:{name}"
        self._depot = name
        self._git = GitCommand(name, repository, executable, timeout_seconds)
        # A pattern without a wildcard would mean everything below it.
        exact = [name if name.endswith("*") else f"{name[:-1]}[{name[-1]}]" for name in references]
        self._references = [f"--glob={pattern}" for pattern in exact]

    @property
    def location(self) -> tuple[str, str, str]:
        """Return name, repository and executable of git, for another process."""
        return self._git.location

    def check_health(self) -> None:
        """Check that git can read the repository."""
        self._git.output("rev-parse", "--is-bare-repository")

    def look_up(self, changelist_id: str) -> str:
        """Return the commit's id. Raises NOT_FOUND unless a configured reference leads to it.

        Objects of other repositories (info/alternates) and of rewritten branches stay readable by id.
        """
        sha = self._sha_of(changelist_id)
        search = ["--max-count=1", sha, "--not", *self._references]
        found = self._git.run("rev-list", *search)
        if "bad object refs/" in found.stderr:
            # A reference that is broken leads nowhere; the commit itself was found, or it would be named.
            found = self._git.run("rev-list", "--ignore-missing", *search)
        if re.search(r"bad object|unknown revision|bad revision", found.stderr):
            raise not_found("the repository has no such commit")
        if found.exit_code != 0:
            raise self._git.failure(found)
        if found.stdout:
            raise not_found(
                "no branch of the repository leads to this commit: it was never pushed to one, or the branch "
                "was rewritten since. Push it, or add its references to GIT_REFERENCES"
            )
        return sha

    def describe(self, changelist_id: str) -> ListedChange:
        """List a commit's files against its first parent (see `Source.describe`)."""
        sha = self.look_up(changelist_id)
        header = self._git.run(
            "rev-list",
            "--max-count=1",
            "--encoding=UTF-8",
            "--format=%H%x00%P%x00%an%x00%ct%x00%B",
            sha,
            max_bytes=_MAX_MESSAGE_BYTES,
        )
        if header.exit_code != 0 and not header.truncated:
            raise self._git.failure(header)
        fields = header.stdout.decode("utf-8", "replace").partition("\n")[2].split("\0", 4)
        # A tag's id leads to a commit with another id; a tree's or a file's to none.
        if len(fields) < 5 or fields[0] != sha:
            raise not_found("this is the id of something else than a commit")
        _, parents, author, time, message = fields
        if not parents and sha in self._git.shallow_commits():
            raise misconfigured(
                "the repository is a shallow clone that ends at this commit: run git fetch --unshallow",
            )
        base = self._base_of(sha, parents.split())
        files = self._listing(base, sha)
        return ListedChange(
            changelist_id=changelist_id,
            author=storable(author),
            description=storable(self._description_of(base, sha, message.rstrip("\n"))),
            status=ChangeStatus.SUBMITTED,
            created_at_epoch=int(time) if time.isascii() and time.isdigit() else 0,
            version_key=version_key_of(
                (file.path, file.action, file.file_type, file.digest) for file in files
            ),
            files=tuple(files),
        )

    def _base_of(self, sha: str, parents: Sequence[str]) -> str:
        """Return the commit or tree that a commit is compared with."""
        return parents[0] if parents else _EMPTY_TREE

    def _description_of(self, base: str, sha: str, message: str) -> str:
        """Return the text that describes what `sha` has over `base`.

        `message` is the commit's own message.
        """
        return message

    def head(self, branch: str) -> str:
        """Return the newest commit of a branch. Raises PermanentFailure CONFIG_INVALID without one."""
        if sha := self._git.commit_of(f"refs/heads/{branch}"):
            return sha
        raise misconfigured("the repository has no such branch: correct GIT_WATCH", branch=branch)

    def default_head(self) -> str:
        """Return the commit of HEAD. Raises PermanentFailure NOT_FOUND while there is none."""
        if sha := self._git.commit_of("HEAD"):
            return sha
        raise not_found("the repository's HEAD leads to no commit")

    def commits(self, head: str, *, after: str | None, count: int | None = None) -> list[str] | None:
        """Return the commits up to `head` along first parents, oldest first: a merge counts as one.

        With `after`, those that `after` does not reach; with `count`, only the newest ones.
        Returns None when the repository does not hold `after` (any more).
        """
        for sha in filter(None, (head, after)):
            if not SHA.fullmatch(sha):
                raise ValueError("a commit is named by 40 hexadecimal digits")
        if after and not self._git.has_commit(after):
            return None
        limits = [f"--max-count={count}"] if count is not None else []
        revisions = [head, *([f"^{after}"] if after else [])]
        found = self._git.output("rev-list", "--first-parent", *limits, *revisions, "--")
        return found.decode("ascii", "replace").split()[::-1]

    def read(self, files: Sequence[ListedFile], *, max_bytes: int) -> list[FileChange]:
        """Read both sides of files by object id: sizes first, then all contents from one process."""
        wanted = {sha for file in files if file.file_type != "submodule" for sha in _sides(file)}
        objects = self._git.objects(sorted(wanted))
        # A file is read only if both its sides will be.
        readable = {
            sha
            for file in files
            if file.file_type != "submodule" and _obstacle(file, objects, max_bytes) is None
            for sha in _sides(file)
        }
        contents = self._git.contents(sorted(readable), objects)
        return [self._read_one(file, objects, contents, max_bytes) for file in files]

    def find(
        self, names: Sequence[str], change: Change, *, allowed: Callable[[str], bool], seconds: float
    ) -> list[Mention]:
        """Look for names in the commit's whole tree (see `Source.find`)."""
        like = [file.path for file in change.files]
        found = git_search.find(
            self._git, self._depot, self._sha_of(change.changelist_id), names, like, seconds
        )
        return [mention for mention in found if allowed(mention.path)]

    def read_at(
        self,
        paths: Sequence[str],
        change: Change,
        *,
        max_bytes: int,
        seconds: float,
        is_before: bool = False,
    ) -> list[tuple[str, bytes | None]]:
        """Read files of the commit's tree, or of its base's (see `Source.read_at`)."""
        sha = self._sha_of(change.changelist_id)
        if is_before:
            sha = self._state_before(sha)
        return list(git_search.read(self._git, self._depot, sha, paths, max_bytes, seconds))

    def tree(self, change: Change, below: str, *, most: int, seconds: float) -> dict[str, TreeEntry] | None:
        """List the commit's whole tree (see `Source.tree`)."""
        listed = git_search.tree(self._git, self._sha_of(change.changelist_id), seconds)
        found = {
            path: one for name, one in (listed or {}).items() if (path := self._path(name)).startswith(below)
        }
        return found if listed is not None and len(found) <= most else None

    def holding(
        self, words: Sequence[str], change: Change, *, seconds: float
    ) -> dict[str, frozenset[str]] | None:
        """Look for words in all text files of the commit (see `Source.holding`)."""
        found = git_search.holding(self._git, self._sha_of(change.changelist_id), words, seconds)
        if any(word not in found for word in words):
            return None
        return {word: frozenset(map(self._path, names)) for word, names in found.items()}

    def order_of(self, change: Change) -> int | None:
        """Return None for a commit that the default branch does not hold (see `Source.order_of`)."""
        result = self._git.run("merge-base", "--is-ancestor", self._sha_of(change.changelist_id), "HEAD")
        return 0 if result.exit_code == 0 else None

    def revision_before(self, change: Change) -> str:
        """Return the commit, or tree, before a change (see `Source.revision_before`)."""
        return self._state_before(self._sha_of(change.changelist_id))

    def _state_before(self, sha: str) -> str:
        if self._last_before[0] != sha:
            self._last_before = sha, self._before(sha)
        return self._last_before[1]

    def _before(self, sha: str) -> str:
        """Return the commit, or tree, before a change."""
        listed = self._git.output("rev-list", "--max-count=1", "--parents", sha, "--")
        return self._base_of(sha, listed.decode("ascii", "replace").split()[1:])

    def _read_one(
        self, file: ListedFile, objects: dict[str, GitObject], contents: dict[str, bytes], max_bytes: int
    ) -> FileChange:
        if file.file_type == "submodule":
            moved = " → ".join(sha[:12] for sha in (file.old_revision, file.new_revision) if sha)
            return skipped(file, SkipReason.SUBMODULE, f"commit {moved}")
        obstacle = _obstacle(file, objects, max_bytes)
        if obstacle is not None:
            sides = [objects[sha] for sha in _sides(file) if sha in objects]
            return skipped(file, *obstacle, size_bytes=sides[-1].size_bytes if sides else None)
        old, new = (contents.get(sha or "") for sha in (file.old_revision, file.new_revision))
        if file.file_type == "symlink":
            return link_change(file, old if file.old_file_type == "symlink" else None, new)
        return file_change(file, old, new)

    def _sha_of(self, changelist_id: str) -> str:
        found = _COMMIT_ID.fullmatch(changelist_id)
        if found is None or found["name"] != self._depot:
            raise not_found("this is not the id of a commit in this repository")
        return found["sha"]

    def _listing(self, base: str, sha: str) -> list[ListedFile]:
        """Return the files that differ between two trees, renames paired by git."""
        files = self._differing(base, sha, "100%")
        added = [file for file in files if file.action is Action.ADD]
        deleted = [file for file in files if file.action is Action.DELETE]
        if not added or not deleted or len(added) * len(deleted) > _RENAME_PAIRS:
            return files
        objects = self._git.objects([side for file in (*added, *deleted) for side in _sides(file)])
        if sum(found.size_bytes for found in objects.values()) > _RENAME_BYTES:
            return files
        return self._differing(base, sha, "50%")

    def _differing(self, base: str, sha: str, similarity: str) -> list[ListedFile]:
        """Return the differing files; a rename has the share `similarity` of its content in common.

        Equal contents cost nothing.
        """
        result = self._git.run(
            "diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-ext-diff", "--no-textconv",
            f"--find-renames={similarity}", "-l0", base, sha, "--",
        )  # fmt: skip
        if result.truncated:
            detail = "the commit's listing is larger than this installation reads"
            raise too_large(detail, limit_bytes=MAX_OUTPUT_BYTES)
        if result.exit_code != 0:
            raise self._git.failure(result)
        tokens = iter(result.stdout.decode("utf-8", "surrogateescape").split("\0"))
        files = []
        for token in tokens:
            if token.startswith(":"):
                status, old_path = token.rpartition(" ")[2][0], next(tokens)
                path = next(tokens) if status in "RC" else old_path
                files.append(self._listed(token, status, old_path, path))
        return files

    def _listed(self, token: str, status: str, old_path: str, path: str) -> ListedFile:
        old_mode, new_mode, old_sha, new_sha, _ = token[1:].split(" ")
        action = _ACTIONS.get(status, Action.EDIT)
        has_old = status not in "AC"
        return ListedFile(
            path=self._path(path),
            action=action,
            file_type=_TYPES.get(old_mode if action is Action.DELETE else new_mode, "text"),
            old_path=self._path(old_path) if action is Action.RENAME else None,
            old_file_type=_TYPES.get(old_mode, "text") if has_old else None,
            digest=old_sha if action is Action.DELETE else new_sha,
            old_revision=old_sha if has_old and old_sha != _NO_OBJECT else None,
            new_revision=new_sha if new_sha != _NO_OBJECT else None,
        )

    def _path(self, raw: str) -> str:
        return f"//{self._depot}/{encode_path(raw)}"


def _sides(file: ListedFile) -> list[str]:
    """Return the ids of the objects on the old and the new side.

    Without a submodule's, which is of another repository.
    """
    sides = ((file.old_revision, file.old_file_type), (file.new_revision, file.file_type))
    return [sha for sha, kind in sides if sha and kind != "submodule"]


def _obstacle(
    file: ListedFile, objects: dict[str, GitObject], max_bytes: int
) -> tuple[SkipReason, str] | None:
    """Return why a file's content is not read, or None."""
    for sha in _sides(file):
        found = objects.get(sha)
        if found is None or found.kind != "blob":
            return SkipReason.UNREADABLE, "the repository does not hold the content"
        if found.size_bytes > max_bytes:
            return SkipReason.TOO_LARGE, f"{found.size_bytes} bytes, over {max_bytes}"
    return None
