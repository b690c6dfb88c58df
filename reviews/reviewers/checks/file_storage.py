"""Checks of how files are stored: type, executable bit, line ends, size, case of names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from reviews.reviewers.base import Finding, FindingSeverity
from reviews.reviewers.checks.evasion import is_unread_for_size
from reviews.reviewers.checks.lines import check_finding, extension
from reviews.sources.base import Action, Change, FileChange, SkipReason
from reviews.sources.content import TEXT_NAME
from reviews.sources.diffs import FileDiff

LARGE_FILE_BYTES = 1_000_000

_BUILT = re.compile(
    r"\.(?:exe|dll|so|dylib|a|lib|o|obj|pdb|class|[jwe]ar|py[co]|whl|egg|zip|tar|t?gz|bz2|xz|7z|rar|msi|deb|rpm"
    r"|dmg|iso|node|wasm)",
    re.IGNORECASE,
)
_RUNS_WITHOUT_SHEBANG = re.compile(r"\.(?:bat|cmd|ps1|exe|com|dll|so|dylib|app)", re.IGNORECASE)
# Perforce's old names of types that carry the executable bit; newer ones write `+x`.
_OLD_EXECUTABLE_TYPES = frozenset(
    ["xtext", "kxtext", "cxtext", "xltext", "xbinary", "uxbinary", "xunicode", "xutf8", "xutf16", "xtempobj"]
)


def _is_binary(file_type: str | None) -> bool:
    return "binary" in (file_type or "").partition("+")[0]


def _is_executable(file_type: str | None) -> bool:
    base, _, modifiers = (file_type or "").partition("+")
    return "x" in modifiers or base in _OLD_EXECUTABLE_TYPES


def stored_types(change: Change, _diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    """Report text files stored as binary: they can be neither compared nor merged."""
    for file in change.files:
        # Without the old type of an edited file it is unknown whether this change set it.
        is_set_here = file.action is Action.ADD or (file.old_file_type and not _is_binary(file.old_file_type))
        if file.action is Action.DELETE or not is_set_here or not _is_binary(file.file_type):
            continue
        if TEXT_NAME.search(file.path):
            yield check_finding(
                file.path,
                FindingSeverity.MEDIUM,
                "Text file stored as binary",
                f"The type is {file.file_type[:40]}, so the file can be neither compared nor merged.",
                "Store it as text, or check it for stray binary content.",
            )


def executable_bits(change: Change, _diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    """Report scripts that lost their executable bit, and the bit on text without a `#!` line."""
    for file in change.files:
        if not file.new_text or (file.action is not Action.ADD and not file.old_file_type):
            continue
        was, is_now = _is_executable(file.old_file_type), _is_executable(file.file_type)
        is_script = file.new_text.startswith("#!")
        if was and not is_now and is_script:
            yield check_finding(
                file.path,
                FindingSeverity.MEDIUM,
                "Script lost its executable bit",
                "The file starts with `#!` and was executable before this change.",
                "Restore the executable bit.",
            )
        elif (
            is_now and not was and not is_script and not _RUNS_WITHOUT_SHEBANG.fullmatch(extension(file.path))
        ):
            yield check_finding(
                file.path,
                FindingSeverity.LOW,
                "Executable bit on a file that cannot be run",
                "The file became executable but has no `#!` line.",
                "Remove the executable bit, or add the `#!` line.",
            )


def line_ends(change: Change, _diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    """Report files in which CRLF line ends appeared or disappeared."""
    for file in change.files:
        if file.old_crlf is not None and file.old_text and file.new_text and file.old_crlf != file.crlf:
            yield check_finding(
                file.path,
                FindingSeverity.LOW,
                "CRLF line ends removed" if file.old_crlf else "CRLF line ends added",
                "Lines that changed nothing but their end hide the real change in a byte comparison.",
                "Keep the line ends, or convert them in a change of its own.",
            )


def large_or_binary_files(change: Change, _diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    """Report added files that are large, build output or other binaries.

    Other binaries are reported one by one, or together if there are more than three.
    """
    plain: list[FileChange] = []
    for file in change.files:
        if file.action is not Action.ADD or is_unread_for_size(file):
            continue
        size = file.size_bytes or 0
        is_binary = file.skipped is SkipReason.BINARY or _is_binary(file.file_type)
        if is_binary and _BUILT.fullmatch(extension(file.path)):
            yield check_finding(
                file.path,
                FindingSeverity.MEDIUM,
                "Built or packed file added",
                f"{_size(size)} of build output or archive, which stays in the history and was not reviewed.",
                "Build it where it is needed, or keep it in an artifact store.",
            )
        elif size > LARGE_FILE_BYTES or file.skipped is SkipReason.TOO_LARGE:
            yield check_finding(
                file.path,
                FindingSeverity.MEDIUM if is_binary else FindingSeverity.LOW,
                "Large binary file added" if is_binary else "Large file added",
                f"{_size(size)} stay in the history and in every copy of the depot.",
                "Check that it belongs here.",
            )
        elif is_binary:
            plain.append(file)
    yield from _binaries(plain)


def _binaries(files: Sequence[FileChange]) -> Iterator[Finding]:
    if len(files) > 3:
        names = ", ".join(file.path.rpartition("/")[2] for file in islice(files, 5))
        yield check_finding(
            files[0].path,
            FindingSeverity.LOW,
            f"{len(files)} binary files added",
            f"Their content was not reviewed: {names}{', …' if len(files) > 5 else ''}.",
            "Check that they belong here.",
        )
        return
    for file in files:
        yield check_finding(
            file.path,
            FindingSeverity.LOW,
            "Binary file added",
            f"{_size(file.size_bytes or 0)} whose content was not reviewed.",
            "Check that it belongs here.",
        )


def case_only_names(change: Change, _diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    """Report names that differ in letter case only.

    They are one file on a case-insensitive server or disk.
    """
    kept: dict[str, FileChange] = {}
    gone = {f.path.casefold(): f.path for f in change.files if f.action is Action.DELETE}
    gone |= {f.old_path.casefold(): f.old_path for f in change.files if f.old_path is not None}
    for file in change.files:
        if file.action is Action.DELETE:
            continue
        folded = file.path.casefold()
        other = kept.setdefault(folded, file)
        if other is not file and other.path != file.path:
            yield check_finding(
                file.path,
                FindingSeverity.HIGH,
                "Two files differ in letter case only",
                f"{other.path} is the same file on case-insensitive servers, Windows and macOS.",
                "Give one of them another name.",
            )
        elif file.action in {Action.ADD, Action.RENAME} and gone.get(folded, file.path) != file.path:
            yield check_finding(
                file.path,
                FindingSeverity.MEDIUM,
                "Rename that changes letter case only",
                f"{gone[folded]} becomes the same file on case-insensitive servers, Windows and macOS.",
                "Rename in two steps, through a name that differs in letters.",
            )


def _size(size_bytes: int) -> str:
    if size_bytes >= 1_000_000:
        return f"{size_bytes / 1_000_000:.1f} MB"
    return f"{size_bytes / 1000:.1f} kB" if size_bytes else "Content"
