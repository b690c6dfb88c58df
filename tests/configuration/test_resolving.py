"""`resolve` gives a configuration for every input, and no mistake weakens protection."""

from __future__ import annotations

import datetime
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reviews.configuration import effects, kinds
from reviews.configuration.effects import FileRules, FindingRules
from reviews.configuration.keys import KEYS, PROTECTING, Ceiling
from reviews.configuration.resolving import (
    DEFAULT,
    FILE,
    INVALID_SYNTAX,
    LAST_VALID,
    MAX_WARNINGS,
    OPERATOR,
    STRICT,
    Resolved,
    resolve,
)
from reviews.reviewers.base import Finding, FindingSeverity
from reviews.reviewers.checks import run_checks
from reviews.reviewers.coverage_texts import MODEL_OFF
from reviews.sources.base import Action, FileChange
from reviews.sources.diffs import diff_file
from tests import skips
from tests.configuration.bombs import BOMBS
from tests.effort import calls_of
from tests.reviewers.build import change as change_of

CEILING = Ceiling(llm=True, max_findings=50)
STRICT_FILE = b"""\
version: 1
paths:
  include: ["src/**"]
  exclude: ["vendor/", "src/secret/**"]
llm: false
checks: {line_ends: false}
min_severity: medium
max_findings: 10
suppress: [{file: "src/a.py", category: style, until: 2030-01-01, reason: old}]
check: {block: high}
"""
LAST_GOOD = {
    "paths.include": ["src/**"], "paths.exclude": ["vendor/", "src/secret/**"], "llm": False, "agent": False,
}  # fmt: skip


def read(text: str | bytes, last_good: dict[str, Any] | None = None, ceiling: Ceiling = CEILING) -> Resolved:
    return resolve(text.encode() if isinstance(text, str) else text, ceiling, last_good)


def texts(resolved: Resolved) -> list[str]:
    return [warning.text.removeprefix("Configuration warning: ") for warning in resolved.warnings]


def test_no_file_an_empty_one_and_comments_are_the_defaults_without_a_warning() -> None:
    defaults = resolve(None, CEILING)
    assert defaults.values["paths.include"] == ["**"]
    assert defaults.values["max_findings"] == 50
    assert set(defaults.sources.values()) == {DEFAULT, OPERATOR}
    for text in ("", "# nothing\n", "{}", "---\n", "\ufeff", "llm:\npaths: ~\nchecks: {line_ends: }\n"):
        found = read(text)
        assert (found.values, found.sources, found.warnings) == (defaults.values, defaults.sources, ())


def test_a_valid_file_is_used_as_it_is() -> None:
    found = read(STRICT_FILE)
    assert found.warnings == ()
    assert found.is_valid
    assert found.values["paths.exclude"] == ["vendor/", "src/secret/**"]
    assert found.values["checks.line_ends"] is False
    assert found.values["suppress"][0]["until"] == "2030-01-01"
    assert found.sources["min_severity"] == FILE
    assert json.loads(json.dumps(found.values)) == found.values
    assert found.protecting() == LAST_GOOD


