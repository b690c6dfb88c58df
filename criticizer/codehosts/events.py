"""Events that webhooks of code hosts are read as."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from criticizer.codehosts.names import Repository


class Refused(StrEnum):
    """Why a webhook was refused."""

    NONE_SET = "none_set"  # none is set here
    UNSIGNED = "unsigned"
    WRONG = "wrong"  # the proof is of another secret, or of other bytes
    LATE = "late"  # its time is not near ours
    CONTENT_TYPE = "content_type"  # authentic, but not JSON
    UNREADABLE = "unreadable"  # authentic, but without what is needed


class NotAuthentic(Exception):
    """The request does not prove that the host sent it. Says nothing of the request but `reason`."""

    def __init__(self, reason: Refused = Refused.WRONG) -> None:
        super().__init__()
        self.reason = reason


class Unreadable(ValueError):
    """An authentic event lacks a field that is needed, or has it in another form. `field` names it."""

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
    is_mergeable: bool | None = None  # None: the host has not found out


@dataclass(frozen=True, slots=True)
class Wanted:
    """Review this head, unless it has a review. `is_opening`: it was closed, or a draft, before."""

    pull: PullRequest
    is_opening: bool = False


@dataclass(frozen=True, slots=True)
class Noted:
    """The head of a draft: known, but reviewed only when a person asks for it."""

    pull: PullRequest
    reason: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The pull request was closed or became a draft: cancel what still runs, publish nothing."""

    pull: PullRequest
    reason: str


COMMAND = "/review"


def is_command(comment: str) -> bool:
    """Say whether the first line of a comment asks for another review."""
    return comment.strip().partition("\n")[0].strip() == COMMAND


@dataclass(frozen=True, slots=True)
class Rerun:
    """A person asks for another review: of a pull request's head, or of this head wherever it is.

    `comment`: the number of the comment that asks, which is once whatever reports it how often.
    """

    number: int | None = None
    head_sha: str = ""
    comment: int | None = None


@dataclass(frozen=True, slots=True)
class InstallationChanged:
    """Our App's installation: `status` is a value of `HostInstallation.Status`, or "" for the one it has."""

    account: str
    status: str
    reason: str


@dataclass(frozen=True, slots=True)
class RepositoriesRemoved:
    """Repositories that left the installation, or became read-only: no review of theirs goes on."""

    numbers: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class RepositoryRenamed:
    """The repository of the event has another name, or owner."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """Asks for nothing. `reason` holds no word of the event but its name."""

    reason: str


Asked: TypeAlias = (
    Wanted | Noted | Stopped | Rerun | InstallationChanged | RepositoriesRemoved | RepositoryRenamed | Ignored
)


@dataclass(frozen=True, slots=True)
class HostEvent:
    """A webhook as it is read. `name` holds the event and its action: `pull_request.opened`."""

    name: str
    asked: Asked
    repository: Repository | None = None
    installation_id: int | None = None
