"""Share of a model's answers that the pipeline keeps, measured without a model.

Answers: forms in which models write one review of three findings. Anchors: real lines of this
repository's own changes, quoted in many ways. Duplicates: recorded remarks of twelve reviewers,
where the data is present. Oracle: seeded defects that the whole pipeline shows. A line has
`measured`, `must` and `goal` beside the common fields.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import django
import structlog
from django.conf import settings

from benchmarks import review_anchors, review_context, review_units
from benchmarks.figures import Figure, say
from benchmarks.review_anchors import PATH
from benchmarks.review_figure import figure_of
from criticizer.redaction import RedactedText, Redactor
from reviews.reviewers.answer import MAX_ANSWER_CHARS, UnusableAnswer, parse_answer
from reviews.reviewers.base import Finding, FindingSeverity
from reviews.reviewers.instructions import system_prompt
from reviews.reviewers.merging import merged
from reviews.reviewers.prepare import prepare
from reviews.reviewers.prompt import longer_text, request_text
from reviews.reviewers.prompt_leaks import words_in
from reviews.reviewers.truncation import longest_gap, may_be_window, was_cut
from reviews.sources.base import Action, FileChange
from tests.fakes.llm import SmallWindow
from tests.reviewers.answer_corpus import AROUND, FINDINGS, FORMS, NO_ANSWERS
from tests.reviewers.build import change as change_of
from tests.reviewers.test_passes import agreement

ROOT = Path(__file__).resolve().parents[1]
JUDGED = ROOT.parent / "shared" / "data" / "review" / "martian_judged.json.gz"
JUDGE = "openai_gpt-5.2"
COMMITS = 300
REQUESTS = 500
CALLS = 20
DAMAGED = 10_000
WINDOWS = (2_000, 4_000, 8_000)  # of servers that cut, in tokens
UNIT_FILES = 200
WORD = r"^Word: (\w+)$"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=False)
    return done.stdout.decode(errors="replace")


def _changes() -> Iterator[FileChange]:
    """Yield edited files of this repository's history, newest first."""
    for commit in _git("log", "--format=%H", "--no-merges", f"-{COMMITS}").split():
        names = _git("diff-tree", "-r", "--no-commit-id", "--name-status", commit).splitlines()
        for name in names[:6]:
            action, _, path = name.partition("\t")
            if action in ("M", "A") and not path.endswith((".txt", ".lock", ".gz", ".svg")):
                old = _git("show", f"{commit}^:{path}") if action == "M" else ""
                new = _git("show", f"{commit}:{path}")
                if 0 < len(new) < 60_000:
                    kind = Action.EDIT if old else Action.ADD
                    yield FileChange(path=PATH, action=kind, old_text=old, new_text=new)


def _kept(text: str) -> bool:
    """Return whether all findings of an answer come out, on their lines, without a second call."""
    try:
        found = parse_answer(text, 10)["findings"]
    except UnusableAnswer:
        return False
    return [(f["file"], f["line"], f["severity"]) for f in found] == [
        (f["file"], f["line"], f["severity"]) for f in FINDINGS
    ]


def _broken(source: random.Random) -> int:
    """Return how many answers with a few signs lost or added raise anything but UnusableAnswer."""
    broken = 0
    for form in source.choices(sorted(FORMS), k=DAMAGED):
        text = list(FORMS[form])
        for _ in range(source.randrange(1, 12)):
            at = source.randrange(len(text) + 1)
            text[at : at + source.randrange(6)] = source.choice(["", *'{}"\\,[\n:`', "\ud800"])
        try:
            _invented("".join(text))
        except Exception as error:  # noqa: BLE001 - what is counted
            say(f"{form}: {error!r}")
            broken += 1
    return broken


def _reading() -> float:
    """Return the processor time of reading the longest answer."""
    many = [{**FINDINGS[0], "problem": f"{n}: {'word ' * 200}"} for n in range(300)]
    text = json.dumps({"findings": many})[:MAX_ANSWER_CHARS]
    spent = []
    for _ in range(5):
        began = time.process_time()
        _invented(text)
        spent.append(1_000 * (time.process_time() - began))
    return min(spent)


def _invented(text: str) -> int:
    try:
        return len(parse_answer(text, 10)["findings"])
    except UnusableAnswer:
        return 0


def recorded_pairs() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return pairs of remarks on the same defect, and on different defects of one change."""
    same: list[tuple[str, str]] = []
    different: list[tuple[str, str]] = []
    for tools in json.loads(gzip.decompress(JUDGED.read_bytes()))[JUDGE].values():
        said = [(tool, golden, text) for tool, made in tools.items() for golden, text in made["tp"]]
        for (tool, golden, text), (other_tool, other_golden, other) in itertools.combinations(said, 2):
            if golden != other_golden and (tool, text) != (other_tool, other):
                different.append((text, other))
            elif golden == other_golden and tool != other_tool:
                same.append((text, other))
    return same, different


def merged_share(pairs: Sequence[tuple[str, str]]) -> float:
    """Return how many pairs are merged when both stand on one line."""

    def made(text: str) -> Finding:
        return Finding(PATH, FindingSeverity.HIGH, "bug", text[:80], text, "llm", line=3, end_line=3)

    return sum(len(merged([made(one), made(other)])) == 1 for one, other in pairs) / len(pairs)


def _pieces(text: str) -> int:
    """Return a rough count of tokens, as byte-pair encodings make them.

    Short words, numbers and signs each are one.
    """
    return len(re.findall(r" ?[A-Za-z]{1,6}|\d{1,3}|\s+|[^\w\s]{1,2}", text))


def _requests() -> Iterator[RedactedText]:
    """Yield the user parts of requests about this repository's changes."""
    for file in _changes():
        prepared = prepare(change_of(file), Redactor())
        for part in range(len(prepared.chunks)):
            yield request_text(prepared.text, prepared.chunks, part)