WRONG: list[tuple[str, str, str]] = [
    (
        "min_severity",
        "severe",
        'field `min_severity` is invalid ("severe" is not one of: low, medium, high,'
        " critical), using default value `low`.",
    ),
    (
        "min_severity",
        "no",
        "field `min_severity` is invalid (expected one of: low, medium, high, critical, got"
        " false; quote it if text was meant), using default value `low`.",
    ),
    (
        "max_findings",
        "500",
        "field `max_findings` is invalid (500 exceeds maximum of 200), using default value `50`.",
    ),
    (
        "max_findings",
        "0",
        "field `max_findings` is invalid (0 is below minimum of 1), using default value `50`.",
    ),
    (
        "max_findings",
        "true",
        "field `max_findings` is invalid (expected a whole number from 1 to 200, got true),"
        " using default value `50`.",
    ),
    (
        "max_findings",
        ".nan",
        "field `max_findings` is invalid (expected a whole number from 1 to 200, got .nan,"
        " which YAML reads as another number; quote it if text was meant), using default value `50`.",
    ),
    (
        "max_findings",
        "1e3",
        "field `max_findings` is invalid (expected a whole number from 1 to 200, got text),"
        " using default value `50`.",
    ),
    (
        "llm",
        "yes please",
        'field `llm` is invalid (expected true or false, got text "yes please"), using default'
        " value `false`.",
    ),
    (
        "check.block",
        "1",
        "field `check.block` is invalid (expected one of: none, low, medium, high, critical,"
        " got 1; quote it if text was meant), using default value `none`.",
    ),
    (
        "checks.line_ends",
        "[]",
        "field `checks.line_ends` is invalid (expected true or false, got a list), using"
        " default value `true`.",
    ),
    (
        "suppress",
        "x",
        'field `suppress` is invalid (expected a list of at most 200 rules, got text "x"), using'
        " default value ``.",
    ),
    (
        "paths.exclude",
        "vendor",
        "field `paths.exclude` is invalid (expected a list of at most 100 globs, got text"
        ' "vendor"), using default value ``. No language model reads this change, as no valid file came'
        " before.",
    ),
    (
        "paths.include",
        "[]",
        "field `paths.include` is invalid (the list is empty), using default value `**`."
        " No language model reads this change, as no valid file came before.",
    ),
]


@pytest.mark.parametrize(
    ("path", "value", "text"), WRONG, ids=[f"{path}-{value}" for path, value, _ in WRONG]
)
def test_a_wrong_value_costs_its_own_key_alone(path: str, value: str, text: str) -> None:
    lines = {
        "llm": "true",
        "min_severity": "medium",
        "max_findings": "7",
        "checks.line_ends": "false",
        "paths.exclude": '["vendor/"]',
        "check.block": "high",
    }
    # Flow keys with a dot do not nest: write each section of its own.
    valid = read(_written(lines))
    assert valid.warnings == ()
    found = read(_written({**lines, path: value}))
    assert texts(found) == [text]
    changed = {key for key in KEYS if found.values[key] != valid.values[key]}
    # The strict reading of all that protects is that no model is called.
    assert changed <= ({path, "llm"} if path in PROTECTING else {path})
    assert found.values["llm"] is (path not in PROTECTING)
    assert found.is_valid is (path not in PROTECTING)


# Values of each kind that are none of it, in YAML: no list of globs, no rule, no number in range.
MISTAKES: dict[type[kinds.Kind], tuple[str, ...]] = {
    kinds.Boolean: ("1", "[]", "{}", "'yes'", "2026-01-01", ".inf"),
    kinds.Whole: ("true", "-1", "100000", "1.5", ".nan", "'7'", "[]", "2026-01-01"),
    kinds.Choice: ("false", "1", "[]", "HIGH", "{}"),
    kinds.GlobList: ("vendor", "7", "{a: 1}", "true"),
    kinds.RuleList: ("x", "{file: a}", "7", "true"),
}


@pytest.mark.parametrize("path", [path for path in KEYS if path != "version"])
def test_every_mistake_in_every_key_is_one_warning_and_leaves_the_other_keys(path: str) -> None:
    """Check 3: a valid value is used, any other is the default, or the strict reading."""
    lines = {
        "llm": "true", "min_severity": "medium", "max_findings": "7", "checks.line_ends": "false",
        "paths.exclude": '["vendor/"]', "check.block": "high", "docs.max_claims": "9",
        "suppress": "[{file: a.py}]", "docs.exclude": '["old/"]',
    }  # fmt: skip
    valid = read(_written(lines))
    assert valid.warnings == ()
    for mistake in MISTAKES[type(KEYS[path].kind)]:
        found = read(_written({**lines, path: mistake}))
        assert len(found.warnings) == 1, (path, mistake, texts(found))
        assert f"`{path}`" in texts(found)[0]
        strict = {"llm", *PROTECTING} if path in PROTECTING else set()
        assert {key for key in KEYS if found.values[key] != valid.values[key]} <= {path} | strict
        if path in PROTECTING:
            assert found.values["llm"] is False
        else:
            assert found.values[path] == KEYS[path].default_under(CEILING)


