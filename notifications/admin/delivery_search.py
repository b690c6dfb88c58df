"""Orders, search keys and views of the list of deliveries, each served by an index."""

from __future__ import annotations

from django.db.models import Q

from criticizer.admin_site.ordering import Ordering
from criticizer.admin_site.search_query import Key, age, exact, number
from criticizer.resilience.failures import ErrorClass
from notifications.recipients import HOST_CHANNELS
from notifications.states import DeliveryStatus


def _recipient(channel: str, example: str) -> Key:
    # A recipient such as `mail:ann@example.com` is a valid search as it is.
    return Key(lambda text: Q(recipient=f"{channel}:{text}"), "The recipient", example)


ORDERINGS = {
    "newest": Ordering("Newest", ("-created_at", "-id")),
    "oldest": Ordering("Oldest", ("created_at", "id")),
}
KEYS = {
    "cl": exact("changelist_id", "The changelist", example="12345"),
    "state": exact("status", "The state; several with commas", choices=DeliveryStatus.choices),
    "mail": _recipient("mail", "ann@example.com"),
    "slack": _recipient("slack", "C0123ABCD"),
    "swarm": _recipient("swarm", "review-123"),
    **{channel: _recipient(channel, "acme/website#12") for channel in HOST_CHANNELS},
    "webhook": _recipient("webhook", "https://ci.example.com/hook"),
    "id": exact("notification_id", "The provider's own id", example="msg-1"),
    "provider": exact("provider", "The provider", example="smtp"),
    "error": exact("error_class", "The error class", choices=[(c.value, c.value) for c in ErrorClass]),
    "version": number("review_version", "The version of the review", example=">1"),
    "attempts": number("attempts", "The number of attempts", example=">1"),
    "age": age("created_at", "How long ago it was created", example="<1d"),
}
VIEWS = {
    "Uncertain": "q=state%3Auncertain",
    "Not sent yet": "q=state%3Apending%2Csending%2Creconciling",
    "Failed": "q=state%3Afailed",
}
