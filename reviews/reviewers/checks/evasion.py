"""Checks for what changes how files are read: odd bytes, generated marks, files of rules."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from reviews.reviewers.base import Finding, FindingSeverity
from reviews.reviewers.checks.lines import added_lines, check_finding, extension, files_and_diffs
from reviews.sources.base import Action, Change, FileChange, SkipReason
from reviews.sources.content import (
    DAMAGE_SHOWN,
    NUL_SHOWN,
    TEXT_NAME,
    marker_line,
)
from reviews.sources.diffs import FileDiff
from reviews.sources.rules import is_rule_file

# Files of these types grow large without anybody's intent.
_DATA_NAME = re.compile(r"\.(?:json[c5]?|txt|md|rst|xml|html|ya?ml|sql)$", re.IGNORECASE)


def odd_text(change: Change, diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    """Report text files that became hard to read: NUL bytes, unknown or unmarked encodings."""
    for file, diff in files_and_diffs(change, diffs):
        if not file.oddity:
            continue
        lines = () if file.skipped else added_lines(file, diff)
        line = next((number for number, text in lines if NUL_SHOWN in text or DAMAGE_SHOWN in text), None)
        yield check_finding(
            file.path,
            FindingSeverity.MEDIUM,
            "Text file that tools may not read as text",
            f"By its name or its earlier content the file is text, but {file.oddity}. Diffs, searches and "
            "reviewers may skip it.",
            "Store it as UTF-8 without NUL bytes, or give it the name of a binary file.",
            line,
            category="security",
        )


def unread_size(change: Change, _diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    """Report files that a person may have written and that are too large to be read."""
    for file in change.files:
        if is_unread_for_size(file):
            yield check_finding(
                file.path,
                FindingSeverity.MEDIUM if _is_code(file.path) else FindingSeverity.LOW,
                "File too large to review",
                f"Neither the model nor a check read it: {file.skip_detail or 'it is over the limit'}.",
                "Split the file, or have somebody read this change of it.",
                category="security",
            )


def is_unread_for_size(file: FileChange) -> bool:
    """Return whether its size keeps a file from review; a new file of data does not count."""
    if file.skipped is not SkipReason.TOO_LARGE or file.action is Action.DELETE:
        return False
    return file.action is not Action.ADD or _is_code(file.path)


def _is_code(path: str) -> bool:
    return TEXT_NAME.search(path) is not None and not _DATA_NAME.search(path)


def code_elsewhere(change: Change, _diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    """Report code that is not read: in Git LFS, behind links, in submodules, or moved unread."""
    root = _root_of(change.changelist_id)
    for file in change.files:
        if file.action is Action.DELETE:
            continue
        found = None
        if file.in_lfs and _is_code(file.path):
            found = "Code kept in Git LFS", "The repository holds a pointer to this code, which was not read."
        elif file.skipped is SkipReason.SUBMODULE:
            found = "Code of a submodule changes", f"Nothing of it was read ({file.skip_detail[:60]})."
        elif file.skipped is SkipReason.SYMLINK:
            found = _of_link(file, root)
        elif file.moved_in and _is_code(file.path):
            was = (file.old_path or "").removeprefix("//").partition("/")[2]
            found = (
                "Code moved here from an unread path",
                f"It was {was[:150]} until now, which no model reads. The checks read it as new"
                f"{', no model did' if file.unsent else ''}.",
            )
        elif _becomes_code(file):
            was = file.old_path or ""
            found = (
                "A moved file becomes code",
                f"It was {was.rpartition('/')[2][:100]} until now, and its content was not read again.",
            )
        if found is not None:
            title, message = found
            then = "Have somebody read what it stands for."
            yield check_finding(file.path, FindingSeverity.MEDIUM, title, message, then, category="security")


def _of_link(file: FileChange, root: str | None) -> tuple[str, str] | None:
    target = file.link_targets[-1] if file.link_targets else ""
    shown = "another file" if target is None else target[:200]
    if file.old_file_type not in {None, file.file_type}:
        return "A link takes the place of a file", f"What is read here is now what {shown} holds."
    # Where the id tells no repository, it is the depot. Several repositories of a code host share a depot.
    if root is None or not file.path.startswith(root):
        root = f"//{file.path.removeprefix('//').partition('/')[0]}/"
    directory = posixpath.dirname(file.path.removeprefix(root))
    is_relative = target is not None and not target.startswith(("/", "~")) and ":" not in target
    if is_relative and _stays_below(directory, target or ""):
        return None
    return "A link leads out of the repository", f"It leads to {shown}, which no review reads."


# Code hosts name their changes `<host>:<repository>#<number>`, `!<number>` or `@<commit>`.
# `sources.registry` knows the hosts, and with them their keys, which have no place where a model's
# answers are read.
_HOSTED = re.compile(r"(\w+):([^#!@]+)[#!@]")


def _root_of(changelist_id: str) -> str | None:
    """Return the directory of a hosted repository as `registry.depot_prefix` does, or None."""
    found = _HOSTED.match(changelist_id)
    return f"//{found[1]}/{found[2]}/" if found else None


def _stays_below(directory: str, target: str) -> bool:
    """Return whether a relative path from a directory never leaves the root on its way."""
    depth = len([part for part in directory.split("/") if part])
    for part in target.split("/"):
        depth += -1 if part == ".." else part not in {"", "."}
        if depth < 0:
            return False
    return True


def _becomes_code(file: FileChange) -> bool:
    is_moved = file.skipped is SkipReason.IDENTICAL and file.old_path is not None
    return is_moved and _is_code(file.path) and not _is_code(file.old_path or "")


# Of Python's encodings, those in which ASCII stands for itself.
_PLAIN_ENCODING = re.compile(
    r"utf_?8(?:_sig)?|(?:us_?)?ascii|latin_?\d+|l1|(?:iso_?)?8859_?\d+(?:_\d+)?|iso_8859_\d+|cp125\d|windows_125\d"
    r"|cp(?:437|85\d|86\d|874|93[26]|949|950)|euc_?\w{2,9}|gbk?|gb2312|gb18030|big5(?:_?hkscs)?|s(?:hift_?)?jis\w*"
    r"|koi8_?[rtu]|mac_?\w{4,12}|utf_?16(?:_[lb]e)?|utf_?32(?:_[lb]e)?"
)
# As the tokenizer of Python looks for it. No part can be matched in two ways, so a long line takes no longer.
_COOKIE = re.compile(r"[ \t\f\r]*#.*?coding[:=][ \t]*([-_.A-Za-z0-9]+)")
_COMMENT = re.compile(r"[ \t\f\r]*#")
_COOKIE_LINE_CHARACTERS = 100_000  # a longer comment has a purpose of its own
# A compiler of Java replaces these before it looks for comments and literals: their ends, and ends of lines.
# An escape begins with the last of an odd number of backslashes (JLS 3.3).
_JAVA_ESCAPE = re.compile(
    r"(?<!\\)(?:\\\\)*\\u+00(?:0[aAdD]|2[27]|5[cC]|2[aA](?:/|\\u+002[fF]))|\*\\u+002[fF]"
)


def misread_source(change: Change, diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    """Report source that a compiler or interpreter reads otherwise than people do."""
    for file, diff in files_and_diffs(change, diffs):
        if not diff.hunks and not diff.too_large:
            continue
        where = _undeclared(file)
        if not where and extension(file.path) == ".java":
            lines = added_lines(file, diff)
            where = next((number for number, text in lines if _JAVA_ESCAPE.search(text)), 0)
        if where:
            yield check_finding(
                file.path,
                FindingSeverity.HIGH,
                "Source that is run otherwise than it reads",
                "An encoding or an escape turns what stands here into other code before it is run, so nobody "
                "has reviewed what runs.",
                "Store it as UTF-8 and write the characters themselves.",
                where,
                category="security",
            )


def _undeclared(file: FileChange) -> int:
    """Return the line, from 1, that gives Python an encoding which changes ASCII, or 0.

    A comment that is too long to be looked through counts as such a line.
    """
    head = (file.new_text or "").split("\n", 2)[:2]
    if extension(file.path) not in {".py", ".pyw", ".pyi"} and "python" not in head[0]:
        return 0
    for number, line in enumerate(head, start=1):
        if len(line) > _COOKIE_LINE_CHARACTERS and _COMMENT.match(line):
            return number
        if found := _COOKIE.match(line):
            name = re.sub(r"[-. ]", "_", found[1].lower()).strip("_")
            # Emacs adds the ends of lines.
            name = re.sub(r"_(?:unix|dos|mac)$", "", name)
            return 0 if _PLAIN_ENCODING.fullmatch(name) else number
    return 0


def changed_rule_files(change: Change, _diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    """Report changes of the files of rules by which later changes are reviewed."""
    for file in change.files:
        if is_rule_file(file.path) or is_rule_file(file.old_path or ""):
            yield check_finding(
                file.path,
                FindingSeverity.MEDIUM,
                "The rules of reviews change",
                "This file says what reviews look for. This change was reviewed by its text of before; the "
                "changes after it will be by the new one.",
                "Have somebody approve it who may decide what reviews look for.",
                category="rule",
            )


def new_generated_marks(change: Change, _diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    """Report marks of generated files in files that had none."""
    for file in change.files:
        line = marker_line(file.new_text or "")
        if line and not marker_line(file.old_text or ""):
            yield check_finding(
                file.path,
                FindingSeverity.LOW,
                "File newly marked as generated",
                "Reviewers and tools skip files with such a mark. It was reviewed like any other this time; "
                "later changes of it are read by the checks only.",
                "Check that a generator made it, or remove the mark.",
                line,
            )
