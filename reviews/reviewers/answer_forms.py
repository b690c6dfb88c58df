"""Reads findings from text that is no JSON: labels, tables, tags and lint lines.

Labels are those of YAML, Markdown and prose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from reviews.reviewers.answer_names import LIMITS, field_of, letters_of, severity_in

MAX_CHARS = 100_000
MAX_LINES = 4_000
MAX_FINDINGS = 200
_MAX_LINE_CHARS = 4_000

_ATTRIBUTES = re.compile(r"<\w{1,40}((?:\s{1,20}[\w:-]{1,40}=\"[^\"<>]{0,2000}\"){1,20})\s{0,20}/?>")
_ATTRIBUTE = re.compile(r"([\w:-]+)=\"([^\"]*)\"")
_TAG = re.compile(r"<(/?)([A-Za-z][A-Za-z_-]{1,24})>|<!\[CDATA\[|\]\]>")
_BULLET = r"(?P<bullet>(?:[-*+•>]|\d{1,3}[.)]|#{1,6})[ \t]+(?:[-*+•]|\d{1,3}[.)])?[ \t]*)?"
_LABEL = re.compile(
    rf"^(?P<indent>[ \t]*){_BULLET}[*_`\"'~]{{0,4}}"
    r"(?P<label>[A-Za-z][A-Za-z _-]{0,28}?)[ \t]*[*_`\"']{0,4}[ \t]*"
    r"(?::|=|\uff1a)[ \t]*[*_]{0,3}[ \t]*(?P<value>.*)$"
)
_HEADING = re.compile(
    r"^[ \t]*(?:#{1,6}[ \t]+|\*\*(?=[^*]+\*\*:?[ \t]*$)|\d{1,3}[.)][ \t]+|"
    r"-{3,}[ \t]*$|={3,}[ \t]*$|\[\[?\w+\]\]?[ \t]*$)(?P<title>.*)$"
)
_LINT = re.compile(
    r"^[ \t]*(?:[-*+•]|\d{1,3}[.)])?[ \t]*[*_`\[(]{0,3}(?P<file>(?://)?[\w@%+~.-][\w@%+~./\\-]{0,300}"
    r"\.\w{1,12}|"
    r"(?://)[\w@%+~./-]{1,300})(?::L?|#L)(?P<line>\d{1,7})(?:[-\u2013:]\d{1,7})?[*_`\])]{0,3}"
    r"[ \t]*[:\u2013\u2014-]*[ \t]*(?P<text>\S.*)$"
)
_NUMBERED = re.compile(
    r"^(?:(?:finding|issue|bug|problem|comment)\s*)?#?\d{0,3}\s*[.:)\u2013\u2014-]*\s*", re.IGNORECASE
)
_BLOCKS = ("|", ">", "|-", ">-", "|+", "```")
_LONG = ("quote", "problem", "trigger", "suggestion", "title")


def findings_in_text(text: str) -> list[dict[str, object]]:
    """Return the raw findings of a text that name a file and have a problem or a title."""
    lines = [line[:_MAX_LINE_CHARS] for line in _without_tags(text[:MAX_CHARS]).split("\n")[:MAX_LINES]]
    for form in (_labelled, _table, _lint):
        found = [raw for raw in form(lines) if _is_finding(raw)]
        if found:
            return found[:MAX_FINDINGS]
    return []


def _is_finding(raw: Mapping[str, object]) -> bool:
    fields = {field_of(name) for name, value in raw.items() if value}
    return "file" in fields and bool(fields & {"problem", "title"})


def _without_tags(text: str) -> str:
    """Write `<file>a.py</file>` as `file: a.py`, and end tags of other names as `---`."""

    def written(tag: re.Match[str]) -> str:
        name = tag[2]
        if name is None:
            return ""
        is_field = field_of(name) is not None and name.casefold() not in (
            "finding",
            "issue",
            "bug",
            "comment",
        )
        if is_field:
            return "\n" if tag[1] else f"\n{name}: "
        return "\n---\n" if tag[1] else tag.group()

    def opened(tag: re.Match[str]) -> str:
        return "\n---\n" + "\n".join(f"{name}: {value}" for name, value in _ATTRIBUTE.findall(tag[1])) + "\n"

    return _TAG.sub(written, _ATTRIBUTES.sub(opened, text))


def _labelled(lines: list[str]) -> Iterator[dict[str, object]]:
    record = _Record()
    fence = ""
    for line in lines:
        if line.lstrip().startswith("```"):
            fence = "" if fence else "open"
            record.fenced(bool(fence))
            continue
        if fence and not record.is_unfenced:
            record.add_line(line)
            continue
        label = _LABEL.match(line)
        field = field_of(label["label"]) if label is not None else None
        if label is not None and field is not None:
            name = letters_of(label["label"])
            if record.starts_another(name, bool(label["bullet"])):
                yield record.fields
                record = _Record()
            record.put(name, label["value"])
            continue
        heading = _HEADING.match(line)
        if heading is not None and (record.is_complete or not record.fields):
            yield record.fields
            record = _Record()
            record.head(heading["title"])
            continue
        record.add_line(line)
    yield record.fields


class _Record:
    """A finding while it is read line by line; `fields` has the names as they were written."""

    def __init__(self) -> None:
        self.fields: dict[str, object] = {}
        self.is_unfenced = True  # labels count, also between fences: the whole answer may be fenced
        self._last = ""  # the name of the text that goes on
        self._is_after_gap = False

    @property
    def known(self) -> set[str]:
        return {field_of(name) or "" for name in self.fields}

    @property
    def is_complete(self) -> bool:
        return "file" in self.known and bool({"problem", "quote", "line"} & self.known)

    def starts_another(self, name: str, has_bullet: bool) -> bool:
        if name in self.fields:
            return has_bullet or self.fields[name] != ""
        return field_of(name) == "file" and "file" in self.known

    def put(self, name: str, value: str) -> None:
        value = value.strip().rstrip(",")
        self.fields[name] = "" if value in _BLOCKS else _unquoted(value)
        is_long = field_of(name) in _LONG or not self.fields[name]
        self._last = name if is_long else ""
        self._is_after_gap = False

    def head(self, title: str) -> None:
        title = _NUMBERED.sub("", title.strip().strip("*:# "))
        if not title:
            return
        place = _LINT.match(title)
        self.fields = _lint_fields(place) if place is not None else {"title": title}
        if place is None and (severity := severity_in(title)) and len(title) < 10:
            self.fields = {"severity": severity}
        self._last = "text" if self.fields else ""

    def fenced(self, is_open: bool) -> None:
        if not is_open:
            self.is_unfenced = True
        elif self.fields:
            self.is_unfenced = False
            if field_of(self._last) not in ("quote", "suggestion"):
                self._last = "suggestion" if "quote" in self.known else "quote"

    def add_line(self, line: str) -> None:
        """Add a line to the text that is being read."""
        if not self._last and self._is_after_gap and self.fields and line.strip():
            self._last = "text"  # a paragraph below the labels
        self._is_after_gap = not line.strip()
        if self._last and (line.strip() or not self.is_unfenced):
            before = str(self.fields.get(self._last, ""))
            self.fields[self._last] = f"{before}\n{line}" if before else line


def _table(lines: list[str]) -> Iterator[dict[str, object]]:
    names: list[str] = []
    for line in lines:
        if "|" not in line:
            names = []
            continue
        cells = [
            cell.strip().strip("`*").replace("\\|", "|")
            for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))
        ]
        if not names:
            names = [field_of(cell) or "" for cell in cells]
        elif not re.fullmatch(r"[\s|:-]+", line):
            yield {name: cell for name, cell in zip(names, cells, strict=False) if name and cell}


def _lint(lines: list[str]) -> Iterator[dict[str, object]]:
    for line in lines:
        if (found := _LINT.match(line)) is not None:
            yield _lint_fields(found)


def _lint_fields(found: re.Match[str]) -> dict[str, object]:
    """Return the fields of `path:line: [severity] text`."""
    text = found["text"].strip("* ")
    fields: dict[str, object] = {"file": found["file"], "line": int(found["line"])}
    word = re.match(r"[\[(*]*(\w{2,14})[\])*:]+", text)
    if word is not None and severity_in(word[1]):
        fields["severity"] = word[1]
        text = text[word.end() :].strip("*: -\u2013\u2014") or text
    fields["title" if len(text) <= LIMITS["title"] else "problem"] = text
    return fields


def _unquoted(value: str) -> str:
    value = value.strip()
    for mark in ("**", "`", '"', "'"):
        if len(value) > 2 * len(mark) and value.startswith(mark) and value.endswith(mark):
            value = value[len(mark) : -len(mark)]
    return value
