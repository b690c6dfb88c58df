"""The addresses of the URL configuration, with the keys of rows filled in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.urls.resolvers import RoutePattern


def addresses(resolver: Any = None, namespace: str = "") -> Iterator[tuple[str, URLPattern]]:
    """Yield (name with its namespace, pattern) of every address."""
    for entry in (resolver or get_resolver()).url_patterns:
        if isinstance(entry, URLResolver):
            inner = f"{namespace}{entry.namespace}:" if entry.namespace else namespace
            yield from addresses(entry, inner)
        else:
            assert isinstance(entry, URLPattern)
            yield f"{namespace}{entry.name}", entry


def parameters(pattern: URLPattern) -> list[str]:
    """Return the names of the parameters of an address, without those of its prefixes."""
    route = pattern.pattern
    return list(route.converters) if isinstance(route, RoutePattern) else list(route.regex.groupindex)


def admin_addresses(keys: Mapping[str, Any], *, only_rows: bool = False) -> list[str]:
    """Return the admin's addresses of these tables and of their rows: table -> key."""
    found = []
    for name, pattern in addresses():
        table = next((t for t in keys if name.startswith(f"admin:{t}_")), None)
        needed = parameters(pattern)
        if table is None or len(needed) > 1 or (only_rows and not needed):
            continue
        found.append(reverse(name, args=[keys[table]] if needed else []))
    return found
