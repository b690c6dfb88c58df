"""Texts about the parts of a change that no model reviewed.

A reason stands beside one file in the coverage; a banner stands above the whole review. Each
is exact, tells what to do where something can be done, and shows nothing internal but the id
of a call, which support can look up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol

from criticizer import texts
from criticizer.resilience.failures import ErrorClass
from criticizer.wording import plural_count
from reviews.reviewers.base import CoverageStatus, Stopped
from reviews.reviewers.model import LimitReached, TokenLimit
from reviews.sources.base import SkipReason

NO_MODEL_BANNER = "Only deterministic checks ran: no language model is configured."

SKIPPED: Mapping[SkipReason, str] = {
    SkipReason.BINARY: "binary file",
    SkipReason.SYMLINK: "symbolic link",
    SkipReason.SUBMODULE: "submodule",
    SkipReason.TOO_LARGE: "file too large",
    SkipReason.DENIED: "the server does not let our account read it",
    SkipReason.UNREADABLE: "content could not be read",
    SkipReason.IDENTICAL: "renamed or integrated without a change of content",
    SkipReason.BUDGET: "the change as a whole is over its size budget",
}
# A further review of the same change leaves these files out as well.
LASTING = tuple(
    SKIPPED[why]
    for why in (SkipReason.BINARY, SkipReason.SYMLINK, SkipReason.SUBMODULE, SkipReason.IDENTICAL)
)
TOO_LARGE = "too large to compare: only the checks read it"
GENERATED = "generated file, only the checks read it"
LOCK_FILE = "lock file, only the checks read it"
SKIPPED_PATH = "on a skipped path, only the checks read it"
LEFT_OUT = "named by LLM_SKIP_PATHS, only the checks read it"
EXCLUDED = "excluded by configuration, only the checks that protect read it"
MODEL_OFF = "no language model by configuration, only the checks read it"
LIMIT = "the limit of model calls per review was reached"
SHORTENED = "long passages were shortened"
# Words of a banner for each reason. A file without a change of content has nothing to be read.
_SAID = {why: why for reason, why in SKIPPED.items() if reason is not SkipReason.IDENTICAL} | {
    TOO_LARGE: "too large to compare",
    GENERATED: "generated file",
    LOCK_FILE: "lock file",
    SKIPPED_PATH: "on a skipped path",
    LEFT_OUT: "named by LLM_SKIP_PATHS",
    EXCLUDED: "excluded by configuration",
    MODEL_OFF: "no language model by configuration",
    LIMIT: "limit of model calls",
    SHORTENED: SHORTENED,
}
_KEPT = {
    CoverageStatus.SKIPPED: "skipped",
    CoverageStatus.CHECKED: "read by the checks only",
    CoverageStatus.PARTIAL: "read in part",
}
NOT_REVIEWED: Mapping[ErrorClass, str] = {
    ErrorClass.SCHEMA_INVALID: texts.PART_UNUSABLE.text,
    ErrorClass.TOKEN_LIMIT: "not reviewed: too long for the model's window; split the file or the change",
    ErrorClass.POLICY_REJECTED: "not reviewed: the model refused this part; have a person read it",
    ErrorClass.NETWORK_TIMEOUT: "not reviewed: the model did not answer in time; a rerun may help",
    ErrorClass.UPSTREAM_INTERNAL: "not reviewed: the model server failed on this part; a rerun may help",
}
CUT_BY_SERVER = (
    "not reviewed in full: the model server cut the request; enlarge its window or lower LLM_MAX_INPUT_TOKENS"
)
OUT_OF_ROOM = (
    "not reviewed: the model used up its output before it answered; raise LLM_MAX_OUTPUT_TOKENS or lower"
    " its reasoning effort by LLM_EXTRA_BODY"
)
AGENT_TIMEOUT = texts.PART_NO_RESULT.text
AGENT_FAILED = "not reviewed: the agent could not finish this part"
AGENT_LIMIT = texts.PART_TOO_LONG.text
AGENT_TOO_LARGE = "not reviewed: too long for a task of an agent; lower LLM_MAX_INPUT_TOKENS"
NO_AGENT_BANNER = texts.NO_AGENT.text
UNREACHED: Mapping[Stopped, str] = {
    Stopped.ENDED: "not reviewed: the review was stopped before this part",
    Stopped.TIMED_OUT: "not reviewed: the review timed out before this part",
    Stopped.OVER_LIMIT: "not reviewed: the limit of tokens was reached before this part",
    Stopped.UNANSWERED: AGENT_TIMEOUT,
}
UNAVAILABLE = "not reviewed: the language model could not be used; a rerun gets the full review"

# Up to this share of parts the coverage alone says what is missing.
BANNER_ABOVE = 0.20
ALERT_ABOVE = 0.10

# By the status of a job that ended, or by why a review stopped while its job goes on.
_ENDED = {
    "timed_out": "timed out",
    "cancelled": "was cancelled",
    "superseded": "was superseded",
}


_PER = {
    TokenLimit.REVIEW: "a review",
    TokenLimit.CHANGE: "for this changelist",
    TokenLimit.SOURCE: "a day for this source",
    TokenLimit.DAY: "a day",
}


def context_shown(definitions: int, files: int) -> str:
    """Return how much context a file's parts showed, in words, or an empty string."""
    if not definitions:
        return ""
    return f"context: {plural_count(definitions, 'definition')} of {plural_count(files, 'file')}"


