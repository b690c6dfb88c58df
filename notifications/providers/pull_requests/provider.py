"""Summaries of reviews on their pull requests, one comment for each.

GitHub, Gitea and GitLab have no idempotency key. The first line of a comment, which is not shown, names the
message; all pages of the pull request's comments are searched for it, and only comments of our own App or
account count. A later version edits the comment, which then names the earlier messages too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from criticizer import texts
from criticizer.codehosts.base import Comment, Host, Pull
from criticizer.codehosts.names import Repository, pull_request_place
from criticizer.resilience.failures import ErrorClass, PermanentFailure
from notifications.providers.base import Capabilities, Evidence, LookUp, LookUpBy, Message, Question
from notifications.providers.failures import NotWanted, permanent
from notifications.providers.payload import ReviewPayload, review_payload
from notifications.providers.pull_requests import markdown
from notifications.providers.pull_requests.markdown import Marker

_MAX_PAGES = 200
_UNREADABLE = {ErrorClass.NOT_FOUND, ErrorClass.RECIPIENT_REJECTED, ErrorClass.POLICY_REJECTED}
# With fewer calls left than a summary and inline comments take, the latter wait for the host's reset.
FEW_CALLS = 5
LONG_SECONDS = 300.0


class PullRequests:
    """Posts one summary to a pull request.

    Its address is `owner/repository#12`, on GitLab with "!".
    """

    capabilities = Capabilities(
        look_up=frozenset({LookUpBy.KEY}),
        settle_seconds=10.0,
        resends_after_absence=None,
        recipients_delete=True,
        absence="every page of the pull request's comments was read, without our marker",
        max_bytes=markdown.MAX_BYTES,
    )

    def __init__(self, host: Host) -> None:
        self.name = host.name
        self._host = host

    def send(self, message: Message) -> str:
        """Return the comment's number.

        Raises as `criticizer.codehosts.client.RestClient`. Raises NotWanted when the pull request is closed,
        a newer version's summary stands there, or the review is that of an API key with prefixes, which reads
        a part of the files and counts its versions on its own.
        """
        review = review_payload(message)
        repository, number = self._place(message, review)
        if review is None:
            return str(self._host.post_comment(repository, number, markdown.note(message)))
        return self._summarise(self._open_pull(message, review), number, message, review)

    def look_up(self, question: Question) -> LookUp:
        """Read all our texts on the pull request; ABSENT only when no page was left unread.

        Raises RetryableFailure when the host did not answer, PermanentFailure AUTH_DENIED, PERMISSION_DENIED.
        """
        repository, number = self._place(question.message, review_payload(question.message))
        token = str(question.message.token)
        try:
            wanted = self._texts_of(question.message)
            standing = self._standing(repository, number, token, wanted)
            if len(standing) >= wanted:
                return LookUp(Evidence.FOUND, str(min(standing.values())), "found on the pull request")
        except PermanentFailure as failure:
            if failure.error_class in _UNREADABLE:
                return LookUp(Evidence.UNKNOWN, detail=failure.detail)
            raise
        if self._host.has_new_account:
            return LookUp(Evidence.UNKNOWN, detail="the token is of another account than before")
        has = f"the pull request has {len(standing)} of its comments" if standing else ""
        return LookUp(Evidence.ABSENT, detail=has or "the pull request does not have it")

    def probe(self) -> str:
        """Ask the host who we are. Raises what `send` raises."""
        return self._host.probe()

    def _open_pull(self, message: Message, review: ReviewPayload) -> Pull:
        """Return a review's own pull request.

        Raises NotWanted where it is closed, or the review is partial.
        """
        repository, number = self._place(message, review)
        on, _, place = review.changelist_id.partition(":")
        if on != self._host.name or pull_request_place(place) != pull_request_place(message.address):
            detail = "a review is posted to its own pull request, and this is another one"
            raise permanent(ErrorClass.RECIPIENT_REJECTED, detail)
        if review.is_partial:
            raise NotWanted("a pull request has no summary of a part of its files")
        pull = self._host.pull(repository, number)
        if not pull.is_open:
            raise NotWanted("the pull request is closed")
        return pull

    def _summarise(self, pull: Pull, number: int, message: Message, review: ReviewPayload) -> str:
        repository = pull.repository
        standing = self._summary_of(repository, number)
        earlier: tuple[str, ...] = ()
        if standing is not None:
            if standing[1].version > review.version:
                raise NotWanted("the summary of a newer version stands there")
            earlier = tuple(token for token in standing[1].tokens if token != str(message.token))
        marker = Marker(
            str(message.token), review.repository_id, number, review.version, review.head_sha,
            earlier[: markdown.MAX_EARLIER],
        )  # fmt: skip
        moved = texts.OLDER_COMMIT.of(sha=review.head_sha) if pull.head_sha != review.head_sha else ""
        body = markdown.summary(message, review, marker, moved, _pending(pull, review))
        if standing is None:
            return str(self._host.post_comment(repository, number, body))
        try:
            # It may have happened where no answer comes: looked up like a new comment.
            self._host.edit_comment(repository, number, standing[0], body)
        except PermanentFailure as failure:
            if failure.error_class is not ErrorClass.NOT_FOUND:
                raise
            return str(self._host.post_comment(repository, number, body))  # someone has just deleted it
        return str(standing[0])

    def _texts_of(self, message: Message) -> int:
        """Return how many texts on the pull request a message consists of."""
        return 1

    def _standing(self, repository: Repository, number: int, token: str, wanted: int) -> dict[str, int]:
        """Return the comments that hold a message's texts, by part.

        No page is read after the last of them.
        """
        found: dict[str, int] = {}
        for comment, marker in self._ours(repository, number):
            if token in marker.tokens:
                found.setdefault(marker.part, comment)
            if len(found) >= wanted:
                break
        return found

    def _summary_of(self, repository: Repository, number: int) -> tuple[int, Marker] | None:
        """Return our newest summary of the pull request."""
        ours = self._ours(repository, number)
        found = [one for one in ours if one[1].version and one[1].kind == "summary"]
        return max(found, key=lambda one: (one[1].version, one[0]), default=None)

    def _ours(self, repository: Repository, number: int) -> Iterator[tuple[int, Marker]]:
        """Yield number and marker of each text of ours.

        Raises POLICY_REJECTED where there are too many comments.
        """
        for count, page in enumerate(self._texts(repository, number), start=1):
            if count > _MAX_PAGES:
                raise permanent(ErrorClass.POLICY_REJECTED, "the pull request has too many comments")
            for comment in page:
                if (marker := markdown.marker_of(comment.body)) is not None:
                    yield comment.number, marker

    def _texts(self, repository: Repository, number: int) -> Iterator[Sequence[Comment]]:
        return self._host.own_comments(repository, number)

    def _place(self, message: Message, review: ReviewPayload | None) -> tuple[Repository, int]:
        name, number = pull_request_place(message.address)
        try:
            if name:
                return self._host.repository(name, review.repository_id if review else 0), number
        except ValueError:
            pass
        raise permanent(ErrorClass.RECIPIENT_REJECTED, "the recipient names no pull request")


def _pending(pull: Pull, review: ReviewPayload) -> str:
    """Return the sentence that inline comments come later, or "".

    They do when the host's quota does not last for them.
    """
    is_low = pull.calls_left is not None and pull.calls_left < FEW_CALLS
    is_coming = any(finding.in_diff for finding, _ in review.findings)
    return texts.COMMENTS_PENDING.text if is_low and is_coming and pull.reset_seconds >= LONG_SECONDS else ""
