"""Links in messages, as the test client follows them."""

from __future__ import annotations

from urllib.parse import urlsplit


def path_of(link: str) -> str:
    """Return the path and the query of a link of ours."""
    parts = urlsplit(link)
    return f"{parts.path}?{parts.query}"
