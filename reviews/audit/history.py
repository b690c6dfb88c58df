"""History of the edits of audited tables: the allow-list, viewing scopes, rules and others."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import BigIntegerField, Model, OuterRef, QuerySet, Subquery
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.http import HttpRequest

from criticizer.security.client_ip import client_ip

MAX_EDITS = 200
EDIT_WORDS = {"insert": "Added", "update": "Changed", "delete": "Deleted"}
A_PROGRAM = "a program"
# Columns of a history that are no fields of an edit: a row keeps its number, and times say nothing new.
_UNSAID = {"id", "created_at", "updated_at"}


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit. `changes` has the old and new value of each field; `where` is address and page."""

    at: datetime
    who: str
    what: str
    changes: list[str]
    where: str


def origin(request: HttpRequest, **facts: str) -> dict[str, str]:
    """Return the context recorded with an edit: client address, page and further facts."""
    context = {"address": client_ip(request), "url": request.path}
    return {**context, **{name: value for name, value in facts.items() if value}}


def events_of(model: type[Model]) -> Any:
    """Return the table of the edits of an audited table (`criticizer.db.triggers.audited`)."""
    return model.pgh_event_model  # type: ignore[attr-defined]


def history_of(entry_id: int, model: type[Model]) -> list[Edit]:
    """Return the newest edits of one row, newest first, each compared with the one before it."""
    rows = with_usernames(events_of(model).objects.filter(pgh_obj_id=entry_id))
    newest = list(rows.select_related("pgh_context").order_by("-pgh_id")[: MAX_EDITS + 1])
    befores = [*newest[1:], None][: len(newest)]
    return [
        Edit(
            at=row.pgh_created_at,
            who=row.username or A_PROGRAM,
            what=EDIT_WORDS[row.pgh_label],
            changes=_changes(row, before),
            where=where_from(row),
        )
        for row, before in zip(newest, befores, strict=True)
    ][:MAX_EDITS]


def with_usernames(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Add `username` to event rows: that of the user in the request's context, or None."""
    user_id = Cast(KeyTextTransform("user", OuterRef("pgh_context__metadata")), BigIntegerField())
    users = get_user_model().objects.filter(pk=user_id)
    named: QuerySet[Any] = rows.annotate(username=Subquery(users.values("username")[:1]))
    return named


def where_from(row: Any) -> str:
    """Return the client address and the page of an edit."""
    facts = _facts(row)
    return " ".join(str(facts[name]) for name in ("address", "url") if facts.get(name)) or "unknown"


def reason_of(row: Any) -> str:
    """Return why an edit was made; a deleted row's own reason belongs to the edit before it."""
    return str(_facts(row).get("deletion_reason", "") if row.pgh_label == "delete" else row.reason)


def _facts(row: Any) -> dict[str, Any]:
    return dict(row.pgh_context.metadata) if row.pgh_context else {}


def _changes(row: Any, before: Any) -> list[str]:
    if row.pgh_label == "delete":
        return [f"reason: {reason}"] if (reason := reason_of(row)) else []
    columns = [field.attname for field in row._meta.concrete_fields]  # noqa: SLF001  documented API
    fields = [name for name in columns if not name.startswith("pgh_") and name not in _UNSAID]
    if row.pgh_label == "insert" or before is None:
        return [f"{name}: {getattr(row, name)}" for name in fields]
    pairs = ((name, getattr(before, name), getattr(row, name)) for name in fields)
    return [f"{name}: {old} \N{RIGHTWARDS ARROW} {new}" for name, old, new in pairs if old != new]