def _written(lines: dict[str, str]) -> str:
    sections: dict[str, list[str]] = {}
    out = []
    for path, value in lines.items():
        section, _, name = path.rpartition(".")
        sections.setdefault(section, []).append(f"{name}: {value}")
    for section, entries in sections.items():
        out += [f"{section}:", *(f"  {entry}" for entry in entries)] if section else entries
    return "\n".join(out) + "\n"


def test_invalid_syntax_is_all_defaults_and_protects_what_the_last_valid_file_did() -> None:
    found = read(STRICT_FILE + b"oops: [\n", LAST_GOOD)
    assert found.warnings[0].code == INVALID_SYNTAX
    assert found.warnings[0].text.startswith(
        "Configuration warning: `.criticizer.yml` has invalid YAML syntax. Using all default settings."
    )
    assert found.protecting() == LAST_GOOD
    assert {found.sources[path] for path in PROTECTING} == {LAST_VALID}
    assert found.values["min_severity"] == "low"
    assert not found.is_valid
    without = read(b"oops: [\n")
    assert (without.values["llm"], without.sources["llm"]) == (False, STRICT)
    assert without.values["paths.exclude"] == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- 1", "must be a mapping"),
        ("hello", "must be a mapping"),
        ("a: &x 1\nb: *x\n", "Anchors and aliases"),
        ("a: 1\n---\nb: 2\n", "more than one document"),
        ("a: !!python/object/apply:os.system [x]", "Tags are"),
        ("<<: {llm: true}\n", "Merge keys"),
        ("llm: true\n\tx: 1\n", "Indent with spaces"),
        ("[" * 30, "nested deeper than 20"),
        ("a: [" + "1," * 5000 + "]", "more than 4000 values"),
        ("a: \0", "does not allow"),
        ("version: 2\n", "Only version 1"),
        ("version: true\n", "Only version 1"),
    ],
)
def test_what_is_refused_as_a_whole_says_why(text: str, reason: str) -> None:
    found = read(text)
    assert [warning.code for warning in found.warnings] == [INVALID_SYNTAX]
    assert reason in found.warnings[0].text
    assert found.values["llm"] is False


def test_bytes_that_are_no_utf_8_are_refused() -> None:
    for raw in ("llm: true".encode("utf-16"), b"\xff\xfe\xfa", b"llm: \xc3("):
        assert "The file is not UTF-8." in read(raw).warnings[0].text
    assert read(b"x" * 70_000).warnings[0].kind == "too_large"


def test_unknown_keys_are_named_with_the_key_that_was_probably_meant() -> None:
    found = read("min_severityy: high\nzzzzz: 1\ncheck: {blok: low}\nchecks: {line_end: false}\n")
    assert texts(found) == [
        "unknown key `min_severityy` in `.criticizer.yml`. Did you mean `min_severity`?"
        " This key was ignored.",
        "unknown key `zzzzz` in `.criticizer.yml`. This key was ignored.",
        "unknown key `check.blok` in `.criticizer.yml`. Did you mean `check.block`? This key was ignored.",
        "unknown key `checks.line_end` in `.criticizer.yml`. Did you mean `checks.line_ends`?"
        " This key was ignored.",
    ]
    assert found.is_valid


def test_a_mistyped_key_that_protects_sends_nothing_to_a_model() -> None:
    for text, path in (
        ("pathes: {exclude: [vendor/]}", "paths.exclude"),
        ("paths: {exlude: [vendor/]}", "paths.exclude"),
        ("lllm: false", "llm"),
    ):
        assert read(text).values["llm"] is False
        held = read(text, LAST_GOOD)
        assert (held.values[path], held.sources[path]) == (LAST_GOOD[path], LAST_VALID)


def test_keys_that_are_no_text_and_keys_that_stand_twice() -> None:
    found = read("on: true\nmin_severity: high\nmin_severity: low\nllm: false\nllm: true\n")
    assert found.values["min_severity"] == "high"
    assert found.values["llm"] is False
    assert texts(found) == [
        "keys are text: the key in line 1 is read as true. Quote it if text was meant. This key was ignored.",
        "key `min_severity` stands twice: the first value is used.",
        "key `llm` stands twice: the first value is used. No language model reads this change, as no valid"
        " file came before.",
    ]
    assert "1:30, which YAML reads as another number" in texts(read("max_findings: 1:30"))[0]


