"""Share of quotes found on their line: real lines, quoted in many ways."""

from __future__ import annotations

import html
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.figures import Figure, say
from benchmarks.review_figure import figure_of
from criticizer.redaction import Redactor
from reviews.reviewers.anchoring import anchor
from reviews.reviewers.chunks import Chunk, pack
from reviews.sources.base import FileChange
from reviews.sources.diffs import diff_file, render
from tests.reviewers.answer_corpus import FINDINGS

LINES = 2_000
LINES_OF_OTHER_HINTS = 300
LINES_OF_A_FILE = 12
PATH = "//depot/p/file"


@dataclass(frozen=True, slots=True)
class Target:
    """An added line with its neighbours on the new side.

    `replaced` is the line that it replaced, if that is known.
    """

    chunk: Chunk
    hunk: str
    numbers: tuple[int, ...]  # of this line and of those that follow in the hunk
    texts: tuple[str, ...]
    replaced: str


def figures(changes: Iterable[FileChange]) -> Iterator[tuple[Figure, object]]:
    """Yield the figures of added lines of these changes."""
    source = random.Random(1)
    targets = list(itertools.islice(_targets(changes, source), LINES))
    say(f"{len(targets)} added lines")
    if targets:
        yield from _anchors(targets, source)


def _targets(changes: Iterable[FileChange], source: random.Random) -> Iterator[Target]:
    for change in changes:
        diff = diff_file(change)
        rendered = render(diff)
        if not diff.hunks:
            continue
        redacted = Redactor().redact_all([rendered.text])
        chunks = list(pack([diff], [rendered], redacted, [1], 24_000))
        lines = [
            (chunk, hunk, k)
            for chunk in chunks
            for hunk in chunk.hunks
            for k, line in enumerate(hunk.lines)
            if line.kind == "+" and line.text.strip()
        ]
        for chunk, hunk, k in source.sample(lines, min(LINES_OF_A_FILE, len(lines))):
            new = [line for line in hunk.lines[k:] if line.side is hunk.lines[k].side][:4]
            old = [
                line
                for line in hunk.lines
                if line.kind == "-" and line.position == hunk.lines[k].position - 1
            ]
            yield Target(
                chunk,
                hunk.name,
                tuple(line.number for line in new),
                tuple(line.text for line in new),
                old[0].text if old else "",
            )


def _two(t: Target, count: int = 2) -> str | None:
    return (
        "\n".join(t.texts[:count])
        if len(t.texts) >= count and all(x.strip() for x in t.texts[:count])
        else None
    )


def _marked(t: Target, count: int, write: Callable[[int, str], str]) -> str | None:
    if len(t.texts) < count:
        return None
    return "\n".join(
        write(number, text) for number, text in zip(t.numbers[:count], t.texts[:count], strict=True)
    )


def _elided(t: Target) -> str | None:
    text = t.texts[0].strip()
    third = len(text) // 3
    return f"{text[:third]} ... {text[-third:]}" if third >= 10 else None


def _elided_lines(t: Target) -> str | None:
    good = len(t.texts) >= 3 and len(t.texts[0].strip()) >= 8 and len(t.texts[2].strip()) >= 8
    return f"{t.texts[0]}\n    ...\n{t.texts[2]}" if good else None


