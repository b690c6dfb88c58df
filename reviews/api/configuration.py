"""The API's check of a `.criticizer.yml`: a text in, what would hold and the warnings out."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from reviews.api.base import ApiView
from reviews.api.described import POST_ERRORS
from reviews.api.serializers import Prose, StrictSerializer, validated
from reviews.configuration.resolving import INVALID_SYNTAX, INVALID_VALUE, Resolved, resolve
from reviews.repository_configuration import ceiling


class FileText(Prose):
    """A JSON string with any characters."""

    def run_validation(self, data: Any = serializers.empty) -> Any:
        # A NUL is the file's fault, not the request's: DRF would refuse it.
        return self.to_internal_value(data) if isinstance(data, str) else super().run_validation(data)


class ConfigurationTextSerializer(StrictSerializer):
    """The body of `POST /api/v1/config/validate/`."""

    text = FileText(allow_blank=True, help_text="The text of the file. The body holds 64 KiB.")


class ConfigurationWarningSerializer(serializers.Serializer[Any]):
    """One thing that is wrong with the file."""

    code = serializers.ChoiceField(
        choices=[INVALID_SYNTAX, INVALID_VALUE], help_text="The whole file is not used, or a part of it."
    )
    kind = serializers.CharField(help_text="Such as `syntax`, `wrong_type`, `unknown_key`, `above_ceiling`.")
    path = serializers.CharField(allow_blank=True, help_text="The key, such as `check.block`; may be empty.")
    line = serializers.IntegerField(help_text="From 1; 0 where it is of the whole file.")
    column = serializers.IntegerField(help_text="From 1; 0 where it is of the whole file.")
    text = serializers.CharField(help_text="A sentence for people.")


class ConfigurationSerializer(serializers.Serializer[Any]):
    """The configuration that a file gives on this installation."""

    values = serializers.DictField(help_text="The value of each key by its path.")
    sources = serializers.DictField(
        child=serializers.CharField(),
        help_text="Where each value is from: file, default, operator, strict reading.",
    )
    warnings = ConfigurationWarningSerializer(many=True, help_text="At most 50, in the order of the lines.")
    hidden = serializers.IntegerField(help_text="How many further warnings there are.")


class ConfigurationCheck(ApiView):
    @extend_schema(
        operation_id="config_validate",
        summary="Check a .criticizer.yml",
        description="Stores nothing. Without a file before it, a part that protects and cannot be read means"
        " that no language model is called.",
        request=ConfigurationTextSerializer,
        responses={200: ConfigurationSerializer, **POST_ERRORS},
    )
    def post(self, request: Request) -> Response:
        raw = validated(ConfigurationTextSerializer, request.data)["text"].encode("utf-8", "replace")
        return Response(shown(resolve(raw, ceiling())))


def shown(resolved: Resolved) -> dict[str, Any]:
    """Return a configuration as the API shows it."""
    return dict(ConfigurationSerializer(resolved).data)
