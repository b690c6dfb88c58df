"""Events, as which webhooks of code hosts are read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from criticizer.codehosts.names import Repository


class Refused(StrEnum):
    """Reason of a refused webhook."""

    NONE_SET = "none_set"  # we have no secret
    UNSIGNED = "unsigned"
    WRONG = "wrong"  # the proof is by another secret, or of other bytes
    LATE = "late"  # its time is not near ours
    CONTENT_TYPE = "content_type"  # authentic, but not JSON
    UNREADABLE = "unreadable"  # authentic, but a field is missing or has another form


class NotAuthentic(Exception):
    """The request does not prove that the host sent it. The error holds only the `reason`."""

    def __init__(self, reason: Refused = Refused.WRONG) -> None:
        super().__init__()
        self.reason = reason


class Unreadable(ValueError):
    """An authentic event lacks a field that is needed, or its form is another one."""

    def __init__(self, field: str, accepts: str) -> None:
        super().__init__(f"{field}: not {accepts}")
        self.field, self.accepts = field, accepts


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A pull request as an event reports it. `state` is a value of `HostChange.State`."""

    number: int
    head_sha: str
    base_sha: str
    base_ref: str
    state: str
    reported_at: datetime
    is_mergeable: bool | None = None  # None: the host does not know yet


@dataclass(frozen=True, slots=True)
class Wanted:
    """Wish to review a head without a review. `is_opening`: it was closed, or a draft, before."""

    pull: PullRequest
    is_opening: bool = False


@dataclass(frozen=True, slots=True)
class Noted:
    """Report of a draft's head, which is reviewed only when a person asks for it."""

    pull: PullRequest
    reason: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """End of a pull request, which was closed or became a draft.

    Running reviews are cancelled, and nothing is published.
    """

    pull: PullRequest
    reason: str


COMMAND = "/review"


def is_command(comment: str) -> bool:
    """Return whether the first line of a comment asks for another review."""
    return comment.strip().partition("\n")[0].strip() == COMMAND


@dataclass(frozen=True, slots=True)
class Rerun:
    """Wish of a person for another review, of a pull request's head or of a given head.

    `comment` is the number of the comment that asks: it counts once, however often it is reported.
    """

    number: int | None = None
    head_sha: str = ""
    comment: int | None = None


@dataclass(frozen=True, slots=True)
class InstallationChanged:
    """Change of our App's installation."""

    account: str
    status: str  # a value of `HostInstallation.Status`, "" if unchanged
    reason: str


@dataclass(frozen=True, slots=True)
class RepositoriesRemoved:
    """Repositories that left the installation or became read-only, whose reviews are stopped."""

    numbers: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class RepositoryRenamed:
    """Change of the name or the owner of the event's repository."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """No wish. Of the event, `reason` holds only the name."""

    reason: str


Asked: TypeAlias = (
    Wanted | Noted | Stopped | Rerun | InstallationChanged | RepositoriesRemoved | RepositoryRenamed | Ignored
)


@dataclass(frozen=True, slots=True)
class HostEvent:
    """A webhook that was read. `name` holds the event and its action: `pull_request.opened`."""

    name: str
    asked: Asked
    repository: Repository | None = None
    installation_id: int | None = None
