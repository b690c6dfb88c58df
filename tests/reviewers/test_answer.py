from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from reviews.reviewers.answer import (
    MAX_OUTLINE_CHARS,
    UnusableAnswer,
    answer_schema,
    outline_of,
    parse_answer,
    strict_schema,
)
from tests.reviewers.build import fake_token


def raw_finding(**fields: Any) -> dict[str, Any]:
    return {
        "file": "//depot/p/a.py",
        "hunk": "F1H1",
        "quote": "    total = price * count",
        "quote_end": None,
        "side": "new",
        "category": "bug",
        "rule_id": None,
        "severity": "high",
        "confidence": 80,
        "title": "Discount is ignored",
        "problem": "The total does not subtract the discount.",
        "trigger": "An order with a discount.",
        "suggestion": None,
        **fields,
    }


def answer_of(*findings: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"findings": list(findings), "files_read": ["//depot/p/a.py"], **fields}


def parsed(answer: object, cap: int = 10) -> dict[str, Any]:
    return parse_answer(answer if isinstance(answer, str) else json.dumps(answer), cap)


def test_both_schemas_are_schemas_and_a_strict_answer_passes_the_full_one() -> None:
    Draft202012Validator.check_schema(answer_schema(10))
    Draft202012Validator.check_schema(strict_schema(10))
    answer = answer_of(raw_finding())
    assert not list(Draft202012Validator(strict_schema(10)).iter_errors(answer))
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
        ("[]", "not a JSON object"),
        ('{"findings": [', "not a JSON object"),
        ("[" * 50_000, "not a JSON object"),
        ('{"findings": NaN}', "not a JSON object"),
        ("x" * 500_000, "too long"),
        ("```" + "\n" * 390_000, "not a JSON object"),
        ("```{" * 90_000, "not a JSON object"),
        ('{"files_read": []}', "^the answer lacks findings$"),
        ('{"findings": {}, "files_read": []}', "^findings is not of type array$"),
        ('{"findings": [7], "files_read": []}', "^findings/0 is not of type object$"),
        (
            '{"findings": [], "files_read": [], "note": 1}',
            "^the answer holds a field that the schema does not have$",
        ),
    ],
)
def test_invalid_answer_is_refused_with_a_reason(text: str, problem: str) -> None:
    with pytest.raises(UnusableAnswer, match=problem):
        parsed(text)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"severity": "urgent"}, "findings/0/severity is not one of: critical, high, medium, low"),
        (
            {"category": "style"},
            "findings/0/category is not one of: bug, security, concurrency, resource, api, data-loss,"
            " performance, test, rule",
        ),
        ({"confidence": 101}, "findings/0/confidence breaks the rule maximum (100) of the schema"),
        ({"confidence": "high"}, "findings/0/confidence is not of type integer"),
        ({"quote": None}, "findings/0/quote is not of type string"),
        ({"side": "left"}, "findings/0/side is not one of: new, old"),
        ({"line": 4}, "findings/0 holds a field that the schema does not have"),
    ],
)
def test_a_finding_against_the_schema_is_refused_without_quoting_it(
    fields: dict[str, Any], rule: str
) -> None:
    with pytest.raises(UnusableAnswer) as raised:
        parsed(answer_of(raw_finding(**fields)))
    assert str(raised.value) == rule


def test_an_answer_without_the_files_read_is_taken() -> None:
    assert parsed({"findings": []}) == {"findings": [], "files_read": []}


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


def test_missing_fields_of_a_finding_are_named() -> None:
    finding = raw_finding()
    del finding["title"], finding["severity"]
    with pytest.raises(UnusableAnswer, match=r"^findings/0 lacks severity, title$"):
        parsed(answer_of(finding))


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
