"""Pull requests and commits of code hosts: their ids, and their content from a mirror."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

from criticizer.codehosts.registry import HOSTS, sign_of
from criticizer.resilience.failures import ErrorClass
from reviews.sources.base import Change
from reviews.sources.failures import not_found, permanent
from reviews.sources.git import GitSource
from reviews.sources.git_command import GitCommand
from reviews.sources.mirror import Mirror, MirrorConfig, kept_as, made_anew

_MAX_MESSAGES_BYTES = 200_000
_NAMES = "|".join(f"{host}:{kind.repositories.in_ids}" for host, kind in HOSTS.items())
_PULL_ID = re.compile(rf"({_NAMES})([#!])([1-9][0-9]{{0,9}})")
_COMMIT_ID = re.compile(rf"({_NAMES})@([0-9a-f]{{40}})")


def pull_request_id(host: str, full_name: str, number: int) -> str:
    """Return the id of a pull request's changelist.

    That is `gitea:<owner>/<repository>#<number>` or `gitlab:<group>/<project>!<number>`, in lower case.
    """
    return f"{host}:{full_name.lower()}{sign_of(host)}{number}"


def canonical_id(value: str) -> str | None:
    """Return the canonical form of a pull request's id, or None for other text.

    "#" is also taken where the host writes "!", as in ids of an earlier version.
    """
    found = _PULL_ID.fullmatch(value.lower()) if value.isascii() else None
    if found is None:
        return None
    sign = sign_of(found[1].partition(":")[0])
    return f"{found[1]}{sign}{found[3]}" if found[2] in (sign, "#") else None


def depot_prefix(changelist_id: str) -> str | None:
    """Return the depot directory of a pull request's repository, or None for other changes."""
    found = _PULL_ID.fullmatch(changelist_id)
    return f"//{found[1].replace(':', '/', 1)}/" if found else None


def commit_id(host: str, full_name: str, sha: str) -> str:
    """Return the changelist's id of a commit that a scan reads.

    That is `gitea:<owner>/<repository>@<40 hex>`. Nobody requests its review by this id: the API takes those
    of pull requests.
    """
    return f"{host}:{full_name.lower()}@{sha}"


def commit_prefix(changelist_id: str) -> str | None:
    """Return the depot directory of the repository of such a commit, or None for other changes."""
    found = _COMMIT_ID.fullmatch(changelist_id)
    return f"//{found[1].replace(':', '/', 1)}/" if found else None


class _HostedSource(GitSource):
    """One change of a hosted repository, read from a mirror, which the first question fetches.

    Depot paths are `//<host>/<owner>/<repository>/<encoded path>`. `wanted`: its commit, then others that
    `references` may not bring.
    """

    unit = "commit"

    def __init__(
        self, changelist_id: str, mirror: MirrorConfig, references: Sequence[str], wanted: Sequence[str]
    ) -> None:
        """Raise PermanentFailure as `Mirror` does. No command runs yet."""
        prefix = depot_prefix(changelist_id) or commit_prefix(changelist_id)
        assert prefix is not None
        self.name = changelist_id.partition(":")[0]
        self._depot = prefix.strip("/")
        self._id = canonical_id(changelist_id) or changelist_id
        self._fetches, self._wanted = references, wanted
        self._mirror = Mirror(mirror)

    @cached_property
    def _git(self) -> GitCommand:  # type: ignore[override]
        return self._mirror.fetched(self._fetches, self._wanted)

    def check_health(self) -> None:
        """Fetch the change."""
        self.look_up(self._id)

    def look_up(self, changelist_id: str) -> str:
        """Fetch the commit and return its id. Raises as `Mirror.fetched`."""
        sha = self._wanted_sha(changelist_id)
        self._git.output("cat-file", "-e", sha)
        return sha

    def _wanted_sha(self, changelist_id: str) -> str:
        if changelist_id != self._id:
            raise not_found(f"this is another {self.unit}")
        return self._wanted[0]

    _sha_of = _wanted_sha


class CommitSource(_HostedSource):
    """One commit of a hosted repository, for a scan."""

    def __init__(self, changelist_id: str, mirror: MirrorConfig) -> None:
        super().__init__(changelist_id, mirror, [], [changelist_id.rpartition("@")[2]])

    def _sha_of(self, changelist_id: str) -> str:
        """Return the commit's id once the mirror has shown that it still holds it.

        A scan takes long.
        """
        return self.look_up(changelist_id)


class PullSource(_HostedSource):
    """One version of one pull request (`Source`): what merging its head would change (G244).

    `reference` is its head's name on the host. `base_sha`: the base's commit as the host reported it with
    the head, "" where it does not.
    """

    unit = "pull request"

    def __init__(
        self,
        changelist_id: str,
        reference: str,
        head_sha: str,
        base_sha: str,
        base_ref: str,
        mirror: MirrorConfig,
    ) -> None:
        self._reference, self._branch, self._base_sha = reference, f"refs/heads/{base_ref}", base_sha
        super().__init__(changelist_id, mirror, [reference, self._branch], [head_sha, base_sha])

    def newest_head(self) -> str:
        """Return the pull request's head as it was last fetched; "" where that is not known."""
        return self._mirror.commit_of(self._reference)

    def order_of(self, change: Change) -> int | None:
        """Return 0: what is read is the branch's own (see `Source.order_of`)."""
        return 0

    def _before(self, sha: str) -> str:
        """Return the branch's commit as it was reported with the head, or as it is.

        No author chooses an older one by where a branch begins.
        """
        git = self._git
        for base in (self._base_sha, self._mirror.commit_of(self._branch)):
            if base and git.has_commit(base):
                return base
        return super()._before(sha)

    def _base_of(self, sha: str, parents: Sequence[str]) -> str:
        """Return the merge base with the branch as it is, or as it was reported.

        The reported commit counts once the branch holds the head. It alone would not do: the head may have
        the branch's newer commits merged into it.
        """
        for base in (kept_as(self._branch), self._base_sha):
            result = self._git.run("merge-base", base, sha)
            found = result.stdout.decode("ascii", "replace").strip()
            if result.exit_code == 0 and found != sha:
                return found
        if not self._git.has_commit(sha):
            raise made_anew()
        if not (self._mirror.commit_of(self._branch) or self._git.has_commit(self._base_sha)):
            raise not_found("the host no longer has the branch that the pull request is for")
        raise permanent(
            ErrorClass.POLICY_REJECTED,
            "the pull request changes nothing, is merged by now, or shares no history with its branch",
        )

    def _description_of(self, base: str, sha: str, message: str) -> str:
        """Return the messages of the pull request's commits, the newest first."""
        found = self._git.run(
            "rev-list", "--encoding=UTF-8", "--format=%B%x00", "--max-count=50", sha, f"^{base}",
            max_bytes=_MAX_MESSAGES_BYTES,
        )  # fmt: skip
        # Each begins with a line that names its commit.
        texts = [
            one.strip().partition("\n")[2] for one in found.stdout.decode("utf-8", "replace").split("\0")
        ]
        return "\n\n".join(text.strip() for text in texts if text.strip()) or message
