"""Interface of a code host: its webhooks, its git server, and what is said on its pull requests.

A new host is a folder with a class that has these attributes and methods, and one line in `registry.HOSTS`:
ids, recipients, channels, settings, limits, checks at start and pages come from the class. GitLab's merge
requests are pull requests here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from criticizer.codehosts.events import HostEvent
from criticizer.codehosts.names import Repository
from criticizer.environment.variable import Variable


@dataclass(frozen=True, slots=True)
class Pull:
    """A pull request as its host has it now. `repository` has its name of today; `url` is its page."""

    is_open: bool
    head_sha: str
    repository: Repository
    url: str = ""
    is_mergeable: bool | None = None  # None: the host has not found out
    calls_left: int | None = None  # until its limit's reset, in so many seconds; None: it does not say
    reset_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment of our own account or App. `number` is its id."""

    number: int
    body: str


@dataclass(frozen=True, slots=True)
class InlineComment:
    """A comment at lines `start_line` to `line` of a file, on the old or the new side of the diff.

    `old_path`: the file's name before, where it was renamed. `old_line`: the number that an unchanged `line`
    has on the old side; 0 for a changed one, and where it is not known.
    """

    path: str
    line: int
    start_line: int
    is_old: bool
    body: str
    old_path: str = ""
    old_line: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state of a review as its head shows it: `conclusion` is one of GitHub's, empty until the end.

    `title` is at most 255 characters. `url`: the review's page, or "". `token` names the check run.
    """

    head_sha: str
    token: str
    title: str
    summary: str
    url: str = ""
    conclusion: str = ""


@dataclass(frozen=True, slots=True)
class Lack:
    """Something that a connection lacks, in words, and the sentence that says what to do."""

    what: str
    advice: str


@dataclass(frozen=True, slots=True)
class FailedDelivery:
    """A webhook that did not reach us: `number` is this try's, `delivery_id` that of all its tries."""

    number: int
    delivery_id: str
    at: datetime