def _half(t: Target) -> str | None:
    text = t.texts[0].strip()
    return text[: len(text) * 2 // 3] if len(text) >= 24 else None


WAYS: dict[str, Callable[[Target], str | None]] = {
    "exact": lambda t: t.texts[0],
    "trimmed": lambda t: t.texts[0].strip(),
    "tabs": lambda t: t.texts[0].replace("    ", "\t"),
    "indented otherwise": lambda t: "  " + t.texts[0].lstrip(),
    "single spaces": lambda t: " ".join(t.texts[0].split()),
    "no-break spaces": lambda t: t.texts[0].replace(" ", "\u00a0"),
    "as printed": lambda t: f"{t.numbers[0]:>5} +{t.texts[0]}",
    "plus": lambda t: f"+{t.texts[0]}",
    "plus and space": lambda t: f"+ {t.texts[0].strip()}",
    "number and colon": lambda t: f"{t.numbers[0]}: {t.texts[0]}",
    "number and bar": lambda t: f"{t.numbers[0]:>4} | {t.texts[0]}",
    "line in words": lambda t: f"Line {t.numbers[0]}: {t.texts[0].strip()}",
    "backticks": lambda t: f"`{t.texts[0].strip()}`",
    "fenced": lambda t: f"```python\n{t.texts[0]}\n```",
    "in quotes": lambda t: f'"{t.texts[0].strip()}"',
    "other quotes": lambda t: t.texts[0].replace('"', "'"),
    "typographic quotes": lambda t: t.texts[0].replace('"', "\u201d").replace("'", "\u2019"),
    "escaped": lambda t: t.texts[0].replace('"', '\\"'),
    "entities": lambda t: html.escape(t.texts[0]),
    "no last sign": lambda t: t.texts[0].rstrip(" ;,:"),
    "semicolon added": lambda t: t.texts[0].rstrip() + ";",
    "two thirds": _half,
    "cut": lambda t: f"{half}..." if (half := _half(t)) else None,
    "elided": _elided,
    "two lines": _two,
    "three lines": lambda t: _two(t, 3),
    "two lines, marked": lambda t: _marked(t, 2, lambda n, x: f"+{x}"),
    "three lines as printed": lambda t: _marked(t, 3, lambda n, x: f"{n:>5} +{x}"),
    "joined": lambda t: " ".join(x.strip() for x in t.texts[:2]) if _two(t) else None,
    "joined by a written line feed": lambda t: "\\n".join(t.texts[:2]) if _two(t) else None,
    "lines left out": _elided_lines,
    "replaced and replacement": lambda t: f"-{t.replaced}\n+{t.texts[0]}" if t.replaced.strip() else None,
}


def _landed(target: Target, quote: str, **fields: object) -> int | None:
    raw = {
        **FINDINGS[0],
        "file": PATH,
        "quote": quote,
        "hunk": target.hunk,
        "side": "new",
        "line": None,
        **fields,
    }
    (finding,) = anchor({"findings": [raw]}, target.chunk, {0: PATH}, [PATH]).findings or (None,)
    return finding.line if finding is not None else None


def _anchors(targets: Sequence[Target], source: random.Random) -> Iterator[tuple[Figure, object]]:
    hints: dict[str, Callable[[Target], int | None]] = {
        "with its line": lambda t: t.numbers[0],
        "line off by up to 2": lambda t: max(1, t.numbers[0] + source.choice((-2, -1, 1, 2))),
        "without a line": lambda t: None,
    }
    step = max(1, len(targets) // LINES_OF_OTHER_HINTS)
    for name, hint in hints.items():
        right = other = total = 0
        for way, write in WAYS.items():
            good = wrong = seen = 0
            for target in targets if name == "with its line" else targets[::step]:
                quote = write(target)
                if quote is None:
                    continue
                line = _landed(target, quote, line=hint(target))
                seen += 1
                good += line == target.numbers[0]
                wrong += line is not None and line != target.numbers[0]
            say(f"{name}: {way}: {good / max(1, seen):.1%} right, {wrong / max(1, seen):.2%} other ({seen})")
            if way == "exact" and name == "with its line":
                yield figure_of("exact quotes on their line", good / seen, ">=", 0.99), 0.997
            right, other, total = right + good, other + wrong, total + seen
        is_hinted = name == "with its line"
        yield (
            figure_of(f"anchor matrix, {name}: right line", right / total, ">=", 0.95 if is_hinted else 0),
            (0.975 if is_hinted else None),
        )
        bound, goal = {"with its line": (0.002, 0.0005), "line off by up to 2": (0.005, None)}.get(
            name, (1, None)
        )
        yield figure_of(f"anchor matrix, {name}: another line", other / total, "<=", bound), goal
