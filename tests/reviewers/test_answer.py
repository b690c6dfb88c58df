from __future__ import annotations

import contextlib
import json
import re
import time
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from reviews.reviewers.answer import (
    MAX_ANSWER_CHARS,
    MAX_OUTLINE_CHARS,
    UnusableAnswer,
    answer_schema,
    outline_of,
    parse_answer,
    strict_schema,
)
from reviews.reviewers.quote_readings import normal
from tests import skips
from tests.reviewers.answer_corpus import AROUND, FINDINGS, FORMS, NO_ANSWERS, PLAIN
from tests.reviewers.build import fake_token


def raw_finding(**fields: Any) -> dict[str, Any]:
    return {**{name: value for name, value in FINDINGS[0].items() if name != "line"}, **fields}


def answer_of(*findings: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"findings": list(findings), "files_read": ["//depot/p/a.py"], **fields}


def parsed(answer: object, cap: int = 10) -> dict[str, Any]:
    return parse_answer(answer if isinstance(answer, str) else json.dumps(answer), cap)


def test_both_schemas_are_schemas_and_a_strict_answer_passes_the_full_one() -> None:
    Draft202012Validator.check_schema(answer_schema(10))
    Draft202012Validator.check_schema(strict_schema(10))
    answer = answer_of(raw_finding())
    complete = answer_of(
        raw_finding(line=4, end_line=None, context=None, replace=None, **{"with": None}), seen=[]
    )
    assert not list(Draft202012Validator(strict_schema(10)).iter_errors(complete))
    assert parsed(answer)["findings"][0]["title"] == "Discount is ignored"


def test_the_strict_schema_has_what_strict_modes_demand() -> None:
    def walk(schema: dict[str, Any]) -> None:
        assert not {"maxItems", "maxLength", "minimum", "maximum"} & set(schema)
        if "properties" in schema:
            assert schema["required"] == list(schema["properties"])
            assert schema["additionalProperties"] is False
            for inner in schema["properties"].values():
                assert "type" in inner
                walk(inner)
        if "items" in schema:
            walk(schema["items"])

    walk(strict_schema(10))


@pytest.mark.parametrize(
    "text",
    [
        '{"findings": [], "files_read": []}',
        '```json\n{"findings": [], "files_read": []}\n```',
        'Here is my review:\n{"findings": [], "files_read": []}\nDone.',
        '<think>Is {x} a bug?</think>\n```\n{"findings": [], "files_read": []}\n```',
    ],
)
def test_an_object_is_found_in_what_surrounds_it(text: str) -> None:
    assert parsed(text)["findings"] == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        ("I found nothing.", "not a JSON object"),
        ('{"findings": [', "ended before its first finding"),
        ("[" * 50_000, "not a JSON object"),
        ("x" * 500_000, "too long"),
        ("```" + "\n" * 390_000, "not a JSON object"),
        ("```{" * 90_000, "not a JSON object"),
        ('{"files_read": []}', "^the answer lacks findings$"),
        ('{"findings": [7], "files_read": []}', "^findings/0 is not an object$"),
        ('{"findings": [{"severity": "urgent"}]}', "^findings/0 lacks file, problem$"),
    ],
)
def test_an_answer_without_a_usable_finding_is_refused_with_a_reason(text: str, problem: str) -> None:
    with pytest.raises(UnusableAnswer, match=problem):
        parsed(text)


@pytest.mark.parametrize(
    "text",
    ["[]", '{"findings": {}}', '{"findings": null}', '{"findings": [], "note": 1}', '{"issues": "none"}'],
)
def test_an_answer_that_finds_nothing_is_one(text: str) -> None:
    assert parsed(text)["findings"] == []


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("form", FORMS)
def test_every_finding_is_kept_in_whatever_form_it_comes(form: str, around: str) -> None:
    answer = parsed(AROUND[around](FORMS[form]))
    assert [missing(found, meant) for found, meant in zip(answer["findings"], FINDINGS, strict=True)] == [
        []
    ] * 3
    assert not list(
        Draft202012Validator(answer_schema(10)["properties"]["findings"]).iter_errors(answer["findings"])
    )


def missing(found: dict[str, Any], meant: dict[str, Any]) -> list[str]:
    """Return the fields that say something else than was meant. A lint line has no quote."""
    same = [name for name in ("file", "line", "severity") if found[name] == meant[name]]
    same += [name for name in ("quote", "problem") if normal(found[name]).strip("'") == normal(meant[name])]
    return [name for name in ("file", "line", "severity", "problem") if name not in same] + (
        ["quote"] if "quote" not in same and found["quote"] else []
    )


@pytest.mark.parametrize("text", NO_ANSWERS.values(), ids=list(NO_ANSWERS))
def test_no_finding_is_made_of_what_is_no_answer(text: str) -> None:
    with pytest.raises(UnusableAnswer):
        parsed(text)


def test_an_unusable_finding_is_counted_and_loses_no_other() -> None:
    answer = parsed(FORMS["one unusable among them"])
    assert len(answer["findings"]) == 3
    assert [reason for _, reason in answer["dropped"]] == ["incomplete"] * 4