def same_content(version: int | None) -> str:
    """Return why a file was not asked about: the same content was reviewed before.

    `version` is that of its own change; None for another change, which is not named: not everybody who may
    read this file may know of that change.
    """
    return (
        f"same content as in version {version}" if version else "same content as in another reviewed change"
    )


def incomplete_banner(failed: int, parts: int) -> str:
    """Return the banner of a review of which `failed` of `parts` parts failed, "" for few."""
    if not parts or failed / parts <= BANNER_ABOVE:
        return ""
    return (
        f"Warning: {_percent(failed, parts)}% of the change could not be reviewed, because the language"
        " model did not answer in time or its answers could not be used. The coverage says which files."
        " Check the model's configuration, then request a rerun."
    )


def agents_banner(missing: int, total: int, completed: int, *, is_lost: bool) -> str:
    """Return the banner of a review of which agents left many tasks undone, or "".

    `missing` of its `total` tasks were not finished. `is_lost`: an agent stopped in the middle of its work.
    """
    if not _is_much(missing, total):
        return ""
    percent = (200 * missing + total) // (2 * total)  # rounded, half up
    text = texts.AGENTS_LATE.of(percent=percent)
    crashed = texts.AGENT_CRASHED.of(completed=completed, total=total)
    return f"{text} {crashed}" if is_lost and completed else text


def agents_footer(missing: int, total: int, *, is_minor: bool = False) -> str:
    """Return the line at a report's end about the few tasks that agents did not finish, or "".

    `is_minor`: they are all about sections of documents, so the line serves for any number of them.
    """
    if not missing or (_is_much(missing, total) and not is_minor):
        return ""
    return texts.AGENTS_LATE_FEW.of(missing=missing)


def _is_much(missing: int, total: int) -> bool:
    return 5 * missing > total


def unseconded_banner(requests: int) -> str:
    """Return the banner about requests of further passes that had no answer, or ""."""
    return f"{plural_count(requests, 'request')} for a second opinion had no answer." if requests else ""


_UNVERIFIED = {
    Stopped.TIMED_OUT: "the review ran out of time before its second pass",
    Stopped.OVER_LIMIT: "the limit of tokens was reached before the second pass",
}