class Host(Protocol):
    """A code host. Calls of its API raise as `client.RestClient`; callers take a permit of `dependency`."""

    name: str  # in ids of changelists, depot paths and addresses: lower case
    label: str
    repositories: type[Repository]  # says which names they have
    address: tuple[str, str]  # the variable of its address, and an example
    credentials: tuple[str, ...]  # the variables that connect it
    # All of its variables; among them <NAME>_WEBHOOK_SECRETS and <NAME>_REPOSITORIES.
    variables: tuple[Variable, ...]
    calls_at_once: int | None  # of one dependency, where no variable sets others; None: no limit
    calls_per_second: float | None
    set_up: tuple[
        str, ...
    ]  # what a person chooses there: permissions or scopes, and the events of its webhook
    has_own_checks: bool  # each review has a check run; False: a commit has one status for all of its reviews
    has_threads: bool  # each inline comment is posted alone; False: all of them as one review, or none
    lag_pauses_seconds: Sequence[float]  # before a refused token that is fresh is shown again

    @property
    def is_connected(self) -> bool:
        """Whether we have credentials: without, public repositories are read and nothing is written."""
        ...

    @property
    def has_new_account(self) -> bool:
        """Whether a token was followed by that of another account: what that one wrote is not ours now."""
        ...

    @classmethod
    def configured(cls, setting: Callable[[str], Any]) -> Any:
        """Return its configuration, also without credentials; `setting` has the value of a variable."""
        ...

    # -- webhooks -----------------------------------------------------------------------------

    def authenticate(self, headers: Mapping[str, str], body: bytes) -> None:
        """Raise NotAuthentic unless the host sent exactly these bytes."""
        ...

    def delivery_id(self, headers: Mapping[str, str], body: bytes) -> str:
        """Return the id that a repeated delivery has again: at most 128 characters, never empty."""
        ...

    def event(self, headers: Mapping[str, str], content: Mapping[str, Any]) -> HostEvent:
        """Return what an authentic event asks for. Raises Unreadable."""
        ...

    # -- its git server -----------------------------------------------------------------------

    def clone_url(self, full_name: str) -> str:
        """Return the address that git fetches a repository from."""
        ...

    def pull_url(self, full_name: str, number: int) -> str:
        """Return the address of a pull request's page."""
        ...

    def head_reference(self, number: int) -> str:
        """Return git's name of a pull request's head: `refs/pull/7/head`."""
        ...

    def git_password(self, repository: Repository, refused: str = "") -> str:
        """Return the password of any user of its git server; "" where it has none.

        `refused`: the one that git refused; the answer is another one, unless there is no other.
        """
        ...

    # -- its API ------------------------------------------------------------------------------

    def repository(self, full_name: str, number: int = 0) -> Repository:
        """Raise ValueError for a name that no repository of this host can have."""
        ...

    def dependency(self, full_name: str) -> str:
        """Return the dependency that calls for a repository wait for."""
        ...

    def pull(self, repository: Repository, number: int) -> Pull: ...

    def open_pulls(self, repository: Repository) -> Iterator[Sequence[HostEvent]]:
        """Yield what webhooks would say of the open pull requests, those that changed last first."""
        ...

    def own_comments(self, repository: Repository, number: int) -> Iterator[Sequence[Comment]]:
        """Yield our own comments, page by page, to the last one: also pages that have none of them."""
        ...

    def post_comment(self, repository: Repository, number: int, body: str) -> int:
        """Post a comment and return its id."""
        ...

    def edit_comment(self, repository: Repository, number: int, comment: int, body: str) -> None:
        """Change a comment of ours. Uncertain without an answer; NOT_FOUND when it was deleted."""
        ...

    def own_reviews(self, repository: Repository, number: int) -> Iterator[Sequence[Comment]]:
        """Yield the bodies of our own reviews, or of our threads, as `own_comments`."""
        ...

    def post_review(
        self, repository: Repository, number: int, body: str, head_sha: str, lines: Sequence[InlineComment]
    ) -> int:
        """Post a review, or a thread at one line, and return its id.

        One line outside the host's diff refuses all: SCHEMA_INVALID. Without a `head_sha`, of the pull
        request as it is.
        """
        ...

    def suggestion(self, lines: int) -> str:
        """Return the language of a code block that replaces so many lines with a click; "" where none is."""
        ...

    def tell(
        self,
        repository: Repository,
        verdict: Verdict,
        known: int | None,
        check_time: Callable[[], None],
        *,
        is_first: bool,
    ) -> int | None:
        """Tell a head the state of its review, in one check run; return its id.

        `known`: its id. None was not recorded: unless `is_first`, it may exist all the same. Returns None
        where none is needed. `check_time` raises when no further call may begin.
        """
        ...

    def probe(self) -> str:
        """Ask who we are there; return one sentence about what works."""
        ...

    def lacks(self) -> list[Lack]:
        """Ask what we lack everywhere, as far as the host tells: permissions, events, an installation."""
        ...

    def lacks_on(self, repository: Repository) -> list[Lack]:
        """Ask what we lack on one repository: that we see it, and may write what we write."""
        ...


@runtime_checkable
class HasInstallations(Protocol):
    """A host on which each owner of repositories installs our App, for all of them or for selected ones."""

    def installed_on(self) -> Mapping[str, str]:
        """Return the owners on which the App is installed, each with what it includes, in words."""
        ...

    def lacks_on_owner(self, owner: str) -> list[Lack]:
        """Ask what we lack on an owner of repositories, none of which is named."""
        ...


@runtime_checkable
class Redelivers(Protocol):
    """A host that tells which of its webhooks failed, and sends one again when it is asked."""

    @property
    def app_dependency(self) -> str:
        """Return the dependency that these calls wait for."""
        ...

    def failed_deliveries(self) -> Iterator[Sequence[FailedDelivery]]:
        """Yield the tries of webhooks that failed, page by page, the newest first."""
        ...

    def deliver_again(self, number: int) -> None:
        """Ask for another try of a webhook."""
        ...
