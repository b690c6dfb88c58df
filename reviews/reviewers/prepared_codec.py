"""JSON form of a prepared change: the redacted artifact between the stages fetch and llm.

`recipe` names all that the result depends on besides the change (rules, policy, limits, known
secrets). An artifact of another recipe is not opened: it is made anew from the raw one.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from criticizer.redaction import RedactedText
from criticizer.redaction.policy import parse
from criticizer.redaction.redacted_text import restored
from criticizer.redaction.rules.issuer_tokens import RULESET
from reviews.reviewers.base import Finding, FindingSeverity, Side
from reviews.reviewers.chunks import Chunk, ContextBlock, ShownHunk, ShownLine
from reviews.reviewers.prepare import Prepared
from reviews.reviewers.prompt import ChangeText, ManifestEntry
from reviews.sources.base import Action

FORMAT = 3  # raise with every change of what `prepare` returns


def to_json(prepared: Prepared, recipe: str) -> bytes:
    """Return the bytes to store."""
    fields = {
        name: getattr(prepared, name)
        for name in ("title", "author", "paths", "old_paths", "hides_names", "notes", "skipped", "hunks")
    }
    return json.dumps(
        {
            "recipe": recipe,
            **fields,
            "redactions": dict(prepared.redactions),
            "findings": [asdict(finding) for finding in prepared.findings],
            "description": prepared.text.description.text,
            "manifest": [
                (entry.path.text, entry.action, entry.note, entry.old_path and entry.old_path.text)
                for entry in prepared.text.manifest
            ],
            "context_paths": prepared.context_paths,
            "chunks": [
                (
                    [_hunk_fields(hunk) for hunk in chunk.hunks],
                    [(block.name, block.path, block.symbol, block.text.text) for block in chunk.context],
                )
                for chunk in prepared.chunks
            ],
        }
    ).encode()


def from_json(data: bytes, recipe: str, policy: dict[str, object]) -> Prepared | None:
    """Return a stored change, or None if it was made by another recipe than today's `recipe`.

    `policy` is the redaction policy of the recipe.
    """
    stored: dict[str, Any] = json.loads(data)
    if stored.pop("recipe", None) != recipe:
        return None
    digest = parse(policy).digest

    def text(raw: str) -> RedactedText:
        return restored(raw, RULESET, digest)

    manifest = tuple(
        ManifestEntry(text(path), Action(action), note, text(old) if old is not None else None)
        for path, action, note, old in stored.pop("manifest")
    )
    description, redactions = text(stored.pop("description")), stored.pop("redactions")
    findings, chunks = stored.pop("findings"), stored.pop("chunks")
    rest: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()
    }
    return Prepared(
        text=ChangeText(description, manifest),
        findings=tuple(map(_finding, findings)),
        chunks=tuple(
            Chunk(
                tuple(
                    ShownHunk(name, file, text(shown), tuple(map(_line, lines)), is_clipped)
                    for name, file, shown, lines, is_clipped in hunks
                ),
                tuple(ContextBlock(name, path, symbol, text(shown)) for name, path, symbol, shown in blocks),
            )
            for hunks, blocks in chunks
        ),
        redactions=redactions,
        **rest,
    )


def _hunk_fields(hunk: ShownHunk) -> tuple[object, ...]:
    lines = [
        (line.side, line.number, line.kind, line.text, line.is_near_change, line.position)
        for line in hunk.lines
    ]
    return hunk.name, hunk.file, hunk.text.text, lines, hunk.is_clipped


def _line(fields: list[Any]) -> ShownLine:
    side, *rest = fields
    return ShownLine(Side(side), *rest)


def _finding(fields: dict[str, Any]) -> Finding:
    typed = {
        "severity": FindingSeverity(fields["severity"]),
        "side": Side(fields["side"]),
        "excerpt": tuple((number, kind, text) for number, kind, text in fields["excerpt"]),
        "evidence": tuple(fields["evidence"]),
    }
    return Finding(**{**fields, **typed})
