"""Suggested categories of error classes, and the remediation checklist of each category."""

from __future__ import annotations

from collections.abc import Mapping

from criticizer.resilience.failures import ErrorClass
from deadletters.states import Category

_CLASSES: Mapping[Category, tuple[ErrorClass, ...]] = {
    Category.TRANSIENT: (
        ErrorClass.NETWORK_TIMEOUT,
        ErrorClass.NETWORK_UNREACHABLE,
        ErrorClass.UPSTREAM_UNAVAILABLE,
        ErrorClass.UPSTREAM_INTERNAL,
        ErrorClass.RATE_LIMITED,
        ErrorClass.WRITE_CONFLICT,
        ErrorClass.DATABASE_UNAVAILABLE,
        ErrorClass.DEADLINE_EXCEEDED,
        ErrorClass.WORKER_LOST,
        ErrorClass.DELIVERY_UNCERTAIN,
    ),
    Category.DATA: (
        ErrorClass.SCHEMA_INVALID,
        ErrorClass.NOT_FOUND,
        ErrorClass.POLICY_REJECTED,
        ErrorClass.REDACTION_BLOCKED,
        ErrorClass.RECIPIENT_REJECTED,
    ),
    Category.AUTH_CONFIG: (
        ErrorClass.TOKEN_LIMIT,
        ErrorClass.PATH_DENIED,
        ErrorClass.AUTH_DENIED,
        ErrorClass.PERMISSION_DENIED,
        ErrorClass.CONFIG_INVALID,
    ),
    Category.CODE_DEFECT: (ErrorClass.INTERNAL_BUG,),
}
_SUGGESTED = {known.value: category for category, classes in _CLASSES.items() for known in classes}
_CHECKLISTS: Mapping[Category, tuple[str, ...]] = {
    Category.TRANSIENT: (
        "The dependency answers again, by its status page or a request of our own.",
        "It has the capacity for what waits and for the replay.",
    ),
    Category.DATA: (
        "The change, the recipients or the answer that could not be worked with is named in the ticket.",
        "It was corrected at its origin, or the mapping was.",
    ),
    Category.AUTH_CONFIG: (
        "The credential was renewed or rotated, or the permission granted.",
        "Endpoints and settings were checked, and the processes that read them were restarted.",
    ),
    Category.CODE_DEFECT: (
        "The stack trace is in the ticket.",
        "The correction was validated in staging.",
        "The correction is deployed here.",
    ),
}


def suggested_category(error_class: str) -> Category:
    """Return the usual category of an error class; an unknown class is a defect."""
    return _SUGGESTED.get(error_class, Category.CODE_DEFECT)


def checklist(category: str) -> tuple[str, ...]:
    """Return the remediation steps of a category, or () for an unknown one."""
    return _CHECKLISTS.get(Category(category), ()) if category in Category.values else ()
