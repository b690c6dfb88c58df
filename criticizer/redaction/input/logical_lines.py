"""Lines that belong together: a value below its name, joined strings, a continued command.

`lines` makes one line of them for each side of a diff, without the signs between them, so that
the rules for one line can read it; `Joined.back` maps a span of it to the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from criticizer.redaction.input.concatenation import APPENDED, OPENING, OPERATOR, Joined
from criticizer.redaction.input.document import Document, SourceLine, indentation
from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules.characters import holds

_MAX_LINES: Final = 64  # that are joined
_MAX_SKIPPED: Final = 2  # blank lines and comments between two of them
_MAX_BYTES: Final = 8_192
_WINDOW: Final = 2_048  # bytes of a line that are read
_TAIL: Final = 160  # bytes at the end of a line that show how it continues
_COMMENT = compiled(rb"[ \t]+(?:#|//|--[ \t])[^\"'`]*$")
_REMARK = compiled(rb"(?:#|//|--[ \t]|/\*)")
# The end of a line that a value follows: a sign of assignment, if any, and the opening of the value.
_OPENS = compiled(
    rb"(:=|=>|->|<-|={1,3}|[!?+]=|::|:|\xef\xbc\x9a|\|\||\?\?|>|[ \t]or|)[ \t]*(?:!!\w+[ \t]*)?"
    rb"(\"\"\"|'''|`|<<[-~]?\\?[\"']?[A-Za-z_]\w*[\"']?|[|>][-+0-9]{0,2}|\{|(?:[A-Za-z_$][\w.:<>$]{0,60})?\(|)$"
)
_STRING_END = compiled(rb"[\"'`][ \t]*(" + OPERATOR + rb"?)[ \t]*_?$")
_APPENDED = compiled(rb"(([$@\w.]*\w)" + APPENDED + rb")" + OPENING)
_STRING_START = compiled(rb"(" + OPERATOR + rb"?)[ \t]*" + OPENING)
_QUOTED = rb"[bBfFrRuULN@$]{0,2}(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|`[^`]*`)"
# A literal that is a whole line or ends an expression, and not a key, an argument or a sentence.
_ALONE = compiled(_QUOTED + rb"[ \t]*(?:$|[,;)\]}]|" + OPERATOR + rb"[ \t]*(?:$|" + OPENING + rb"))")
_WORD = compiled(rb"[^\s\"'`<>(){}\[\]=,;|]+={0,2}")
_ASSIGNED = compiled(rb"(?:=|:=|=>|:)[ \t]*" + OPENING)
_VALUE_KEY = compiled(
    rb"-?[ \t]*[\"']?(?:value|val|content|default|defaultValue)[\"']?[ \t]*[=:][ \t]*(?:\S)"
)
_TAG = compiled(rb"<[A-Za-z][\w.:-]*(?:[ \t][^<>]*)?>")
_TEXT = compiled(rb"(?:[^<>\s]+|\{[^<>{}]+\})(?:</[\w.:-]+>)?")

_SIGNS: Final = (b":", b"=", b"=>", b":=")
_QUOTES: Final = (b'"', b"'")
_OPEN_NOTHING: Final = (b",", b";", b".", b")", b"]", b"}")

_BLOCK, _CALL, _ELEMENT, _DONE = "block", "call", "element", "done"


class _Step(NamedTuple):
    """A way to append a line: bytes dropped before, glue, bytes dropped after, new state."""

    drop: int = 0
    glue: bytes = b" "
    skip: int = 0
    state: str = ""


def lines(document: Document, begin: int, offset: int, done: dict[int, int]) -> Iterator[Joined]:
    """Yield, for each side, the line of `offset` with the lines that continue it.

    The line is read from `begin` on. Yields nothing where no line continues it. `done` holds how far each
    side of the text has been read, and is advanced, so that no line is joined twice.
    """
    for here in document.sides(offset):
        if offset < done.get(here.side, 0) or here.end - max(begin, here.start) > _WINDOW:
            continue
        joined, done[here.side] = _join(document, max(begin, here.start), here)
        if len(joined.pieces) > 1:
            yield joined


def _join(document: Document, begin: int, here: SourceLine) -> tuple[Joined, int]:
    """Return a line with its continuation, and the end of the last line read."""
    text, end = document.text, here.end
    depth = _indentation(text, here)
    joined = Joined()
    joined.add(b"", text, begin, begin + len(_cut(text[begin : here.end])))
    state, skipped = "", 0
    for line in document.following(here, _MAX_LINES):
        indentation = _indentation(text, line)
        start = line.start + indentation
        new = _cut(text[start : min(line.end, start + _WINDOW)])
        last = joined.text[max(joined.pieces[-1][0], len(joined.text) - _TAIL) :]
        step = _appended(joined.text, new) or _step(last, new, state, indentation - depth)
        if step is None:
            skipped += 1
            if skipped > _MAX_SKIPPED or not _is_skipped(last, new, state):
                break
            continue
        if step.drop:
            joined.shorten(step.drop)
        joined.add(step.glue, text, start + step.skip, start + len(new))
        state, skipped, end = step.state, 0, line.end
        if len(joined.text) > _MAX_BYTES:
            break
    return joined, end


def _appended(text: bytes, new: bytes) -> _Step | None:
    """Return the step for `name += "…"`, which continues the literal of that name, or None."""
    more = _APPENDED.match(new)
    if more is None or text.rstrip(b";")[-1:] not in (b'"', b"'", b"`") or more.group(2) not in text:
        return None
    return _Step(len(text) - len(text.rstrip(b";")), b" + ", more.end(1))


def _is_skipped(last: bytes, new: bytes, state: str) -> bool:
    """Return whether a line between two joined ones is skipped: blank, comment, other entry."""
    if state in (_BLOCK, _DONE):
        return False
    return not new or _REMARK.match(new) is not None or (last.endswith(b"{") and new[:1] != b"}")


def _step(last: bytes, new: bytes, state: str, deeper: int) -> _Step | None:
    """Return the step for the line `new` after a text that ends with `last`, or None."""
    if state == _DONE or not new:
        return None
    if state == _BLOCK:
        return _Step(0, b"", 0, _BLOCK) if deeper > 0 and _WORD.fullmatch(new) else None
    if state == _ELEMENT:
        return _Step(0, b"", 0, _DONE) if new.startswith(b"</") else None
    if last.endswith(b"\\"):
        return _Step(1, b" " if deeper else b"")
    ends, starts = _STRING_END.search(last), _STRING_START.match(new)
    if ends is not None and starts is not None and (ends.group(1) or starts.group(1)):
        drop = 1 if last.endswith(b"_") else 0
        return _Step(drop, b" ", 0, state)
    if ends is not None and starts is not None and not _is_triple(new):
        # No sign between them: the literals are below each other, or indented below the name.
        below = deeper > 0 or last[:1] in b"\"'`"
        return _Step(0, b" + ", 0, state) if below and _ALONE.match(new) else None
    if state == _CALL:
        return _Step(0, b" ", 0, _CALL) if last.endswith(b",") and starts is not None else None
    return _below(last, new, deeper, quoted=starts is not None and not starts.group(1))


def _below(last: bytes, new: bytes, deeper: int, *, quoted: bool) -> _Step | None:
    """Return the step for a value below the name that ends the line above, or None."""
    match = _OPENS.search(last) if _may_open(last) else None
    sign, opener = match.groups() if match is not None else (b"", b"")
    drop = len(opener)
    if opener.endswith(b"("):
        return _Step(0, b"", 0, _CALL) if quoted else None
    if opener == b"{":
        step = _pair(new)
        return None if step is None else step._replace(drop=drop)
    if opener in (b'"""', b"'''", b"`"):
        return _Step(0, b"", 0, _DONE) if sign and _WORD.fullmatch(new.rstrip(b"\"'`;,)")) else None
    if opener:  # a block of YAML, a here-document
        is_block = sign and _WORD.fullmatch(new) and (deeper > 0 or opener.startswith(b"<<"))
        return _Step(drop, b" ", 0, _BLOCK if deeper > 0 else _DONE) if is_block else None
    if sign == b">":
        tag = last.rpartition(b"\n")[2].lstrip()
        return _Step(0, b"", 0, _ELEMENT) if _TAG.fullmatch(tag) and _TEXT.fullmatch(new) else None
    if not sign:
        return _sign_below(last, new, deeper)
    if quoted:
        good = not _is_triple(new) and (sign != b":" or _ALONE.match(new))
        return _Step(0, b" ") if good else None
    if deeper > 0 and sign in (b":", b"=", b":=", b"=>"):
        if _WORD.fullmatch(new) and new[-1:] != b":":
            return _Step(0, b" ", 0, _DONE)
        return _pair(new)
    return None


