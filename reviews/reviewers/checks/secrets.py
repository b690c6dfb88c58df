"""Check for secrets that a change adds; it names the kind and the line, never the value."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from criticizer.redaction import RedactionBlocked, find_secrets
from reviews.reviewers.base import Finding, FindingSeverity
from reviews.reviewers.checks.hidden_text import DESCRIPTION
from reviews.reviewers.checks.lines import added_lines, check_finding, files_and_diffs
from reviews.sources.base import Change
from reviews.sources.diffs import FileDiff

SEARCH_SECONDS = 5.0  # processor time for a whole change

# Recognised by a name beside it or by its randomness alone: the redactor must not take a chance
# with these, but a reader's time is worth more than a guess marked as critical.
_GUESSED = frozenset({"password", "secret", "high-entropy", "smtp-credential", "api-key", "token"})
# What documentation writes where a secret would stand.
_DUMMIES = frozenset({"password", "passwd", "pass", "pw", "secret", "token", "key", "changeme", "example"})


def added_secrets(change: Change, diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    """Report each secret on added lines, and those in the description.

    A value that the old side already has is not reported: the change moved or re-indented it.
    A secret of several lines, such as a private key, is one finding.
    """
    deadline = time.thread_time() + SEARCH_SECONDS
    yield from _in_text(DESCRIPTION, change.description, None, frozenset(), deadline)
    for file, diff in files_and_diffs(change, diffs):
        added = frozenset(number for number, _ in added_lines(file, diff))
        if added and file.new_text is not None:
            yield from _in_text(file.path, file.new_text, file.old_text, added, deadline)


def _in_text(
    path: str, text: str, old_text: str | None, added: frozenset[int], deadline: float
) -> Iterator[Finding]:
    try:
        places = _places(text, old_text, added, deadline)
    except RedactionBlocked as blocked:
        yield _unsearched(path, blocked.reason_code)
        return
    for kind, first, last in places:
        yield _finding(path, kind, *((first, last) if added else (None, None)))


def _places(
    text: str, old_text: str | None, added: frozenset[int], deadline: float
) -> list[tuple[str, int, int]]:
    """Return kind, first and last line of each secret; on `added` lines alone if there are any."""
    places: list[tuple[str, int, int]] = []
    for span in find_secrets(text, deadline):
        value = text[span.start : span.end]
        if added and (span.line not in added or (old_text and value in old_text)):
            continue
        if value.strip("\"'<>{}[]$ ").lower() in _DUMMIES:
            continue
        if places and places[-1][0] == span.kind and span.line - places[-1][2] in {0, 1}:
            # Two secrets of one kind on neighbouring lines read as one place, and so does a key.
            places[-1] = (span.kind, places[-1][1], span.line)
        else:
            places.append((span.kind, span.line, span.line))
    return places


def _unsearched(path: str, reason: str) -> Finding:
    return check_finding(
        path,
        FindingSeverity.MEDIUM,
        "File could not be searched for secrets",
        f"The search gave up ({reason}), so secrets in this file would go unnoticed.",
        category="security",
    )


def _finding(path: str, kind: str, line: int | None, end_line: int | None) -> Finding:
    name = kind.replace("-", " ").replace("_", " ")
    guessed = kind in _GUESSED
    title = "Possible secret added" if guessed else "Secret added"
    return check_finding(
        path,
        FindingSeverity.MEDIUM if guessed else FindingSeverity.CRITICAL,
        title if name == "secret" else f"{title}: {name}"[:120],
        f"This looks like a secret{'' if name == 'secret' else f' ({name})'}. Everybody who can read the "
        "depot can read it, also after a later change removes it.",
        "Revoke the secret, remove it, and read it from the environment or a secret store.",
        line,
        end_line,
        category="security",
    )
