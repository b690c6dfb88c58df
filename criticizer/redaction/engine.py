"""The redactor: scan, merge, number, replace, and scan again until nothing is found."""

from __future__ import annotations

import bisect
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from criticizer.redaction.input.document import PLACEHOLDER, encode, read
from criticizer.redaction.known_secrets import OwnSecrets, registered
from criticizer.redaction.part import Part
from criticizer.redaction.patterns import compiled, forget
from criticizer.redaction.policy import POLICY_KINDS, Policy, parse
from criticizer.redaction.redacted_text import RedactedText, RedactionBlocked, seal
from criticizer.redaction.repeated_values import LEAST, KnownValues
from criticizer.redaction.rules import live_code
from criticizer.redaction.rules.characters import holds
from criticizer.redaction.rules.issuer_tokens import KINDS, RULESET
from criticizer.redaction.scan import Find, scan

_MAX_PASSES: Final = 5
_SECONDS: Final = 5.0  # processor time of one call: 20 MB of ordinary text need two seconds (guarantee G161)
_MAX_PROPAGATED: Final = 20_000
_PIECE: Final = 512  # bytes: a long value is searched piece by piece
_FORGED: Final = b"<redacted:"
_MAY_BE_FORGED: Final = compiled(rb"(?i)<redacted:")
_LITERAL: Final = b"<REDACTED-LITERAL>"
_PLAIN: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-."
_BREAKS: Final = compiled(rb"[\n\r\x0b\x0c\x1c-\x1e\x{85}\x{2028}\x{2029}]")
_ASCII_BREAKS: Final = b"\n\r\x0b\x0c\x1c\x1d\x1e"
# Of two overlapping finds, the kind with the smaller number names both; kinds not listed have 0.
_VAGUE: Final = {
    "high-entropy": 4,
    "key-material": 1,
    "secret": 3,
    "password": 3,
    "authorization": 2,
    "cookie": 2,
    "encoded-secret": 2,
}


@dataclass(frozen=True, slots=True)
class SecretSpan:
    """Place of a secret: kind, character offsets, line (from 1), but never the value."""

    kind: str
    start: int
    end: int
    line: int


class Redactor:
    """Redactor of the parts of one review request, which share numbers and found values.

    `policy` is that of `redact`. Make one for each request and drop it afterwards: it keeps values.
    Raises RedactionBlocked.
    """

    def __init__(self, policy: Mapping[str, object] = {}) -> None:
        self._policy: Policy = parse(policy)
        self._numbers: dict[tuple[str, bytes], int] = {}
        self._last: Counter[str] = Counter()
        self._values: dict[bytes, tuple[str, int]] = {}  # values to remove everywhere: kind and number
        self._known: KnownValues | None = None  # a search for all of them at once
        self._deadline = math.inf

    def redact(self, text: str) -> RedactedText:
        """Return one redacted part, also without the values that were found in earlier parts."""
        return self.redact_all([text])[0]

    def redact_all(self, parts: Sequence[str]) -> list[RedactedText]:
        """Return all parts redacted; a value that is found in one is removed from all.

        Raises RedactionBlocked, and returns nothing, if the redaction of any part is in doubt.
        """
        try:
            work = [self._part(text) for text in parts]
            self._deadline = time.thread_time() + _SECONDS
            for _ in range(_MAX_PASSES):
                if not self._pass(work):
                    break
            else:
                raise RedactionBlocked("unstable")
            return [self._sealed(part) for part in work]
        except RedactionBlocked:
            raise
        except Exception:  # noqa: BLE001 - the message of any error may quote the text
            raise RedactionBlocked("internal_error") from None
        finally:
            forget()

    def _part(self, text: str) -> Part:
        data = encode(text)
        lines = data.count(b"\n")
        if _MAY_BE_FORGED.search(data) is not None:
            data = _without_forgeries(data)
            for kind, number in PLACEHOLDER.findall(data):
                # Placeholders of the input keep their numbers and ours continue after them: none of the
                # input's stands for a value that we removed.
                name = kind.decode()
                self._last[name] = max(self._last[name], int(number))
        return Part(data, lines)

    def _pass(self, parts: list[Part]) -> bool:
        """Scan all parts once, then propagate; return whether anything was removed."""
        own = registered()
        changed = False
        for part in parts:
            changed |= self._replace(part, self._found(part, own))
        for part in parts:
            changed |= self._replace(part, self._propagated(part))
        return changed

    def _found(self, part: Part, own: OwnSecrets) -> list[Find]:
        """Scan what was not read yet of a part: an unchanged text holds nothing new."""
        if part.own is not own:
            part.own, part.changed = own, None
        unread = part.take_unread()
        return merge(scan(read(part.data, unread), self._policy, own, self._deadline)) if unread else []

    def _replace(self, part: Part, finds: list[Find]) -> bool:
        if not finds:
            return False
        data = part.data
        edits: list[tuple[int, int, bytes]] = []
        for find in finds:
            pieces = _pieces(data, find.start, find.end)
            for start, end in pieces:
                number = self._number(find.kind, find.group or data[find.start : find.end])
                edits.append((start, end, b"<REDACTED:%s:%d>" % (find.kind.encode(), number)))
                self._remember(data[start:end], find.kind, number)
            part.counts[find.kind] += bool(pieces)
        part.rewrite(edits)
        return bool(edits)

    def _number(self, kind: str, value: bytes) -> int:
        """Return the number of a value, by first appearance: the same secret always has the same."""
        key = (kind, value)
        number = self._numbers.get(key)
        if number is None:
            self._last[kind] += 1
            number = self._numbers[key] = self._last[kind]
        return number

    def _remember(self, value: bytes, kind: str, number: int) -> None:
        """Note a value that is to be removed wherever else it occurs."""
        if kind in POLICY_KINDS or value in self._values or b"<REDACTED:" in value:
            return
        if not live_code.is_propagated(value[:_PIECE]):
            return
        for at in range(0, len(value), _PIECE):
            piece = value[at : at + _PIECE]
            if len(piece) >= LEAST and piece not in self._values:
                self._values[piece] = (kind, number)
        if len(self._values) > _MAX_PROPAGATED:
            raise RedactionBlocked("too_many_secrets")
        self._known = None

    def _propagated(self, part: Part) -> list[Find]:
        if not self._values:
            return []
        if self._known is None:
            self._known = KnownValues(self._values)
        if part.searched is self._known:
            return []
        part.searched, data = self._known, part.data
        places = list(self._known.places(data))
        taken = [match.span() for match in PLACEHOLDER.finditer(data)] if places else []
        finds = []
        for start, end in places:
            value = data[start:end]
            random = live_code.is_random(value)
            if not _inside(taken, start, end) and live_code.may_stand(data, start, end, random=random):
                kind, number = self._values[value]
                # The value keeps the number of the place where it was found first.
                self._numbers.setdefault((kind, value), number)
                finds.append(Find(start, end, kind))
        return finds

    def _sealed(self, part: Part) -> RedactedText:
        data = part.data
        if data.count(b"\n") != part.lines:
            raise RedactionBlocked("line_count")
        return seal(data.decode("utf-8"), part.counts, RULESET, self._policy.digest)


