"""Sections of documents: the mapping of changes to them, and the reading of answers."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from criticizer.redaction import Redactor
from reviews.drift.meaning import looking
from reviews.drift.meaning.changed import ChangedFile, facts_of
from reviews.drift.meaning.mapping import Mapped, Sections, mapped
from reviews.drift.meaning.sections import MAX_SECTION_CHARS, Section, sections_of
from reviews.drift.wording import TEXTS, Unsure, meaning_summary
from reviews.reviewers.answer import UnusableAnswer
from reviews.reviewers.base import Side
from reviews.reviewers.chunks import Chunk, ShownHunk, ShownLine
from reviews.reviewers.document_answers import SectionVerdict, judged, parse_document_answer
from reviews.reviewers.document_sections import ShownSection
from tests import skips
from tests.drift.memory_tree import MemoryTree

MARKDOWN = """Preface of some length.

# One

Text of one.

```sh
# no heading, a comment
```

Two
---

| a | b |
|---|---|
| cell | cell |

<!-- drift: off -->
## Hidden
Nothing here is read.
<!-- drift: on -->

## Three ##

- `item`
"""
RESTRUCTURED = """=====
Title
=====

Some text of the page.

Part
----

More text of the part.
"""


def places(found: Sequence[Section]) -> list[tuple[str, int]]:
    return [(one.heading, one.line) for one in found]


def test_markdown_is_cut_at_its_headings() -> None:
    found = sections_of("a.md", MARKDOWN)
    assert places(found) == [("", 1), ("One", 3), ("Two", 11)]
    assert "# no heading" in found[1].text
    assert "Nothing here" not in "".join(one.text for one in found)


def test_restructured_text_is_cut_at_its_headings() -> None:
    assert places(sections_of("a.rst", RESTRUCTURED)) == [("Title", 1), ("Part", 7)]


def test_a_section_begins_at_its_line_and_has_the_text_of_the_document() -> None:
    for name, text in (("a.md", MARKDOWN.replace("<!--", "(")), ("a.rst", RESTRUCTURED)):
        lines = text.split("\n")
        for one in sections_of(name, text):
            own = one.text.split("\n")
            assert lines[one.line - 1 : one.line - 1 + len(own)] == own


@settings(max_examples=skips.examples(200), deadline=None)
@given(
    st.text(alphabet=st.sampled_from("#=-~`|\n\r a.b*<>!:"), max_size=400), st.sampled_from(["a.md", "a.rst"])
)
def test_every_text_has_sections_within_bounds(text: str, name: str) -> None:
    for one in sections_of(name, text):
        assert one.line >= 1
        assert one.text.strip()


def test_long_sections_are_cut() -> None:
    text = "# One\n\n" + "\n\n".join(f"Paragraph {n} " + "word " * 60 for n in range(100))
    found = sections_of("a.md", text)
    assert len(found) > 5
    assert all(len(one.text) <= MAX_SECTION_CHARS for one in found)
    assert {one.heading for one in found} == {"One"}


def sections(**texts: str) -> list[Section]:
    return [Section(f"docs/{name}.md", name, 1, text) for name, text in texts.items()]


def edited(before: str, after: str, path: str = "src/pay/refund.py") -> ChangedFile:
    return ChangedFile(path, path, before, after)


CODE = """LIMIT_OF_DAYS = 3


def refund_order(order):
    return order.total


def other():
    return 1
