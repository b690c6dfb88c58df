"""Subscriptions that cover a change, by its files, its author and their owners' scopes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import structlog
from django.contrib.auth import get_user_model
from django.db.models import Q

from notifications.recipients import normalise
from reviews import config
from reviews.models import RecipientOrigin, Subscription
from reviews.recipients.viewing_scopes import Scope, scopes_of
from reviews.sources.allowlist import example_path, validate_pattern, whole_folder
from reviews.sources.line_index import LineIndex

log = structlog.get_logger(__name__)

MAX_OWN = 50  # subscriptions of one person on their own page


def covering(
    paths: Collection[str], author: str, *, case_sensitive: bool = True
) -> dict[str, RecipientOrigin]:
    """Return the subscribers to a change of these depot paths: recipient -> origin.

    An owner's subscription covers the files its owner may read now, and goes to the present address of
    their account. A stored pattern that is not a valid line covers nothing.
    """
    rows = list(
        Subscription.objects.filter(Q(author="") | Q(author__iexact=author)).values_list(
            "pattern", "recipient", "owner_id"
        )
    )
    index = LineIndex((pattern for pattern, _, _ in rows), case_sensitive=case_sensitive)
    if index.rejected:
        log.error("subscription_not_valid", count=len(index.rejected))
    matched = index.matching(paths)
    found: dict[str, RecipientOrigin] = {
        recipient: RecipientOrigin.SUBSCRIPTION
        for pattern, recipient, owner in rows
        if owner is None and pattern in matched
    }
    own = [(owner, pattern) for pattern, _, owner in rows if owner is not None and pattern in matched]
    for recipient in _owners_covered(own, paths, case_sensitive=case_sensitive):
        found.setdefault(recipient, RecipientOrigin.OWN)
    return dict(sorted(found.items()))


def _owners_covered(
    own: Sequence[tuple[int, str]], paths: Collection[str], *, case_sensitive: bool
) -> list[str]:
    """Return the addresses of owners with a pattern that matches a file they may read."""
    if not own:
        return []
    users = {
        user.pk: user
        for user in get_user_model().objects.filter(pk__in={owner for owner, _ in own}, is_active=True)
    }
    scopes = scopes_of(list(users.values()))
    by_scope: dict[Scope, list[tuple[int, str]]] = {}
    for owner, pattern in own:
        if owner in scopes:
            by_scope.setdefault(scopes[owner], []).append((owner, pattern))
    covered: set[int] = set()
    for scope, lines in by_scope.items():
        visible = [path for path in paths if scope.allows(path)]
        # A pattern that matches some file need not match one that may be read.
        index = LineIndex((pattern for _, pattern in lines), case_sensitive=case_sensitive)
        matched = index.matching(visible)
        covered |= {owner for owner, pattern in lines if pattern in matched}
    return [address for owner in sorted(covered) if (address := address_of(users[owner]))]


def address_of(user: Any) -> str:
    """Return an account's mail address as a recipient, or an empty string without a valid one."""
    if not user.email.strip():
        return ""
    try:
        return normalise(f"mail:{user.email.strip()}")
    except ValueError:
        log.warning("account_address_not_valid", user=user.pk)
        return ""


def check_pattern(pattern: str, scope: Scope | None = None) -> str:
    """Return a pattern in its stored form: `//depot/lib/` becomes `//depot/lib/...`.

    Raises ValueError, with what to write instead, unless it is an including line in the allow-list's
    syntax, inside the allow-list and, with `scope`, inside the files that may be read.
    """
    pattern = whole_folder(pattern)
    if pattern.startswith("-"):
        raise ValueError("A subscription cannot exclude: write the path without the leading -.")
    if not pattern:
        raise ValueError("The path is empty: write //depot/directory/... for everything below a directory.")
    line = validate_pattern(pattern, "The path")
    example = example_path(line)
    if not config.allow_list().decide(example).allowed:
        raise ValueError(
            "This path is outside the allow-list, in whole or in part, so not all of it is reviewed."
            " Choose a narrower path."
        )
    if scope is not None and not scope.allows(example):
        raise ValueError("You may not read all files below this. Choose a narrower path.")
    return line
