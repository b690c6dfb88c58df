"""Classification of exceptions of the database, the data directory, buckets and settings.

Adapters map the errors of their own servers to `failures` themselves.
"""

from __future__ import annotations

import errno

import psycopg
from django import db
from django.core.exceptions import ImproperlyConfigured

from criticizer.resilience.failures import Component, ErrorClass, Failure, PermanentFailure, RetryableFailure

# PostgreSQL's codes (SQLSTATE) by their meaning here; the first two characters are their class.
_CONFLICTS = {"55P03", "23505"}  # lock not available, unique violation; and class 40
_AWAY = {
    "25006",  # read-only: a standby answers in place of the server that it replaced
    "25P03",  # the server ended an idle transaction, and its connection with it
    "57014",  # cancelled: a statement took too long
}
# The machine cannot store data: not a defect of ours, and a retry does not help.
_STORAGE = {errno.EACCES, errno.EDQUOT, errno.EIO, errno.ENOSPC, errno.EPERM, errno.EROFS}


def classify(error: BaseException) -> Failure:
    """Return the classified failure for any exception.

    A `Failure` is returned unchanged. Errors of the database, the data directory, the buckets and the
    settings are recognised here, because every app meets them. Anything else is a defect of ours and is
    not retried.
    """
    if isinstance(error, Failure):
        return error
    if isinstance(error, ImproperlyConfigured):  # for example, the file of a secret was deleted
        return PermanentFailure(ErrorClass.CONFIG_INVALID, Component.CONFIGURATION, str(error))
    known = _database_failure(error) or _bucket_failure(error)
    if known is not None:
        return known
    if isinstance(error, OSError) and error.errno in _STORAGE:
        return PermanentFailure(
            ErrorClass.CONFIG_INVALID,
            Component.CONFIGURATION,
            f"the data directory cannot be used: {error.strerror}",
            context={"errno": error.errno},
        )
    return PermanentFailure(
        ErrorClass.INTERNAL_BUG, Component.INTERNAL, f"unhandled {type(error).__qualname__}"
    )


def _database_failure(error: BaseException) -> Failure | None:
    """Return the failure behind an error of Django's database layer or of the driver, or None."""
    if not isinstance(error, (db.Error, psycopg.Error)):
        return None
    sqlstate = sqlstate_of(error)
    context = {"sqlstate": sqlstate} if sqlstate else {}
    if sqlstate.startswith("40") or sqlstate in _CONFLICTS:
        # Another writer was first. Stages are idempotent, so the next attempt finds that writer's row.
        return RetryableFailure(
            ErrorClass.WRITE_CONFLICT, Component.DATABASE, f"database conflict {sqlstate}", context=context
        )
    is_operational = isinstance(
        error, (db.OperationalError, db.InterfaceError, psycopg.OperationalError, psycopg.InterfaceError)
    )
    if is_operational or sqlstate in _AWAY:
        detail = (
            f"the database refused the work: {sqlstate}" if sqlstate else "the database connection failed"
        )
        return RetryableFailure(ErrorClass.DATABASE_UNAVAILABLE, Component.DATABASE, detail, context=context)
    return None  # a statement that the schema refuses is a defect


def _bucket_failure(error: BaseException) -> Failure | None:
    """Return the failure behind an error of the S3 client (extra `s3`), or None."""
    try:
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
        from botocore.exceptions import ConnectionError as NoConnection
    except ImportError:
        return None
    if isinstance(error, Boto3Error) and error.__context__ is not None:
        error = error.__context__  # a failed upload: its context has the cause
    if isinstance(error, ClientError):
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        is_passing = status >= 500 or status == 429
        context: dict[str, object] = {"status": status}
    elif isinstance(error, BotoCoreError):
        is_passing = isinstance(error, (HTTPClientError, NoConnection))
        context = {"error": type(error).__name__}
    else:
        return None
    if is_passing:
        return RetryableFailure(
            ErrorClass.UPSTREAM_UNAVAILABLE,
            Component.INTERNAL,
            "the storage of artifacts failed",
            context=context,
        )
    return PermanentFailure(
        ErrorClass.CONFIG_INVALID,
        Component.CONFIGURATION,
        "the storage of artifacts refused the request: see ARTIFACT_S3_*",
        context=context,
    )


def sqlstate_of(error: BaseException) -> str:
    """Return PostgreSQL's code of an error, wrapped by Django or not; "" if there is none."""
    return getattr(error.__cause__, "sqlstate", None) or getattr(error, "sqlstate", None) or ""
