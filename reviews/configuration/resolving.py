"""Resolves `.criticizer.yml`: gives any file values, warnings and the source of each value.

A key that cannot be read takes its default. Where one that protects may have lost something, the values of
the last valid file hold as well; without such a file no language model is called (guarantee G441). The
operator's settings are the ceiling (guarantee G442).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from criticizer import texts
from reviews.configuration import FILE_NAMES
from reviews.configuration.keys import KEYS, PROTECTING, SECTIONS, Ceiling, Key, rank
from reviews.configuration.kinds import Dropped, Invalid
from reviews.configuration.loading import Loaded, Node, Slip, Unreadable, load
from reviews.configuration.wording import named, nearest, quoted
from reviews.reviewers.checks import GUARDS

FILE, DEFAULT, OPERATOR, LAST_VALID, STRICT = (
    "file",
    "default",
    "operator",
    "last valid file",
    "strict reading",
)
INVALID_SYNTAX, INVALID_VALUE = "CRITICIZER_E501", "CRITICIZER_E502"
MAX_WARNINGS = 50
_NAME = FILE_NAMES[0]
_HELD = "What the last valid file protects stays protected."
_NO_MODEL = "No language model reads this change, as no valid file came before."


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a file; its `text` is the warning, which quotes plain words at most."""

    code: str
    kind: str
    path: str
    line: int
    column: int
    text: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """The configuration of one review, with values as JSON has them.

    `sources` says where each value is from. `is_valid`: later files can fall back on what it protects.
    `hidden` counts the warnings over the bound.
    """

    values: Mapping[str, Any]
    sources: Mapping[str, str]
    warnings: tuple[Fault, ...] = ()
    digest: str = ""  # of the file, "" where there is none
    is_valid: bool = True
    hidden: int = 0

    def protecting(self) -> dict[str, Any]:
        """Return the values on which the next file falls back where it cannot be read."""
        return {path: self.values[path] for path in PROTECTING}


def resolve(
    raw: bytes | Unreadable | None, ceiling: Ceiling, last_good: Mapping[str, Any] | None = None
) -> Resolved:
    """Return the configuration that a file gives. Raises nothing.

    `raw` is None where there is no file, and Unreadable where there is one that was not read.
    `last_good` is `Resolved.protecting` of the last valid file.
    """
    state = _State(ceiling, last_good)
    if isinstance(raw, Unreadable):
        state.give_up(raw)
    elif raw is not None:
        try:
            loaded = load(raw)
            _check_version(loaded)
            state.read(loaded)
        except Unreadable as fault:
            state.give_up(fault)
    return state.resolved(hashlib.sha256(raw).hexdigest() if isinstance(raw, bytes) else "")


def _check_version(loaded: Loaded) -> None:
    node = loaded.top.get("version")
    if node is not None and node.value is not None and (node.value is True or node.value != 1):
        raise Unreadable("only version 1 is known here", node.line, node.column, "other_version")


