"""Headers that every answer must carry, and texts that no page may contain."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

HEADERS = {
    "Permissions-Policy": "camera=()",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'self'",
}


class _Inline(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "script" and "src" not in values and values.get("type") != "application/json":
            self.found.append("script")
        if tag in {"style", "base", "object", "embed"}:
            self.found.append(tag)
        # A frame of our own whose content has no origin and may do nothing.
        if tag == "iframe" and (values.get("sandbox") != "" or not values.get("src", "").startswith("/")):
            self.found.append(tag)
        for name, value in values.items():
            if name.startswith("on") or name in {"style", "srcdoc"}:
                self.found.append(f"{tag} {name}")
            if name in {"href", "src", "action", "formaction"} and _is_foreign(value):
                self.found.append(f"{tag} {name}={value[:60]}")


def _is_foreign(value: str) -> bool:
    text = value.strip().lower()
    return text.startswith(("javascript:", "vbscript:", "data:text", "//"))


def inline_code(html: str) -> list[str]:
    """Return what a policy without unsafe sources would block, or would have to."""
    parser = _Inline()
    parser.feed(html)
    return parser.found


def assert_hardened(response: Any, where: str = "", *, is_read: bool = True) -> None:
    """Check an answer's headers and, unless others see the same page, its markup."""
    for header, part in HEADERS.items():
        assert part in response.headers.get(header, ""), (where, header)
    if not response.request["PATH_INFO"].startswith(("/static/", "/api/schema/")):
        assert "no-store" in response.headers.get("Cache-Control", ""), where
    assert "unsafe" not in response["Content-Security-Policy"], where
    assert "frame-ancestors 'none'" in response["Content-Security-Policy"], where
    if is_read and "html" in response.headers.get("Content-Type", "") and not response.streaming:
        assert inline_code(response.content.decode()) == [], where
