"""Parser of the stream of JSON records that `p4 -ztag -Mj` prints, one per line.

Four kinds share one stream and differ in their keys: messages, informational text, content
and results. All values of a result are strings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_INDEXED = re.compile(r"(\D+?)(\d+)(?:,(\d+))?")


@dataclass(frozen=True, slots=True)
class Message:
    """An error, a warning or an empty answer: `severity` and `generic` as Perforce counts them."""

    text: str
    severity: int
    generic: int


@dataclass(slots=True)
class Answer:
    """Everything one command printed.

    `bad_lines` counts lines that are not a record. `cut_off`: the last line had no end, as after
    a kill.
    """

    results: list[dict[str, str]] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    infos: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    bad_lines: int = 0
    cut_off: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.results or self.messages or self.infos or self.texts)


def parse(stdout: bytes) -> Answer:
    """Return the records of a command's output; never raises on what a server may send."""
    answer = Answer()
    lines = stdout.decode("utf-8", "surrogateescape").split("\n")
    answer.cut_off = bool(lines.pop())
    answer.bad_lines += answer.cut_off
    for line in lines:
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            _sort_in(answer, record)
        else:
            answer.bad_lines += 1
    return answer


def _sort_in(answer: Answer, record: Mapping[str, object]) -> None:
    if "severity" in record:
        answer.messages.append(
            Message(
                str(record.get("data", "")), _number(record["severity"]), _number(record.get("generic", 0))
            )
        )
    elif "data" in record and "level" in record:
        answer.infos.append(str(record["data"]))
    elif record.keys() == {"data"}:
        answer.texts.append(str(record["data"]))
    else:
        answer.results.append(
            {key: value if isinstance(value, str) else str(value) for key, value in record.items()}
        )


def _number(value: object) -> int:
    """Return a severity or generic code, which some servers send as a string."""
    try:
        return int(str(value))
    except ValueError:
        # What cannot be read as a number must not pass for success.
        return 4


def number_in(result: Mapping[str, str], key: str) -> int | None:
    """Return a field that should hold a number; None when it is absent or holds something else."""
    text = result.get(key, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def indexed(result: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the numbered fields of a result as one mapping per number, in numeric order.

    `depotFile10` sorts before `depotFile2` in the stream. Fields with two numbers
    (`how0,1`) keep the second one in their name: `how,1`.
    """
    rows: dict[int, dict[str, str]] = {}
    for key, value in result.items():
        found = _INDEXED.fullmatch(key)
        if found is not None:
            name = found[1] if found[3] is None else f"{found[1]},{found[3]}"
            rows.setdefault(int(found[2]), {})[name] = value
    return [rows[number] for number in sorted(rows)]
