"""JSON form of a fetched change: the raw artifact between the stages fetch and llm."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure
from reviews.sources import remarks
from reviews.sources.base import (
    Action,
    Change,
    ChangeStatus,
    ContextFile,
    DocumentSection,
    FileChange,
    Rule,
    SkipReason,
    UntrueClaim,
    VerifiedDocuments,
)

_FORMAT = 1


def to_json(change: Change) -> bytes:
    fields = asdict(change)
    for file in fields["files"]:
        for fact in remarks.FACTS:  # its remark has them
            del file[fact]
    return json.dumps({"format": _FORMAT, **fields}).encode()


def from_json(data: bytes) -> Change:
    """Return the change of an artifact. Raises PermanentFailure SCHEMA_INVALID."""
    try:
        fields: dict[str, Any] = json.loads(data)
        if fields.pop("format") != _FORMAT:
            raise ValueError("another format")
        files = tuple(_file(file) for file in fields.pop("files"))
        fields["status"] = ChangeStatus(fields["status"])
        # Changes stored by a version without context have none.
        context = tuple(
            ContextFile(file["path"], file["text"], tuple(file["names"]))
            for file in fields.pop("context", ())
        )
        rules = tuple(Rule(**{**rule, "files": tuple(rule["files"])}) for rule in fields.pop("rules", ()))
        documents = _documents(fields.pop("documents", None))
        return Change(**fields, files=files, context=context, rules=rules, documents=documents)
    except (ValueError, KeyError, TypeError) as error:
        raise PermanentFailure(
            ErrorClass.SCHEMA_INVALID,
            Component.INTERNAL,
            "the stored change was written by another version; restart from fetch",
        ) from error


def _documents(fields: dict[str, Any] | None) -> VerifiedDocuments | None:
    if fields is None:
        return None
    untrue = tuple(
        UntrueClaim(**{**claim, "evidence": tuple(claim["evidence"])}) for claim in fields.pop("untrue")
    )
    # Changes stored by a version without sections have none.
    sections = tuple(
        DocumentSection(**{**one, "files": tuple(one["files"]), "how": tuple(one["how"])})
        for one in fields.pop("sections", ())
    )
    return VerifiedDocuments(untrue, tuple(fields.pop("read")), **fields, sections=sections)


def _file(fields: dict[str, Any]) -> FileChange:
    skipped = SkipReason(fields["skipped"]) if fields["skipped"] else None
    # Changes stored by a later version may have the facts themselves.
    fields = {**remarks.facts_of(skipped, fields.get("skip_detail", "")), **fields}
    for name in ("checks_off", "link_targets"):
        fields[name] = tuple(fields.get(name, ()))
    return FileChange(**{**fields, "action": Action(fields["action"]), "skipped": skipped})
