"""The page of providers: capabilities, circuits and last errors of each channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from django.db.models import Max, Q
from django.utils.safestring import SafeString

from criticizer.admin_site.list_rendering import circuit_badge
from criticizer.admin_site.viewing_scope import narrowed, of_job
from criticizer.codehosts.registry import HOSTS
from criticizer.models import Circuit
from criticizer.wording import plural_count
from notifications import config
from notifications.admin.capability_table import key_window, span
from notifications.delivery.uncertainty_policy import can_only_hold
from notifications.models import DeliveryAttempt
from notifications.providers.base import Capabilities, LookUpBy
from notifications.recipients import CHANNELS as CHANNELS
from notifications.recipients import HOST_CHANNELS, example_pull_request, inline_channel, variables_of

MAX_CIRCUITS = 20  # per channel: every webhook host has its own
# Errors are rare: the newest one is searched among the newest attempts, not in the whole table.
_NEWEST_ATTEMPTS = 20_000

_EXAMPLES = {
    "mail": "ann@example.com",
    "webhook": "https://ci.example.com/hooks/review",
    "slack": "C0123ABCD",
    "swarm": "review-123",
    **{channel: example_pull_request(channel) for channel in HOST_CHANNELS},
}


_TITLES: dict[str, str] = {
    "swarm": "P4 Code Review (Swarm)",
    **{host: kind.label for host, kind in HOSTS.items()},
    **{inline_channel(host): f"{kind.label}, inline comments" for host, kind in HOSTS.items()},
}


@dataclass(frozen=True, slots=True)
class ProviderView:
    """One channel. `facts` is None where it is not configured; `to_set` then says what to set."""

    channel: str
    provider: str
    facts: Sequence[tuple[str, str]] | None
    to_set: str
    example: str
    circuits: Sequence[tuple[Circuit, SafeString]]  # each with its badge
    hidden_circuits: int
    last_error: DeliveryAttempt | None

    @property
    def title(self) -> str:
        return _TITLES.get(self.channel, self.channel.capitalize())


def problem() -> str:
    """Return which channels are misconfigured and why, or ""."""
    return "; ".join(f"{channel}: {reason}" for channel, reason in config.problems().items())


def views(user: Any) -> list[ProviderView]:
    """Return each channel; its last error is one of a delivery that the user may see."""
    providers = config.providers()
    found = []
    for channel in CHANNELS:
        provider = providers.get(channel)
        names = (
            Q(name__startswith=f"provider:{channel}:")
            | Q(name__startswith=f"{channel}:")
            | Q(name__in=[f"provider:{channel}", f"provider:{channel}-archive"])
        )
        if provider is not None:
            names |= Q(name=f"provider:{provider.name}")
        circuits = Circuit.objects.filter(names)
        # Closed circuits come last.
        listed = sorted(circuits.order_by("name")[:500], key=lambda c: (c.state == "closed", c.name))
        found.append(
            ProviderView(
                channel=channel,
                provider=provider.name if provider else "",
                facts=facts_of(provider.capabilities) if provider else None,
                to_set=variables_of(channel),
                example=_EXAMPLES.get(channel, ""),
                circuits=[(circuit, circuit_badge(circuit)) for circuit in listed[:MAX_CIRCUITS]],
                hidden_circuits=max(len(listed) - MAX_CIRCUITS, 0),
                last_error=_last_error(channel, user),
            )
        )
    return found


def facts_of(capabilities: Capabilities) -> list[tuple[str, str]]:
    """Return a provider's capabilities as pairs of name and text."""
    by = {LookUpBy.ID: "by the provider's id", LookUpBy.KEY: "by our key"}
    look_up = ", ".join(text for kind, text in by.items() if kind in capabilities.look_up) or "not possible"
    facts = [("Repeats are one message", key_window(capabilities)), ("Look-up", look_up)]
    if capabilities.look_up:
        looks = plural_count(capabilities.looks, "look")
        if capabilities.settle_seconds:
            looks += f", the first after {span(capabilities.settle_seconds)}"
        if capabilities.looks > 1:
            looks += f", {span(capabilities.look_spacing_seconds)} apart"
        facts.append(("Absence is proven after", looks))
        if capabilities.absence:
            facts.append(("Proof of absence", capabilities.absence.replace("`", "")))
        if capabilities.retention_seconds != inf:
            facts.append(("Keeps messages for", span(capabilities.retention_seconds)))
    if can_only_hold(capabilities):
        facts.append(("An attempt without an answer", "is held for an operator"))
    if capabilities.max_bytes:
        facts.append(("Largest message", f"{capabilities.max_bytes // 1000:,} kB"))
    return facts


def _last_error(channel: str, user: Any) -> DeliveryAttempt | None:
    newest = DeliveryAttempt.objects.aggregate(newest=Max("id"))["newest"] or 0
    rows = DeliveryAttempt.objects.filter(
        id__gt=newest - _NEWEST_ATTEMPTS, delivery__recipient__startswith=f"{channel}:"
    )
    rows = narrowed(rows, user, of_job("delivery__job"))
    return rows.exclude(error_class="").select_related("delivery").order_by("-id").first()
