"""Checks of documentation that this change makes untrue."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from criticizer.redaction import clean
from reviews.reviewers.base import Finding, FindingSeverity
from reviews.reviewers.checks.lines import check_finding, extension
from reviews.sources.base import Action, Change, FileChange
from reviews.sources.diffs import FileDiff, split_lines

_DOCUMENTS = frozenset([".md", ".markdown", ".rst", ".adoc", ".asciidoc", ".txt", ".html", ".htm"])
# A history of changes names files that are gone on purpose.
_HISTORIES = re.compile(r"(?:change(?:s|log)|history|news|release[-_ ]?notes?)\b.*", re.IGNORECASE)
_ABOUT_THE_CHANGE = re.compile(
    r"\b(?:remov|delet|renam|mov|deprecat|replac)(?:e|es|ed|ing)\b|\bformerly\b", re.IGNORECASE
)
_PATH = re.compile(r"[\w.@%+~/-]+")
_MAX_QUOTE = 120  # characters
_SINCE = "Untrue after this change"
_LINK_OPENERS = "`(<[\"'"


def stale_references(change: Change, _diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    """Report, once per document and file, a mention of a path that is gone after this change.

    A mention is the whole depot path, its last two or more parts, a path relative to the
    document, or, quoted or linked, a bare name beside the document. Only documents of the
    change itself are read, without those that `drift` has verified.
    """
    verified = change.documents.read if change.documents else ()
    gone = _gone_paths(change)
    if not gone:
        return
    by_name: dict[str, list[str]] = {}
    for path in gone:
        by_name.setdefault(posixpath.basename(path), []).append(path)
    alive = {file.path for file in change.files if file.action is not Action.DELETE}
    for file in change.files:
        if file.new_text is None or file.path in verified or not _is_document(file.path):
            continue
        seen: set[str] = set()
        for number, line in enumerate(split_lines(file.new_text), start=1):
            for path in _mentioned(file.path, line, by_name, alive):
                successor = gone[path]
                renamed_here = bool(successor) and posixpath.basename(successor) in line
                if path in seen or renamed_here or _ABOUT_THE_CHANGE.search(line):
                    continue
                seen.add(path)
                yield _finding(file, number, path, successor)


def drift(change: Change, _diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    """Report what `reviews.drift` found untrue when the change was fetched."""
    for claim in change.documents.untrue if change.documents else ():
        if any(clean(path) != path for path in (claim.path, *claim.evidence)):
            continue  # a name with a secret in it
        text, says, instead = (" ".join(one.split()) for one in (claim.text, claim.says, claim.instead))
        quoted = f"`{text[:_MAX_QUOTE]}`"
        since = "Not so any more" if change.documents and change.documents.is_scan else _SINCE
        yield replace(
            check_finding(
                claim.path,
                FindingSeverity.MEDIUM,
                f"{'Not so' if claim.is_new else since}: {quoted}",
                f"The document says {quoted}{f': {says}' if says else ', which does not hold'}.",
                f"Write `{instead}`."
                if 0 < len(instead) <= _MAX_QUOTE
                else "Correct or remove the statement.",
                claim.line,
                category="documentation",
            ),
            evidence=claim.evidence,
        )


def _gone_paths(change: Change) -> dict[str, str]:
    """Map each path that does not exist any more to the path it moved to, or ''."""
    alive = {file.path for file in change.files if file.action is not Action.DELETE}
    gone = {file.path: "" for file in change.files if file.action is Action.DELETE}
    gone |= {f.old_path: f.path for f in change.files if f.action is Action.RENAME and f.old_path}
    return {path: successor for path, successor in gone.items() if path not in alive}


def _is_document(path: str) -> bool:
    name = posixpath.basename(path)
    is_document = extension(path) in _DOCUMENTS or name.upper().startswith("README")
    return is_document and not _HISTORIES.match(name)


def _mentioned(
    document: str, line: str, by_name: Mapping[str, Sequence[str]], alive: set[str]
) -> Iterator[str]:
    for found in _PATH.finditer(line[:2000]):
        token = found.group().rstrip(".")
        before = line[found.start() - 1 : found.start()]
        for path in by_name.get(posixpath.basename(token), ()):
            if _names(token, path, document, before, alive):
                yield path


def _names(token: str, path: str, document: str, before: str, alive: set[str]) -> bool:
    if token.startswith("//"):  # a depot path, or what follows the scheme of a URL
        return token == path
    beside = posixpath.normpath(posixpath.join(posixpath.dirname(document), token))
    # normpath keeps two leading slashes, which depot paths have.
    if "/" not in token:
        return bool(before) and before in _LINK_OPENERS and beside == path
    if beside == path:
        return True
    tail = "/" + posixpath.normpath(token).lstrip("/")
    return path.endswith(tail) and not any(other.endswith(tail) for other in alive)


def _finding(file: FileChange, line: int, path: str, successor: str) -> Finding:
    what = f"renames to {successor}" if successor else "deletes"
    return check_finding(
        file.path,
        FindingSeverity.MEDIUM,
        f"Documentation names a file this change {'renames' if successor else 'deletes'}",
        f"The text still refers to {path}, which this change {what}.",
        "Correct or remove the reference.",
        line,
    )
