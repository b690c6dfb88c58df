"""Base class of the API's views."""

from __future__ import annotations

from typing import Any, ClassVar

from rest_framework.exceptions import ValidationError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.request import Request
from rest_framework.views import APIView

_ECHOED = 20  # unknown parameters


class _JsonOnly(DefaultContentNegotiation):
    """Chooses JSON for every answer.

    So `?format=csv` is an unknown parameter, not an address that does not exist.
    """

    def filter_renderers(self, renderers: Any, format: str) -> Any:  # noqa: A002  DRF's name
        return renderers


class ApiView(APIView):
    """Base class of the API's views.

    `query` names the parameters of GET (guarantee G221); other methods take none. `reviews.roles.API` says
    who may use it.
    """

    query: ClassVar[tuple[str, ...]] = ()
    content_negotiation_class = _JsonOnly

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        taken = self.query if request.method in ("GET", "HEAD") else ()
        if unknown := [name[:64] for name in request.query_params if name not in taken][:_ECHOED]:
            accepted = ", ".join(taken) or "none"
            raise ValidationError(
                {name: [f"Unknown query parameter; accepted: {accepted}."] for name in unknown}
            )