def _sign_below(last: bytes, new: bytes, deeper: int) -> _Step | None:
    """Return the step for a line that begins with the sign after a name, or None.

    For example the second line of `? name` in YAML, or of a broken pair in JSON.
    """
    if deeper > 0 and _ASSIGNED.match(new):
        return _Step(0, b" ")
    if deeper == 0 and new.startswith(b": ") and last.lstrip(b" \t-").startswith(b"? "):
        return _Step()
    return _Step() if deeper >= 0 and new in _SIGNS and last.endswith(_QUOTES) else None


def _may_open(last: bytes) -> bool:
    """Return whether `_OPENS`, which is slow, may find a sign or an opener; a quick check."""
    end = last[-1:]
    if end.isalnum() or end == b"_":
        return b"<<" in last or b"!!" in last or last.endswith(b"or") or holds(last[-3:], b"|>")
    return end not in _OPEN_NOTHING


def _pair(new: bytes) -> _Step | None:
    match = _VALUE_KEY.match(new)
    return _Step(0, b" ", match.end() - 1, _DONE) if match is not None else None


def _is_triple(new: bytes) -> bool:
    return new.lstrip(b"bBfFrRuU")[:3] in (b'"""', b"'''")


def _cut(line: bytes) -> bytes:
    line = line.rstrip()
    if b"#" in line or b"//" in line or b"--" in line:
        remark = _COMMENT.search(line)
        return line if remark is None else line[: remark.start()].rstrip()
    return line


def _indentation(text: bytes, line: SourceLine) -> int:
    return indentation(text[line.start : min(line.end, line.start + _WINDOW)])