def test_what_was_written_in_another_form_is_counted() -> None:
    answer = parsed(answer_of(raw_finding(severity="Major", confidence=0.7, side="RIGHT", category="style")))
    assert answer["coerced"] == {"severity": 1, "confidence": 1, "side": 1, "category": 1}
    (finding,) = answer["findings"]
    assert (finding["severity"], finding["confidence"], finding["side"]) == ("high", 70, "new")
    assert parsed(answer_of(raw_finding()))["coerced"] == {}


def test_a_finding_that_was_cut_off_is_kept_when_it_says_enough() -> None:
    text = PLAIN[: PLAIN.index("The file handle stays") + 12]
    answer = parsed(text)
    assert answer["cut"]
    assert [finding["problem"] for finding in answer["findings"]][2] == "The file han"


def test_a_finding_that_the_model_withdrew_stays_withdrawn() -> None:
    draft = json.dumps(answer_of(raw_finding(), raw_finding(quote="x", title="A guess")))
    final = json.dumps(answer_of(raw_finding()))
    for between in ("\n", "\nOn reflection the second one is wrong:\n"):
        assert len(parsed(draft + between + final)["findings"]) == 1


@settings(max_examples=skips.examples(150), deadline=None)
@given(st.sampled_from(sorted(FORMS)), st.randoms(use_true_random=False))
def test_a_damaged_answer_never_raises_anything_else(form: str, chance: Random) -> None:
    text = list(FORMS[form])
    for _ in range(chance.randrange(1, 12)):
        at = chance.randrange(len(text) + 1)
        text[at : at + chance.randrange(6)] = chance.choice(
            ["", "{", "}", '"', "\\", ",", "[", "\n", "\ud800", ":", "`"]
        )
    try:
        answer = parsed("".join(text))
    except UnusableAnswer:
        return
    assert not list(
        Draft202012Validator(answer_schema(10)["properties"]["findings"]).iter_errors(answer["findings"])
    )


PIECES = r"""{   [   "   {"a":   {"findings":[{"quote":"   \\"   '   /*   ```{   "a" "b"   {a   {"file":"
<think>   </think>
<file>   a: b\n   - file: x\n   |a|b|\n   //d/a.py:1: x\n   1.   **   &quot;   \n   ###   -   findings
{"findings":[{"file":"a","problem":"b","line":1}]}   {"a":{"line":["""


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param(piece, marks=pytest.mark.long if number % 2 else ())
        for number, piece in enumerate(re.split(r"\n| {3}", PIECES))
    ],
)
def test_hostile_text_costs_time_in_proportion_to_its_length(piece: str) -> None:
    piece = piece.replace("\\n", "\n")
    for start in ("", '{"findings": [{"file": "'):
        begun = time.process_time()
        with contextlib.suppress(UnusableAnswer):
            parsed(start + piece * ((MAX_ANSWER_CHARS - 30) // len(piece)))
        assert time.process_time() - begun < 5


def test_an_answer_without_the_files_read_is_taken() -> None:
    assert parsed({"findings": []})["files_read"] == []


def test_overlong_text_is_cut_without_another_call() -> None:
    finding = parsed(answer_of(raw_finding(title="t" * 200, problem="p" * 5000)))["findings"][0]
    assert (len(finding["title"]), len(finding["problem"])) == (80, 600)
    assert finding["title"].endswith("…")


def test_of_too_many_findings_the_severest_stay() -> None:
    many = [raw_finding(severity="low", title=f"low {n}") for n in range(20)]
    kept = parsed(answer_of(*many, raw_finding(severity="critical")), cap=3)["findings"]
    assert [finding["severity"] for finding in kept] == ["critical", "low", "low"]


def test_a_secret_in_the_answer_is_removed() -> None:
    token = fake_token()
    answer = parsed(answer_of(raw_finding(problem=f"The key {token} leaks.", suggestion=f"drop {token}")))
    assert token not in json.dumps(answer)


def test_an_outline_shows_the_form_and_neither_prose_nor_code() -> None:
    answer = {"findings": [raw_finding(severity="urgent", line=4)], "notes": {"a": {"b": {"c": "deep"}}}}
    outline = outline_of("```json\n" + json.dumps(answer) + "\n```")
    assert '"severity": "urgent"' in outline
    assert '"line": 4' in outline
    assert '"quote": "… 25 characters"' in outline
    assert "discount" not in outline
    assert "deep" not in outline
    assert "files_read" not in outline


@pytest.mark.parametrize(
    ("text", "outline"),
    [
        ("", "nothing"),
        ("Sorry,\n  I  cannot do this.", "27 characters, beginning: Sorry, I cannot do this."),
        ("x" * 5000, "5000 characters, beginning: " + "x" * 120),
        ("[1, 2]", "6 characters, beginning: [1, 2]"),
        ('{"findings": [1, 2, 3, 4]}', '{"findings": [1, 2, "… 2 more"]}'),
    ],
)
def test_outline_of_an_invalid_answer(text: str, outline: str) -> None:
    assert outline_of(text) == outline


def test_an_outline_is_bounded_and_holds_no_secret() -> None:
    token = fake_token()
    assert token not in outline_of(f"The key is {token}.")
    assert token not in outline_of(json.dumps({token: token, "findings": [token]}))
    wide = outline_of(json.dumps({f"{n} " + "k" * 500: {"a": [list(range(99))] * 9} for n in range(500)}))
    assert len(wide) <= MAX_OUTLINE_CHARS + 20
    assert outline_of('{"a": 1e999, "\\ud800": "\\ud800 \\u0000"}').isprintable()