def _windows() -> Iterator[tuple[Figure, object]]:
    system = system_prompt(10)
    requests = list(itertools.islice(_requests(), REQUESTS))
    say(f"{len(requests)} requests")
    cut = round_cut = noticed = told = alarms = 0
    for request in requests:
        user = request.text
        whole, expected = f"{system}\n{user}", words_in(system, user)
        longer = f"{system}\n{longer_text(request, longest_gap(whole, expected)).text}"
        characters = len(system) + len(user)
        for said in (re.findall(WORD, whole, re.MULTILINE), ()):
            alarms += was_cut(expected, said, characters, _pieces(whole))
        windows = (*WINDOWS, _pieces(whole) - 5)
        for window, at in itertools.product(windows, ("head", "middle", "tail")):
            server = SmallWindow(window, at, tokens=_pieces)
            read = server.read(whole)
            if read.rstrip("\n") != whole.rstrip("\n"):
                cut += 1
                said = re.findall(WORD, read, re.MULTILINE)
                # Where there are no counts, a longer request is asked as well.
                also = re.findall(WORD, server.read(longer), re.MULTILINE)
                told += any(was_cut(expected, words, characters, 0) for words in (said, also))
                if window in WINDOWS:  # which such a server reports
                    round_cut += 1
                    noticed += was_cut(expected, said, characters, window) or may_be_window(window)
    yield figure_of(f"cut requests of {round_cut} noticed", noticed / round_cut, ">=", 1.0), 1.0
    yield figure_of(f"cut requests of {cut} noticed without token counts", told / cut, ">=", 1.0), 1.0
    yield figure_of(f"false alarms of {2 * len(requests)} full requests", alarms, "<=", 0.5, "requests"), 0
    counts = [(len(system) + len(user), _pieces(f"{system}\n{user.text}")) for user in requests]
    errors = []
    for first in range(len(counts) - CALLS):
        weighed = [(0.9**age, *counts[first + CALLS - 1 - age]) for age in range(CALLS)]
        ratio = sum(w * characters for w, characters, _ in weighed) / sum(
            w * tokens for w, _, tokens in weighed
        )
        characters, tokens = counts[first + CALLS]
        errors.append(abs(characters / ratio - tokens) / tokens)
    name = f"error of the estimated tokens after {CALLS} calls"
    yield figure_of(name, sum(errors) / len(errors), "<=", 0.08), 0.05


def _second_opinion() -> Iterator[tuple[Figure, object]]:
    """Yield what agreement is worth with a model whose noise is independent from pass to pass."""
    precision, recall, agreed_precision, agreed_recall = agreement(400)
    yield figure_of("second opinion: precision of one pass", precision, ">=", 0), 0
    yield figure_of("second opinion: recall of one pass", recall, ">=", 0), 0
    yield figure_of("second opinion: precision of two of three passes", agreed_precision, ">=", 0.9), 0.95
    yield figure_of("second opinion: recall of two of three passes", agreed_recall, ">=", 0.4), 0.45


def _oracle() -> Iterator[tuple[Figure, object]]:
    django.setup()
    from reviews.evaluation import modes

    options = modes.Options.of(settings, {"corpus": ROOT / "tests" / "corpus"})
    measured = modes.by_oracle(options)["figures"]
    for name, must, goal in (
        ("recall_file", 0.95, 0.98),
        ("recall_repository", 0.80, 0.90),
        ("precision", 0.80, 0.90),
        ("line_accuracy", 0.95, 0.99),
    ):
        yield figure_of(f"oracle {name}", measured[name], ">=", must), goal


def _figures() -> Iterator[tuple[Figure, object]]:
    forms = {name: [_kept(around(text)) for around in AROUND.values()] for name, text in FORMS.items()}
    kept, answers = sum(map(all, forms.values())), len(FORMS) * len(AROUND)
    say(f"{sum(map(sum, forms.values()))} of {answers} answers kept")
    yield (
        figure_of(f"answer forms of {len(FORMS)} kept without a second call", kept / len(FORMS), ">=", 0.9),
        0.975,
    )
    yield (
        figure_of(f"damaged answers of {DAMAGED} that end the review", _broken(random.Random(2)), "<=", 0.5),
        0,
    )
    yield figure_of("reading an answer of 400 kB", _reading(), "<=", 50, "ms"), 40
    invented = sum(_invented(text) for text in NO_ANSWERS.values())
    yield figure_of("findings invented", invented, "<=", 0.5, "findings"), 0
    yield from review_anchors.figures(_changes())
    if JUDGED.exists():
        same, different = recorded_pairs()
        yield figure_of(f"{len(same)} same-defect pairs merged, by words", merged_share(same), ">=", 0.4), 0.5
        yield (
            figure_of(
                f"{len(different)} different pairs merged, by words", merged_share(different), "<=", 0.035
            ),
            0.03,
        )
    else:
        say("no recorded reviews: duplicates are not measured")
    yield from _windows()
    for measured in (
        review_context.definitions,
        review_context.questions,
        review_context.heads,
        review_context.outlines,
    ):
        yield from measured()
    files = list(itertools.islice(_changes(), UNIT_FILES))
    yield from review_units.figures(files)
    yield from review_units.prefixes(files)
    yield from review_units.rules()
    yield from _second_opinion()
    yield from _oracle()


def main() -> int:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # figures alone go out
    is_good = True
    for figure, goal in _figures():
        print(json.dumps({**json.loads(figure.line()), "measured": figure.value, "goal": goal}), flush=True)
        is_good = is_good and figure.ok
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
