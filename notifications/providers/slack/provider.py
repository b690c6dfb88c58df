"""Slack through its Web API: `chat.postMessage` to send, `conversations.history` to look up.

Slack has no idempotency key. The token travels as message metadata and in the first block's id, and the
channel's history is searched for it. Messages are not threaded: replies are not part of that history.

The bot needs the scopes `chat:write` and `channels:history` (`groups:history` for private channels), and
must be a member of the channel: without that its history proves nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

import httpx

from criticizer.http_client import Answer, Limits, Request, retry_after
from criticizer.resilience.exchange import exchange
from criticizer.resilience.failures import ErrorClass, Failure, PermanentFailure
from criticizer.resilience.rotating_secrets import RotatingSecrets
from notifications.providers.base import Capabilities, Evidence, LookUp, LookUpBy, Message, Question
from notifications.providers.failures import (
    answered,
    of_question,
    permanent,
    retryable,
    temporary_failure,
    uncertain,
)
from notifications.providers.slack import blocks as slack_blocks

EVENT_TYPE = "criticizer_review"
_PAGE = 100
_MAX_PAGES = 50
_BEFORE_SECONDS = 60.0  # allowed difference between the two clocks
_TIMESTAMP = re.compile(r"[0-9]{1,12}\.[0-9]{1,9}")
_CODE = re.compile(r"[a-z_]{1,64}")

_TOKEN = frozenset({"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired"})
_RIGHTS = frozenset(
    {"missing_scope", "no_permission", "not_allowed_token_type", "org_login_required", "ekm_access_denied",
     "access_denied", "team_access_not_granted", "enterprise_is_restricted"}
)  # fmt: skip
_CHANNEL = {
    "channel_not_found": "the channel does not exist, or is private and the bot was not invited",
    "not_in_channel": "the bot is not in the channel: invite it there",
    "is_archived": "the channel is archived",
    "restricted_action": "the workspace does not let the bot post there",
    "restricted_action_read_only_channel": "the channel is read-only",
    "restricted_action_thread_only_channel": "the channel takes answers in threads only",
    "restricted_action_non_threadable_channel": "the workspace does not let the bot post there",
    "channel_is_limited_access": "the channel has limited access",
    "messages_tab_disabled": "the recipient takes no messages from apps",
}
_CONTENT = frozenset(
    {"msg_too_long", "msg_blocks_too_long", "invalid_blocks", "invalid_blocks_format", "no_text",
     "invalid_arguments", "invalid_metadata_format", "invalid_metadata_schema", "metadata_too_large",
     "metadata_must_be_sent_from_app", "too_many_attachments"}
)  # fmt: skip
_SLOWER = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})
_UNANSWERED = frozenset({*_RIGHTS, *_CHANNEL})  # a look-up refused for these proves nothing


@dataclass(frozen=True, slots=True)
class SlackConfig:
    """A bot's tokens: the next one is tried when the first is refused."""

    tokens: Sequence[str] = field(repr=False)
    api_url: str = "https://slack.com/api"
    limits: Limits = field(default_factory=Limits)


