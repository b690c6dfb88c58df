"""Inline comments of a review on its pull request, all in one review.

A host takes a review as a whole or not at all: it refuses one comment outside its diff with all others, and
does not say which. The comments' lines were found in our own diff, and only the head that was reviewed is
commented on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import structlog

from criticizer.codehosts.base import Comment, InlineComment
from criticizer.codehosts.github.host import GitHubHost
from criticizer.codehosts.names import Repository
from criticizer.resilience.failures import ErrorClass, PermanentFailure
from notifications.providers.base import Message
from notifications.providers.failures import NotWanted
from notifications.providers.payload import ReviewPayload, review_payload
from notifications.providers.pull_requests import markdown
from notifications.providers.pull_requests.markdown import Marker
from notifications.providers.pull_requests.provider import PullRequests
from notifications.rendering.report import ReportFinding

log = structlog.get_logger(__name__)

MAX_COMMENTS = 30  # GitHub states no limit; people read no more of them


class GitHubReviews(PullRequests):
    """Posts one review with inline comments: the address is `owner/repository#12`."""

    name, on = "github-review", GitHubHost
    _host: Any
    capabilities = replace(
        PullRequests.capabilities,
        absence="every page of the pull request's reviews was read, without our marker",
    )

    def send(self, message: Message) -> str:
        """Return the review's number. Raises as `criticizer.codehosts.client.RestClient`, and NotWanted.

        NotWanted: the pull request is closed or has another head, or no finding lies in its diff. A review
        that the host refuses for its comments is posted once more without them.
        """
        review = review_payload(message)
        if review is None:
            repository, number = self._place(message, review)
            return str(self._host.post_review(repository, number, markdown.note(message), "", ()))
        lines = [_inline(finding) for finding, _ in review.findings if finding.in_diff is not None]
        if not lines:
            raise NotWanted("no finding lies in the diff of the pull request")
        try:
            return self._review(message, review, lines[:MAX_COMMENTS])
        except PermanentFailure as failure:
            if failure.error_class is not ErrorClass.SCHEMA_INVALID:
                raise
            log.warning("review_without_inline_comments", changelist=review.changelist_id, **failure.facts)
        return self._review(message, review, ())

    def _review(self, message: Message, review: ReviewPayload, lines: Sequence[InlineComment]) -> str:
        pull, (_, number) = self._open_pull(message, review), self._place(message, review)
        if pull.head_sha != review.head_sha:
            raise NotWanted("the pull request has a newer head")
        marker = Marker(
            str(message.token), review.repository_id, number, review.version, review.head_sha, kind="review"
        )
        body = markdown.review_body(message, marker)
        return str(self._host.post_review(pull.repository, number, body, review.head_sha, lines))

    def _texts(self, repository: Repository, number: int) -> Iterator[Sequence[Comment]]:
        found: Iterator[Sequence[Comment]] = self._host.own_reviews(repository, number)
        return found


def _inline(finding: ReportFinding) -> InlineComment:
    place = finding.in_diff
    assert place is not None
    body = markdown.inline_comment(finding)
    return InlineComment(place.path, place.line, place.start_line, place.side == "old", body)
