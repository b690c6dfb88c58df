"""Checks of a complete page: structure, width, axe-core's rules, a picture.

A click ends when the next page begins to arrive. Whoever measures it or asks what is *not* on
it waits until it has arrived: everything here does; a test's own measurements begin with
`settled`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

PICTURES = os.environ.get(
    "CRITICIZER_SCREENSHOTS", ""
)  # the directory that takes them, where people want some

# (width, colour scheme) of tests that use a page; what only layout or colours can break is measured at
# several widths in `test_layout` and in both schemes in `test_axe`.
LOOKS = (
    [(390, "dark"), (1280, "light"), (390, "light"), (1280, "dark")]
    if PICTURES
    else [(390, "dark"), pytest.param(1280, "light", marks=pytest.mark.long)]
)
_AXE = Axe()
LIVE_MS = 31_000  # longer than any interval at which a page asks what is new

# Runs in the page: what an assistive technology would stumble over.
_STRUCTURE = """() => {
  const wrong = [];
  const name = (e) => `${e.tagName.toLowerCase()}${e.id ? "#" + e.id : ""}.${e.className}`;
  const shown = (e) => e.checkVisibility();
  if (document.querySelectorAll("h1").length !== 1) wrong.push("not exactly one h1");
  if (document.querySelectorAll("main").length !== 1) wrong.push("not exactly one main");
  if (!document.documentElement.lang) wrong.push("no language");
  for (const e of document.querySelectorAll("input:not([type=hidden]), select, textarea"))
    if (shown(e) && !e.labels?.length && !e.ariaLabel && e.type !== "submit")
      wrong.push(`no label: ${name(e)}`);
  for (const e of document.querySelectorAll("table"))
    if (!e.caption) wrong.push(`no caption: ${name(e)}`);
  for (const e of document.querySelectorAll("th"))
    if (!e.scope) wrong.push(`no scope: ${e.textContent.trim()}`);
  for (const e of document.querySelectorAll("a[href], button"))
    if (shown(e) && !e.textContent.trim() && !e.ariaLabel && !e.title) wrong.push(`no name: ${name(e)}`);
  for (const e of document.querySelectorAll("img")) if (e.alt === null) wrong.push(`no alt: ${name(e)}`);
  for (const e of document.querySelectorAll("[style]")) wrong.push(`style attribute: ${name(e)}`);
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  for (const id of new Set(ids.filter((id, i) => ids.indexOf(id) !== i))) wrong.push(`id twice: ${id}`);
  let level = 0;
  for (const e of document.querySelectorAll("h1, h2, h3, h4, h5")) {
    const next = Number(e.tagName[1]);
    if (next > level + 1) wrong.push(`heading skips a level: ${e.textContent.trim()}`);
    level = next;
  }
  for (const e of document.querySelectorAll("[aria-labelledby]"))
    if (!document.getElementById(e.getAttribute("aria-labelledby"))) wrong.push(`lost label: ${name(e)}`);
  return wrong;
}"""


def settled(page: Page) -> Page:
    """Return the page when all of it has arrived."""
    page.wait_for_load_state()
    return page


def ask_now(page: Page) -> None:
    """Let the page ask the server now, not after its interval.

    `visit` gave the page a clock.
    """
    page.clock.fast_forward(LIVE_MS)


def structure(page: Page) -> list[str]:
    """Return what is wrong with the page's headings, labels, names and ids."""
    found: list[str] = settled(page).evaluate(_STRUCTURE)
    return found


def is_too_wide(page: Page) -> bool:
    """Say whether the page scrolls sideways."""
    return bool(settled(page).evaluate("document.documentElement.scrollWidth > innerWidth"))


def axe_says(page: Page, *rules: str) -> list[str]:
    """Return the rules of axe-core that do not hold, and where; `rules` limits it to some.

    axe styles its measurements inline, which the policy of the pages refuses: tests expect "inline".
    """
    options: dict[str, object] = {"resultTypes": ["violations"], "preload": False}
    if rules:
        options["runOnly"] = {"type": "rule", "values": list(rules)}
    if settled(page).evaluate("typeof axe === 'undefined'"):
        page.evaluate(_AXE.axe_script)
    found = page.evaluate("(options) => axe.run(options).then((results) => results.violations)", options)
    return [
        f"{rule['id']}: {node['target']} {node['any'][0]['message'] if node['any'] else ''}"
        for rule in found
        for node in rule["nodes"][:3]
    ]


def picture(page: Page, name: str) -> None:
    """Take a picture of the whole page for people to look at, where pictures are asked for."""
    if PICTURES:
        settled(page).screenshot(path=Path(PICTURES) / f"{name}.png", full_page=True)
