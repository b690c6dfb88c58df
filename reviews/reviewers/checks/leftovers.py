"""Checks for leftovers: conflict markers, debugger calls, files of merge tools."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from reviews.reviewers.base import Finding, FindingSeverity
from reviews.reviewers.checks.lines import added_lines, check_finding, extension, files_and_diffs
from reviews.sources.base import Action, Change
from reviews.sources.diffs import FileDiff

# git's and Perforce's markers. A lone row of `=` is not one: headings are underlined with it.
_OPENS = re.compile(r"<{7}(?: .*)?|>>>> ORIGINAL .*")
_CLOSES = re.compile(r">{7} .+|>{7}|<<<<")
_PERFORCE_MIDDLE = re.compile(r"==== (?:THEIRS|YOURS|BOTH) .*")

_JAVASCRIPT = (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".vue", ".svelte")
_C_FAMILY = (".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".hh", ".m", ".mm")

# Each pattern is anchored where a statement starts, so that prose, strings and comments that
# mention a debugger do not match. Plain printing is left alone: it is how programs talk.
_DEBUGGERS: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = (
    (
        (".py", ".pyi", ".pyx"),
        re.compile(
            r"(?:^|[;:])\s*(?:breakpoint\(|(?:import|from) (?:pdb|ipdb|pudb|wdb|rpdb)\b"
            r"|(?:pdb|ipdb|pudb|wdb|rpdb)\.(?:set_trace|post_mortem)\(|__import__\(['\"]i?pdb['\"]\))"
        ),
    ),
    (_JAVASCRIPT, re.compile(r"(?:^|[;{)])\s*debugger\s*(?:;|$)")),
    (_JAVASCRIPT, re.compile(r"^\s*(?:describe|context|it|test|suite)\.only\(")),
    (
        (".rb", ".rake", ".erb"),
        re.compile(r"(?:^|;|<%)\s*(?:binding\.(?:pry|irb|b)\b|byebug\b|debugger\s*$)"),
    ),
    ((".php", ".phtml"), re.compile(r"(?:^|[;{])\s*(?:dd|ddd|var_dump|xdebug_break)\s*\(")),
    ((".go",), re.compile(r"^\s*runtime\.Breakpoint\(\)")),
    ((".rs",), re.compile(r"(?:^|[\s=(,{])dbg!\(")),
    ((".cs", ".vb"), re.compile(r"(?:^|[;{])\s*(?:System\.Diagnostics\.)?Debugger\.(?:Break|Launch)\(")),
    (_C_FAMILY, re.compile(r"(?:^|[;{)])\s*(?:__debugbreak\(\)|DebugBreak\(\)|raise\(SIGTRAP\))")),
    ((".ex", ".exs"), re.compile(r"(?:^|;)\s*(?:require IEx; )?IEx\.pry\b")),
    ((".pl", ".pm"), re.compile(r"(?:^|;)\s*\$DB::single\s*=\s*1")),
    ((".lua",), re.compile(r"require\s*\(?['\"]mobdebug['\"]")),
    ((".r",), re.compile(r"^\s*browser\(\)")),
)

_MERGE_FILE = re.compile(
    r".*(?:\.orig|\.rej|~)|.*[._](?:BACKUP|BASE|LOCAL|REMOTE)[._]\d+\..*|.*\.mine|.*\.r\d+", re.IGNORECASE
)
_FOCUS = ("test", "Only one test is run", "`.only` switches every other test of the file off.")
_DEBUGGER = (
    "bug",
    "Debugger call left in the code",
    "This statement stops the program in a debugger or dumps its state.",
)


def conflict_markers(change: Change, diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    """Report each added conflict from its opening to its closing marker."""
    for file, diff in files_and_diffs(change, diffs):
        opened: int | None = None
        for number, line in added_lines(file, diff):
            text = line.rstrip("\r")
            if _CLOSES.fullmatch(text):
                # A closing marker alone counts in git's form with a label: nothing else looks like it.
                if opened is not None or text.startswith(">>>>>>> "):
                    yield _conflict(file.path, opened or number, number)
                opened = None
            elif _OPENS.fullmatch(text):
                if opened is not None:
                    yield _conflict(file.path, opened, opened)
                opened = number
            elif opened is None and _PERFORCE_MIDDLE.fullmatch(text):
                opened = number
        if opened is not None:
            yield _conflict(file.path, opened, opened)


def _conflict(path: str, line: int, end_line: int) -> Finding:
    return check_finding(
        path,
        FindingSeverity.HIGH,
        "Unresolved merge conflict",
        "The marker lines of a merge conflict were submitted with the file.",
        "Resolve the conflict and remove the marker lines.",
        line,
        end_line,
        category="bug",
    )


def debugger_leftovers(change: Change, diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    """Report added statements that stop the program in a debugger, or run one test only."""
    for file, diff in files_and_diffs(change, diffs):
        patterns = [pattern for endings, pattern in _DEBUGGERS if extension(file.path) in endings]
        for number, line in added_lines(file, diff) if patterns else ():
            if any(pattern.search(line[:1000]) for pattern in patterns):
                category, title, message = _FOCUS if ".only(" in line else _DEBUGGER
                yield check_finding(
                    file.path,
                    FindingSeverity.MEDIUM,
                    title,
                    message,
                    "Remove it before the change is released.",
                    number,
                    category=category,
                )


def merge_leftovers(change: Change, _diffs: Sequence[FileDiff]) -> Iterator[Finding]:
    """Report added files that merge and patch tools leave behind."""
    for file in change.files:
        if file.action is Action.ADD and _MERGE_FILE.fullmatch(posixpath.basename(file.path)):
            yield check_finding(
                file.path,
                FindingSeverity.MEDIUM,
                "Left-over file of a merge or patch tool",
                "Files with such names are backups or rejects, and rarely meant to be submitted.",
                "Delete the file, and add its pattern to the ignore list.",
                category="bug",
            )