def unverified_banner(unanswered: int, asked: int, stopped: Stopped | None = None) -> str:
    """Return the banner about findings without a verdict of the second pass, or ""."""
    if not unanswered:
        return ""
    why = _UNVERIFIED.get(stopped) if stopped else None
    why = why or "the second pass of the language model did not answer, or its answer could not be used"
    return (
        f"{unanswered} of {plural_count(asked, 'finding')} could not be verified: {why}."
        " Check them before acting on them."
    )


def refuted_text(claims: int, asked: int) -> str:
    """Return the operator's sentence about a verifier that refutes nearly everything."""
    return (
        f"the second pass called {claims} of {asked} findings wrong: severe ones are still shown."
        " Check the model of LLM_VERIFY"
    )


def stopped_banner(status: str, reviewed: int = 0, parts: int = 0) -> str:
    """Return the banner of a review that stopped early.

    `status` is that of its job, or why the review stopped. Without `parts` the banner is for people who may
    not see all files, and has no numbers of the whole change.
    """
    how_far = f"after {reviewed} of {parts} parts" if parts else "before its last part"
    return texts.STOPPED.of(ended=_ENDED.get(status, "stopped"), how_far=how_far)


def limit_text(reached: LimitReached) -> str:
    """Return the sentence about a limit of tokens that is reached."""
    return f"The limit of {reached.tokens:,} tokens {_PER[reached.limit]} is reached."


def limit_banner(reached: LimitReached, reviewed: int, parts: int) -> str:
    """Return the banner of a review that reached a limit of tokens.

    The limit ended the review, or only kept it from verifying its findings.
    """
    text, missing = limit_text(reached), parts - reviewed
    if not missing:
        return text
    were = "was" if missing == 1 else "were"
    then = "tomorrow" if reached.limit.is_daily else "when an operator has raised it"
    what = f"{missing} of {plural_count(parts, 'part')} {were} not reviewed"
    return f"{text.removesuffix('.')}; {what}. Request a rerun {then}."


class Covered(Protocol):
    """A file's coverage, also as stored."""

    @property
    def status(self) -> str: ...

    @property
    def reason(self) -> str: ...


def unread_banner(coverage: Iterable[Covered]) -> str:
    """Return how many files were not read or only in part, and for which reasons, or ""."""
    files: Counter[str] = Counter()
    found: dict[str, Counter[str]] = {what: Counter() for what in _KEPT.values()}
    for file in coverage:
        what = _KEPT.get(CoverageStatus(file.status))
        reasons = [sentence for why, sentence in _SAID.items() if why in file.reason]
        if what and reasons:  # a file may have several reasons
            files[what] += 1
            found[what].update(reasons)
    return " ".join(_counted(files[what], reasons, what) for what, reasons in found.items() if reasons)


def _counted(count: int, reasons: Counter[str], what: str) -> str:
    verb = "was" if count == 1 else "were"
    why = ", ".join(f"{reason} ({number})" for reason, number in reasons.most_common())
    return f"{plural_count(count, 'file')} {verb} {what}: {why}."


def degraded_banner(why: str, reviewed: int, parts: int) -> str:
    """Return the banner of a review that goes on without its model; `why` is one sentence."""
    what = "Only deterministic checks ran."
    if reviewed:
        what = f"The language model reviewed {reviewed} of {parts} parts, deterministic checks all of them."
    return f"{what} {why} A rerun gets the full review."


def fallback_banner(served: Mapping[str, int], parts: int) -> str:
    """Return how many of the parts the second model reviewed, with its name, or ""."""
    if not served:
        return ""
    count = sum(served.values())
    what = "all" if count == parts else f"{count} of {parts}"
    names = ", ".join(served)
    return f"The first language model was not available: the second, {names}, reviewed {what} parts."


def alert_text(failed: int, parts: int) -> str:
    """Return the operator's sentence about a review with too many failing parts."""
    return f"{failed} of {parts} parts ({_percent(failed, parts)}%) could not be reviewed by the model"


def _percent(part: int, whole: int) -> int:
    return max(1, round(100 * part / whole)) if part else 0
