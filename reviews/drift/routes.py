"""Verification of claims about the routes that an application registers."""

from __future__ import annotations

import re
from collections.abc import Iterable

from reviews.drift.claims import Claim, Judgement, Reason, holds, refuted, uncheckable
from reviews.drift.code_facts import Route
from reviews.drift.index import Index


def _parts(path: str) -> tuple[str, ...]:
    plain = re.sub(r"\{[^}]*\}|<[^>]*>|\[[^\]]*\]|(?<=/):\w+|\(\?P<[^)]*\)", "{}", path)
    return tuple(part for part in plain.strip("/^$").split("/") if part)


def has_relatives(path: str, routes: Iterable[Route]) -> bool:
    """Return whether some route begins as a documented path does."""
    own = {*_parts(path)[:2]} - {"{}"}
    return any(own & {*_parts(route.path)[:2]} for route in routes)


def _matches(documented: tuple[str, ...], route: Route, method: str) -> bool:
    """Return whether a documented path is a route's, or ends in it.

    Where a router is mounted is not read.
    """
    parts = _parts(route.path)
    if route.method not in ("", method) or not parts or all(part == "{}" for part in parts):
        return False
    return documented[-len(parts) :] == parts


def judge(claim: Claim, index: Index) -> Judgement:
    """Return whether some route has the documented method and path."""
    if not index.tree.is_whole:
        return uncheckable(Reason.OUT_OF_SIGHT)
    if index.routes is None:
        return uncheckable(Reason.NOT_SEARCHED)
    routes, is_dynamic, silent = index.routes
    documented = _parts(claim.value)
    if any(_matches(documented, route, claim.subject) for route in routes):
        return holds()
    if not routes:
        return uncheckable(Reason.NOT_OURS)
    if is_dynamic or silent:
        return uncheckable(Reason.DYNAMIC if is_dynamic else index.why_silent(silent))
    others = sorted(
        {route.method for route in routes if _matches(documented, Route("", route.path), claim.subject)}
    )
    return refuted(f"that path takes {', '.join(others)}" if others else "no route has that path")