def test_two_keys_that_contradict_each_other_both_take_their_defaults() -> None:
    found = read("min_severity: high\ncheck: {block: medium}\nmax_findings: 7\n")
    assert texts(found) == [
        '`min_severity` ("high") hides findings that `check.block` ("medium") blocks on. Using defaults:'
        ' `min_severity` = "low", `check.block` = "none".'
    ]
    assert (found.values["min_severity"], found.values["check.block"], found.values["max_findings"]) == (
        "low",
        "none",
        7,
    )


def test_one_bad_entry_of_a_list_drops_that_entry() -> None:
    rules = 'suppress:\n- {category: style}\n- {pattern: "(?<=x)y"}\n- {until: 2030-01-01}\n- {fil: a}\n- 7\n'
    found = read(rules)
    assert found.values["suppress"] == [{"category": "style"}]
    assert texts(found) == [
        "suppress rule #2 has invalid regex pattern: too large, or with look-around or back-references."
        " This rule was skipped.",
        "suppress rule #3 is invalid (expected at least one of file, check, category, pattern)."
        " This rule was skipped.",
        "suppress rule #4 is invalid (expected only file, check, category, pattern, until, reason)."
        " This rule was skipped.",
        "suppress rule #5 is invalid (expected a mapping, got 7). This rule was skipped.",
    ]
    excluded = read('paths: {exclude: ["a/{b,c}/**", "docs/"]}', LAST_GOOD)
    assert excluded.values["paths.exclude"] == ["docs/", "vendor/", "src/secret/**"]
    assert excluded.sources["paths.exclude"] == LAST_VALID


def test_nothing_goes_over_what_the_operator_allows() -> None:
    found = read("llm: true\nmax_findings: 100\n", ceiling=Ceiling(llm=False, max_findings=8))
    assert (found.values["llm"], found.values["max_findings"]) == (False, 8)
    assert texts(found) == [
        "`llm` (true) is above what this installation allows (`false`), using `false`.",
        "`max_findings` (100) is above what this installation allows (`8`), using `8`.",
    ]
    assert found.is_valid
    held = read("[", {**LAST_GOOD, "llm": True}, Ceiling(llm=False))
    assert held.values["llm"] is False


def test_checks_that_protect_cannot_be_switched_off() -> None:
    found = read("checks: {added_secrets: false, reviewer_instructions: true, hidden_code: 0}\n")
    assert texts(found) == [
        "`checks.added_secrets` cannot be switched off here, using `true`.",
        "`checks.hidden_code` cannot be switched off here, using `true`.",
    ]
    assert not any(path in found.values for path in ("checks.added_secrets", "checks.hidden_code"))


