"""What each error class suggests, and what is to be done in each category (specification 000, 8.5)."""

from __future__ import annotations

from collections.abc import Mapping

from criticizer.resilience.failures import ErrorClass
from deadletters.states import Category

_C, _E = Category, ErrorClass
_SUGGESTED: Mapping[ErrorClass, Category] = {
    _E.NETWORK_TIMEOUT: _C.TRANSIENT,
    _E.NETWORK_UNREACHABLE: _C.TRANSIENT,
    _E.UPSTREAM_UNAVAILABLE: _C.TRANSIENT,
    _E.UPSTREAM_INTERNAL: _C.TRANSIENT,
    _E.RATE_LIMITED: _C.TRANSIENT,
    _E.WRITE_CONFLICT: _C.TRANSIENT,
    _E.DATABASE_UNAVAILABLE: _C.TRANSIENT,
    _E.DEADLINE_EXCEEDED: _C.TRANSIENT,
    _E.WORKER_LOST: _C.TRANSIENT,
    _E.DELIVERY_UNCERTAIN: _C.TRANSIENT,
    _E.SCHEMA_INVALID: _C.DATA,
    _E.NOT_FOUND: _C.DATA,
    _E.POLICY_REJECTED: _C.DATA,
    _E.REDACTION_BLOCKED: _C.DATA,
    _E.RECIPIENT_REJECTED: _C.DATA,
    _E.TOKEN_LIMIT: _C.AUTH_CONFIG,
    _E.PATH_DENIED: _C.AUTH_CONFIG,
    _E.AUTH_DENIED: _C.AUTH_CONFIG,
    _E.PERMISSION_DENIED: _C.AUTH_CONFIG,
    _E.CONFIG_INVALID: _C.AUTH_CONFIG,
    _E.INTERNAL_BUG: _C.CODE_DEFECT,
}
_CHECKLISTS: Mapping[Category, tuple[str, ...]] = {
    _C.TRANSIENT: (
        "The dependency answers again, by its status page or a request of our own.",
        "It has the capacity for what waits and for the replay.",
    ),
    _C.DATA: (
        "The change, the recipients or the answer that could not be worked with is named in the ticket.",
        "It was corrected at its origin, or the mapping was.",
    ),
    _C.AUTH_CONFIG: (
        "The credential was renewed or rotated, or the permission granted.",
        "Endpoints and settings were checked, and the processes that read them were restarted.",
    ),
    _C.CODE_DEFECT: (
        "The stack trace is in the ticket.",
        "The correction was validated in staging.",
        "The correction is deployed here.",
    ),
}


def suggested_category(error_class: str) -> Category:
    """Return what a failure of this class usually is; an unknown class is a defect."""
    return {known.value: category for known, category in _SUGGESTED.items()}.get(error_class, _C.CODE_DEFECT)


def checklist(category: str) -> tuple[str, ...]:
    """Return what is to be done about a failure of the category, one line each; () for an unknown one."""
    return _CHECKLISTS.get(Category(category), ()) if category in Category.values else ()
