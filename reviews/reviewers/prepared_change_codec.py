"""JSON form of a prepared change: the redacted artifact between the stages fetch and llm.

`recipe` names all that the result depends on besides the change (rules, policy, limits, known secrets). An
artifact of another recipe is not opened: it is made again from the raw one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from functools import cached_property
from itertools import count, zip_longest
from operator import itemgetter
from typing import Any, NamedTuple

from criticizer.redaction import RedactedText
from criticizer.redaction.policy import parse
from criticizer.redaction.redacted_text import restored
from criticizer.redaction.rules.issuer_tokens import RULESET
from reviews.reviewers.base import Finding, Side
from reviews.reviewers.chunks import MAX_LINE_CHARS, Chunk, ContextBlock, ShownHunk, ShownLine
from reviews.reviewers.document_sections import ShownSection
from reviews.reviewers.prepared_change import Prepared
from reviews.reviewers.prompt import ChangeText, ManifestEntry
from reviews.reviewers.rules import ShownRule
from reviews.sources.base import Action

FORMAT = 9  # raise with every change of what `prepare` returns
_SHOWN_FORMATS = (3, 4, 5, 6, 7, 8, FORMAT)  # whose hunks are the same
# Fields with a form of their own, and one that is added where it is read.
_NESTED = {"redactions", "findings", "text", "sections", "people", "chunks", "units", "reported"}


def to_json(prepared: Prepared, recipe: str) -> bytes:
    """Return the bytes to store."""
    plain = {one.name: getattr(prepared, one.name) for one in fields(prepared) if one.name not in _NESTED}
    return json.dumps(
        {
            "recipe": recipe,
            "format": FORMAT,
            **plain,
            "redactions": dict(prepared.redactions),
            "findings": [asdict(finding) for finding in prepared.findings],
            "description": prepared.text.description.text,
            "manifest": [
                (entry.path.text, entry.action, entry.note, entry.old_path and entry.old_path.text)
                for entry in prepared.text.manifest
            ],
            "rules": [
                (
                    rule.id,
                    rule.path,
                    rule.place and rule.place.text,
                    rule.severity,
                    sorted(rule.files),
                    rule.text.text,
                )
                for rule in prepared.text.rules
            ],
            "sections": [
                (one.path, one.line, one.place.text, one.text.text, one.files, one.score, one.how)
                for one in prepared.sections
            ],
            "people": [hunks and [astuple(hunk) for hunk in hunks] for hunks in prepared.people],
            "chunks": [
                ([_hunk_fields(hunk) for hunk in chunk.hunks], _context_fields(chunk))
                for chunk in prepared.chunks
            ],
            "units": [([hunk.name for hunk in unit.hunks], _context_fields(unit)) for unit in prepared.units],
        }
    ).encode()


def from_json(data: bytes, recipe: str, policy: dict[str, object]) -> Prepared | None:
    """Return a stored change, or None if it was made by another recipe than today's `recipe`.

    `policy` is the redaction policy of the recipe.
    """
    stored: dict[str, Any] = json.loads(data)
    if stored.pop("recipe", None) != recipe:
        return None
    del stored["format"], stored["people"]
    digest = parse(policy).digest

    def text(raw: str) -> RedactedText:
        return restored(raw, RULESET, digest)

    manifest = tuple(
        ManifestEntry(text(path), Action(action), note, text(old) if old is not None else None)
        for path, action, note, old in stored.pop("manifest")
    )
    rules = tuple(
        ShownRule(name, path, text(place) if path else None, severity, frozenset(files), text(shown))
        for name, path, place, severity, files, shown in stored.pop("rules")
    )
    sections = tuple(
        ShownSection(path, line, text(place), text(shown), tuple(files), score, tuple(how))
        for path, line, place, shown, files, score, how in stored.pop("sections")
    )
    description, redactions = text(stored.pop("description")), stored.pop("redactions")
    findings, chunks, units = (stored.pop(name) for name in ("findings", "chunks", "units"))
    rest: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()
    }
    hunks = {
        name: ShownHunk(name, file, text(shown), tuple(map(_line, lines)), is_clipped)
        for fields, _ in chunks
        for name, file, shown, lines, is_clipped in fields
    }

    def chunk(names: Iterable[str], blocks: list[list[str]]) -> Chunk:
        context = (ContextBlock(name, path, symbol, text(shown)) for name, path, symbol, shown in blocks)
        return Chunk(tuple(hunks[name] for name in names), tuple(context))

    return Prepared(
        text=ChangeText(description, manifest, rules),
        findings=tuple(map(Finding.of, findings)),
        chunks=tuple(chunk((name for name, *_ in fields), blocks) for fields, blocks in chunks),
        units=tuple(chunk(names, blocks) for names, blocks in units),
        redactions=redactions,
        sections=sections,
        **rest,
    )


class DiffLine(NamedTuple):
    """A redacted line of a diff.

    `number` counts on the old side if the line was removed, else on the new side.
    """

    number: int
    kind: str  # ' ', '+' or '-'
    text: str


_Context = tuple[int, Sequence[str]]
_NO_CONTEXT: tuple[_Context, _Context] = (1, ()), (1, ())


@dataclass(frozen=True)
class FileDiffText:
    """The redacted diff of one file; `is_whole`: no hunk and no line is missing.

    `around` has the context before and after each hunk, where it is stored: the number of its first line, and
    its texts. A page shows few of thousands, so only `with_context` makes lines of them.
    """

    path: str
    old_path: str | None
    action: str
    hunks: tuple[tuple[DiffLine, ...], ...]
    is_whole: bool
    around: tuple[tuple[_Context, _Context], ...] = ()

    @cached_property
    def content(self) -> str:
        """Return the digest of its lines: a page takes it of hundreds of files when opened."""
        text = "\n\n".join(
            "\n".join([f"{line.number}{line.kind}{line.text}" for line in hunk]) for hunk in self.hunks
        )
        return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]

    def with_context(self) -> FileDiffText:
        """Return the diff with the lines around its hunks; hunks that meet are one."""
        hunks: list[tuple[DiffLine, ...]] = []
        last = 0  # line of the new side, after which the next hunk may follow
        for hunk, (before, after) in zip_longest(self.hunks, self.around, fillvalue=_NO_CONTEXT):
            lines = (*_lines(before), *hunk, *_lines(after))
            first = next((line.number for line in lines if line.kind != "-"), 0)
            if hunks and first == last + 1:
                hunks[-1] += lines
            else:
                hunks.append(lines)
            last = max((line.number for line in lines if line.kind != "-"), default=0)
        return replace(self, hunks=tuple(hunks), around=())


def diffs_of(data: bytes) -> tuple[FileDiffText, ...]:
    """Return the diffs of a stored change for people, whatever the recipe it was made by.

    Raises ValueError for a change that was stored in another format.
    """
    stored: dict[str, Any] = json.loads(data)
    if stored.get("format") not in _SHOWN_FORMATS:
        raise ValueError(f"a stored change of format {stored.get('format')}, not one of {_SHOWN_FORMATS}")
    hunks: dict[int, dict[str, tuple[DiffLine, ...]]] = {}
    clipped = set()
    for name, file, _, lines, is_clipped in (hunk for chunk, _ in stored["chunks"] for hunk in chunk):
        hunks.setdefault(file, {})[name] = _in_order(lines)
        if is_clipped:
            clipped.add(file)
    people = stored.get("people") or [None] * len(stored["paths"])
    return tuple(
        _for_people(
            FileDiffText(
                path,
                stored["old_paths"][index],
                stored["manifest"][index][1],
                tuple(hunks.get(index, {}).values()),
                index not in clipped and len(hunks.get(index, {})) == stored["hunks"][index],
            ),
            people[index],
            [hunks.get(index, {}).get(f"F{index + 1}H{n + 1}", ()) for n in range(stored["hunks"][index])],
        )
        for index, path in enumerate(stored["paths"])
    )


def _for_people(
    sent: FileDiffText, stored: list[list[Any]] | None, hunks: list[tuple[DiffLine, ...]]
) -> FileDiffText:
    """Return the diff as people see it: `hunks` that were sent whole, and others as stored."""
    if stored is None:
        return sent
    found, around = [], []
    for (old_no, new_no, before, kinds, texts, after), hunk in zip(stored, hunks, strict=True):
        numbers = {"-": count(old_no), "+": count(new_no)}
        lines = []
        for kind, text in zip(kinds, texts or (), strict=texts is not None):
            at = {side: next(numbers[side]) for side in ("-+" if kind == " " else kind)}
            lines.append(DiffLine(at.get("+", at.get("-", 0)), kind, text))
        found.append(hunk if texts is None else tuple(lines))
        end = new_no + len(kinds) - kinds.count("-")
        around.append(((new_no - len(before), before), (end, after)))
    is_whole = all(len(line.text) < MAX_LINE_CHARS for hunk in found for line in hunk)
    return replace(sent, hunks=tuple(found), around=tuple(around), is_whole=is_whole)


def _lines(context: _Context) -> Iterator[DiffLine]:
    first, texts = context
    return (DiffLine(number, " ", text) for number, text in enumerate(texts, start=first))


def _in_order(lines: list[list[Any]]) -> tuple[DiffLine, ...]:
    """Return both sides of a hunk in one order, without the context that the old side repeats."""
    shown = sorted((line for line in lines if line[2] != " " or line[0] == Side.NEW), key=itemgetter(5))
    return tuple(DiffLine(number, kind, text) for _, number, kind, text, _, _ in shown)


def _hunk_fields(hunk: ShownHunk) -> tuple[object, ...]:
    lines = [
        (line.side, line.number, line.kind, line.text, line.is_near_change, line.position)
        for line in hunk.lines
    ]
    return hunk.name, hunk.file, hunk.text.text, lines, hunk.is_clipped


def _context_fields(chunk: Chunk) -> list[tuple[str, ...]]:
    return [(block.name, block.path, block.symbol, block.text.text) for block in chunk.context]


def _line(fields: list[Any]) -> ShownLine:
    side, *rest = fields
    return ShownLine(Side(side), *rest)
