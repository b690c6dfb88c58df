"""Contrast of every text and background pair that occurs is at least 4.5:1, light and dark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

STATIC = Path(__file__).parents[2] / "reviews" / "static" / "reviews"
TEMPLATES = Path(__file__).parents[2] / "templates"

_TOKEN = re.compile(r"--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);")
TOKENS = {name: (light, dark) for name, light, dark in _TOKEN.findall((STATIC / "tokens.css").read_text())}
GROUNDS = ("page", "surface", "sunken")
CODE = ("code-keyword", "code-string", "code-number", "code-name", "code-comment")
PAIRS = [
    *((text, ground) for text in ("text", "muted", "accent", "danger") for ground in GROUNDS),
    *((text, f"{text}-soft") for text in ("ok", "warn", "danger", "severe", "accent")),
    *(("text", f"{ground}-soft") for ground in ("warn", "danger", "accent")),
    *((text, ground) for text in (*CODE, "text", "muted") for ground in ("sunken", "added", "removed")),
    ("on-accent", "accent"),
    ("on-accent", "accent-strong"),
    ("on-accent", "danger"),
    ("accent-strong", "surface"),
]


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def test_contrast_ratio_of_known_colours() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), PAIRS, ids=lambda name: name)
def test_text_contrast_is_at_least_4_5(text: str, ground: str, scheme: int) -> None:
    assert contrast(TOKENS[text][scheme], TOKENS[ground][scheme]) >= 4.5


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ground", GROUNDS)
def test_edge_contrast_of_fields_and_buttons(ground: str, scheme: int) -> None:
    assert contrast(TOKENS["line-strong"][scheme], TOKENS[ground][scheme]) >= 3


def test_colours_are_defined_in_tokens_css_only() -> None:
    for sheet in ("states.css", "pages.css", "admin.css"):
        rules = re.sub(r'url\(".*?"\)', "", (STATIC / sheet).read_text())
        assert re.findall(r"#[0-9a-fA-F]{3,8}\b(?=[;\s,)])|rgba?\(", rules) == [], sheet


def test_css_variables_are_defined() -> None:
    sheets = {path.name: path.read_text() for path in STATIC.glob("*.css")}
    known = {name for text in sheets.values() for name in re.findall(r"(--[a-z-]+):", text)}
    for name, text in sheets.items():
        assert set(re.findall(r"var\((--[a-z-]+)\)", text)) <= known, name


def test_templates_have_no_inline_styles_or_scripts() -> None:
    pages = [path for path in TEMPLATES.rglob("*.html") if path.parent.name != "notifications"]  # mail
    assert pages
    for path in pages:
        text = path.read_text()
        assert not re.search(r"""\sstyle=|\son[a-z]+=["']|javascript:|<style|https?://""", text), path
        assert not re.search(r"<script(?![^>]*\ssrc=)", text), path
        assert not re.search(r"\|\s*safe\b|autoescape off", text), path
