"""The `key:value` grammar: what it reads, and what it says when it cannot."""

from __future__ import annotations

import pytest
from django.db.models import Q

from criticizer.admin_site.search_query import (
    Key,
    SearchProblem,
    Term,
    age,
    condition_of,
    exact,
    flags,
    number,
    parse,
    starts,
)
from criticizer.db.full_text import FullTextFilter

KEYS = {
    "stage": exact("stage", "The stage", choices=["fetch", "llm"]),
    "cl": exact("changelist_id", "The changelist", example="12345"),
    "path": starts("path", "How the path begins", example="//depot/"),
    "n": number("attempts", "How many"),
    "age": age("created_at", "How long ago"),
    "is": flags({"late": Q(is_late=True)}, "Late"),
}
WORDS = FullTextFilter(lambda words: Q(title=" ".join(words)))


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        ("   ", []),
        ("stage:llm", [Term("stage", "llm")]),
        ("STAGE:llm", [Term("stage", "llm")]),
        ("-stage:llm", [Term("stage", "llm", True)]),
        ("two words", [Term("", "two"), Term("", "words")]),
        ('"two words"', [Term("", "two words")]),
        ('-"two words"', [Term("", "two words", True)]),
        ('cl:"a b"', [Term("cl", "a b")]),
        (r'"say \"no\" \\ now"', [Term("", 'say "no" \\ now')]),
        ("age:>2d", [Term("age", ">2d")]),
        ("a:b:c", [Term("a", "b:c")]),
        ("it's", [Term("", "it's")]),
        ("  stage:llm\t-cl:1\n", [Term("stage", "llm"), Term("cl", "1", True)]),
    ],
)
def test_a_search_is_split_into_terms(text: str, terms: list[Term]) -> None:
    assert parse(text) == terms


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("stage:llm", Q(stage="llm")),
        ("stage:LLM", Q(stage="llm")),
        ("stage:llm,fetch", Q(stage__in=["llm", "fetch"])),
        ("-stage:llm", ~Q(stage="llm")),
        ("cl:12345", Q(changelist_id="12345")),
        ("cl:1,2", Q(changelist_id="1,2")),  # only closed lists have alternatives
        ("path://depot/a", Q(path__startswith="//depot/a")),
        ("n:3", Q(attempts__exact=3)),
        ("n:>=3", Q(attempts__gte=3)),
        ("n:3,5", Q(attempts__in=[3, 5])),
        ("is:late", Q(is_late=True)),
        ("stage:llm n:<2", Q(stage="llm") & Q(attempts__lt=2)),
        ("one", Q(title="one")),
        ('-"one two"', ~Q(title="one two")),
        ("one - …", Q(title="one")),  # signs cannot be looked for
    ],
)
def test_terms_become_conditions(text: str, condition: Q) -> None:
    assert condition_of(text, KEYS, WORDS) == condition


@pytest.mark.parametrize("text", ["age:>2d", "age:<2d", "age:90m", "age:1W"])
def test_ages_are_moments(text: str) -> None:
    (name, _), *rest = condition_of(text, KEYS, None).children
    assert rest == []
    assert name == ("created_at__lt" if ">" in text else "created_at__gte")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stat:new", "There is no key “stat:” in this list. Use one of: stage:, cl:, path:, n:, age:, is:. "),
        ("http://example.com", "no key “http:”"),
        ("stage:", "stage: needs a value, for example stage:fetch."),
        ('stage:""', "stage: needs a value"),
        ("stage:nowhere", "“nowhere” is not one of: fetch, llm"),
        ("stage:llm,nowhere", "“nowhere” is not one of: fetch, llm"),
        ("age:soon", "“soon” is not an age. Enter an age, for example >2d"),
        ("age:99999999d", "is not an age"),
        ("n:many", "is not a number"),
        ("n:" + "9" * 19, "is not a number"),
        ("is:early", "“early” is not one of: late"),
        ('"open', "A quote is not closed."),
        ("- …", "Search for at least one letter or digit, not only “…”."),
        ("\0", "Search for at least one letter or digit"),
        ("a " * 21, "at most 20 terms"),
        ("a" * 501, "at most 500 characters"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, says: str) -> None:
    with pytest.raises(SearchProblem) as problem:
        condition_of(text, KEYS, WORDS)
    assert says in str(problem.value)


def test_words_where_none_are_searched_name_the_keys() -> None:
    keys: dict[str, Key] = {"cl": KEYS["cl"]}
    with pytest.raises(SearchProblem, match="This list has no full-text search"):
        condition_of("words", keys, None)


def test_the_longest_age_is_a_date_there_is() -> None:
    assert condition_of("age:>999999w", KEYS, None)
