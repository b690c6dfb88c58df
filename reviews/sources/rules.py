"""Rules of a change: the team's, and the repository's as they were before it (G420).

    rows ────────────────────────► match a file? ─┐
    folders above the files ─► read before the change ─► most specific first ─► in the change's artifact

They are read once, with the change. So a replay has the same rules, and a change that edits its own rules is
reviewed by the old ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import structlog

from criticizer.resilience.failures import PermanentFailure
from reviews.sources.allowlist import AllowList, AllowListLine, parse_line
from reviews.sources.base import Change, ChangeStatus, Rule, Source
from reviews.sources.content import Decoded, decode
from reviews.sources.enforcement import denied
from reviews.sources.paths import canonical_case, storable

log = structlog.get_logger()

RULE_FILES = ("REVIEW.md", "AGENTS.md", "CLAUDE.md", ".cursorrules")
MAX_FOLDERS = 40  # in which they are looked for
MAX_FILES = 12
MAX_FILE_BYTES = 64_000
MAX_BYTES = 400_000
MAX_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class TeamRule:
    """A team rule for the files that a pattern of the allow-list's language matches."""

    name: str
    pattern: str
    severity: str
    text: str
    good: str = ""
    bad: str = ""


@dataclass(frozen=True, slots=True)
class _Pattern:
    line: AllowListLine
    start: str  # that each path must have,
    middle: str  # and this somewhere: together they decide about most
    is_folder: bool  # the start says it all
    specificity: tuple[bool, int, int]


@lru_cache(maxsize=4096)
def _pattern(text: str, case_sensitive: bool) -> _Pattern:
    line = parse_line(text, case_sensitive)
    whole = canonical_case(text.removesuffix("..."), case_sensitive=case_sensitive)
    literal = sum(len(piece) for level in line.levels for piece in level)
    specificity = not line.tree, len(line.levels), literal
    start, *others = whole.split("*")
    return _Pattern(line, start, max(others, key=len, default=""), line.tree and not others, specificity)


def is_rule_file(path: str) -> bool:
    """Return whether a file holds rules of the repository.

    Its name is read as a server without cases would read it.
    """
    return path.rpartition("/")[2].casefold() in {name.casefold() for name in RULE_FILES}


def matching(rules: Sequence[TeamRule], change: Change, case_sensitive: bool = True) -> Iterator[Rule]:
    """Yield the team's rules for files of a change, the most specific first."""
    paths = [
        (index, folded, folded[2:].split("/"))
        for index, file in enumerate(change.files)
        for path in {file.path, file.old_path or file.path}
        for folded in (canonical_case(path, case_sensitive=case_sensitive),)
    ]
    found = []
    for rule in rules:
        pattern = _pattern(rule.pattern, case_sensitive)
        start, middle, is_folder = pattern.start, pattern.middle, pattern.is_folder
        matched = {
            index
            for index, path, levels in paths
            if path.startswith(start) and (is_folder or (middle in path and pattern.line.matches(levels)))
        }
        if matched:
            found.append((pattern.specificity, rule, tuple(sorted(matched))))
    found.sort(key=lambda each: (each[0], each[1].name), reverse=True)
    for _, rule, own in found:
        yield Rule(rule.name, rule.text, own, rule.severity, rule.good, rule.bad)


class RuleReader:
    """Reads rule files from one source inside one allow-list, as `ContextFetcher` does context."""

    def __init__(self, source: Source, allow_list: AllowList, may_read: Callable[[str], bool]) -> None:
        """Read rules from those of the allowed paths that `may_read` allows for this review."""
        self._source = source
        self._allow_list = allow_list.with_case(source.case_sensitive)
        self._may_read = may_read

    def added_to(self, change: Change, rules: Sequence[TeamRule]) -> Change:
        """Return the change with its rules, those of the team first.

        Raises the failures of the source that another attempt may not have. One that stays, such as a
        refused command, costs the rules of the repository alone.
        """
        of_team = list(matching(rules, change, self._source.case_sensitive))
        try:
            of_files = self._of_files(change)
        except PermanentFailure as failure:
            log.warning("rules_not_read", changelist=change.changelist_id, **failure.facts)
            of_files = []
        log.info("rules_found", changelist=change.changelist_id, team=len(of_team), files=len(of_files))
        return replace(change, rules=(*of_team, *of_files))

    def _of_files(self, change: Change) -> list[Rule]:
        wanted = [
            f"{folder}/{name}"
            for folder in _folders(change)
            for name in RULE_FILES
            if self._is_allowed(f"{folder}/{name}")
        ]
        if not wanted:
            return []
        texts = self._read_before(wanted, change)
        found = []
        for path, text in sorted(
            texts.items(), key=lambda each: (-each[0].count("/"), wanted.index(each[0]))
        ):
            inside = path[: path.rindex("/") + 1]
            own = tuple(
                index
                for index, file in enumerate(change.files)
                if any((side or "").startswith(inside) for side in (file.path, file.old_path))
            )
            found.append(Rule("", text, own, path=storable(path)))
        return found[:MAX_FILES]

    def _read_before(self, wanted: Sequence[str], change: Change) -> dict[str, str]:
        # A file of a shelf is not asked for again: the shelf may be submitted meanwhile.
        own = {
            (file.old_path or file.path).casefold(): file.old_text
            for file in change.files
            if file.old_text is not None and change.status is ChangeStatus.SHELVED
        }
        texts = {path: own[path.casefold()] for path in wanted if path.casefold() in own}
        others = [path for path in wanted if path not in texts]
        room = MAX_BYTES
        for path, data in self._source.read_at(
            others, change, max_bytes=room, seconds=MAX_SECONDS, is_before=True
        ):
            # What was read is checked again: it may be another file than the one asked for.
            if path not in others or not self._is_allowed(path) or len(data or b"") > MAX_FILE_BYTES:
                continue
            text = decode(data) if data is not None else None
            if isinstance(text, Decoded):
                texts[path] = text.text
        return {
            path: texts[path]
            for path in wanted
            if path in texts and texts[path].strip() and len(texts[path]) <= MAX_FILE_BYTES
        }

    def _is_allowed(self, path: str) -> bool:
        literal = self._source.literal_names
        return not denied([path], self._allow_list, literal_names=literal) and self._may_read(path)


def _folders(change: Change) -> list[str]:
    """Return the folders above the files of a change, those above most of them first."""
    above: Counter[str] = Counter()
    for file in change.files:
        for path in {file.path, file.old_path or file.path}:
            levels = path[2:].split("/")[:-1]
            above.update("//" + "/".join(levels[: depth + 1]) for depth in range(len(levels)))
    ranked = sorted(above, key=lambda folder: (-above[folder], folder.count("/"), folder))
    return ranked[:MAX_FOLDERS]
