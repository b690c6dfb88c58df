"""Reads results of a team's own linters about a change from SARIF 2.1.0.

The file is untrusted: it is bounded before it is parsed, each field is checked alone, and a result that
cannot be used is counted, not guessed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

VERSION = "2.1.0"
MAX_RESULTS = 500  # of one file, and of one review
MAX_RUNS = 50
MAX_MESSAGE_CHARS, MAX_PATH_CHARS, MAX_RULE_CHARS, MAX_TOOL_CHARS = 600, 1024, 128, 64
MAX_LINE = 2_000_000_000
LEVELS = ("error", "warning", "note", "none")

NO_RESULT = "not a result with a message, a file and a line"
NOT_OPEN = "passed, suppressed, or gone"
TOO_MANY = f"over the limit of {MAX_RESULTS}"
_ARGUMENT = re.compile(r"\{(\d{1,2})\}")


class NotSarif(ValueError):
    """Raised for a body that is not SARIF; its text says what is wrong and what is accepted."""


@dataclass(frozen=True, slots=True)
class LinterResult:
    """One result of a linter; `path` is the path that it states, with escapes undone."""

    tool: str
    rule: str
    level: str
    path: str
    line: int
    end_line: int
    message: str


def read_sarif(body: object) -> tuple[tuple[LinterResult, ...], Counter[str]]:
    """Return the results of a SARIF file, and how many were left out for each reason.

    Raises NotSarif where the body as a whole is none.
    """
    if not isinstance(body, dict) or body.get("version") != VERSION:
        raise NotSarif(f'Not SARIF {VERSION}: an object with "version": "{VERSION}" and "runs" is accepted.')
    runs = body.get("runs")
    if not isinstance(runs, list) or len(runs) > MAX_RUNS or not all(isinstance(run, dict) for run in runs):
        raise NotSarif(f'"runs" must be a list of at most {MAX_RUNS} objects.')
    left_out: Counter[str] = Counter()
    found: dict[LinterResult, None] = {}
    for run in runs:
        rules = _rules_by_id(run)
        for raw in _list(run.get("results")):
            read = _result(run, rules, raw)
            if isinstance(read, str):
                left_out[read] += 1
            elif read not in found and len(found) == MAX_RESULTS:
                left_out[TOO_MANY] += 1
            else:
                found[read] = None
    return tuple(found), left_out


def _result(
    run: Mapping[str, Any], rules: Mapping[str, Mapping[str, Any]], raw: object
) -> LinterResult | str:
    """Return a result, or why it is left out."""
    if not isinstance(raw, dict):
        return NO_RESULT
    is_open = raw.get("kind", "fail") in ("fail", "open", "review")
    if not is_open or raw.get("baselineState") == "absent" or _is_suppressed(raw):
        return NOT_OPEN
    rule = _rule_of(run, rules, raw)
    message = _message(raw.get("message"), rule)
    place = next(_places(run, raw), None)
    if not message or place is None:
        return NO_RESULT
    path, line, end_line = place
    driver = _object(_object(run.get("tool")).get("driver"))
    name = _text(driver.get("name"), MAX_TOOL_CHARS) or "linter"
    rule_id = _text(raw.get("ruleId"), MAX_RULE_CHARS) or _text(rule.get("id"), MAX_RULE_CHARS)
    level = raw.get("level") or _object(rule.get("defaultConfiguration")).get("level")
    level = level if level in LEVELS else "warning"
    return LinterResult(name, rule_id, str(level), path, line, end_line, message)


def _is_suppressed(raw: Mapping[str, Any]) -> bool:
    states = [_object(one).get("status", "accepted") for one in _list(raw.get("suppressions"))]
    return bool(states) and all(state == "accepted" for state in states)


def _rules_of(run: Mapping[str, Any]) -> Sequence[Any]:
    return _list(_object(_object(run.get("tool")).get("driver")).get("rules"))


def _rules_by_id(run: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the rules of a run by id, the first one of each.

    A search for the rule of each result would take minutes.
    """
    rules = [_object(rule) for rule in reversed(_rules_of(run))]
    return {rule["id"]: rule for rule in rules if isinstance(rule.get("id"), str)}


def _rule_of(
    run: Mapping[str, Any], rules: Mapping[str, Mapping[str, Any]], raw: Mapping[str, Any]
) -> Mapping[str, Any]:
    reference = _object(raw.get("rule"))
    listed = _rules_of(run)
    index = raw.get("ruleIndex", reference.get("index"))
    if isinstance(index, int) and 0 <= index < len(listed):
        return _object(listed[index])
    wanted = raw.get("ruleId", reference.get("id"))
    return rules.get(wanted, {"id": wanted}) if isinstance(wanted, str) else {}


def _message(raw: object, rule: Mapping[str, Any]) -> str:
    """Return a message in one line: its own text, or that of its rule with its arguments."""
    message = _object(raw)
    text = message.get("text")
    if not text and isinstance(message.get("id"), str):
        text = _object(_object(rule.get("messageStrings")).get(message["id"])).get("text")
    if not isinstance(text, str):
        return ""
    arguments = _list(message.get("arguments"))
    text = _ARGUMENT.sub(lambda at: _argument(arguments, int(at[1]), at[0]), text[: 4 * MAX_MESSAGE_CHARS])
    return _text(text, MAX_MESSAGE_CHARS)


def _argument(arguments: Sequence[object], number: int, otherwise: str) -> str:
    return _text(arguments[number], MAX_MESSAGE_CHARS) if number < len(arguments) else otherwise


def _places(run: Mapping[str, Any], raw: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    for location in _list(raw.get("locations"))[:10]:
        physical = _object(_object(location).get("physicalLocation"))
        artifact, region = _object(physical.get("artifactLocation")), _object(physical.get("region"))
        uri = artifact.get("uri")
        index, artifacts = artifact.get("index"), _list(run.get("artifacts"))
        if uri is None and isinstance(index, int) and 0 <= index < len(artifacts):
            uri = _object(_object(artifacts[index]).get("location")).get("uri")
        line = region.get("startLine")
        path = _path(uri)
        if path and isinstance(line, int) and not isinstance(line, bool) and 0 < line < MAX_LINE:
            end = region.get("endLine", line)
            end = end if isinstance(end, int) and line <= end < MAX_LINE else line
            yield path, line, end


def _path(uri: object) -> str:
    """Return the path that a URI names: of `file:///build/src/a.py`, `/build/src/a.py`."""
    if not isinstance(uri, str) or not 0 < len(uri) <= 3 * MAX_PATH_CHARS:
        return ""
    try:
        split = urlsplit(uri)
    except ValueError:
        return ""
    if split.scheme not in ("", "file") and len(split.scheme) > 1:  # one letter: a drive
        return ""
    path = unquote(split.path if len(split.scheme) != 1 else uri).replace("\\", "/")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or not path.isprintable() or len(path) > MAX_PATH_CHARS:
        return ""
    return "/".join(parts)


def _text(value: object, limit: int) -> str:
    """Return a text in one line, without control characters."""
    if not isinstance(value, str):
        return ""
    plain = "".join(char if char.isprintable() else " " for char in value[: 4 * limit])
    return " ".join(plain.split())[:limit]


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()
