"""The OpenAPI schema and its browser.

The browser works under a Content-Security-Policy without inline code.
"""

from __future__ import annotations

from typing import Any

from django.utils.decorators import method_decorator
from django.views.decorators.cache import cache_page
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "reviews.api.auth.ApiKeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "A key made by `manage.py create_api_key`.",
        }


# It needs no key and takes long to make; it is the same until the next start.
@method_decorator(cache_page(3600), name="dispatch")
class SchemaView(SpectacularAPIView):
    throttle_classes = []


class DocsView(SpectacularSwaggerSplitView):
    throttle_classes = []
    url_name = "api-schema"
    template_name = "api/docs.html"
