"""A parser of JSON bodies that bounds them before it parses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any, NoReturn

from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from reviews.api.error_catalog import too_large
from reviews.api.errors import ApiError

MAX_BODY_BYTES = 64 * 1024
MAX_FILE_BYTES = 1024 * 1024
# Reading on lets the client finish sending and see the answer instead of a connection reset.
_DRAIN_BYTES = 1024 * 1024


class BoundedJSONParser(BaseParser):
    """Strict JSON in UTF-8 of at most 64 KiB."""

    media_type = "application/json"
    max_bytes = MAX_BODY_BYTES

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the decoded body. Raises ApiError (413) and ParseError (400)."""
        request = (parser_context or {}).get("request")
        body = bounded_body(request, stream, self.max_bytes)
        try:
            return json.loads(body.decode(), parse_constant=refuse_constant)
        except RecursionError:
            raise ParseError("The JSON is nested too deeply.") from None
        except ValueError as error:
            raise ParseError(f"The body is not JSON: {error}") from None


class LongJSONParser(BoundedJSONParser):
    """Strict JSON of at most 1 MiB, for files of other tools."""

    max_bytes = MAX_FILE_BYTES


class SarifParser(LongJSONParser):
    """Strict JSON of at most 1 MiB, under SARIF's own media type."""

    media_type = "application/sarif+json"


def bounded_body(request: Any, stream: IO[Any] | None, limit: int) -> bytes:
    """Return the whole body of a request from its stream.

    Raises ApiError (413) and ParseError (400).
    """
    if stream is None:
        return b""
    declared = _declared_length(request)
    if declared > limit:
        if declared <= limit + _DRAIN_BYTES:
            _drain(stream)
        raise ApiError(too_large(limit))
    body = _read(stream, limit + 1)
    if len(body) > limit:
        _drain(stream)
        raise ApiError(too_large(limit))
    return body


def _declared_length(request: Any) -> int:
    length = str(request.META.get("CONTENT_LENGTH") or "") if request is not None else ""
    return int(length) if length.isdecimal() and len(length) < 20 else 0


def _read(stream: IO[Any], limit: int) -> bytes:
    """Read up to `limit` bytes; a stream may give fewer than asked for before its end."""
    parts: list[bytes] = []
    left = limit
    while left > 0:
        try:
            part = stream.read(min(left, 16_384))
        except Exception:  # noqa: BLE001  each server has errors of its own for a broken body
            raise ParseError("The body could not be read to its end.") from None
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _drain(stream: IO[Any]) -> None:
    _read(stream, _DRAIN_BYTES)


def refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")
