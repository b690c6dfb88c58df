"""A grammar of texts: `⟨symbol⟩` is drawn, `⟨symbol|filter⟩` is drawn and then encoded.

A symbol that ends in `*` is a secret: it is drawn once a row, and what the filter makes of it
must not survive. `⟨symbol=⟩` is drawn once a row as well and is no secret.
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import quopri
import random
import re
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import quote

_SYMBOL = re.compile(r"⟨([^⟨⟩|]+)(?:\|([a-z0-9]+))?⟩")
Draw = Callable[[random.Random], str]
Symbols = Mapping[str, Sequence[str] | Draw]


def _upper_percent(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


FILTERS: Mapping[str, Callable[[str], str]] = {
    "pct": lambda s: quote(s, safe=""),
    "allpct": _upper_percent,
    "json": lambda s: json.dumps(s)[1:-1],
    "html": html.escape,
    "ents": lambda s: "".join(f"&#{ord(c)};" for c in s),
    "hex": lambda s: s.encode().hex(),
    "b64": lambda s: base64.b64encode(s.encode()).decode(),
    "b64url": lambda s: base64.urlsafe_b64encode(s.encode()).decode().rstrip("="),
    "x": lambda s: "".join(f"\\x{b:02x}" for b in s.encode()),
    "u": lambda s: "".join(f"\\u{ord(c):04x}" for c in s),
    "oct": lambda s: "".join(f"\\{b:03o}" for b in s.encode()),
    "codes": lambda s: ", ".join(str(b) for b in s.encode()),
    "chars": lambda s: ", ".join(f"'{c}'" for c in s),
    "hexcodes": lambda s: ", ".join(f"0x{b:02x}" for b in s.encode()),
    "qp": lambda s: quopri.encodestring(s.encode(), quotetabs=True).decode().replace("=\n", ""),
    "spaced": lambda s: ":".join(
        binascii.hexlify(s.encode()).decode()[i : i + 2] for i in range(0, 2 * len(s), 2)
    ),
    "first": lambda s: s[: len(s) // 2],
    "second": lambda s: s[len(s) // 2 :],
    "a3": lambda s: s[: len(s) // 3],
    "b3": lambda s: s[len(s) // 3 : 2 * len(s) // 3],
    "c3": lambda s: s[2 * len(s) // 3 :],
    "lines": lambda s: "\n    ".join(s[i : i + 64] for i in range(0, len(s), 64)),
}
# Pieces that end a value are looked for only as long as they say something.
_LEAST_PIECE = 4


class Drawing:
    """One row in the making."""

    def __init__(self, symbols: Symbols, source: random.Random) -> None:
        self._symbols = symbols
        self._source = source
        self._fixed: dict[str, str] = {}
        self.secrets: list[str] = []

    def expand(self, text: str) -> str:
        """Return the text with every symbol drawn."""
        while True:
            match = _SYMBOL.search(text)
            if match is None:
                return text
            text = text[: match.start()] + self._draw(match.group(1), match.group(2)) + text[match.end() :]

    def _draw(self, symbol: str, filtered: str | None) -> str:
        name = symbol.rstrip("*=")
        if symbol not in self._fixed or name == symbol:
            options = self._symbols[name]
            drawn = options(self._source) if callable(options) else self._source.choice(options)
            self._fixed[symbol] = self.expand(drawn)
        value = self._fixed[symbol]
        if filtered is not None:
            value = FILTERS[filtered](value)
        if symbol.endswith("*"):
            pieces = [piece.strip() for piece in value.split("\n")]
            self.secrets += [piece for piece in pieces if len(piece) >= _LEAST_PIECE]
        return value
