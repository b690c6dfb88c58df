"""Review units: reviewed content is not asked about again, and everything else is."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from criticizer.redaction import RedactedText, Redactor
from reviews.reviewers import units
from reviews.reviewers.base import CoverageStatus, Fate, Finding
from reviews.reviewers.chunks import Chunk, ContextBlock
from reviews.reviewers.model import ModelAnswer, ModelRequest
from reviews.reviewers.model_review import ModelReview
from reviews.reviewers.prepare import ReviewLimits, prepare
from reviews.reviewers.prepared_change import Prepared
from reviews.reviewers.prompt import file_tokens
from reviews.reviewers.review import ReviewOutcome, review_prepared
from reviews.reviewers.review_context import ReviewContext
from reviews.reviewers.units import KnownUnit, keys_of
from reviews.sources.base import ContextFile, FileChange, Rule
from reviews.sources.passes import Passes
from tests import skips
from tests.reviewers.build import added, change, edited

D = "//depot/p/"
LIMITS = ReviewLimits(max_input_tokens=8_000, finding_budget=100)
_ADDED = re.compile(r"^ +(\d+) \+(.*)$", re.MULTILINE)
_FILE = re.compile(r"^=== F\d+ (\S+)$", re.MULTILINE)
_ID = re.compile(r"^id (\S+)\ntitle: (.*)$", re.MULTILINE)


@dataclass
class Scripted:
    """A model that reports each added line with `defect`, and calls with an unsafe definition.

    Its answer depends on what it reads alone. As a verifier it confirms all.
    """

    model: str = "m"
    asked: list[str] = field(default_factory=list)
    say: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict
    by_fallback: bool = False

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.asked.append(request.user.text)
        tokens = request.characters // 3
        answer = json.dumps(self.answer(request.user.text))
        return ModelAnswer(answer, tokens, 10, "stop", self.model, self.by_fallback)

    def answer(self, text: str) -> dict[str, object]:
        if "Task: verify" not in text:
            return {"findings": [self.say(one) for one in self._found(text)], "files_read": []}
        verdicts = [
            {"id": name, "title": title, "verdict": "confirmed", "severity": "low", "why": "So."}
            for name, title in _ID.findall(text)
        ]
        return {"verdicts": verdicts}

    def _found(self, text: str) -> list[dict[str, Any]]:
        unsafe = set(re.findall(r"def (\w+)\(.*# unsafe", text))
        found = []
        for piece in re.split(r"(?m)^(?==== F)", text.partition("hunks to review")[2])[1:]:
            path = _FILE.match(piece)
            assert path is not None
            for number, line in _ADDED.findall(piece):
                calls = set(re.findall(r"(\w+)\(", line)) & unsafe if "def " not in line else ()
                if "defect" in line or calls:
                    found.append(
                        {
                            "file": path[1],
                            "line": int(number),
                            "quote": line,
                            "title": f"Wrong: {line.strip()}"[:80],
                            "problem": "It fails.",
                            "severity": "high",
                        }
                    )
        return found

    async def aclose(self) -> None:
        pass


def run(
    prepared: Prepared,
    model: Scripted,
    known: Mapping[str, KnownUnit] | None = None,
    limits: ReviewLimits = LIMITS,
    verifier: Scripted | None = None,
) -> ReviewOutcome:
    around = ReviewContext(known=known or {}, verifier=verifier)
    return asyncio.run(review_prepared(prepared, model, limits, {}, around))


def stored(outcome: ReviewOutcome) -> dict[str, KnownUnit]:
    """Return what a later review reads, after a way through JSON as in the table."""
    return {
        unit.key: KnownUnit(json.loads(json.dumps(unit.findings)), unit.model, unit.input_tokens, "before")
        for unit in outcome.units
    }


def prepared_of(*files: FileChange, limits: ReviewLimits = LIMITS, **fields: str) -> Prepared:
    return prepare(change(*files, **fields), Redactor(), limits)


def code(name: str, *extra: str, lines: int = 6) -> str:
    return "".join(f"{name}_{n} = {n}\n" for n in range(lines)) + "".join(f"{line}\n" for line in extra)


def shelf(count: int, changed: Mapping[int, str] | None = None) -> list[FileChange]:
    """Return new files, one of three with a defect; `changed` adds a line to some."""
    more = changed or {}
    return [
        added(
            D + f"f{n}.py",
            code(f"a{n}", *(["defect = 1"] if n % 3 == 0 else []), *filter(None, [more.get(n)])),
        )
        for n in range(count)
    ]


def said(outcome: ReviewOutcome) -> list[tuple[object, ...]]:
    """Return the findings without their evidence.

    A line of the evidence is one request's own, and context of another.
    """
    return sorted(
        (f.file, f.line or 0, f.end_line or 0, f.side, f.title, f.severity, f.message, f.excerpt)
        for f in outcome.review.findings
    )


def test_equal_content_is_not_asked_about_again_and_its_findings_are_there() -> None:
    prepared, model = prepared_of(*shelf(9)), Scripted()
    first = run(prepared, model)
    again = Scripted()
    second = run(prepared, again, stored(first))
    assert (len(model.asked) >= 1, again.asked) == (True, [])
    assert said(second) == said(first)
    assert len(first.review.findings) == 3
    assert {fated.fate for fated in second.fates} == {Fate.CARRIED}
    assert {(row.status, row.reason) for row in second.review.coverage} == {
        (CoverageStatus.REVIEWED, "before")
    }
    usage = second.review.usage
    assert (usage.calls, usage.input_tokens, usage.carried) == (0, 0, 9)
    assert 0 < usage.spared_tokens <= first.review.usage.input_tokens
    assert (second.parts, second.reviewed, second.review.model) == (first.parts, first.parts, "m")


def test_only_what_changed_is_asked_about() -> None:
    first = run(prepared_of(*shelf(40)), Scripted())
    model = Scripted()
    after = prepared_of(*shelf(40, {4: "defect = 2"}))
    second = run(after, model, stored(first))
    (asked,) = model.asked
    assert _FILE.findall(asked) == [D + "f4.py"]
    assert said(second) == said(run(after, Scripted()))
    fates = [fated.fate for fated in second.fates]
    assert (fates.count(Fate.CARRIED), fates.count(Fate.SHOWN)) == (14, 1)


def test_a_copy_in_another_folder_costs_nothing_and_its_findings_name_it() -> None:
    first = run(prepared_of(*shelf(3)), Scripted())
    copies = [replace(file, path=file.path.replace(D, "//depot/release/2/")) for file in shelf(3)]
    model = Scripted()
    second = run(prepared_of(*copies, description="Integrate."), model, stored(first))
    assert model.asked == []
    assert [f.file for f in second.review.findings] == ["//depot/release/2/f0.py"]


def test_verdicts_of_the_second_pass_are_kept() -> None:
    prepared = prepared_of(*shelf(3))
    first = run(prepared, Scripted(), verifier=Scripted("v"))
    model, verifier = Scripted(), Scripted("v")
    second = run(prepared, model, stored(first), verifier=verifier)
    assert (model.asked, verifier.asked) == ([], [])
    assert [f.verification for f in second.review.findings] == ["confirmed"]
    assert said(second) == said(first)


CONTEXT = [added(D + "lib.py", code("lib", "def rate(x):  # unsafe", "    return 1 / x"))]
CALL = edited(D + "a.py", "a = 1\n", "a = 1\nb = rate(0)\n")
NO_ZERO = [Rule("no-zero", "Never divide by zero.", (0,), "high")]
BASE = ReviewLimits(max_input_tokens=8_000)


def _keys(
    *files: FileChange,
    limits: ReviewLimits = BASE,
    model: str = "m",
    verifier: str = "v",
    packing: ReviewLimits = BASE,
    rules: Sequence[Rule] = (),
    **fields: str,
) -> str:
    """Return the key of the unit of a.py."""
    reviewed = replace(change(*files, **fields), rules=tuple(rules))
    prepared = prepare(reviewed, Redactor(), packing)
    by_path = dict(zip(prepared.paths, range(99), strict=False))
    place = next(
        n for n, unit in enumerate(prepared.units) if unit.hunks[0].file == by_path.get(D + "a.py", 0)
    )
    return keys_of(prepared, limits, model, verifier)[place]


@pytest.mark.parametrize(
    ("what", "is_asked_again"),
    [
        ({"files": [edited(D + "a.py", "a = 1\n", "a = 1\nb = rate(1)\n")]}, True),
        ({"files": [edited(D + "a.py", "a = 2\n", "a = 2\nb = rate(0)\n")]}, True),
        ({"files": [edited(D + "a.py", "\na = 1\n", "\na = 1\nb = rate(0)\n")]}, True),  # its place
        ({"files": [edited(D + "b.py", "a = 1\n", "a = 1\nb = rate(0)\n")]}, True),  # its name
        ({"files": [edited(D + "tests/a.py", "a = 1\n", "a = 1\nb = rate(0)\n")]}, True),  # its kind
        ({"files": [added(D + "a.py", "a = 1\nb = rate(0)\n")]}, True),
        ({"context": [added(D + "lib.py", code("lib", "def rate(x):", "    return 1 / x"))]}, True),
        ({"context": []}, True),
        ({"model": "m2"}, True),
        ({"verifier": "v2"}, True),
        ({"verifier": ""}, True),
        ({"limits": replace(BASE, max_input_tokens=9_000)}, True),
        ({"limits": replace(BASE, max_findings_per_chunk=9)}, True),
        ({"limits": replace(BASE, context_share=0.3)}, True),
        ({"limits": replace(BASE, is_compact=True)}, True),
        ({"FINDER_VERSION": "x"}, True),
        ({"VERIFIER_VERSION": "x"}, True),
        ({"rules": NO_ZERO}, True),
        ({"rules": [Rule("zero", "Never divide by zero.", (0,), "high")], "earlier": NO_ZERO}, True),
        ({"rules": [Rule("no-zero", "Never divide by zero.", (0,), "low")], "earlier": NO_ZERO}, True),
        ({"rules": NO_ZERO, "earlier": NO_ZERO}, False),
        ({"rules": [Rule("", "Never divide by zero.", (0,), path=D + "AGENTS.md")]}, True),
        ({"rules": [Rule("elsewhere", "Never divide by zero.", (1,), "high")]}, False),
        ({"FORMAT": 1}, True),
        ({}, False),
        ({"description": "Another one."}, False),
        ({"context": [*CONTEXT, added(D + "z.py", code("z"))]}, False),
        (
            {"context": [added(D + "lib.py", code("lib", "", "def rate(x):  # unsafe", "    return 1 / x"))]},
            False,
        ),
        ({"limits": replace(BASE, max_parallel_calls=1, finding_budget=2, skip_paths=("x",))}, False),
    ],
)
def test_each_field_of_the_key_asks_again(
    what: dict[str, Any], is_asked_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _keys(CALL, *CONTEXT, rules=what.pop("earlier", ()))
    for name in ("FINDER_VERSION", "VERIFIER_VERSION", "FORMAT"):
        if name in what:
            monkeypatch.setattr(units, name, what.pop(name))
    files = [*what.pop("files", [CALL]), *what.pop("context", CONTEXT)]
    assert (_keys(*files, **what) != before) is is_asked_again


def test_a_changed_definition_asks_about_its_callers_again() -> None:
    safe = added(D + "lib.py", code("lib", "def rate(x):  # safe", "    return 1 / x"))
    first = run(prepared_of(CALL, safe), Scripted())
    assert first.review.findings == ()
    second = run(prepared_of(CALL, *CONTEXT), Scripted(), stored(first))
    assert [(f.file, f.line) for f in second.review.findings] == [(D + "a.py", 2)]


@pytest.mark.parametrize("which", range(4))
def test_each_of_several_definitions_asks_about_its_callers_again(which: int) -> None:
    """A request may show any of them as a hunk."""
    libraries = [added(D + f"lib{n}.py", code(f"l{n}", "def rate(x):", "    return x")) for n in range(4)]
    first = run(prepared_of(CALL, *libraries), Scripted())
    assert first.review.findings == ()
    libraries[which] = added(
        D + f"lib{which}.py", code(f"l{which}", "def rate(x):  # unsafe", "    return x")
    )
    second = run(prepared_of(CALL, *libraries), Scripted(), stored(first))
    assert [(f.file, f.line) for f in second.review.findings] == [(D + "a.py", 2)]


def test_an_answer_to_a_request_without_the_context_of_a_unit_is_not_kept() -> None:
    prepared = prepared_of(CALL, *CONTEXT)
    place = next(n for n, unit in enumerate(prepared.units) if prepared.paths[unit.files[0]] == D + "a.py")
    unit = prepared.units[place]
    assert len(unit.context) == 1

    def kept(asked: Chunk) -> list[str]:
        return [one.key for one in units.answered(prepared, {place: "k"}, [(asked, "m", 1)], [], 0.35)]

    assert (kept(Chunk(unit.hunks)), kept(unit), kept(prepared.chunks[0])) == ([], ["k"], ["k"])


def test_the_further_passes_of_a_path_and_their_model_ask_again() -> None:
    prepared = prepared_of(CALL)

    def key(*lines: str, second: str = "") -> tuple[str, ...]:
        return keys_of(prepared, LIMITS, "m", "", Passes(lines), second)

    twice = f"{D}...=2"
    assert len({key(), key(twice), key(f"{D}...=3"), key(twice, second="m2")}) == 4
    assert key("//depot/q/...=2", second="m2") == key()


@pytest.mark.parametrize(
    "prose",
    [
        "f1.py does the same.",
        "Look at a1_3 there.",
        "As F2 shows.",
        "As F2H1 shows.",
        "C7 says so.",
        "TICKET-1234 asked for something else.",
    ],
)
def test_a_finding_that_names_something_of_other_files_is_asked_about_again(prose: str) -> None:
    prepared = prepared_of(*shelf(3), description="TICKET-1234: correct it.")
    first = run(prepared, Scripted(say=lambda one: {**one, "problem": prose}))
    assert len(first.review.findings) == 1
    model = Scripted()
    run(prepared, model, stored(first))
    (asked,) = model.asked
    assert _FILE.findall(asked) == [D + "f0.py"]


@pytest.mark.parametrize("prose", ["a0_3 is wrong.", "f0.py fails.", "It divides by zero in f(x)."])
def test_a_finding_about_its_own_file_is_kept(prose: str) -> None:
    prepared = prepared_of(*shelf(3))
    first = run(prepared, Scripted(say=lambda one: {**one, "problem": prose}))
    model = Scripted()
    run(prepared, model, stored(first))
    assert model.asked == []


def test_answers_of_the_second_model_do_not_stand_for_those_of_the_first() -> None:
    assert run(prepared_of(*shelf(3)), Scripted(by_fallback=True)).units == ()


def test_an_answer_with_as_many_findings_as_it_may_have_is_not_kept() -> None:
    limits = replace(LIMITS, max_findings_per_chunk=3)
    assert run(prepared_of(*shelf(9), limits=limits), Scripted(), limits=limits).units == ()
    limits = replace(LIMITS, max_findings_per_chunk=4)
    assert len(run(prepared_of(*shelf(9), limits=limits), Scripted(), limits=limits).units) == 9


def test_findings_that_the_verifier_did_not_judge_are_asked_about_again() -> None:
    class Silent(Scripted):
        async def complete(self, request: ModelRequest) -> ModelAnswer:
            return replace(await super().complete(request), text="{}")

    prepared = prepared_of(*shelf(3))
    first = run(prepared, Scripted(), verifier=Silent("v"))
    model = Scripted()
    run(prepared, model, stored(first), verifier=Scripted("v"))
    assert _FILE.findall(model.asked[0]) == [D + "f0.py"]


def test_a_finding_whose_line_is_gone_is_dropped_and_counted() -> None:
    prepared = prepared_of(*shelf(1))
    known = {
        key: replace(unit, findings=[{**finding, "line": 2} for finding in unit.findings])
        for key, unit in stored(run(prepared, Scripted())).items()
    }
    outcome = run(prepared, Scripted(), known)
    assert outcome.review.findings == ()
    assert [(fated.fate, fated.reason) for fated in outcome.fates] == [(Fate.DROPPED, "quote_gone")]


def test_parts_of_what_is_missing_hold_no_more_than_others() -> None:
    files = [added(D + f"f{n}.py", code(f"a{n}", lines=120)) for n in range(12)]
    prepared = prepared_of(*files)
    known = {key: KnownUnit([], "m", 1, "before") for key in keys_of(prepared, LIMITS, "m", "")[::2]}
    asking = ModelReview(prepared, Scripted(), LIMITS, {}, ReviewContext(known=known))
    assert sorted(index for chunk in asking.chunks for index in chunk.files) == [1, 3, 5, 7, 9, 11]
    largest = max(_cost(prepared, chunk) for chunk in asking.chunks)
    assert largest <= prepared.room
    assert len(asking.chunks) <= len(prepared.chunks) // 2 + 1


def _cost(prepared: Prepared, chunk: Chunk) -> int:
    names = sum(file_tokens(prepared.text.manifest[index]) for index in chunk.files)
    return units._cost(chunk.hunks, chunk.context) + names


def calling(count: int, lines: int = 100) -> list[FileChange]:
    """Return files that use a definition each, and the files that define them."""
    users = [added(D + f"u{n}.py", code(f"a{n}", f"x = rate_{n}(0)", lines=lines)) for n in range(count)]
    body = "".join(f"    step_{n} = x + {n}\n" for n in range(40))
    rates = [edited(D + f"lib/r{n}.py", "", f"\n\ndef rate_{n}(x):\n{body}") for n in range(count)]
    return [*users, *rates]


def test_parts_show_each_unit_the_context_that_it_needs() -> None:
    """Otherwise an answer about them could not be kept, and each version would ask again."""
    body = "".join(f"    step_{n} = x + {n}\n" for n in range(12))
    library = "".join(f"def rate_{n}(x):\n{body}" for n in range(120))
    users = [
        added(D + f"u{n}.py", code(f"a{n}", *(f"x = rate_{n * 10 + k}({k})" for k in range(10)), lines=60))
        for n in range(12)
    ]
    read = replace(change(*users), context=(ContextFile(D + "lib.py", library),))
    prepared = prepare(read, Redactor(), LIMITS)
    assert len(prepared.chunks) < len(prepared.units)
    assert sum(len(chunk.context) for chunk in prepared.chunks) < sum(len(u.context) for u in prepared.units)
    model = Scripted()
    run(prepared, model, stored(run(prepared, Scripted())))
    assert model.asked == []


@pytest.mark.long
def test_a_hunk_longer_than_others_may_be_does_not_cost_the_rest_its_context() -> None:
    files = [*calling(8), added(D + "long.py", code("long", lines=900))]
    prepared = prepared_of(*files)
    (unit,) = [unit for unit in prepared.units if prepared.paths[unit.files[0]] == D + "long.py"]
    assert (len(unit.hunks), unit.hunks[0].is_clipped, prepared.is_crowded) == (1, True, False)
    assert sum(bool(chunk.context) for chunk in prepared.chunks) > 1
    model = Scripted()
    run(prepared, model, stored(run(prepared, Scripted())))
    assert model.asked == []


@pytest.mark.long
def test_a_change_too_large_for_context_is_not_asked_about_again_either() -> None:
    limits = replace(LIMITS, max_calls=12)
    prepared, whole = prepared_of(*calling(20), limits=limits), prepared_of(*calling(20))
    assert (prepared.is_crowded, whole.is_crowded) == (True, False)
    first = run(prepared, Scripted(), limits=limits)
    model = Scripted()
    run(prepared, model, stored(first), limits=limits)
    assert model.asked == []
    # What was said without context is no answer for a change that has room for it.
    roomy = Scripted()
    run(whole, roomy, stored(first))
    assert len(roomy.asked) > 1


def test_context_of_small_files_takes_no_more_requests_than_the_whole_change() -> None:
    prepared = prepared_of(*(added(D + f"f{n}.py", code(f"a{n}", lines=3)) for n in range(60)))
    text = RedactedText.joined([hunk.text for hunk in prepared.chunks[0].hunks]).truncated(600)
    blocks = [
        tuple(
            ContextBlock(f"C{c}", D + f"l{n}{c}.py", "", RedactedText.template(f"{n} {c}\n{{all}}", all=text))
            for c in (1, 2)
        )
        for n in range(60)
    ]
    each = tuple(replace(unit, context=block) for unit, block in zip(prepared.units, blocks, strict=True))
    with_context = replace(prepared, units=each)
    parts = units.packed(with_context, range(1, 60), 0.35)
    assert len(parts) <= len(prepared.chunks)
    assert [hunk for part in parts for hunk in part.hunks] == [h for unit in each[1:] for h in unit.hunks]


def _edit(files: dict[str, list[str]], source: random.Random) -> None:
    """Change a shelf as people do: lines and files come, go and move."""
    what = source.choice(("add", "add", "defect", "call", "remove", "define", "file", "delete"))
    name = source.choice(sorted(files))
    lines = files[name]
    at = source.randrange(len(lines) + 1)
    word = f"n{source.randrange(50)}"
    if what == "add":
        lines.insert(at, f"{word} = {source.randrange(9)}")
    elif what == "defect":
        lines.insert(at, f"{word} = defect")
    elif what == "call":
        lines.insert(at, f"{word} = helper_{source.randrange(4)}({source.randrange(9)})")
    elif what == "define":
        mark = source.choice(("  # unsafe", ""))
        lines.append(f"def helper_{source.randrange(4)}(x):{mark}")
        lines.append("    return x")
    elif what == "remove" and len(lines) > 1:
        del lines[at - 1]
    elif what == "file":
        files[f"{D}g{source.randrange(30)}.py"] = [f"{word} = 1"]
    elif what == "delete" and len(files) > 2:
        del files[name]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2, 3, 4, 6, 8, 9, 10, 11, 15))]
)
def test_versions_reviewed_one_by_one_end_as_if_reviewed_from_scratch(seed: int) -> None:
    steps = skips.examples(200)
    source = random.Random(seed)
    files = {f"{D}f{n}.py": [f"a{n} = {n}"] for n in range(6)}
    known: dict[str, KnownUnit] = {}
    spared = 0
    limits = replace(LIMITS, max_findings_per_chunk=200, finding_budget=1_000)
    for step in range(steps):
        _edit(files, source)
        shown = [added(path, "\n".join(lines) + "\n") for path, lines in files.items()]
        prepared = prepared_of(*shown, limits=limits)
        one_by_one = run(prepared, Scripted(), known, limits)
        assert said(one_by_one) == said(run(prepared, Scripted(), limits=limits)), f"step {step}"
        known |= stored(one_by_one)
        spared += one_by_one.review.usage.carried
    assert spared > steps


def test_stored_findings_hold_every_field() -> None:
    """A field that is added to findings is stored too, or named here."""
    (unit,) = run(prepared_of(*shelf(1)), Scripted()).units
    (finding,) = unit.findings
    assert set(Finding.__dataclass_fields__) - set(finding) == {"file", "raw", "merges", "carried"}