class _State:
    """The values, sources and warnings of a file while it is read."""

    def __init__(self, ceiling: Ceiling, last_good: Mapping[str, Any] | None) -> None:
        self._ceiling = ceiling
        # Values stored by an older version of the product may lack a key; `agent` is then off.
        known = None if last_good is None else {"agent": False, **last_good}
        self._last_good = known if known is not None and set(known) >= PROTECTING else None
        self._consequence = _NO_MODEL if self._last_good is None else _HELD
        self._warnings: list[Fault] = []
        self._hidden = 0
        self._doubtful: set[str] = set()  # keys that protect and may have lost something
        self._lines: dict[str, Node] = {}
        self._values = {path: key.default_under(ceiling) for path, key in KEYS.items()}
        self._sources = {path: DEFAULT if key.limit is None else OPERATOR for path, key in KEYS.items()}

    def resolved(self, digest: str) -> Resolved:
        self._hold()
        found = sorted(self._warnings, key=lambda each: (each.line, each.path, each.column))
        return Resolved(
            self._values,
            self._sources,
            tuple(found[:MAX_WARNINGS]),
            digest,
            not self._doubtful,
            self._hidden + max(0, len(found) - MAX_WARNINGS),
        )

    def _hold(self) -> None:
        """Keep keys in doubt from loosening a review."""
        if self._doubtful and self._last_good is None:
            self._values["llm"], self._sources["llm"] = False, STRICT
            return
        for path in self._doubtful:
            assert self._last_good is not None
            value, last = self._values[path], self._last_good[path]
            if path == "paths.exclude":
                last = list(dict.fromkeys([*value, *last]))
            elif path == "llm":
                last = last and value
            self._values[path], self._sources[path] = last, LAST_VALID

    def give_up(self, fault: Unreadable) -> None:
        """Use nothing of the file."""
        self._doubtful |= PROTECTING
        reason = (
            "" if fault.reason == "invalid YAML syntax" else f" {fault.reason[0].upper()}{fault.reason[1:]}."
        )
        at = f" Line {fault.line}, column {fault.column}." if fault.line else ""
        text = texts.NO_YAML if fault.kind == "syntax" else texts.FILE_NOT_USED
        sentence = f"{text.of(file=_NAME)}{reason}{at} {self._consequence}"
        self._warn(INVALID_SYNTAX, fault.kind, "", fault, sentence)

    def read(self, loaded: Loaded) -> None:
        for slip in loaded.slips:
            self._slipped(slip)
        for path, node in self._known(loaded.top):
            self._lines[path] = node
            self._read_one(KEYS[path], node)
        self._check_conflict()

    # -- keys --------------------------------------------------------------------------------------

    def _known(self, top: Mapping[str, Node]) -> Iterator[tuple[str, Node]]:
        """Yield the known keys that have a value; warn about the others."""
        level = {path.partition(".")[0] for path in KEYS}
        for name, node in top.items():
            if name in SECTIONS:
                yield from self._in_section(name, node)
            elif name not in KEYS:
                self._unknown(name, "", level, node)
            elif node.value is not None:
                yield name, node

    def _in_section(self, section: str, node: Node) -> Iterator[tuple[str, Node]]:
        below = f"{section}."
        paths = {
            name: f"{below}{name}"
            for path in KEYS
            if path.startswith(below) and (name := path.removeprefix(below).partition(".")[0])
        }
        if node.value is None:
            return
        if not isinstance(node.value, dict):
            reason = f"expected a mapping, got {quoted(node.value)}"
            self._invalid(section, node, Invalid("wrong_type", reason))
            return
        for name, entry in node.value.items():
            if section == "checks" and name in GUARDS:
                self._guard(name, entry)
            elif name not in paths:
                self._unknown(name, below, paths, entry)
            elif paths[name] in SECTIONS:
                yield from self._in_section(paths[name], entry)
            elif entry.value is not None:
                yield paths[name], entry

    def _read_one(self, key: Key, node: Node) -> None:
        dropped: list[Dropped] = []
        try:
            value = key.kind.read(node, dropped)
        except Invalid as fault:
            self._invalid(key.path, node, fault)
            return
        self._values[key.path], self._sources[key.path] = value, FILE
        for entry in dropped:
            self._drop(key, entry)
        most = key.default_under(self._ceiling)
        if key.limit is not None and value > most:
            self._values[key.path], self._sources[key.path] = most, OPERATOR
            allowed = f"`{_shown(most)}`"
            text = f"`{key.path}` ({_shown(value)}) is above what this installation allows ({allowed})"
            self._warn(INVALID_VALUE, "above_ceiling", key.path, node, f"{text}, using {allowed}.")

    def _drop(self, key: Key, entry: Dropped) -> None:
        is_rule = key.path == "suppress"
        what = "suppress rule" if is_rule else f"`{key.path}`"
        is_pattern = entry.reason.startswith("invalid regex")
        says = f"has {entry.reason}" if is_pattern else f"is invalid ({entry.reason})"
        text = f"{what} #{entry.number} {says}. This {'rule' if is_rule else 'entry'} was skipped."
        if key.protects:
            self._doubtful.add(key.path)
            text += f" {self._consequence}"
        self._warn(INVALID_VALUE, entry.kind, key.path, entry, text)

    # -- faults ------------------------------------------------------------------------------------

    def _invalid(self, path: str, node: Node, fault: Invalid) -> None:
        """Warn that the value of a key or of a section cannot be used."""
        lost = _protecting(path)
        self._doubtful |= lost
        default = f"default value `{_shown(self._values[path])}`" if path in KEYS else "the default values"
        is_switched_off = path == "llm" and self._last_good is None
        if is_switched_off:
            default = "default value `false`"
        tail = f" {self._consequence}" if lost and not is_switched_off else ""
        text = texts.INVALID_VALUE.of(field=path, reason=fault.reason, default=default) + tail
        self._warn(INVALID_VALUE, fault.kind, path, node, text)

    def _guard(self, name: str, node: Node) -> None:
        if node.value not in (True, None):
            text = f"`checks.{name}` cannot be switched off here, using `true`."
            self._warn(INVALID_VALUE, "above_ceiling", f"checks.{name}", node, text)

    def _unknown(self, name: str, prefix: str, level: Collection[str], node: Node) -> None:
        if self._is_full():
            return
        near = nearest(name, level)
        hint = f" Did you mean `{prefix}{near}`?" if near else ""
        text = f"unknown key {named(prefix + name, node.line)} in `{_NAME}`.{hint} This key was ignored."
        if near and (lost := _protecting(f"{prefix}{near}")):
            self._doubtful |= lost  # probably meant
            text += f" {self._consequence}"
        self._warn(INVALID_VALUE, "unknown_key", "", node, text)

    def _slipped(self, slip: Slip) -> None:
        if self._is_full():
            return
        if slip.kind == "duplicate":
            text = f"key {named(slip.key, slip.line)} stands twice: the first value is used."
            lost = {path for path in PROTECTING if slip.key in path.split(".")}
            self._doubtful |= lost
            text += f" {self._consequence}" if lost else ""
        else:
            text = (
                f"keys are text: the key in line {slip.line} is read as {slip.key}."
                " Quote it if text was meant. This key was ignored."
            )
        self._warn(INVALID_VALUE, slip.kind, "", slip, text)

    def _is_full(self) -> bool:
        """Return whether there are as many warnings as fit; if so, only count the fault.

        A fault that is not named may be of any key, so all keys that protect are then in doubt.
        """
        is_full = len(self._warnings) >= MAX_WARNINGS
        if is_full:
            self._hidden += 1
            self._doubtful |= PROTECTING
        return is_full

    def _check_conflict(self) -> None:
        shown, block = self._values["min_severity"], self._values["check.block"]
        if block == "none" or rank(shown) <= rank(block):
            return
        for path in ("min_severity", "check.block"):
            self._values[path], self._sources[path] = KEYS[path].default, DEFAULT
        text = (
            f'`min_severity` ("{shown}") hides findings that `check.block` ("{block}") blocks on.'
            ' Using defaults: `min_severity` = "low", `check.block` = "none".'
        )
        self._warn(INVALID_VALUE, "conflict", "min_severity", self._lines["min_severity"], text)

    def _warn(
        self, code: str, kind: str, path: str, place: Node | Slip | Dropped | Unreadable, text: str
    ) -> None:
        full = texts.CONFIGURATION.of(warning=text)
        self._warnings.append(Fault(code, kind, path, place.line, place.column, full))


def _protecting(path: str) -> set[str]:
    """Return the keys that protect: a key itself, or those of a section."""
    return {one for one in PROTECTING if one == path or one.startswith(f"{path}.")}


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(value) if isinstance(value, list) else str(value)
