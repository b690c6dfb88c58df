"""Inline comments of a review on its pull request: one review, or a thread for each.

The comments' lines were found in our own diff, and only the head that was reviewed is commented on. What the
host refuses all the same is in the summary.

    reviews   GitHub, Gitea: taken as a whole or not at all. The host refuses one comment outside its diff
              with all others, and does not say which: the review is posted once more without them. One
              that stands there already, of which a promoted standby may know nothing, is not posted again
    threads   GitLab: each names its part of the message. What stands there from an earlier attempt is not
              posted again, and the message counts as sent when no part is missing (guarantee G400)
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import structlog

from criticizer.codehosts.base import Comment, Host, InlineComment
from criticizer.codehosts.names import Repository
from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure, RetryableFailure
from notifications.providers.base import Message
from notifications.providers.failures import NotWanted
from notifications.providers.payload import ReviewPayload, review_payload
from notifications.providers.pull_requests import markdown
from notifications.providers.pull_requests.markdown import Marker
from notifications.providers.pull_requests.provider import PullRequests
from notifications.rendering.report import ReportFinding

log = structlog.get_logger(__name__)

MAX_COMMENTS = 30  # no host states a limit; people read no more of them
THREADS_SECONDS = 60.0  # no thread is begun later: the next attempt goes on


class Reviews(PullRequests):
    """Posts a review's inline comments to a pull request."""

    capabilities = replace(
        PullRequests.capabilities,
        absence="every page of the pull request's reviews or threads was read, without all our markers",
    )

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.name = f"{host.name}-review"

    def send(self, message: Message) -> str:
        """Return the number of the review, or of the first thread. Raises as `PullRequests.send`.

        NotWanted: the pull request is closed or has another head, no finding lies in its diff, or the host
        takes no thread at its lines.
        """
        review = review_payload(message)
        if review is None:
            repository, number = self._place(message, review)
            return str(self._host.post_review(repository, number, markdown.note(message), "", ()))
        lines = self._lines(review)
        if not lines:
            raise NotWanted("no finding lies in the diff of the pull request")
        if self._host.has_threads:
            return self._threads(message, review, lines)
        try:
            return self._review(message, review, lines)
        except PermanentFailure as failure:
            _check_refused_place(failure, review)
        return self._review(message, review, ())

    def _review(self, message: Message, review: ReviewPayload, lines: Sequence[InlineComment]) -> str:
        repository, number = self._reviewed_head(message, review)
        for standing in self._standing(repository, number, str(message.token), 1).values():
            return str(standing)
        body = markdown.review_body(message, _marker(message, review, number))
        return str(self._host.post_review(repository, number, body, review.head_sha, lines))

    def _threads(self, message: Message, review: ReviewPayload, lines: Sequence[InlineComment]) -> str:
        began, (repository, number) = time.monotonic(), self._reviewed_head(message, review)
        standing = self._standing(repository, number, str(message.token), len(lines))
        for index, line in enumerate(lines, 1):
            if (part := f"{index}/{len(lines)}") in standing:
                continue
            if time.monotonic() - began > THREADS_SECONDS:
                detail = "the host takes comments too slowly: the next attempt goes on"
                raise RetryableFailure(ErrorClass.NETWORK_TIMEOUT, Component.PROVIDER, detail)
            body = markdown.thread_head(message, _marker(message, review, number, part))
            try:
                made = self._host.post_review(repository, number, body, review.head_sha, (line,))
            except PermanentFailure as failure:
                _check_refused_place(failure, review)
            else:
                standing[part] = made
        if not standing:
            raise NotWanted("the host takes none of the comments at their lines")
        return str(min(standing.values()))

    def _reviewed_head(self, message: Message, review: ReviewPayload) -> tuple[Repository, int]:
        pull, (_, number) = self._open_pull(message, review), self._place(message, review)
        if pull.head_sha != review.head_sha:
            raise NotWanted("the pull request has a newer head")
        return pull.repository, number

    def _lines(self, review: ReviewPayload) -> list[InlineComment]:
        found = [finding for finding, _ in review.findings if finding.in_diff is not None]
        return [self._inline(finding) for finding in found[:MAX_COMMENTS]]

    def _inline(self, finding: ReportFinding) -> InlineComment:
        place = finding.in_diff
        assert place is not None
        body = markdown.inline_comment(finding, self._host.suggestion(place.line - place.start_line + 1))
        return InlineComment(
            place.path,
            place.line,
            place.start_line,
            place.side == "old",
            body,
            place.old_path,
            place.old_line,
        )

    def _texts_of(self, message: Message) -> int:
        review = review_payload(message)
        return len(self._lines(review)) if review and self._host.has_threads else 1

    def _texts(self, repository: Repository, number: int) -> Iterator[Sequence[Comment]]:
        return self._host.own_reviews(repository, number)


def _marker(message: Message, review: ReviewPayload, number: int, part: str = "") -> Marker:
    return Marker(
        str(message.token), review.repository_id, number, review.version, review.head_sha, kind="review",
        part=part,
    )  # fmt: skip


def _check_refused_place(failure: PermanentFailure, review: ReviewPayload) -> None:
    """Raise the failure again unless the host refuses a comment's place."""
    if failure.error_class is not ErrorClass.SCHEMA_INVALID:
        raise failure
    log.warning("inline_comments_refused", changelist=review.changelist_id, **failure.facts)
