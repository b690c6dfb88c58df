"""Cost of a second version of a change, measured without a model.

Shelves are put together of this repository's own changes that show 2,000 to 12,000 characters: 40 files,
of which 3 get another line for the second version. (A file that is half of a shelf costs half of it
again.) Tokens are estimated from the requests that would be sent.
"""

from __future__ import annotations

import asyncio
import random
import re
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from benchmarks.figures import Figure, say
from benchmarks.review_figure import figure_of
from criticizer.redaction import Redactor
from reviews.reviewers.instructions import system_prompt
from reviews.reviewers.prepare import ReviewLimits, prepare
from reviews.reviewers.prepared_change import Prepared
from reviews.reviewers.review import ReviewOutcome, review_prepared
from reviews.reviewers.review_context import ReviewContext
from reviews.reviewers.rules import rules_of
from reviews.reviewers.units import KnownUnit
from reviews.sources.base import FileChange
from reviews.sources.diffs import diff_file, render
from reviews.sources.rules import TeamRule, matching
from tests.reviewers.build import added
from tests.reviewers.build import change as change_of
from tests.reviewers.test_units import Scripted, stored


class Quiet(Scripted):
    """A model that finds nothing.

    Code of this repository holds words that a scripted model looks for.
    """

    def answer(self, text: str) -> dict[str, object]:
        return {"findings": [], "files_read": []}


class Telling(Scripted):
    """A model that reports the first added line of each file.

    With names of the code it stands in.
    """

    def answer(self, text: str) -> dict[str, object]:
        hunks = text.rpartition("hunks to review\n")[2]
        found = [
            {
                "file": path,
                "line": int(number),
                "quote": line,
                "title": f"Wrong: {line.strip()}"[:80],
                "problem": "The call on this line gives None when the order has no lines. " * 4,
                "severity": "medium",
            }
            for path, number, line in FIRST_LINE.findall(hunks)
        ]
        return {"findings": found[:3], "files_read": []}


FIRST_LINE = re.compile(r"^=== F\d+ (\S+)\n(?:(?!===).*\n)*? +(\d+) \+(.{8,})$", re.MULTILINE)
DESCRIPTION = "Correct the rounding of prices, as agreed with accounting. " * 12
SMALL = ReviewLimits(max_input_tokens=8_000)
FILES, CHANGED, SEEDS, COPIES, RULES = 40, 3, 20, 500, 200
LIMITS = ReviewLimits()
CHARACTERS = range(2_000, 12_000)


def figures(files: Sequence[FileChange]) -> Iterator[tuple[Figure, object]]:
    """Yield the costs of second versions; `files` are real changes to build shelves of."""
    files = [file for file in files if len(render(diff_file(file)).text) in CHARACTERS]
    shares = [_second(files, random.Random(seed)) for seed in range(SEEDS)]
    name = f"input tokens of a version with {CHANGED} of {FILES} files changed"
    say(f"second versions: {', '.join(f'{share:.1%}' for share in shares)}")
    yield figure_of(f"{name}, mean of {SEEDS}", sum(shares) / len(shares), "<=", 0.10), 0.09
    yield figure_of(f"{name}, worst of {SEEDS}", max(shares), "<=", 0.14), 0.12
    shelf = _shelf(files, random.Random(0))
    yield figure_of("calls of an equal version", _calls(shelf, shelf), "<=", 0.5, "calls"), 0
    many = [added(f"//depot/dev/f{n}.py", f"value_{n} = {n}\n") for n in range(COPIES)]
    copies = [replace(file, path=file.path.replace("/dev/", "/release/")) for file in many]
    yield figure_of(f"calls of an integration of {COPIES} files", _calls(many, copies), "<=", 0.5, "calls"), 0


def prefixes(files: Sequence[FileChange]) -> Iterator[tuple[Figure, object]]:
    """Yield how much of later parts and questions a server that keeps prefixes has read before."""
    shares = {"later parts": [0, 0], "verify calls": [0, 0]}  # characters sent before, and all
    for seed in range(5):
        shelf = _shelf(files, random.Random(seed))
        prepared = prepare(change_of(*shelf, description=DESCRIPTION), Redactor(), SMALL)
        model, verifier = Telling(), Telling()
        around = ReviewContext(verifier=verifier)
        asyncio.run(review_prepared(prepared, model, SMALL, {}, around))
        system = system_prompt(SMALL.max_findings_per_chunk)
        earlier = model.asked[:1]
        for kind, texts in (("later parts", model.asked[1:]), ("verify calls", verifier.asked)):
            for text in texts:
                shares[kind][0] += len(system) + max(_alike(text, other) for other in earlier)
                shares[kind][1] += len(system) + len(text)
                earlier.append(text)
    for kind, (same, total) in shares.items():
        name = f"prefix of {kind} that was sent before, at {SMALL.max_input_tokens:,} tokens"
        yield figure_of(name, same / total, ">=", 0.40), 0.45


def rules() -> Iterator[tuple[Figure, object]]:
    """Yield the milliseconds that it takes to find the rules of a change.

    Also those of each of its files as a part.
    """
    paths = [f"//depot/p/d{n % 5}/e{n % 3}/f{n}.py" for n in range(FILES)]
    patterns = ["//depot/p/...", "//depot/p/d{}/...", "//depot/*/d{}/e1/*.py", "//depot/q{}/..."]
    team = [TeamRule(f"r{n}", patterns[n % 4].format(n % 5), "high", f"Rule {n}.") for n in range(RULES)]
    change = change_of(*(added(path, "x = 1\n") for path in paths))
    ruled = replace(change, rules=tuple(matching(team, change)))
    prepared = prepare(ruled, Redactor(), LIMITS)
    seconds = []
    for _ in range(50):
        started = time.perf_counter()
        list(matching(team, change))
        for index in range(FILES):
            rules_of(prepared.text.rules, [index])
        seconds.append(time.perf_counter() - started)
    name = f"rules of {FILES} files found among {RULES}, median"
    yield figure_of(name, 1000 * statistics.median(seconds), "<=", 5, "ms"), 2


def _alike(one: str, other: str) -> int:
    """Return how many characters two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def _shelf(files: Sequence[FileChange], source: random.Random) -> list[FileChange]:
    return [
        replace(file, path=f"//depot/p/d{n % 5}/f{n}.py")
        for n, file in enumerate(source.sample(files, FILES))
    ]


def _second(files: Sequence[FileChange], source: random.Random) -> float:
    before = _shelf(files, source)
    chosen = set(source.sample(range(FILES), CHANGED))
    after = [
        replace(file, new_text=(file.new_text or "") + f"added_in_version_2_{n} = 1\n")
        if n in chosen
        else file
        for n, file in enumerate(before)
    ]
    first = _reviewed(_prepared(before))
    second = _reviewed(_prepared(after), stored(first))
    return second.review.usage.input_tokens / first.review.usage.input_tokens


def _calls(before: Sequence[FileChange], after: Sequence[FileChange]) -> int:
    return _reviewed(_prepared(after), stored(_reviewed(_prepared(before)))).review.usage.calls


def _prepared(files: Sequence[FileChange]) -> Prepared:
    return prepare(change_of(*files), Redactor(), LIMITS)


def _reviewed(prepared: Prepared, known: Mapping[str, KnownUnit] | None = None) -> ReviewOutcome:
    around = ReviewContext(known=known or {})
    return asyncio.run(review_prepared(prepared, Quiet(), LIMITS, {}, around))
