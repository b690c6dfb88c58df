"""Meanings of GitHub's error responses (https://docs.github.com/rest/using-the-rest-api)."""

from __future__ import annotations

import re

from criticizer.codehosts.error_responses import ErrorMeanings, error_message, is_locked_or_archived
from criticizer.http_client import Answer
from criticizer.resilience.failures import ErrorClass

_VERSION = re.compile(r"api[ -]version", re.IGNORECASE)
_PERMISSIONS = "x-accepted-github-permissions"


def is_missing_permission(answer: Answer) -> bool:
    return answer.status == 403 and "not accessible by integration" in error_message(answer)


def _meaning(answer: Answer) -> tuple[ErrorClass, str]:
    status, words = answer.status, error_message(answer)
    if is_locked_or_archived(answer):
        return ErrorClass.RECIPIENT_REJECTED, "the conversation is locked or the repository archived"
    if status == 403:
        needed = "".join(c for c in answer.headers.get(_PERMISSIONS, "")[:200] if c.isprintable())
        return ErrorClass.PERMISSION_DENIED, (
            f"the App lacks a permission (required: {needed}): grant it and let the owner accept it"
            if needed
            else "the App lacks a permission, or the owner blocked or suspended the App"
        )
    if status == 410 and _VERSION.search(words):
        return ErrorClass.CONFIG_INVALID, "this version of its API is retired: update Criticizer"
    return _REFUSALS.get(status, _NO_API)


_REFUSALS = {
    400: (ErrorClass.INTERNAL_BUG, "the request was not well formed"),
    401: (
        ErrorClass.AUTH_DENIED,
        "it refused the App's key or token: check GITHUB_APP_ID, GITHUB_PRIVATE_KEY and the clock",
    ),
    404: (ErrorClass.NOT_FOUND, "it does not exist, was renamed, or the App is not installed there"),
    410: (ErrorClass.RECIPIENT_REJECTED, "comments are switched off there, or it was deleted"),
    415: (ErrorClass.INTERNAL_BUG, "the request was not well formed"),
    422: (ErrorClass.SCHEMA_INVALID, "it does not accept the content"),
}
_NO_API = (ErrorClass.CONFIG_INVALID, "GITHUB_API_URL does not lead to the API")
ERROR_MEANINGS = ErrorMeanings("GitHub", _meaning)
