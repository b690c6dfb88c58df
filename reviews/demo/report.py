"""Output of the demo: plain lines for a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from django.urls import reverse

from criticizer.wording import plural_count
from notifications.rendering.summary import ReadFiles

WIDTH = 80
_MARK = {"critical": "!!", "high": "! ", "medium": "- ", "low": ". "}
_FINDINGS = 12
_SKIPPED = 3
_EXCERPT_LINES = 10
_INDENT = " " * 6

Excerpt = Sequence[tuple[int | None, str, str]]  # line or None, sign, text


def lines(
    heading: str, job: dict[str, Any], excerpts: Sequence[Excerpt], mails: Sequence[str]
) -> Iterator[str]:
    """Yield the lines about one review.

    `job` is the API's answer; `excerpts` are of its findings, and `mails` the files of its mails.
    """
    coverage = job["coverage"]
    skipped = [entry["file"] for entry in coverage if entry["status"] == "skipped"]
    yield ""
    yield _short(heading)
    yield _INDENT + job["changelist_id"]
    yield (
        f"{_INDENT}{job['status']}, {plural_count(len(job['findings']), 'finding', zero='no')}, "
        f"{ReadFiles.count(Counter(entry['status'] for entry in coverage))}"
    )
    for finding, excerpt in list(zip(job["findings"], excerpts, strict=True))[:_FINDINGS]:
        yield from _finding(finding, excerpt)
    yield from _more(len(job["findings"]) - _FINDINGS)
    for file in skipped[:_SKIPPED]:
        yield _short(f"{_INDENT}not read: {file}")
    yield from _more(len(skipped) - _SKIPPED)
    if job["findings"]:
        yield ""
    for mail in mails:
        yield f"{_INDENT}mail: {mail}"


def closing(mails: Path, *, keep: bool) -> str:
    """Return the closing lines: where the mails are."""
    links = (
        "Their links work until you press Ctrl-C."
        if keep
        else "Their links work while the demo runs: make demo KEEP=1 (criticizer demo --keep) keeps it up."
    )
    return f"The mails are files in {mails}/\n" + textwrap.fill(links, WIDTH)


def welcome(base_url: str, user: str, password: str) -> str:
    """Return addresses and login of the running demo."""
    return f"""
Look around until you press Ctrl-C:
  reviews  {base_url}/
  admin    {base_url}{reverse("admin:index")}
  API      {base_url}/api/docs/
  login    {user} / {password}"""


def _finding(finding: dict[str, Any], excerpt: Excerpt) -> Iterator[str]:
    where = finding["file"] + (f":{finding['line']}" if finding["line"] else "")
    yield ""
    yield f"   {_MARK[finding['severity']]} {finding['severity']:9}{where}"
    yield _short(_INDENT + finding["title"])
    shown = [row for row in excerpt if row[2].strip()][:_EXCERPT_LINES]
    width = max((len(str(number)) for number, _, _ in shown), default=0)
    for number, sign, text in shown:
        # Stored redacted; control characters are replaced for the terminal.
        code = "".join(c if c.isprintable() else " " for c in text.expandtabs(4))
        mark = ">" if _is_about(finding, number, sign) else " "
        yield _short(f"{_INDENT}{mark} {number or '':>{width}} {sign} {code}".rstrip())


def _is_about(finding: dict[str, Any], number: int | None, sign: str) -> bool:
    """Return whether a line of the excerpt belongs to the finding."""
    first, other_side = finding["line"], "+" if finding["side"] == "old" else "-"
    if number is None or first is None or sign == other_side:
        return False
    return bool(first <= number <= (finding["end_line"] or first))


def _more(number: int) -> Iterator[str]:
    if number > 0:
        yield f"{_INDENT}and {number} more"


def _short(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
