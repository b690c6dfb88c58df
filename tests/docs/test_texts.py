"""docs/texts.md: the product says its texts, and the tests that it names look for them."""

from __future__ import annotations

import re
from pathlib import Path

from django.conf import settings

from tests.docs.test_guarantees import APPS, names_of_tests

ROOT = Path(settings.BASE_DIR)
_ROW = re.compile(
    r"^\|[^|]*\|[^|]*\| (?P<text>[^|]+) \|[^|]*\| `(?P<file>tests/[\w/]+\.py)(?:::(?P<test>\w+))?` \|$"
)


def _letters(text: str) -> str:
    return re.sub(r"[^a-z]", "", text.lower())


def test_every_text_is_the_product_s_and_has_its_test() -> None:
    rows = [
        found for line in (ROOT / "docs" / "texts.md").read_text().splitlines() if (found := _ROW.match(line))
    ]
    assert len(rows) == 20
    product = _letters("".join(file.read_text() for app in APPS for file in (ROOT / app).rglob("*.py")))
    for row in rows:
        parts = [_letters(part) for part in row["text"].split("{…}")]
        said = [part for part in parts if len(part) >= 12] or [max(parts, key=len)]
        assert any(part[-17:] in product or part[:17] in product for part in said), row["text"]
        assert (ROOT / row["file"]).exists(), row["file"]
        assert row["test"] is None or row["test"] in names_of_tests(row["file"]), row["test"]
        tested = _letters((ROOT / row["file"]).read_text())
        assert any(part[:25] in tested for part in parts if len(part) > 8) or row["test"], row["text"]
