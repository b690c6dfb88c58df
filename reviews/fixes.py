"""Proven suggestions: stored with their findings, shown as a diff and written as a patch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

import structlog

from criticizer.invisible_characters import name_invisible
from reviews.artifacts import redactor
from reviews.finding_exports import path_in_repository
from reviews.models import FindingRow
from reviews.reviewers.base import Edit, Finding, RawId, Side, Usage

MAX_EDITS = 100  # of one review
_UNSAFE_NAME = re.compile(r'["\\\x00-\x1f\x7f]')
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Proven:
    """The edits of a review that may be offered, as they are stored, and how many there were."""

    edits: Mapping[RawId | None, list[Any]] = field(default_factory=dict)
    usage: Usage = Usage()  # noqa: RUF009 - frozen


def proven(job_id: int, findings: Iterable[Finding]) -> Proven:
    """Prove the edits of a review on its raw change, in the redacting process (guarantee G430).

    Raises RetryableFailure when that process was lost.
    """
    asked = [(finding, finding.edit) for finding in findings if finding.edit is not None]
    if not asked:
        return Proven()
    tried = asked[:MAX_EDITS]
    whys = redactor.refused_edits(job_id, [(finding.file, edit) for finding, edit in tried])
    whys = [why or why_not_named(finding.file) for why, (finding, _) in zip(whys, tried, strict=True)]
    whys += ["over_the_limit"] * (len(asked) - len(tried))
    refused = Counter(filter(None, whys))
    log.info("edits_proven", job=job_id, edits=len(asked), refused=dict(refused))
    stored = {
        finding.raw: list(astuple(edit)) for (finding, edit), why in zip(asked, whys, strict=True) if not why
    }
    return Proven(stored, Usage(edits=len(asked), edits_refused=refused.total()))


def why_not_named(file: str) -> str:
    """Return why a patch cannot name a file, or ""."""
    return "name" if _UNSAFE_NAME.search(file) or name_invisible(file) != file else ""


def replacement_of(row: FindingRow) -> str:
    """Return the new text of exactly the finding's lines, "" where there is none that is proven.

    An edit is of the new side: lines of the old one have other text under the same numbers.
    """
    edit = row.proven_edit
    if edit is None or row.line is None or row.side == Side.OLD:
        return ""
    first, last = edit.start + edit.first, edit.start + edit.end - 1
    return "\n".join(edit.new) if (first, last) == (row.line, row.end_line or row.line) else ""


def diff_rows(edit: Edit) -> Iterator[tuple[int | None, str, str]]:
    """Yield the lines of an edit as an excerpt has them.

    Each is its number on the reviewed side or None, its kind and its text.
    """
    for at, text in enumerate(edit.lines[: edit.end]):
        yield edit.start + at, " " if at < edit.first else "-", text
    yield from ((None, "+", text) for text in edit.new)
    yield from ((edit.start + at, " ", edit.lines[at]) for at in range(edit.end, len(edit.lines)))


def patch_of(row: FindingRow) -> str:
    """Return a unified diff that applies the suggestion to the reviewed file.

    "" where no edit is proven.
    """
    edit = row.proven_edit
    if edit is None:
        return ""
    name = path_in_repository(row.file, row.job.changelist_id if row.job_id else "")
    end_of_name = "\t" if " " in name else ""
    new_size = len(edit.lines) - (edit.end - edit.first) + len(edit.new)
    # Of a file that loses all its lines, counting begins at 0.
    new_start = edit.start if new_size else edit.start - 1
    return "\n".join(
        (
            f"--- a/{name}{end_of_name}",
            f"+++ b/{name}{end_of_name}",
            f"@@ -{edit.start},{len(edit.lines)} +{new_start},{new_size} @@",
            *(f"{kind}{text}" for _, kind, text in diff_rows(edit)),
            "",
        )
    )
