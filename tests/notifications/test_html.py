"""The HTML mail: Outlook, dark mode, screen readers, contrast."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from uuid import UUID

import pytest

from notifications.providers.email import mime
from notifications.rendering import Comparison, EarlierFinding, Ending, ExcerptLine, ReportFile, render
from tests.notifications.samples import finding, report
from tests.pages.test_design import contrast

VOID = {"meta", "br", "img", "hr", "input", "link"}
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_DARK = re.compile(r"@media \(prefers-color-scheme: dark\) \{((?:[^{}]+\{[^{}]*\})*)\s*\}")


def everything() -> str:
    """Return the HTML of a message in which every part of the template occurs."""
    rows = (ExcerptLine("before", " ", 11), ExcerptLine("gone", "-"), ExcerptLine("come `x`", "+", 12))
    severities = ("critical", "high", "medium", "low", "strange")
    findings = [
        finding(
            severity=severity,
            title=f"{severity} remark",
            message="Prose with `code`.\n\n```\nx = 1\n```",
            excerpt=rows,
            anchor=f"finding-{n}",
            is_new=bool(n % 2),
            category="bug",
        )
        for n, severity in enumerate(severities)
    ]
    findings += [finding(severity="low", title="t" * 150, line=n, excerpt=rows * 5) for n in range(160)]
    whole = report(
        findings=tuple(findings),
        banner="The model was not available.",
        status_lines=("Model: none",),
        since=Comparison(1, tuple(EarlierFinding(finding(), fate) for fate in Ending) * 20),
        coverage=tuple(ReportFile(f"//depot/{n}", "skipped", "binary") for n in range(60)),
    )
    message = render(whole, "mail:ann@example.com", UUID(int=7), unsubscribe_url="https://x.test/u/")
    return mime.html_of(replace(message, repeat_notice="This may repeat an earlier message."))


HTML = everything()


@dataclass
class Box:
    """An element with its attributes and the elements in it."""

    tag: str
    attributes: dict[str, str]
    parent: Box | None
    text: str = ""
    children: list[Box] = field(default_factory=list)

    def style(self) -> dict[str, str]:
        pairs = (pair.partition(":") for pair in self.attributes.get("style", "").split(";") if pair)
        return {name.strip(): value.strip() for name, _, value in pairs}

    @property
    def classes(self) -> set[str]:
        return set(self.attributes.get("class", "").split())

    def line(self) -> list[Box]:
        """Return the element and all it stands in, the innermost first."""
        return [self, *(self.parent.line() if self.parent else [])]


class Tree(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.root = self.at = Box("document", {}, None)
        self.all: list[Box] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        box = Box(tag, {name: value or "" for name, value in attrs}, self.at)
        self.at.children.append(box)
        self.all.append(box)
        if tag not in VOID:
            self.at = box

    def handle_endtag(self, tag: str) -> None:
        assert self.at.tag == tag, f"</{tag}> closes <{self.at.tag}>"
        assert self.at.parent is not None
        self.at = self.at.parent

    def handle_data(self, data: str) -> None:
        self.at.text += data

    def tags(self, *names: str) -> list[Box]:
        return [box for box in self.all if box.tag in names]


TREE = Tree(HTML)
BODY = next(box for box in TREE.all if box.tag == "body")
STYLE = " ".join(box.text for box in TREE.tags("style"))


@cache
def dark_rules() -> list[tuple[str, dict[str, str]]]:
    """Return (selector, declarations) of the dark colours."""
    found = _DARK.search(STYLE)
    assert found
    rules = []
    for selectors, body in _RULE.findall(found.group(1)):
        pairs = [pair.split(":") for pair in body.split(";") if pair.strip()]
        assert all(value.strip().endswith("!important") for _, value in pairs), selectors
        declared = {name.strip(): value.split()[0] for name, value in pairs}
        rules += [(selector.strip(), declared) for selector in selectors.split(",")]
    return rules


def is_meant(selector: str, box: Box) -> bool:
    *outer, last = selector.split()
    fits = last.removeprefix(".") in box.classes if last.startswith(".") else last == box.tag
    around = {name for parent in box.line()[1:] for name in parent.classes}
    return fits and all(part.removeprefix(".") in around for part in outer)


def colours(box: Box, *, dark: bool) -> tuple[str, str]:
    """Return (text, ground) of an element, inherited as a browser does."""

    def found(names: tuple[str, ...], default: str) -> str:
        for element in box.line():
            if dark:
                for selector, declared in reversed(dark_rules()):
                    if is_meant(selector, element) and declared.keys() & set(names):
                        return next(declared[name] for name in names if name in declared)
            style = element.style()
            for name in names:
                if name in style:
                    return style[name]
            if "background-color" in names and "bgcolor" in element.attributes:
                return element.attributes["bgcolor"]
        return default

    return found(("color",), "#000000"), found(("background-color", "background"), "#ffffff")


def visible_texts() -> list[Box]:
    """Return the elements that show text; of those that look alike, one."""
    found = [
        box
        for box in TREE.all
        if box.text.strip().strip("\u00a0")
        and BODY in box.line()
        and not any(element.style().get("display") == "none" for element in box.line())
    ]
    looks = {tuple((e.tag, *sorted(e.attributes.items())) for e in box.line()): box for box in found}
    return list(looks.values())


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_stands_out_from_its_ground(dark: bool) -> None:
    texts = visible_texts()
    assert len(texts) > 40
    for box in texts:
        text, ground = colours(box, dark=dark)
        assert contrast(text, ground) >= 4.5, (box.tag, box.classes, box.text.strip()[:40], text, ground)


def test_in_the_dark_nothing_keeps_a_light_ground() -> None:
    for box in TREE.all:
        if "bgcolor" in box.attributes and "button" not in box.classes:
            assert contrast(colours(box, dark=True)[1], "#000000") < 3, (box.tag, box.attributes)


def test_the_html_declares_its_dark_colours() -> None:
    metas = {box.attributes.get("name"): box.attributes.get("content") for box in TREE.tags("meta")}
    assert metas["color-scheme"] == metas["supported-color-schemes"] == "light dark"
    assert "color-scheme: light dark" in STYLE


def test_it_is_laid_out_with_tables_that_say_they_are_no_data() -> None:
    tables = TREE.tags("table")
    assert tables
    for table in tables:
        assert table.attributes.get("role") == "presentation"
        assert {"cellpadding", "cellspacing", "border"} <= table.attributes.keys()
    assert not TREE.tags("th", "caption", "thead")


def test_nothing_is_used_that_outlook_does_not_know() -> None:
    for box in TREE.all:
        style = box.style()
        assert style.get("display", "none") == "none"
        assert not style.keys() & {
            "position",
            "float",
            "grid",
            "flex",
            "gap",
            "background",
            "width",
            "height",
        }
        if "background-color" in style:
            assert box.attributes.get("bgcolor") == style["background-color"]
    assert "<!--[if mso]>" in HTML
    assert HTML.count("<!--[if mso]>") == HTML.count("<![endif]-->")


def test_nothing_is_loaded_and_nothing_runs() -> None:
    assert not TREE.tags("img", "script", "link", "iframe", "form", "input", "object", "svg")
    assert "url(" not in HTML
    assert "@import" not in HTML
    assert "http-equiv" not in HTML
    assert not [name for box in TREE.all for name in box.attributes if name.startswith("on")]


def test_screen_readers_find_language_title_and_headings_in_order() -> None:
    assert TREE.tags("html")[0].attributes["lang"] == "en"
    assert TREE.tags("title")[0].text.strip()
    article = next(box for box in TREE.all if box.attributes.get("role") == "article")
    assert (article.attributes["lang"], article.attributes["aria-label"]) == ("en", "Code review")
    levels = [int(box.tag[1]) for box in TREE.tags("h1", "h2", "h3")]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_links_say_where_they_lead() -> None:
    words = {box.text.strip() for box in TREE.tags("a")}
    assert {"Open the review", "critical remark", "Unsubscribe"} <= words
    assert not words & {"", "here", "link", "more"}


def test_severities_and_changes_are_text_not_colour_alone() -> None:
    text = " ".join(box.text for box in TREE.all)
    for word in ("Critical (1)", "1 critical", "New", "Still there", "+", "-"):
        assert word in text


def test_the_frame_is_small_enough_to_leave_room_for_findings() -> None:
    small = render(report(findings=()), "mail:ann@example.com", UUID(int=7)).html
    assert len(small.encode()) < 6_500


def test_the_markup_is_well_formed() -> None:
    assert TREE.at is TREE.root  # handle_endtag checked each pair
