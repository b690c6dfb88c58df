"""Answers and parameters that several views describe in the OpenAPI schema."""

from __future__ import annotations

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse

from reviews.api import schemas

ERRORS = {
    400: OpenApiResponse(schemas.ErrorSerializer, "SCHEMA_INVALID, with details per field"),
    401: OpenApiResponse(schemas.ErrorSerializer, "AUTH_DENIED"),
    403: OpenApiResponse(schemas.ErrorSerializer, "PERMISSION_DENIED"),
    429: OpenApiResponse(schemas.ErrorSerializer, "RATE_LIMITED, with Retry-After"),
    503: OpenApiResponse(schemas.ErrorSerializer, "DATABASE_UNAVAILABLE, with Retry-After"),
}
POST_ERRORS = {
    **ERRORS,
    413: OpenApiResponse(schemas.ErrorSerializer, "PAYLOAD_TOO_LARGE: over 64 KiB"),
    415: OpenApiResponse(schemas.ErrorSerializer, "UNSUPPORTED_MEDIA_TYPE"),
}
NOT_FOUND = {404: OpenApiResponse(schemas.ErrorSerializer, "NOT_FOUND")}
PAGE = OpenApiParameter("page", OpenApiTypes.INT, description="Page number, from 1; a page has 50 rows.")
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="Instead of the field idempotency_key.",
)
AFTER = OpenApiParameter(
    "after", OpenApiTypes.INT, description="The place at which a page begins: from next."
)