"""
CHANGED = CODE.replace("order.total", "order.total * 2")
NOISE = {f"noise{n}": f"Cooking of {n} potatoes takes an hour." for n in range(8)}


def best(found: Sequence[Mapped]) -> str:
    return found[0].section.heading


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("See `src/pay/refund.py` for it.", "reference"),
        ("See [the code](../src/pay/refund.py) for it.", "reference"),
        ("It is in src/pay/refund.py.", "reference"),
        ("The module `src.pay.refund` does that.", "reference"),
        ("The file `refund.py` does that.", "reference"),
        ("Call `refund_order(order)` once.", "symbol"),
        ("```python\nrefund_order(1)\n```", "symbol"),
        ("An order is refunded by its total.", "text"),
    ],
)
def test_each_step_finds_its_section(text: str, how: str) -> None:
    found = mapped(Sections(sections(wanted=text, **NOISE)), [edited(CODE, CHANGED)], {"refund.py"})
    assert best(found) == "wanted"
    assert how in found[0].how
    assert found[0].files == ("src/pay/refund.py",)


def test_a_symbol_that_the_change_touches_counts_more_than_one_of_the_same_file() -> None:
    texts = sections(near="Call `other` here.", wanted="Call `refund_order` here.", **NOISE)
    found = mapped(Sections(texts), [edited(CODE, CHANGED)])
    assert [one.section.heading for one in found[:2]] == ["wanted", "near"]


def test_a_name_of_many_sections_counts_less() -> None:
    many = {f"many{n}": f"Call `refund_order` in case {n}." for n in range(9)}
    found = mapped(Sections(sections(**many)), [edited(CODE, CHANGED)])
    alone = mapped(Sections(sections(many0=many["many0"], **NOISE)), [edited(CODE, CHANGED)])
    assert found[0].score < alone[0].score


def test_a_file_without_a_changed_line_and_a_document_map_to_nothing() -> None:
    texts = Sections(sections(wanted="Call `refund_order` here."))
    assert mapped(texts, [edited(CODE, CODE)]) == []
    assert mapped(texts, [edited(CODE, CHANGED, "docs/refund.md")]) == []


def test_what_is_touched_is_the_definition_around_a_line() -> None:
    facts = facts_of(edited(CODE, CHANGED))
    assert "refund_order" in facts.touched
    assert "other" in facts.defines - facts.touched


def test_the_order_of_sections_and_files_changes_nothing() -> None:
    texts = sections(a="Call `refund_order` here.", b="See `src/pay/refund.py`.", **NOISE)
    files = [edited(CODE, CHANGED), edited("a = 1\n", "potatoes = 2\n", "src/b.py")]
    expected = mapped(Sections(texts), files)
    for seed in range(5):
        order = random.Random(seed)
        assert mapped(Sections(order.sample(texts, len(texts))), order.sample(files, 2)) == expected


def looked(documents: dict[str, bytes], **more: int) -> list[Mapped]:
    before = MemoryTree({**documents, "src/pay/refund.py": CODE.encode()})
    after = MemoryTree({**documents, "src/pay/refund.py": CHANGED.encode()})
    return looking.described(
        before, after, {}, sorted(documents), more.get("most", 10), keeps_rest=bool(more.get("rest"))
    )


def test_only_the_documents_that_are_named_are_read() -> None:
    documents = {"a.md": b"Call `refund_order` here.\n", "b.md": b"Call `refund_order` there.\n"}
    before = MemoryTree({**documents, "src/pay/refund.py": CODE.encode()})
    after = MemoryTree({**documents, "src/pay/refund.py": CHANGED.encode()})
    found = looking.described(before, after, {}, ["b.md"], 10, keeps_rest=False)
    assert [one.section.document for one in found] == ["b.md"]


def test_a_section_about_something_else_is_kept_for_a_comparison_by_meaning_alone() -> None:
    documents = {"a.md": b"Call `refund_order` here.\n", "b.md": b"Potatoes are boiled.\n"}
    assert [one.section.document for one in looked(documents)] == ["a.md"]
    both = looked(documents, rest=1)
    assert [(one.section.document, one.files) for one in both] == [
        ("a.md", ("src/pay/refund.py",)),
        ("b.md", ()),
    ]


def test_no_more_sections_are_kept_than_are_wanted() -> None:
    documents = {f"{n}.md": b"Call `refund_order` here.\n" for n in range(9)}
    assert len(looked(documents, most=4)) == 4


def test_a_renamed_file_maps_by_both_names() -> None:
    documents = {"a.md": b"See `src/pay/refund.py` for it.\n"}
    before = MemoryTree({**documents, "src/pay/refund.py": CODE.encode()})
    after = MemoryTree({**documents, "src/pay/back.py": CHANGED.encode()})
    renames = {"src/pay/refund.py": "src/pay/back.py"}
    (found,) = looking.described(before, after, renames, ["a.md"], 10, keeps_rest=False)
    assert (found.files, found.how[0]) == (("src/pay/back.py",), "reference")


TEXT = "# Retries\n\nA failed call is repeated.\nIt waits\none second."
SECTION = ShownSection("//d/a.md", 1, Redactor().redact("//d/a.md"), Redactor().redact(TEXT), (0,), 1.0, ())
CHUNK = Chunk(
    (
        ShownHunk(
            "F1H1",
            0,
            Redactor().redact("hunk"),
            (
                ShownLine(Side.NEW, 3, " ", "def far_away_from_it():", is_near_change=False),
                ShownLine(Side.NEW, 7, "+", "    wait(seconds=5)", is_near_change=True),
                ShownLine(Side.NEW, 8, "+", "    # wait five seconds here", is_near_change=True),
            ),
        ),
    )
)


def verdict_on(**fields: object) -> tuple[SectionVerdict, int | None, int | None]:
    answer = {
        "verdict": "drifted",
        "quote_document": "It waits\none second.",
        "quote_code": "wait(seconds=5)",
    }
    found = judged(parse_document_answer(json.dumps({**answer, **fields})), SECTION, CHUNK)
    return found.verdict, found.first, found.last


def test_quotes_of_both_sides_are_found_across_lines_and_spaces() -> None:
    assert verdict_on() == (SectionVerdict.DRIFTED, 3, 4)
    assert verdict_on(quote_document="It waits one   second") == (SectionVerdict.DRIFTED, 3, 4)
    assert verdict_on(quote_document="A failed call is repeated.") == (SectionVerdict.DRIFTED, 2, 2)
    assert verdict_on(quote_code="7 +     wait(seconds=5)") == (SectionVerdict.DRIFTED, 3, 4)


@pytest.mark.parametrize(
    "fields",
    [
        {"quote_document": "It waits two seconds."},
        {"quote_document": "waits"},
        {"quote_document": "<REDACTED:token:1>"},
        {"quote_code": "wait(seconds=6)"},
        {"quote_code": "# wait five seconds here"},
        {"quote_code": "def far_away_from_it():"},
        {"quote_code": "It waits"},
        {"quote_code": ["wait(seconds=5)"]},
        {"quote_code": ""},
    ],
    ids=["other-words", "one-word", "placeholder", "other-code", "comment", "not-changed", "of-the-document",
         "no-text", "empty"],
)  # fmt: skip
def test_a_quote_that_does_not_stand_there_proves_nothing(fields: dict[str, object]) -> None:
    assert verdict_on(**fields) == (SectionVerdict.UNCERTAIN, None, None)


@settings(max_examples=skips.examples(300), deadline=None)
@given(st.one_of(st.text(max_size=300), st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["verdict", "quote_code", "confidence", "x"]), inner, max_size=4),
    max_leaves=12,
).map(lambda value: json.dumps(value))))  # fmt: skip
def test_every_answer_is_read_or_refused(text: str) -> None:
    try:
        answer = parse_document_answer(text)
    except UnusableAnswer:
        return
    found = judged(answer, SECTION, CHUNK)
    assert found.verdict is not SectionVerdict.DRIFTED or found.proof is not None
    assert 0 <= found.confidence <= 100


def test_every_reason_has_its_sentence() -> None:
    assert set(TEXTS) == set(Unsure) - {Unsure.SAID}
    places = [
        {"document": f"//d/{n}.md", "line": n, "verdict": "uncertain", "reason": "no_evidence"}
        for n in range(7)
    ]
    assert "//d/4.md, line 4 and 2 more." in meaning_summary({"sections": places})
    assert meaning_summary({}) == ""
