"""The texts about what is missing or refused, in one table.

The code that shows them reads it. `docs/texts.md` is generated from it (`manage.py text_table`).
`tests/acceptance/test_texts.py` lets each text appear in each of its places through the whole product.
Failures have a table of their own (`criticizer.resilience.failures`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Place(StrEnum):
    """A place where a text appears."""

    PAGE = "page"
    MAIL = "mail"
    WEBHOOK = "webhook"
    API = "API"  # in the review that it returns
    COMMENT = "pull request"
    CHECK = "check run"
    ANSWER = "answer of the API"
    HEALTH = "`/health`"
    COMMAND = "`check_docs --all`"


@dataclass(frozen=True, slots=True)
class Text:
    """One row of the table.

    `text` has `{names}` for values; `code` names the cause. `title` and `conclusion` are those of a
    check run, `status` that of an answer.
    """

    when: str
    text: str
    places: tuple[Place, ...]
    code: str = ""
    title: str = ""
    status: int = 0
    conclusion: str = ""

    def of(self, **values: object) -> str:
        """Return the text with its values. Raises KeyError where one is missing."""
        return self.text.format(**values)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class NotShown:
    """A text for a case that cannot occur here, and why it cannot."""

    code: str
    text: str
    why: str


MESSAGES = (Place.MAIL, Place.WEBHOOK, Place.COMMENT)
_REVIEW = (Place.PAGE, Place.API, *MESSAGES)
_SCAN = (Place.PAGE, Place.API, Place.MAIL, Place.WEBHOOK)  # it is of no pull request
_COVERAGE = (Place.PAGE, Place.API, Place.WEBHOOK)
_CHECK, _ANSWER = (Place.CHECK,), (Place.ANSWER,)

# -- documents ------------------------------------------------------------------------------------

NO_CLAIMS = Text(
    "no claim in the changed documents",
    "No verifiable claims found in the changed documentation files.", _REVIEW, "E208",
)  # fmt: skip
SCAN_NO_CLAIMS = Text(
    "a scan found no claim in any document",
    "No verifiable claims found in the documentation files.", _SCAN, "E208",
)  # fmt: skip
SCAN_NO_DOCUMENTS = Text(
    "a scan was given no document",
    "No document was read: the path has none, or the allow-list or a skipped path shuts them out.", _SCAN,
)  # fmt: skip
CLAIMS = Text(
    "claims of documents were verified",
    "{claims} of documents: {holds} hold, {refuted} refuted, {ambiguous} ambiguous, {unclear} not checkable.",
    _REVIEW,
)
DOCUMENTS_FAILED = Text("documents were not verified", "Documents were not verified: {why}.", _REVIEW)
SCAN_TIMED_OUT = Text(
    "the command ran out of time",
    "Scan timed out after verifying {verified} of {total} claims.", (Place.COMMAND,), "E407",
)  # fmt: skip
SCAN_PARTIAL = Text(
    "a scan reached its soft deadline",
    "Scan timed out after verifying {verified} of {total} claims. Results shown are from the completed"
    " portion. Remaining claims will be checked by the next scan.",
    _SCAN, "E407",
)  # fmt: skip
SCAN_UNLISTED = Text(
    "a scan reached its soft deadline before its first document",
    "Scan timed out before its documents were listed. They will be checked by the next scan.", _SCAN, "E407",
)  # fmt: skip
DOCUMENTS_OFF = Text(
    "documents are switched off",
    "The repository's configuration switches the verification of documents off.", _SCAN,
)  # fmt: skip
BY_MEANING = Text(
    "sections were compared by meaning",
    "{sections} of documents compared by meaning: {drifted} may be out of date, {holds} hold,"
    " {uncertain} uncertain.",
    _REVIEW,
)
SECTION_UNUSABLE = Text(
    "the model's answer about a section is unusable twice",
    "Could not verify this section (analysis returned invalid output): {places}.", _REVIEW, "E201, E202",
)  # fmt: skip
SECTION_NO_EVIDENCE = Text(
    "drift was reported without a quote of either side",
    "Insufficient evidence to verify this section: {places}.", _REVIEW, "E209",
)  # fmt: skip
SECTION_TOO_LONG = Text(
    "a section is too long for the model",
    "Analysis of this section exceeded model context limits. Consider splitting it: {places}.",
    _REVIEW, "E210",
)  # fmt: skip
SECTION_NO_MODEL = Text(
    "the model fails at a section",
    "Not verified, because the language model could not be used: {places}.", _REVIEW,
)  # fmt: skip
SECTION_OVER_LIMIT = Text(
    "the tokens of a review are used up",
    "Not verified, because the limit of tokens was reached: {places}.", _REVIEW,
)  # fmt: skip
SECTION_NO_TIME = Text(
    "a review ends before all sections were read",
    "Not verified, because the review ran out of time: {places}.", _REVIEW, "E203",
)  # fmt: skip
SECTION_AGENT_TIMEOUT = Text(
    "no agent verified a section in time",
    "Verification timed out. The agent did not respond within the time limit: {places}.", _REVIEW, "E203",
)  # fmt: skip
SECTION_STEERS = Text(
    "a section addresses the model",
    "Not verified, because the text addresses an automated reviewer: {places}.", _REVIEW,
)  # fmt: skip
SECTION_NOT_CLEAN = Text(
    "a section cannot be cleaned of secrets",
    "Not verified, because the text could not be cleaned of secrets with certainty: {places}.", _REVIEW,
)  # fmt: skip
SEMANTIC_OFF = Text(
    "the embedding model is another one",
    "Semantic search is disabled because the embedding model configuration changed."
    " Run a full scan to re-index.",
    _REVIEW, "E307, E408",
)  # fmt: skip
SEMANTIC_AWAY = Text(
    "the server of embeddings fails",
    "Semantic search was left out: the server of embeddings could not be used.", _REVIEW,
)  # fmt: skip

# -- configuration of a repository ----------------------------------------------------------------

CONFIGURATION = Text(
    "the configuration is not used", "Configuration warning: {warning}", _REVIEW, "E501, E502"
)
NO_YAML = Text(
    "the configuration is not valid YAML",
    "`{file}` has invalid YAML syntax. Using all default settings.", _REVIEW, "E501",
)  # fmt: skip
FILE_NOT_USED = Text(
    "the configuration is a link, too large, or for another version",
    "`{file}` is not used. Using all default settings.", _REVIEW, "E501",
)  # fmt: skip
INVALID_VALUE = Text(
    "a value of the configuration is wrong",
    "field `{field}` is invalid ({reason}), using {default}.", _REVIEW, "E502",
)  # fmt: skip

# -- reviews --------------------------------------------------------------------------------------

STOPPED = Text(
    "a review stopped early",
    "Review {ended} {how_far}. Results shown are from the completed portion; the rest will be checked with"
    " the next version.",
    _REVIEW, "E407",
)  # fmt: skip
COMMENT_TOO_LONG = Text(
    "a comment is too long",
    "Showing {shown} of {total} findings. Full results are available on the page of the review.",
    (Place.COMMENT,), "E107",
)  # fmt: skip
COMMENTS_PENDING = Text(
    "the code host's remaining quota is too small for inline comments",
    "Some review comments are pending due to GitHub API rate limits and will appear shortly.",
    (Place.COMMENT,), "E101",
)  # fmt: skip
OLDER_COMMIT = Text(
    "the pull request has a newer commit",
    "Note: These results are from commit `{sha}`. The PR has been updated since this scan ran.",
    (Place.COMMENT,), "E404",
)  # fmt: skip

# -- agents ---------------------------------------------------------------------------------------

NO_AGENT = Text(
    "no key of an agent may see the change",
    "Agent not configured. Only syntactic checks were performed.", _REVIEW, "E206",
)  # fmt: skip
AGENTS_LATE = Text(
    "over a fifth of a review's tasks has no result",
    "Warning: {percent}% of claims could not be verified because the agent did not complete in time."
    " Check your agent's configuration and model key.",
    _REVIEW, "E203",
)  # fmt: skip
AGENT_CRASHED = Text(
    "the same, and an agent stopped in the middle of a task",
    "The agent encountered an error. {completed} of {total} claims were verified.", _REVIEW, "E207",
)  # fmt: skip
AGENTS_LATE_FEW = Text(
    "a fifth or less has no result, or only tasks about sections have none",
    "{missing} claim(s) could not be verified due to timeout.", _REVIEW, "E203",
)  # fmt: skip
PART_NO_RESULT = Text(
    "the file of such a task",
    "not reviewed: the agent did not respond within the time limit", _COVERAGE, "E203",
)  # fmt: skip
PART_TOO_LONG = Text(
    "the agent's model cannot hold a task",
    "not reviewed: analysis exceeded the context limits of the agent's model; split the file or the change",
    _COVERAGE, "E210",
)  # fmt: skip
PART_UNUSABLE = Text(
    "a part's answer, of a model or an agent, cannot be used",
    "not reviewed: the model's answer could not be used; a rerun may help", _COVERAGE, "E201, E202",
)  # fmt: skip

# -- check runs -----------------------------------------------------------------------------------

AGENT_SETUP = Text(
    "no key of an agent may see the change",
    "Criticizer requires the agent to be configured before a model can review this change."
    " See the page on agents in the documentation for instructions.",
    _CHECK, "E206", "Agent setup required", conclusion="action_required",
)  # fmt: skip
NO_PERMISSION = Text(
    "the code host refuses us the change",
    "Criticizer no longer has permission to access this repository. Please check the app installation.",
    _CHECK, "E104", "Permission error", conclusion="failure",
)  # fmt: skip
PARTIAL = Text(
    "a part of the change was not reviewed",
    "{headline}. {why}", _CHECK, "E407", "Partial scan", conclusion="neutral",
)  # fmt: skip
FAILED = Text(
    "a review failed, all retries exhausted",
    "Criticizer encountered an error reviewing this change: {error} An operator sees why, and can repeat it.",
    _CHECK, "", "The review failed", conclusion="failure",
)  # fmt: skip

# -- answers of the API ---------------------------------------------------------------------------

RESULT_NOT_JSON = Text(
    "a task's result is not JSON",
    "Result data is not valid JSON. Retry with valid JSON.", _ANSWER, "E201", status=400,
)  # fmt: skip
RESULT_INVALID = Text(
    "a task's result has wrong fields",
    "Result validation failed. See `details` for specific field errors.", _ANSWER, "E202", status=400,
)  # fmt: skip
TASK_NOT_FOUND = Text(
    "a task is unknown, or of files that the key may not see", "Task not found.", _ANSWER, status=404
)
TASK_DONE = Text(
    "a task is completed or failed",
    "Task already completed by another run.", _ANSWER, "E205", status=409,
)  # fmt: skip
TASK_EXPIRED = Text(
    "a task's time is over, or its review ended",
    "Task has expired. Result rejected.", _ANSWER, "E204", status=410,
)  # fmt: skip
TASK_CLAIMED = Text("another agent has the task", "Task is claimed by another run.", _ANSWER, status=409)
CLAIM_LOST = Text(
    "the claim has passed to another agent",
    "The claim is no longer yours: claim again.", _ANSWER, status=409,
)  # fmt: skip
NO_KEY = Text(
    "no key, or one that is unknown or revoked",
    "Invalid or missing key. Send Authorization: Bearer <key>.", _ANSWER, status=401,
)  # fmt: skip
KEY_NOT_ALLOWED = Text(
    "the key has another role, or is bound to other files",
    "The role or the prefixes of this API key do not allow the request.", _ANSWER, status=403,
)  # fmt: skip
BODY_TOO_LARGE = Text(
    "a body is larger than its address accepts",
    "The body is over {limit}, the limit of this address.", _ANSWER, status=413,
)  # fmt: skip
LINK_NOT_VALID = Text(
    "the link of a mail to judge a finding is not valid",
    "It is too old, its review is gone, or its recipient may no longer judge this"
    " finding. Log in and open the review instead.",
    (Place.PAGE,), status=404,
)  # fmt: skip
DATABASE_AWAY = Text(
    "the database cannot be reached", "database_unavailable", (Place.HEALTH,), "E301", status=503
)

NOT_SHOWN = (
    NotShown(
        "E211", "Verification scope too broad (exceeded file exploration limit)",
        "No model explores files here: it is sent all that it reads.",
    ),
    NotShown(
        "E301, E601", "Temporary error (check run)",
        "A review waits for its database, which is also its queue, and resumes when that is back; its"
        " check run stays in progress until then.",
    ),
    NotShown(
        "", "Token does not have access to this repository (403)",
        "It would say that the repository exists: a task of files that a key may not see is not found.",
    ),
    NotShown("E105", "A webhook with a wrong signature (401)", "The answer has no body: it tells nothing."),
)  # fmt: skip


def rows() -> Mapping[str, Text]:
    """Return the texts by their name here, in the order of the table."""
    return {name: value for name, value in globals().items() if isinstance(value, Text)}


def markdown() -> str:
    """Return the page as Markdown."""
    return "".join([_HEAD, *map(_line, _cells()), _NOT_SHOWN, *map(_line, _reasons())])


def _cells() -> Iterator[tuple[str, ...]]:
    for row in rows().values():
        text = f"**{row.title}** ({row.conclusion}): {row.text}" if row.title else row.text
        where = ", ".join(row.places)
        yield row.code, row.when, text, f"{where}, {row.status}" if row.status else where


def _reasons() -> Iterator[tuple[str, ...]]:
    return ((one.code, one.text, one.why) for one in NOT_SHOWN)


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("<", "&lt;") for cell in cells) + " |\n"


_HEAD = """# Texts about what is missing or refused

Generated by `manage.py text_table` from `criticizer/texts.py`; do not edit. For people who look up a
sentence that a review, a check run or the API said. `{names}` stand for values. Failures that stop a review
have codes of their own: [failures](failures.md). `tests/acceptance/test_texts.py` lets each text appear in
each of its places.

| code | when | text | where |
|---|---|---|---|
"""
_NOT_SHOWN = """
## Texts that are never shown

For people who look for one of these codes or texts: the case cannot occur here.

| code | text | why not |
|---|---|---|
"""
