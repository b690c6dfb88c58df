"""Interface of a code host: its webhooks, its git server, its pull requests.

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
    """A pull request as its host has it now."""

    is_open: bool
    head_sha: str
    repository: Repository  # with its present name
    url: str = ""  # of its page
    is_mergeable: bool | None = None  # None: the host does not know yet
    calls_left: int | None = None  # until the host's limit is reset; None: it does not say
    reset_seconds: float = 0.0  # until then


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment of our own account or App. `number` is its id."""

    number: int
    body: str


@dataclass(frozen=True, slots=True)
class InlineComment:
    """A comment at lines `start_line` to `line` of a file, on one side of the diff.

    `old_path`: the former name of a renamed file. `old_line`: the number of an unchanged `line` on the old
    side; 0 for a changed line, and where it is not known.
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
    """The state of a review that is shown on its head.

    `conclusion` is one of GitHub's, empty until the end. `title` is at most 255 characters. `url`: the
    review's page, or "". `token` identifies the check run.
    """

    head_sha: str
    token: str
    title: str
    summary: str
    url: str = ""
    conclusion: str = ""


@dataclass(frozen=True, slots=True)
class Lack:
    """Something that a connection lacks, in words, and a sentence with the remedy."""

    what: str
    advice: str


@dataclass(frozen=True, slots=True)
class FailedDelivery:
    """A try of a webhook that did not reach us."""

    number: int  # of this try
    delivery_id: str  # of all tries of the webhook
    at: datetime


class Host(Protocol):
    """A code host. Callers of its API take a permit of `dependency` before.

    Calls of the API raise as `client.RestClient` does.
    """

    name: str  # in ids of changelists, depot paths and addresses: lower case
    label: str
    repositories: type[Repository]  # the form of their names
    address: tuple[str, str]  # the variable of its address, and an example
    credentials: tuple[str, ...]  # the variables that connect it
    # All of its variables; among them <NAME>_WEBHOOK_SECRETS and <NAME>_REPOSITORIES.
    variables: tuple[Variable, ...]
    # Limits of one dependency, unless a variable sets others; None: no limit.
    calls_at_once: int | None
    calls_per_second: float | None
    set_up: tuple[str, ...]  # what a person chooses there: permissions or scopes, and events of the webhook
    has_own_checks: bool  # each review has a check run; False: a commit has one status for all of its reviews
    has_threads: bool  # each inline comment is posted alone; False: all of them as one review, or none
    lag_pauses_seconds: Sequence[float]  # before a new token that was refused is sent again

    @property
    def is_connected(self) -> bool:
        """Return whether we have credentials; else we read public repositories and write nothing."""
        ...

    @property
    def has_new_account(self) -> bool:
        """Return whether the token is now that of another account.

        Comments of the account before no longer count as ours.
        """
        ...

    @classmethod
    def configured(cls, setting: Callable[[str], Any]) -> Any:
        """Return its configuration, also without credentials; `setting` returns a variable's value."""
        ...

    # -- webhooks -----------------------------------------------------------------------------

    def authenticate(self, headers: Mapping[str, str], body: bytes) -> None:
        """Raise NotAuthentic unless the host sent exactly these bytes."""
        ...

    def delivery_id(self, headers: Mapping[str, str], body: bytes) -> str:
        """Return the id that all tries of a delivery have: at most 128 characters, never empty."""
        ...

    def event(self, headers: Mapping[str, str], content: Mapping[str, Any]) -> HostEvent:
        """Return the event of an authentic webhook. Raises Unreadable."""
        ...

    # -- its git server -----------------------------------------------------------------------

    def clone_url(self, full_name: str) -> str:
        """Return the address from which git fetches a repository."""
        ...

    def pull_url(self, full_name: str, number: int) -> str:
        """Return the address of a pull request's page."""
        ...

    def head_reference(self, number: int) -> str:
        """Return git's name of a pull request's head: `refs/pull/7/head`."""
        ...

    def git_password(self, repository: Repository, refused: str = "") -> str:
        """Return the password for its git server, with any user name; "" where there is none.

        `refused` is one that git refused: another one is returned, if there is one.
        """
        ...

    # -- its API ------------------------------------------------------------------------------

    def repository(self, full_name: str, number: int = 0) -> Repository:
        """Return the repository. Raises ValueError for a name that none of this host can have."""
        ...

    def dependency(self, full_name: str) -> str:
        """Return the dependency of calls for a repository."""
        ...

    def pull(self, repository: Repository, number: int) -> Pull: ...

    def open_pulls(self, repository: Repository) -> Iterator[Sequence[HostEvent]]:
        """Yield the events of open pull requests, the last changed first, as webhooks would report."""
        ...

    def own_comments(self, repository: Repository, number: int) -> Iterator[Sequence[Comment]]:
        """Yield our own comments, page by page, to the last page; some pages have none."""
        ...

    def post_comment(self, repository: Repository, number: int, body: str) -> int:
        """Post a comment and return its id."""
        ...

    def edit_comment(self, repository: Repository, number: int, comment: int, body: str) -> None:
        """Change a comment of ours. Uncertain without an answer; NOT_FOUND when it was deleted."""
        ...

    def own_reviews(self, repository: Repository, number: int) -> Iterator[Sequence[Comment]]:
        """Yield our own reviews, or the first comments of our threads, as `own_comments` does."""
        ...

    def post_review(
        self, repository: Repository, number: int, body: str, head_sha: str, lines: Sequence[InlineComment]
    ) -> int:
        """Post a review, or a thread at one line, and return its id.

        The host refuses all of them for one line outside its diff: SCHEMA_INVALID. Without a `head_sha`
        the review is of the present head.
        """
        ...

    def suggestion(self, lines: int) -> str:
        """Return the language of a code block that replaces `lines` with a click, or ""."""
        ...

    def post_verdict(
        self,
        repository: Repository,
        verdict: Verdict,
        known: int | None,
        check_time: Callable[[], None],
        *,
        is_first: bool,
    ) -> int | None:
        """Show the state of a review on its head, in one check run; return the id of that.

        `known` is its id; None if it was not recorded: it may exist all the same, unless `is_first`. Returns
        None where no check run is needed. `check_time` raises when no further call may begin.
        """
        ...

    def probe(self) -> str:
        """Ask for our own account or App; return a sentence that says what works."""
        ...

    def lacks(self) -> list[Lack]:
        """Return what we lack on the host, as far as it says: permissions, events, an installation."""
        ...

    def lacks_on(self, repository: Repository) -> list[Lack]:
        """Return what we lack on one repository: the right to read it, or to write our comments."""
        ...


@runtime_checkable
class HasInstallations(Protocol):
    """A host on which owners of repositories install our App, for all of these or selected ones."""

    def installed_on(self) -> Mapping[str, str]:
        """Return the owners that have the App, with the repositories it includes, in words."""
        ...

    def lacks_on_owner(self, owner: str) -> list[Lack]:
        """Return what we lack on an owner, apart from single repositories."""
        ...


@runtime_checkable
class Redelivers(Protocol):
    """A host that lists its failed webhooks, and sends one again on request."""

    @property
    def app_dependency(self) -> str:
        """Return the dependency of these calls."""
        ...

    def failed_deliveries(self) -> Iterator[Sequence[FailedDelivery]]:
        """Yield the failed tries of webhooks, page by page, the newest first."""
        ...

    def deliver_again(self, number: int) -> None:
        """Ask for another try of a webhook."""
        ...
