"""Allow-list: the depot paths that may be fetched.

Lines work like those of a Perforce view: later lines win, a leading `-` excludes, and a path that no line
matches is denied. The matcher compares strings only; it does not rely on Perforce to refuse relative or
doubled segments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from reviews.sources.paths import MAX_PATH_CHARACTERS, canonical_case, path_fault, printable, widest_case

# Stands for a wildcard while a line's form is checked as if it were a path.
_STAND_IN = "_"


@dataclass(frozen=True, slots=True)
class AllowListDecision:
    """Decision about one path. `line` is the line that decided, None for the default."""

    allowed: bool
    reason: str
    line: str | None = None


@dataclass(frozen=True, slots=True)
class AllowListLine:
    """A parsed line. `levels` are the path's segments, each split at its `*`.

    `tree`: the line ended in `...`. `open_end`: the dots followed a name rather than a slash, so
    that the last level itself may be the file.
    """

    text: str
    include: bool
    levels: tuple[tuple[str, ...], ...]
    tree: bool
    open_end: bool

    def matches(self, segments: Sequence[str]) -> bool:
        depth = len(self.levels)
        if self.tree:
            enough = len(segments) >= depth if self.open_end else len(segments) > depth
        else:
            enough = len(segments) == depth
        return enough and all(map(level_matches, self.levels, segments))

    def touches(self, segments: Sequence[str]) -> bool:
        """Return whether this line could match something below these directories."""
        if len(segments) >= len(self.levels) and not self.tree:
            return False
        return all(map(level_matches, self.levels, segments))

    def covers(self, segments: Sequence[str]) -> bool:
        """Return whether this line matches everything below these directories."""
        return (
            self.tree and len(segments) >= len(self.levels) and all(map(level_matches, self.levels, segments))
        )


_Test = Callable[[AllowListLine, Sequence[str]], bool]


class AllowList:
    """An ordered list of allow-list lines, optionally inside a ceiling.

    Lines: `//depot/projectA/...` (everything below), `//depot/a/*.c` (one level),
    `//depot/a/b.c` (one file), each with a leading `-` to exclude. `...` may stand only at
    the end of a line and only after `/`; an excluding line may end in `name...` as well,
    because that can only narrow what is approved.

    Raises ValueError, saying what to write instead, for lines that are empty, relative, not
    canonical, or broader than they look, and when no line includes anything.
    """

    def __init__(
        self, lines: Sequence[str], case_sensitive: bool = True, ceiling: AllowList | None = None
    ) -> None:
        self.lines = tuple(line.strip() for line in lines)
        self.case_sensitive = case_sensitive
        self.ceiling = ceiling.with_case(case_sensitive) if ceiling else None
        self._other_case: AllowList | None = None  # parsed once, when asked for
        self._parsed = tuple(parse_line(line, case_sensitive) for line in self.lines)
        includes = any(line.include for line in self._parsed)
        if not includes and ceiling is None:
            raise ValueError(
                "the allow-list includes nothing: set at least one line such as //depot/projectA/..."
            )
        # Rows that only exclude narrow the ceiling; they do not replace it.
        self._default = AllowListDecision(
            allowed=not includes,
            reason="no line of the allow-list matches" if includes else "inside the configured allow-list",
        )

    def decide(self, path: object, *, literal_names: bool = False) -> AllowListDecision:
        """Decide about one path as a source listed it: encoded, with no revision. Never raises."""
        if self.ceiling is not None:
            above = self.ceiling.decide(path, literal_names=literal_names)
            if not above.allowed:
                return replace(above, reason=f"{above.reason} (configured ceiling)")
        fault = path_fault(path, literal_names=literal_names)
        if fault is not None or not isinstance(path, str):
            return AllowListDecision(allowed=False, reason=fault or "the path is not text")
        included, excluded = self._compared(path)
        for line in reversed(self._parsed):
            if line.matches(included if line.include else excluded):
                verb = "allowed" if line.include else "excluded"
                return AllowListDecision(line.include, f"{verb} by the line {line.text}", line.text)
        return self._default

    def root_of(self, path: str) -> str:
        """Return the folder, with its slash, of the entry that includes an allowed path.

        It has one spelling where names have no case: the entry's own, lower case where that has a `*`.
        """
        included, _ = self._compared(path)
        segments = path[2:].split("/")
        for line in reversed(self._parsed):
            if line.include and line.matches(included):
                depth = len(line.levels) if line.tree and not line.open_end else len(line.levels) - 1
                if not self.case_sensitive:
                    own = zip(line.text[2:].split("/"), included, strict=False)
                    segments = [found if "*" in level else level for level, found in own]
                return f"//{'/'.join(segments[:depth])}/"
        return self.ceiling.root_of(path) if self.ceiling else ""

    def may_touch(self, prefix: str) -> bool:
        """Return whether anything below a depot directory could be allowed.

        The directory is `//name/` or `//name/dir`. For the check before any command runs: True means "check
        each path", never "allowed".
        """
        if self.ceiling is not None and not self.ceiling.may_touch(prefix):
            return False
        directory = prefix.rstrip("/")
        if path_fault(f"{directory}/{_STAND_IN}") is not None:
            return False
        return self._decided(directory, AllowListLine.touches, AllowListLine.covers)

    def covers(self, prefix: str) -> bool:
        """Return whether everything below a depot directory is allowed."""
        if self.ceiling is not None and not self.ceiling.covers(prefix):
            return False
        return self._decided(prefix.rstrip("/"), AllowListLine.covers, AllowListLine.touches)

    def _decided(self, directory: str, allows: _Test, denies: _Test) -> bool:
        """Return what the last line says that allows, or denies, what lies below a directory."""
        included, excluded = self._compared(directory)
        for line in reversed(self._parsed):
            if allows(line, included) if line.include else denies(line, excluded):
                return line.include
        return self._default.allowed

    def _compared(self, path: str) -> tuple[list[str], list[str]]:
        """Return the segments that including and excluding lines compare.

        In doubt, a path is excluded.
        """
        included = canonical_case(path, case_sensitive=self.case_sensitive)[2:].split("/")
        if self.case_sensitive:
            return included, included
        return included, widest_case(path, case_sensitive=False)[2:].split("/")

    def with_case(self, case_sensitive: bool) -> AllowList:
        """Return the same list for a server with or without case-sensitive names."""
        if case_sensitive == self.case_sensitive:
            return self
        if self._other_case is None:
            self._other_case = AllowList(self.lines, case_sensitive, self.ceiling)
        return self._other_case

    def within(self, ceiling: AllowList) -> AllowList:
        """Return the list that allows what both this list and the ceiling allow."""
        return AllowList(self.lines, ceiling.case_sensitive, ceiling)


def effective(ceiling: AllowList, rows: Sequence[str]) -> AllowList:
    """Return the configured ceiling narrowed by the rows that operators edit.

    Without rows it is the ceiling. Raises ValueError for a row that is not a valid line.
    """
    return AllowList(rows, ceiling.case_sensitive, ceiling) if rows else ceiling


def one_file_warning(pattern: str) -> str:
    """Return a warning about a pattern that may be meant for a folder; "" where it is not.

    A pattern without a wildcard names one file. Some files have no extension, so it is not refused.
    """
    name = pattern.rpartition("/")[2]
    if "*" in pattern or "..." in pattern or "." in name:
        return ""
    return f"{pattern} names one file. If it is a folder, write {pattern}/... for what lies in it."


def whole_folder(line: str) -> str:
    """Return a line with `...` after a final slash: `//depot/a/` is `//depot/a/...`.

    People who end a folder with its slash mean it so.
    """
    line = line.strip()
    return f"{line}..." if line.endswith("/") and line.strip("/") else line


def validate_line(line: str) -> str:
    """Return a line as it will be stored. Raises ValueError saying what to write instead."""
    return parse_line(line.strip(), case_sensitive=True).text


def validate_pattern(line: str, called: str) -> str:
    """Return a line that cannot exclude, as `validate_line` does; errors call it `called`."""
    try:
        return validate_line(line)
    except ValueError as error:
        words = str(error).replace("allow-list line", called).replace(" (with - in front to exclude)", "")
        raise ValueError(words) from None


def example_path(pattern: str) -> str:
    """Return one path that the pattern matches and that no other line names by accident."""
    name = "~any~"
    if pattern.endswith("..."):
        pattern = f"{pattern.removesuffix('...')}{name}/{name}"
    return pattern.replace("*", name)


def parse_line(text: str, case_sensitive: bool) -> AllowListLine:
    """Return a line in its parts. Raises ValueError saying what to write instead."""
    if not text:
        raise ValueError("an allow-list line is empty: remove it, or write //depot/directory/...")
    shown = printable(text, 200)
    include = not text.startswith("-")
    path = text.removeprefix("-")
    if not path.startswith("//"):
        raise ValueError(
            f"allow-list line {shown!r} is not a depot path: write //depot/directory/... "
            "(with - in front to exclude)"
        )
    tree = path.endswith("...")
    body = path[:-3] if tree else path
    open_end = tree and not body.endswith("/")
    if open_end and include:
        raise ValueError(
            f"allow-list line {shown!r} would also allow every directory whose name begins so: "
            f"write {printable(body, 200)}/... instead"
        )
    if tree and not open_end:
        body = body[:-1]
    _check_form(shown, body)
    folded = (canonical_case if include else widest_case)(body, case_sensitive=case_sensitive)
    levels = [tuple(segment.split("*")) for segment in folded[2:].split("/")]
    if open_end:
        levels[-1] = (*levels[-1], "")
    return AllowListLine(text, include, tuple(levels), tree, open_end)


def _check_form(shown: str, body: str) -> None:
    """Raise ValueError unless a line is a canonical path with `*` in names.

    `body` is the line without its final `...`.
    """
    if "..." in body:
        raise ValueError(f"allow-list line {shown!r} has ... in the middle: write it once, at the end")
    if re.search(r"%%[0-9]", body):
        raise ValueError(f"allow-list line {shown!r} has a positional wildcard: write * or ... instead")
    depot = body[2:].partition("/")[0]
    if "*" in depot:
        raise ValueError(f"allow-list line {shown!r} has * in the depot's name: name each depot")
    plain = body.replace("*", _STAND_IN)
    # `//depot/...` leaves only the depot, which is a directory and no file path.
    fault = path_fault(plain if "/" in plain[2:] else f"{plain}/{_STAND_IN}")
    if fault is None and "/" not in body[2:] and "..." not in shown:
        fault = "the path names no file"
    if fault is not None:
        raise ValueError(
            f"allow-list line {shown!r} is not canonical ({fault}): write //depot/directory/... "
            f"with %40 %23 %2A %25 for @ # * %, at most {MAX_PATH_CHARACTERS} characters"
        )


def level_matches(pieces: tuple[str, ...], name: str) -> bool:
    """Match one name against a level split at its `*`, in linear time whatever the input."""
    if len(pieces) == 1:
        return pieces[0] == name
    first, *middle, last = pieces
    if len(name) < len(first) + len(last) or not name.startswith(first) or not name.endswith(last):
        return False
    position, end = len(first), len(name) - len(last)
    for piece in middle:
        found = name.find(piece, position, end)
        if found < 0:
            return False
        position = found + len(piece)
    return True