def _inside(taken: list[tuple[int, int]], start: int, end: int) -> bool:
    index = bisect.bisect_right(taken, (start, end)) - 1
    return any(
        i >= 0 and i < len(taken) and taken[i][0] < end and start < taken[i][1] for i in (index, index + 1)
    )


def _without_forgeries(data: bytes) -> bytes:
    """Rewrite text that looks like a placeholder but is not exactly one."""
    out: list[bytes] = []
    at, lowered = 0, data.lower()
    start = lowered.find(_FORGED)
    while start >= 0:
        real = PLACEHOLDER.match(data, start, start + 64)
        if real is None or real.group(1).decode() not in KINDS:
            out += (data[at:start], _LITERAL)
            at = start + len(_FORGED)
        start = lowered.find(_FORGED, start + 1)
    return b"".join((*out, data[at:])) if out else data


def _pieces(data: bytes, start: int, end: int) -> list[tuple[int, int]]:
    """Return the parts of a span to remove: not line breaks, code, and placeholders."""
    if end > start and not data[start:end].translate(None, _PLAIN):
        return [(start, end)]
    return [
        piece
        for line in _per_line(data, start, end)
        for piece in live_code.pieces(data, *line)
        if _without_placeholders(data[slice(*piece)]).strip()
    ]


def _per_line(data: bytes, start: int, end: int) -> list[tuple[int, int]]:
    """Cut a span at line breaks, so that each line has its placeholder and none is lost.

    Pieces that are blank or hold only placeholders are left out.
    """
    value = data[start:end]
    if value.isascii() and not holds(value, _ASCII_BREAKS + b"<"):
        return [(start, end)] if value.strip() else []
    breaks = [match.span() for match in _BREAKS.finditer(data, start, end)]
    edges = [start, *(edge for span in breaks for edge in span), end]
    pieces = zip(edges[::2], edges[1::2], strict=True)
    return [(a, b) for a, b in pieces if _without_placeholders(data[a:b]).strip()]


def _without_placeholders(value: bytes) -> bytes:
    return PLACEHOLDER.sub(b"", value) if b"<REDACTED:" in value else value


def merge(finds: list[Find]) -> list[Find]:
    """Return the finds in order, with overlapping ones joined under the more specific kind."""
    merged: list[Find] = []
    for find in sorted(finds, key=lambda f: (f.start, -f.end, f.kind, f.group is None)):
        if not merged or find.start >= merged[-1].end:
            merged.append(find)
            continue
        last = merged[-1]
        if find.end <= last.end and find.kind == last.kind:
            continue
        better = min(
            (last, find), key=lambda f: (_VAGUE.get(f.kind, 0), f.group is None, f.start, f.end - f.start)
        )
        merged[-1] = Find(last.start, max(last.end, find.end), better.kind, better.group)
    return merged


def redact(text: str, policy: Mapping[str, object] = {}) -> RedactedText:
    """Return `text` with every secret replaced by `<REDACTED:kind:n>`.

    `text` is plain text or a unified diff of at most 8 MiB. `policy` may hold `emails` (bool),
    `internal_domains` and `internal_nets` (lists of strings). The number of lines never
    changes, and redacting the result again changes nothing. In doubt raises RedactionBlocked
    (`undecodable`, `nul_byte`, `too_large`, `bad_policy`, `budget`, …).
    """
    return Redactor(policy).redact(text)


def find_secrets(text: str, deadline: float = math.inf) -> list[SecretSpan]:
    """Return the places of secrets in a text or unified diff, in order, but never the values.

    Raises RedactionBlocked as `redact` does, and with `too_slow` when this thread's processor time passes
    `deadline`.
    """
    data = encode(text)
    try:
        finds = merge(scan(read(data), parse({}), registered(), deadline))
    finally:
        forget()
    found: list[SecretSpan] = []
    at = characters = 0
    line = 1
    for find in finds:
        for start, end in _per_line(data, find.start, find.end):
            characters += len(data[at:start].decode())
            line += data.count(b"\n", at, start)
            length = len(data[start:end].decode())
            found.append(SecretSpan(find.kind, characters, characters + length, line))
            characters += length
            at = end
    return found
