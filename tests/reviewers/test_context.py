"""Context of a part: the definitions that it shows, and findings that rest on these."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace

import pytest

from criticizer.redaction import RedactionBlocked, Redactor
from reviews.reviewers import prepared_change_codec
from reviews.reviewers.anchoring import anchor
from reviews.reviewers.chunks import tokens
from reviews.reviewers.instructions import system_prompt
from reviews.reviewers.prepare import ReviewLimits, prepare
from reviews.reviewers.prepared_change import Prepared
from reviews.reviewers.prompt import CONTEXT, request_text
from reviews.sources import change_codec
from reviews.sources.base import Change, ContextFile
from tests.reviewers.answer_corpus import FINDINGS
from tests.reviewers.build import change, edited, fake_pem, fake_token

D = "//depot/p/"
OLD = "def bill(order):\n    return 0\n"
NEW = "def bill(order):\n    return discounted(order, RATE)\n"
PRICES = "RATE = 2\n\n\nclass Prices:\n    def discounted(order, rate):\n        return order * rate\n"


def prepared(reviewed: Change, **limits: object) -> Prepared:
    return prepare(reviewed, Redactor(), ReviewLimits(**limits))  # type: ignore[arg-type]


def with_library(*extra: ContextFile, new: str = NEW) -> Change:
    library = ContextFile(D + "lib/prices.py", PRICES, ("discounted", "RATE"))
    return replace(change(edited(D + "bill.py", OLD, new)), context=(library, *extra))


def request(of: Prepared, part: int = 0) -> str:
    return request_text(of.text, of.chunks, part, "fence").text


def test_definitions_that_added_lines_use_are_shown_with_the_heads_around_them() -> None:
    of = prepared(with_library())
    names = [(block.name, block.symbol, block.path) for block in of.chunks[0].context]
    assert names == [("C1", "RATE", D + "lib/prices.py"), ("C2", "discounted", D + "lib/prices.py")]
    assert of.context_paths == (D + "lib/prices.py",)
    section = request(of).partition(f"BEGIN fence {CONTEXT}\n")[2].partition("END fence")[0]
    assert section == (
        "[C1] //depot/p/lib/prices.py:1\n    1  RATE = 2\n"
        "[C2] //depot/p/lib/prices.py:5\n    4  class Prices:\n    5      def discounted(order, rate):\n"
        "    6          return order * rate\n"
    )


def test_the_comment_above_a_definition_is_shown_with_it_and_shortens_it() -> None:
    """Most languages put there what callers must know."""
    comment = "".join(f"# Line {number} of what callers must know.\n" for number in range(6))
    text = f"{comment}def discounted(order, rate):\n" + "    order = order * rate\n" * 20
    of = prepared(replace(with_library(), context=(ContextFile(D + "b.py", text, ("discounted",)),)))
    shown = of.chunks[0].context[0].text.text.split("\n")
    assert [line.split()[0] for line in shown[1:-1]] == [*"1234", *map(str, range(7, 15))]
    assert shown[-1] == "[... 13 more lines]"


def test_a_definition_from_another_changed_file_comes_before_the_repository() -> None:
    of = prepared(
        replace(
            with_library(),
            files=(
                edited(D + "bill.py", OLD, NEW),
                edited(
                    D + "rates.py", "A = 1\n", "A = 2\n" + "\n" * 30 + "def discounted(o, r):\n    pass\n"
                ),
            ),
        )
    )
    (first, *_) = [block for block in of.chunks[0].context if block.symbol == "discounted"]
    # What the part shows as changed lines is no context.
    assert first.path == D + "lib/prices.py"
    assert all(block.path != D + "rates.py" for block in of.chunks[0].context)
    unchanged = "\n" * 30 + "def discounted(o, r):\n    pass\n"
    of = prepared(
        replace(
            with_library(),
            files=(
                edited(D + "bill.py", OLD, NEW),
                edited(D + "rates.py", "A = 1\n" + unchanged, "A = 2\n" + unchanged),
            ),
        )
    )
    blocks = [block.path for block in of.chunks[0].context if block.symbol == "discounted"]
    assert blocks == [D + "rates.py", D + "lib/prices.py"]


def test_blocks_are_short_and_their_lines_are_cut() -> None:
    text = "def discounted():\n" + "".join(f"    x{n} = 1\n" for n in range(50)) + f"    y = '{'z' * 900}'\n"
    wide = "RATE = '" + "z" * 900 + "'\n"
    of = prepared(
        with_library(
            ContextFile(D + "long.py", text, ("discounted",)), ContextFile(D + "wide.py", wide, ("RATE",))
        )
    )
    for block in of.chunks[0].context:
        lines = block.text.text.split("\n")
        assert len(lines) <= 1 + 3 + 12 + 1
        assert max(map(len, lines)) <= 7 + 200


def test_blocks_are_shorter_where_the_budget_is_not_enough_for_all() -> None:
    names = [f"compute_tax_{n}" for n in range(12)]
    used = "def bill(order):\n    return 1\n" + "".join(f"    {name}(order)\n" for name in names)
    body = "    order = order * rate_of(order)\n" * 20
    texts = [ContextFile(f"{D}{name}.py", f"def {name}(o):\n{body}", (name,)) for name in names]

    def shown(tokens: int) -> list[list[str]]:
        of = prepared(with_library(*texts, new=used), max_input_tokens=tokens)
        return [block.text.text.split("\n") for block in of.chunks[0].context]

    assert {len(lines) for lines in shown(24_000)} == {1 + 12 + 1}
    tight = shown(9_600)
    assert len(tight) > 6
    assert {len(lines) for lines in tight} == {1 + 5 + 1}


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("packed", ContextFile(D + "x.min.js", f"{PRICES}// {'x' * 600}\n", ("RATE",))),
        (
            "says that it is generated",
            ContextFile(D + "y.py", "# Generated by protoc. DO NOT EDIT.\n" + PRICES),
        ),
        ("left out by the owner", ContextFile(D + "hidden/z.py", PRICES)),
        ("changed itself", ContextFile(D + "bill.py", PRICES)),
    ],
)
def test_files_that_no_model_gets_are_no_context(name: str, extra: ContextFile) -> None:
    of = prepared(replace(with_library(), context=(extra,)), skip_paths=("*/hidden/*",))
    assert of.chunks[0].context == ()
    assert extra.text not in request(of)


@pytest.mark.long
@pytest.mark.parametrize("files_of_change", [150, pytest.param(300, marks=pytest.mark.long)])
def test_many_new_files_that_define_the_same_names_take_little_memory(files_of_change: int) -> None:
    """4,000 files took 15 GB while each definition of a name had its own set of all users."""
    text = "".join(f"name_{number} = {number}\n" for number in range(40))
    files = [edited(f"//d/f{number}.py", "", text) for number in range(files_of_change)]
    tracemalloc.start()
    try:
        prepare(change(*files), Redactor())
        # 300 took 200 MB, and it grew with the square.
        assert tracemalloc.get_traced_memory()[1] < files_of_change * 100_000
    finally:
        tracemalloc.stop()


def test_without_a_share_nothing_is_shown() -> None:
    assert prepared(with_library(), context_share=0.0).chunks[0].context == ()
    assert CONTEXT not in request(prepared(with_library(), context_share=0.0))


def test_context_never_costs_a_hunk() -> None:
    """Parts are counted: what would not fit beside context is sent without."""
    files = [edited(D + f"f{n}.py", "", NEW + f"x{n} = '{'word ' * 700}'\n") for n in range(30)]
    big = replace(with_library(), files=tuple(files))
    for share in (0.0, 0.35):
        of = prepared(big, context_share=share, max_input_tokens=10_000, max_calls=20)
        assert sum(len(chunk.hunks) for chunk in of.chunks) == 30


def test_a_request_stays_in_its_limit_with_context() -> None:
    library = ContextFile(
        D + "lib.py", "".join(f"def name_{n}():\n" + "    pass  # why\n" * 20 for n in range(400))
    )
    new = "".join(f"name_{n}()\n" for n in range(400))
    of = prepared(replace(change(edited(D + "a.py", "", new)), context=(library,)), max_input_tokens=9_000)
    assert any(chunk.context for chunk in of.chunks)
    for part in range(len(of.chunks)):
        assert tokens(system_prompt(10)) + tokens(request(of, part)) <= 9_000


@pytest.mark.parametrize("secret", [fake_token(), fake_pem(30)])
def test_a_secret_in_context_is_never_shown(secret: str) -> None:
    """Also when its begin stands above what is cut out."""
    body = "\n".join(f"    {line}" for line in secret.strip().split("\n"))
    text = (
        f'KEY = """\n{body}\n"""\n\n\ndef discounted(a, b):\n'
        f'    token = "{fake_token()}"\n    return """\n{body}\n"""\n'
    )
    of = prepared(replace(with_library(), context=(ContextFile(D + "k.py", text, ("discounted",)),)))
    assert of.chunks[0].context
    shown = request(of)
    for line in secret.strip().split("\n")[1:-1] or [secret]:
        assert line not in shown
    assert fake_token() not in shown


def test_a_secret_of_the_context_is_removed_from_the_change_too() -> None:
    token = fake_token()
    text = f"def discounted(a, b):\n    github_token = '{token}'\n"
    reviewed = replace(
        with_library(new=NEW + f"note = 'see {token}'\n"), context=(ContextFile(D + "k.py", text),)
    )
    assert token not in request(prepared(reviewed))


def test_context_in_doubt_is_left_out_and_the_review_goes_on() -> None:
    class Doubtful(Redactor):
        def redact_all(self, texts):  # type: ignore[no-untyped-def]
            if any("class Prices" in text for text in texts):
                raise RedactionBlocked("doubt")
            return super().redact_all(texts)

    of = prepare(with_library(), Doubtful())
    assert of.chunks[0].context == ()
    assert of.chunks[0].hunks


def test_a_context_file_whose_name_is_redacted_is_left_out() -> None:
    named = ContextFile(f"//depot/p/{fake_token()}/k.py", PRICES)
    of = prepared(replace(with_library(), context=(named,)))
    assert of.chunks[0].context == ()


def test_stored_changes_keep_their_context_and_older_ones_have_none() -> None:
    reviewed = with_library()
    assert change_codec.from_json(change_codec.to_json(reviewed)) == reviewed
    older = json.loads(change_codec.to_json(reviewed))
    del older["context"]
    assert change_codec.from_json(json.dumps(older).encode()) == replace(reviewed, context=())
    of = prepared(reviewed)
    assert prepared_change_codec.from_json(prepared_change_codec.to_json(of, "r"), "r", {}) == of


def finding(**fields: object) -> dict[str, object]:
    plain = {"title": "Wrong", "problem": "It is wrong.", "trigger": "", "suggestion": "", "quote_end": None}
    place = {"file": D + "bill.py", "hunk": "F1H1", "quote": "    return discounted(order, RATE)", "line": 2}
    return {**FINDINGS[0], **plain, **place, "context": "", **fields}


@pytest.mark.parametrize(
    "fields",
    [
        {"context": "C2"},
        {"context": "[c2], none"},
        {"problem": "As C2 says, it multiplies."},
        {"problem": "`discounted` multiplies by its rate."},
        {"trigger": "See lib/prices.py."},
        {"suggestion": "There: `return order  *  rate` after `def discounted(order,rate):`"},
        {"quote": "        return order * rate\n    def discounted(order, rate):"},
    ],
)
def test_a_finding_names_the_files_that_it_rests_on(fields: dict[str, object]) -> None:
    of = prepared(with_library())
    (found,) = anchor({"findings": [finding(**fields)]}, of.chunks[0], {0: D + "bill.py"}, of.paths).findings
    assert found.evidence == (D + "lib/prices.py",)
    assert found.file == D + "bill.py"


def test_a_finding_about_the_change_alone_has_no_evidence() -> None:
    of = prepared(with_library())
    (found,) = anchor({"findings": [finding()]}, of.chunks[0], {0: D + "bill.py"}, of.paths).findings
    assert (found.line, found.evidence) == (2, ())


def test_context_is_never_the_place_of_a_finding() -> None:
    of = prepared(with_library())
    quoted = [
        finding(file=file, quote=quote, line=line, hunk=hunk)
        for file in (D + "bill.py", D + "lib/prices.py", "prices.py", "C2")
        for quote in ("        return order * rate", "RATE = 2")
        for line in (1, 6, None)
        for hunk in ("F1H1", "C2", None)
    ]
    found = anchor({"findings": quoted}, of.chunks[0], {0: D + "bill.py"}, of.paths).findings
    assert {(one.file, one.line) for one in found} == {(D + "bill.py", None)}


def test_the_coverage_says_how_much_context_was_shown() -> None:
    of = prepared(with_library())
    (row,) = of.coverage([(of.chunks[0], "")])
    assert (row.status, row.reason) == ("reviewed", "context: 2 definitions of 1 file")
    of = prepared(with_library(), context_share=0.0)
    (row,) = of.coverage([(of.chunks[0], "")])
    assert (row.status, row.reason) == ("reviewed", "")


def test_context_that_may_not_be_read_any_more_leaves_the_stored_change() -> None:
    of = prepared(
        with_library(ContextFile(D + "more.py", "def more_of_it(): pass\n"), new=NEW + "more_of_it()\n")
    )
    assert set(of.context_paths) == {D + "lib/prices.py", D + "more.py"}
    left = of.without_context({D + "lib/prices.py"})
    assert left.context_paths == (D + "more.py",)
    assert "RATE = 2" in request(of)
    assert "RATE = 2" not in request(left)
    assert "more_of_it(): pass" in request(left)
    assert [chunk.hunks for chunk in left.chunks] == [chunk.hunks for chunk in of.chunks]