class Slack:
    """Posts one message to one channel; the address is the channel's id."""

    name = "slack"
    capabilities = Capabilities(
        look_up=frozenset({LookUpBy.ID, LookUpBy.KEY}),
        settle_seconds=15.0,
        looks=2,
        look_spacing_seconds=15.0,
        # The shortest time after which a workspace may delete messages.
        retention_seconds=86_400.0,
        absence="the channel's history since the attempt was read to its end by a member, without the token",
        max_bytes=slack_blocks.MAX_TEXT + 4 * slack_blocks.MAX_TOTAL,
    )

    def __init__(self, config: SlackConfig) -> None:
        self._config = config
        self._tokens = RotatingSecrets("slack_token_refused", config.tokens, "")

    def send(self, message: Message) -> str:
        """Return the message's timestamp, its id within the channel.

        Raises RetryableFailure NETWORK_*, RATE_LIMITED; PermanentFailure AUTH_DENIED,
        PERMISSION_DENIED, RECIPIENT_REJECTED, POLICY_REJECTED, CONFIG_INVALID; UncertainFailure
        NETWORK_*, UPSTREAM_* when Slack may have posted it.
        """
        content = {
            "channel": message.address,
            **slack_blocks.body(message),
            "metadata": {"event_type": EVENT_TYPE, "event_payload": {"token": str(message.token)}},
            # Undocumented, and said by some to deduplicate: sent, never relied on.
            "client_msg_id": str(message.token),
            "parse": "none",
            "unfurl_links": False,
            "unfurl_media": False,
        }
        found = self._judged(self._exchanged("POST", "chat.postMessage", content))
        timestamp = found.get("ts")
        if isinstance(timestamp, str) and _TIMESTAMP.fullmatch(timestamp):
            return timestamp
        raise uncertain(ErrorClass.UPSTREAM_INTERNAL, "Slack posted the message without returning its id")

    def look_up(self, question: Question) -> LookUp:
        """Read the channel's history since the attempt; ABSENT only when all of it was read.

        Raises RetryableFailure when Slack did not answer, PermanentFailure AUTH_DENIED.
        """
        message = question.message
        if _TIMESTAMP.fullmatch(mark := question.notification_id):
            found, _ = self._page(message, {"oldest": mark, "latest": mark, "inclusive": "true"})
            if found.evidence is Evidence.FOUND:
                return found
        window = {"oldest": f"{max(question.attempted_at_epoch - _BEFORE_SECONDS, 0):.6f}"}
        cursor = ""
        for _ in range(_MAX_PAGES):
            found, cursor = self._page(message, {**window, "cursor": cursor} if cursor else window)
            if not cursor:
                return found
        return LookUp(Evidence.UNKNOWN, detail=f"more than {_MAX_PAGES * _PAGE} messages since the attempt")

    def probe(self) -> str:
        """Ask who we are, and look at the scopes of the token. Raises what `send` raises."""
        answer = self._exchanged("POST", "auth.test", acts=False)
        found = self._judged(answer, acts=False)
        scopes = {scope.strip() for scope in answer.headers.get("x-oauth-scopes", "").split(",")} - {""}
        if scopes and "chat:write" not in scopes:
            raise permanent(ErrorClass.PERMISSION_DENIED, "the token lacks the scope chat:write")
        words = f"Slack knows the bot as {_name(found, 'user')} of {_name(found, 'team')}."
        if scopes and scopes.isdisjoint({"channels:history", "groups:history"}):
            words += " It lacks channels:history: uncertain deliveries will wait for an operator."
        return words

    def _page(self, message: Message, window: Mapping[str, str]) -> tuple[LookUp, str]:
        """Read one page; return what it says, and the cursor of the next one while it says nothing."""
        query = {"channel": message.address, "include_all_metadata": "true", "limit": _PAGE, **window}
        try:
            answer = self._exchanged("GET", f"conversations.history?{urlencode(query)}", acts=False)
            found = self._judged(answer, acts=False)
        except PermanentFailure as failure:
            if failure.context.get("error") in _UNANSWERED:
                return LookUp(Evidence.UNKNOWN, detail=failure.detail), ""
            raise
        messages = found.get("messages")
        if not isinstance(messages, list):
            return LookUp(Evidence.UNKNOWN, detail="Slack's history is not in its documented form"), ""
        for entry in messages:
            if isinstance(entry, dict) and _carries(entry, message):
                return LookUp(Evidence.FOUND, str(entry.get("ts", "")), "found in the channel's history"), ""
        further = found.get("response_metadata")
        cursor = further.get("next_cursor") if isinstance(further, dict) else ""
        if isinstance(cursor, str) and cursor:
            return LookUp(Evidence.UNKNOWN), cursor
        if found.get("has_more"):
            return LookUp(Evidence.UNKNOWN, detail="Slack does not show the whole history"), ""
        return LookUp(Evidence.ABSENT, detail="the channel's history does not have it"), ""

    def _exchanged(
        self, verb: str, method: str, content: Mapping[str, object] | None = None, *, acts: bool = True
    ) -> Answer:
        """Return Slack's answer to the first token that it accepts. Raises AUTH_DENIED without one."""
        body = json.dumps(content, ensure_ascii=False).encode() if content else b""
        headers = {"Content-Type": "application/json; charset=utf-8"} if content else {}

        def call(token: str) -> Answer:
            url = httpx.URL(f"{self._config.api_url}/{method}")
            request = Request(verb, url, {**headers, "Authorization": f"Bearer {token}"}, body)
            answer = exchange(request, self._config.limits, "Slack", acts=acts)
            if (answer.json() or {}).get("error") in _TOKEN:
                self._judged(answer, acts=acts)
            return answer

        return self._tokens.call(call)

    def _judged(self, answer: Answer, *, acts: bool = True) -> dict[str, object]:
        """Return the content of a positive answer; raise what any other means."""
        found = answer.json()
        if answer.status == 200 and found is not None and found.get("ok") is True:
            return found
        error = str((found or {}).get("error", ""))
        wait = retry_after(answer.headers)
        failure = _failure(answer, error if _CODE.fullmatch(error) else "", wait)
        raise failure if acts else of_question(failure)


def _failure(answer: Answer, error: str, wait: float | None) -> Failure:
    status = answer.status
    context = {**answered(status, answer.headers), "error": error}
    detail = f"Slack answered {error or status}"
    if status == 429 or error in _SLOWER:
        return retryable(ErrorClass.RATE_LIMITED, detail, context, wait)
    if error in _TOKEN:
        return permanent(ErrorClass.AUTH_DENIED, detail, context)
    if error in _RIGHTS:
        return permanent(ErrorClass.PERMISSION_DENIED, detail, context)
    if error in _CHANNEL:
        return permanent(ErrorClass.RECIPIENT_REJECTED, f"{detail}: {_CHANNEL[error]}", context)
    if error in _CONTENT:
        return permanent(ErrorClass.POLICY_REJECTED, detail, context)
    if not error and (300 <= status <= 407 or 409 <= status <= 499):
        detail += ": SLACK_API_URL does not lead to Slack's Web API"
        return permanent(ErrorClass.CONFIG_INVALID, detail, context)
    # Slack documents for fatal_error and internal_error that a part may have happened. The same is assumed
    # for unknown errors and unreadable answers.
    status = {"request_timeout": 504, "service_unavailable": 503}.get(error, status)
    failure = temporary_failure(status, detail, context, wait)
    return failure or uncertain(ErrorClass.UPSTREAM_INTERNAL, detail, context, wait)


def _carries(entry: Mapping[str, object], message: Message) -> bool:
    metadata = entry.get("metadata")
    if isinstance(metadata, dict) and metadata.get("event_type") == EVENT_TYPE:
        payload = metadata.get("event_payload")
        if isinstance(payload, dict) and payload.get("token") == str(message.token):
            return True
    blocks = entry.get("blocks")
    first = blocks[0] if isinstance(blocks, list) and blocks else None
    return isinstance(first, dict) and first.get("block_id") == slack_blocks.block_id(message)


def _name(found: Mapping[str, object], key: str) -> str:
    return "".join(c for c in str(found.get(key, "?"))[:80] if c.isprintable())