SECRETS = [
    "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vX7zB9dF1hJ3lN5",
    "AKIA" + "QYLPMN5HFIQR7BBB",
    "hunter2-Tr0ub4dor",
    "correct-horse!battery",
    "xoxb-" + "123456789012-abcdefghijkl",
    "0x9f86d081884c7d659a2feaa0c55ad015",
    "491827364509182736",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_in_the_file_is_in_no_warning(secret: str) -> None:
    shapes = (
        "{}: 1",
        "llm: {}",
        'min_severity: "{}"',
        "paths: {{exclude: ['/{}']}}",
        "a: [\n{}",
        "{}",
        "checks: {}",
        "suppress: [{{pattern: '({}'}}]",
        "suppress: [{{check: '{}'}}]",
        "checks: {{'{}': false}}",
        "{0}: 1\n{0}: 2",
        "suppress: [{{'{}': a}}]",
        "suppress: [{{until: '{}', check: llm}}]",
        "\t{}",
    )
    for shape in shapes:
        found = read(shape.format(secret))
        assert found.warnings, shape
        for part in (secret, secret[4:16]):
            assert part not in " ".join(texts(found)), shape


@pytest.mark.parametrize(
    "entry",
    [
        "{{file: 'a/**', reason: '{}'}}",
        "{{pattern: '{}'}}",
        "{{file: '{}'}}",
        '{{check: llm, reason: "a\\0b"}}',
    ],
)
def test_an_entry_with_a_secret_is_dropped_and_named_by_its_place(entry: str) -> None:
    secret = SECRETS[0]
    found = read(f"suppress:\n- {{file: 'b/**', reason: old}}\n- {entry.format(secret)}\n- {{check: llm}}\n")
    assert [rule.get("reason", "") for rule in found.values["suppress"]] == ["old", ""]
    assert texts(found) == [
        "suppress rule #2 is invalid (a secret, or a character that cannot be stored, is in it)."
        " This rule was skipped."
    ]
    assert secret not in json.dumps(found.values)


def test_a_glob_with_a_secret_loosens_nothing_and_is_not_stored() -> None:
    found = read(f"paths: {{exclude: [vendor/, '{SECRETS[0]}/']}}", LAST_GOOD)
    assert found.values["paths.exclude"] == ["vendor/", "src/secret/**"]
    assert not found.is_valid
    assert read(f"paths: {{include: ['{SECRETS[0]}']}}").values["llm"] is False


@pytest.mark.parametrize("name", BOMBS)
def test_no_file_takes_long_or_much_memory(name: str) -> None:
    """The number of calls is bounded, since it is the same on a busy machine.

    `benchmarks.repository_configuration` measures the time that the files take.
    """
    raw = BOMBS[name].encode()
    assert len(raw) <= 65_536 or name == "keys"
    resolve(raw, CEILING)  # what is made once in a process does not count
    assert calls_of(lambda: resolve(raw, CEILING)) < 300_000
    tracemalloc.start()
    resolve(raw, CEILING)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000


YAML_TEXT = st.text(
    st.sampled_from("abllmpathsexcude:-[]{},#&*!|>'\"%@`?\n\t 01.~<\\\u0085\u2028é"), max_size=200
) | st.lists(
    st.sampled_from(
        [
            "llm",
            "paths",
            "exclude",
            "include",
            ": ",
            "\n",
            "  ",
            "- ",
            "true",
            "[",
            "]",
            "{",
            "}",
            '"a/**"',
            "~",
            "suppress",
            "pattern",
            "until",
            "2026-13-45",
            "version",
            "1",
            "-1",
            "0x1F",
            "1:30",
            ".inf",
            "<<",
            "? ",
            "&a",
            "*a",
            "!!binary",
            "checks",
            "added_secrets",
            "false",
            "check",
            "block",
            "'",
            "|\n",
            "---\n",
            ",",
        ]
    ),
    max_size=40,
).map("".join)


def mutated() -> st.SearchStrategy[bytes]:
    """Return the strict file with some of its bytes removed, replaced or repeated."""
    size = len(STRICT_FILE)
    cut = st.tuples(
        st.integers(0, size), st.integers(0, 12), st.binary(max_size=6) | YAML_TEXT.map(str.encode)
    )
    return st.lists(cut, min_size=1, max_size=4).map(_cut)


def _cut(cuts: list[tuple[int, int, bytes]]) -> bytes:
    raw = STRICT_FILE
    for at, length, put in cuts:
        raw = raw[:at] + put + raw[at + length :]
    return raw


@settings(max_examples=skips.examples(400), deadline=None)
@given(st.binary(max_size=400) | YAML_TEXT.map(str.encode) | mutated(), st.booleans())
@example(b"paths: {exclude: ['\xed\xa0\x80']}", False)
@example(b"min_severity: {a: b}\n? [a]\n: 1", True)
def test_every_byte_string_resolves(raw: bytes, has_last: bool) -> None:
    found = resolve(raw, CEILING, LAST_GOOD if has_last else None)
    assert set(found.values) == set(found.sources) == set(KEYS)
    assert json.loads(json.dumps(found.values)) == found.values
    assert len(found.warnings) <= MAX_WARNINGS
    assert list(found.warnings) == sorted(
        found.warnings, key=lambda each: (each.line, each.path, each.column)
    )
    again = resolve(raw, CEILING, LAST_GOOD if has_last else None)
    assert again == found


SECRET = 'key = "AKIA' + 'QYLPMN5HFIQR7BBB"\n'


@settings(max_examples=skips.examples(150), deadline=None)
@given(mutated() | YAML_TEXT.map(str.encode), st.booleans())
@example(
    b"paths: {exclude: ['**']}\nllm: false\nchecks: {added_secrets: false}\nmin_severity: critical", True
)
@example(b"suppress: [{file: '**'}, {pattern: '.*'}, {check: llm}]", False)
def test_a_hostile_file_switches_off_nothing_that_protects(raw: bytes, has_last: bool) -> None:
    """Secrets are found in every file and shown; the operator's settings bound all values."""
    strict = Ceiling(llm=False, max_findings=5)
    found = resolve(raw, strict, LAST_GOOD if has_last else None)
    assert found.values["llm"] is False
    assert 1 <= found.values["max_findings"] <= 5
    rules = FileRules("//depot/a/", found.values)
    files = tuple(
        rules.applied(FileChange(path, Action.ADD, new_text=SECRET))
        for path in ("//depot/a/src/x.py", "//depot/a/vendor/x.py")
    )
    assert all(file.unsent for file in files)
    change = change_of(*files)
    findings = run_checks(change, [diff_file(file) for file in change.files])
    secrets = [finding for finding in findings if finding.source == "check:added_secrets"]
    assert {finding.file for finding in secrets} == {file.path for file in files}
    hiding = FindingRules("//depot/a/", found.values, datetime.date(2026, 1, 1))
    assert not any(map(hiding.why_hidden, secrets))


@settings(max_examples=skips.examples(600), deadline=None)
@given(mutated())
def test_no_damaged_file_loosens_what_the_last_valid_one_protects(raw: bytes) -> None:
    """Either the file says so in valid words, or all that the last valid file protects holds."""
    found = resolve(raw, CEILING, LAST_GOOD)
    if found.is_valid:
        return
    for path in PROTECTING:
        if found.sources[path] not in (FILE, LAST_VALID):
            # Left out on purpose, by a file whose other keys are read.
            assert found.sources[path] in (DEFAULT, OPERATOR)
            assert found.warnings
            assert found.warnings[0].code != INVALID_SYNTAX
    if found.sources["paths.exclude"] == LAST_VALID:
        assert set(LAST_GOOD["paths.exclude"]) <= set(found.values["paths.exclude"])  # type: ignore[call-overload]
    without = resolve(raw, CEILING, None)
    assert without.values["llm"] is False


def test_a_rule_follows_the_case_of_the_server_and_compiles_its_pattern_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []

    def compiled(text: str) -> Any:
        seen.append(text)
        return kinds.compiled(text)

    monkeypatch.setattr(effects, "compiled", compiled)
    values = read("suppress: [{file: 'Docs/**', pattern: wrong}]").values
    today = datetime.date(2026, 1, 1)
    exact = FindingRules("//depot/a/", values, today)
    folded = FindingRules("//depot/a/", values, today, case_sensitive=False)
    found = [
        Finding("//depot/a/docs/x.md", FindingSeverity.LOW, "bug", f"The wrong {n}", "", "llm")
        for n in range(5)
    ]
    assert [exact.why_hidden(each) for each in found] == [""] * 5
    assert [folded.why_hidden(each) for each in found] == ["suppress #1"] * 5
    assert seen == ["wrong", "wrong"]


@pytest.mark.parametrize(("raw", "reason"), [(None, ""), (b"llm: true", ""), (b"llm: false", MODEL_OFF)])
def test_only_a_file_that_says_so_is_why_no_model_reads_files_where_there_is_none(
    raw: bytes | None, reason: str
) -> None:
    found = resolve(raw, Ceiling(llm=False, max_findings=50))
    is_operators = found.sources["llm"] == OPERATOR
    rules = FileRules("//depot/a/", found.values, is_llm_the_operators=is_operators)
    assert found.values["llm"] is False
    assert rules.unsent_reason("//depot/a/x.py") == reason
