"""Definitions that a request shows of those that added lines use, measured without a model.

On this repository's own history: each change is fetched, with its context, and prepared as ever. A
"remark" is an added line that uses names which the repository defines; it rests on all of them. Names
are what Python's own tokenizer says, without variables of the file, names of Python itself and names
in more than 60 files. That stands in for what experts' remarks rest on, which is not here, so the
figures are not those of recorded pull requests. Heads are counted against Python's own parser, in files
of installed packages.
"""

from __future__ import annotations

import ast
import builtins
import io
import keyword
import math
import random
import re
import statistics
import sysconfig
import time
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path

from benchmarks.figures import Figure, say
from benchmarks.review_figure import figure_of
from criticizer.redaction import Redactor
from reviews.reviewers.base import Finding, FindingSeverity
from reviews.reviewers.instructions import system_prompt
from reviews.reviewers.outline import outline
from reviews.reviewers.prepare import ReviewLimits, prepare
from reviews.reviewers.prepared_change import Prepared
from reviews.reviewers.prompt import request_text, verify_text
from reviews.reviewers.splitting import Part
from reviews.reviewers.verifier_context import shown_again
from reviews.reviewers.verifying import SHARE, _claim
from reviews.sources.allowlist import AllowList
from reviews.sources.base import Action, Change, ChangeStatus, FileChange
from reviews.sources.content import generated_reason
from reviews.sources.context_files import ContextFetcher
from reviews.sources.diffs import diff_file
from reviews.sources.fetcher import ChangeFetcher
from reviews.sources.git import GitSource
from reviews.sources.names import MAX_FILES_OF_A_NAME, names_in

COMMITS = 40
MAX_FILES = 12  # of a change, as in most pull requests
HEAD_FILES = 150
EDITS_OF_A_FILE = 6
ROUNDS = 5
LARGE = range(50_000, 200_000)  # bytes of the files whose outlines are timed
FULL = 1.65  # characters for each token of the window, of a full request
CLAIM = "The call on this line gives None when the order has no lines, which its caller does not expect. " * 2
NONE = ReviewLimits(context_share=0.0)
TODAY = ReviewLimits()
SMALL = ReviewLimits(max_input_tokens=16_000)

PYTHONS = set(dir(builtins)).union(*map(dir, (str, bytes, list, dict, set, Exception)))

Known = dict[str, tuple[frozenset[str], set[str]]]  # of a blob: names it defines, names it has
ALLOWED = AllowList(["//self/..."])


def _history() -> tuple[GitSource, list[str]]:
    """Return this repository, and its newest commits that touch Python files."""
    root = Path(__file__).resolve().parents[1]
    source = GitSource("self", root, references=("refs/heads/*", "refs/remotes/*", "HEAD"))
    log = source._git.output("log", "--no-merges", "--format=%H", "-400", "HEAD", "--", "*.py")
    return source, log.decode().split()


def _defined(source: GitSource, sha: str, known: Known) -> set[str]:
    """Return the names that Python files of a commit define, without those that are everywhere."""
    git = source._git
    listed = git.output("ls-tree", "-r", "-z", sha).decode("utf-8", "surrogateescape").split("\0")
    blobs = [entry.split()[2] for entry in listed if entry.endswith(".py")]
    new = sorted(set(blobs) - known.keys())
    objects = git.objects(new)
    for blob, data in git.contents(new, objects).items():
        text = data.decode("utf-8", "replace")
        found = outline("a.py", text, seconds=5) or ()
        known[blob] = frozenset(one.name for one in found), names_in("a.py", text.split("\n"))
    files = Counter(name for blob in blobs for name in known[blob][1])
    defined = {name for blob in blobs for name in known[blob][0]}
    return {name for name in defined if files[name] <= MAX_FILES_OF_A_NAME}


def _names_used(change: Change, defined: set[str]) -> Iterator[frozenset[str]]:
    """Yield the names defined in the repository that each added line uses, where it uses any."""
    for file in change.files:
        if file.path.endswith(".py") and file.new_text and file.skipped is None:
            wanted = defined - _locals(file.new_text)
            used = _used(file.new_text)
            for line in diff_file(file).added():
                if names := frozenset(used[line.new_no or 0] & wanted):
                    yield names


def _used(text: str) -> dict[int, set[str]]:
    """Return the names on each line: those of code, not the words of comments and strings."""
    found: dict[int, set[str]] = defaultdict(set)
    with suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
                found[token.start[0]].add(token.string)
    return found


def _locals(text: str) -> set[str]:
    """Return the names of variables and parameters, and Python's own, which need no definition."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError):
        return set()
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return (
        PYTHONS
        | stored
        | {node.arg for node in nodes if isinstance(node, ast.arg | ast.keyword) and node.arg}
    )


def _visible(of: Prepared) -> set[str]:
    """Return the names whose definition a request shows: as a line of a hunk, or as context."""
    found: set[str] = set()
    for chunk in of.chunks:
        found.update(block.symbol for block in chunk.context)
        for hunk in chunk.hunks:
            path = of.text.manifest[hunk.file].path.text
            new = [line.text for line in hunk.lines if line.side == "new"]
            found.update(one.name for one in outline(path, "\n".join(new)) or ())
    return found


def _text(of: Prepared) -> int:
    return sum(
        len(system_prompt(10)) + len(request_text(of.text, of.chunks, part)) for part in range(len(of.chunks))
    )


def definitions() -> Iterator[tuple[Figure, object]]:
    """Yield how many definitions are visible, with context and without, and at how much text."""
    source, shas = _history()
    random.Random(3).shuffle(shas)
    known: Known = {}
    counts = {"without": [0, 0, 0, 0], "with": [0, 0, 0, 0]}  # names seen, names, lines seen, lines
    ratios: list[float] = []
    for sha in shas:
        if len(ratios) == COMMITS:
            break
        change = ChangeFetcher(source, ALLOWED, lambda _: None).fetch(f"git:self@{sha}")
        lines = list(_names_used(change, _defined(source, sha, known)))
        if not lines or len(change.files) > MAX_FILES:
            continue
        full = ContextFetcher(source, ALLOWED, lambda _: True).added_to(change)
        made = {"without": prepare(change, Redactor(), NONE), "with": prepare(full, Redactor(), TODAY)}
        if not made["without"].chunks:
            continue
        for name, of in made.items():
            seen = _visible(of)
            names = frozenset[str]().union(*lines)
            for at, number in enumerate(
                (len(names & seen), len(names), sum(used <= seen for used in lines), len(lines))
            ):
                counts[name][at] += number
        ratios.append(_text(made["with"]) / _text(made["without"]))
    for name, (seen_names, names_of, seen_lines, lines_of) in counts.items():
        say(f"{name} context: {seen_names} of {names_of} definitions, {seen_lines} of {lines_of} lines")
    seen_names, names_of, seen_lines, lines_of = counts["with"]
    yield figure_of("definition visible", seen_names / names_of, ">=", 0.8), 0.88
    yield figure_of("all definitions of a line visible", seen_lines / lines_of, ">=", 0.65), 0.75
    yield figure_of("text against today's prompt, median", statistics.median(ratios), "<=", 2.5, "times"), 2.0


def questions() -> Iterator[tuple[Figure, object]]:
    """Yield what verifying three findings of a part costs against the request that found them.

    In the default window, and in the smallest in which findings are verified at all.
    """
    yield from _questions(TODAY, 0.35, 0.7)
    yield from _questions(SMALL, 0, 0)  # where instructions are a larger part of all


def _questions(limits: ReviewLimits, most: float, least_alike: float) -> Iterator[tuple[Figure, object]]:
    source, shas = _history()
    draw = random.Random(7)
    counts: list[tuple[int, int, int]] = []  # characters of a request, of its question, of their beginning
    for sha in draw.sample(shas, 60):
        change = ChangeFetcher(source, ALLOWED, lambda _: None).fetch(f"git:self@{sha}")
        made = prepare(ContextFetcher(source, ALLOWED, lambda _: True).added_to(change), Redactor(), limits)
        for index, chunk in enumerate(made.chunks):
            lines = [(hunk, line) for hunk in chunk.hunks for line in hunk.lines if line.kind == "+"]
            request = request_text(made.text, made.chunks, index)
            if len(request) < FULL * limits.max_input_tokens or len(lines) < 3:
                continue
            found = [
                Finding(
                    made.paths[hunk.file], FindingSeverity.HIGH, "bug", "Unchecked result", CLAIM, "llm",
                    line=line.number, end_line=line.number, quote=line.text,
                )
                for hunk, line in draw.sample(lines, 3)
            ]  # fmt: skip
            whole = len(system_prompt(10)) + len(request)
            claims = "\n\n".join(_claim(f"K-{n}abcdef", finding) for n, finding in enumerate(found))
            rest = whole - Part(made.chunks, index).characters + len(claims)
            shown = shown_again(chunk, found, made.paths, int(SHARE * whole) - rest)
            question = verify_text(request, shown, *Redactor().redact_all([claims])).text
            pairs = enumerate(zip(request.text, question, strict=False))
            same = next(at for at, (one, other) in pairs if one != other)
            counts.append((whole, len(system_prompt(10)) + len(question), len(system_prompt(10)) + same))
    if not counts:
        say("no change fills a part: what verifying costs is not measured")
        return
    finders, asked, same_chars = (sum(column) for column in zip(*counts, strict=True))
    window = f"at {limits.max_input_tokens:,} tokens"
    name = f"text of verifying against finding, {len(counts)} full parts {window}"
    yield figure_of(name, asked / finders, "<=", most), 0.3
    yield figure_of(f"identical beginning of verifying {window}", same_chars / asked, ">=", least_alike), 0.8


def _sources(suffix: str) -> list[tuple[str, str]]:
    """Return texts of installed files, in a fixed order."""
    found = []
    for path in sorted(Path(sysconfig.get_paths()["purelib"]).rglob(f"*{suffix}")):
        if path.stat().st_size < LARGE.stop:
            try:
                found.append((f"//packages/{path.name}", path.read_text(encoding="utf-8")))
            except (UnicodeDecodeError, OSError):
                continue
    return found


def _heads(text: str) -> list[tuple[int, int, str]]:
    """Return (line of the head, last line, name) of each function and class, by Python's parser."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    tree = ast.walk(ast.parse(text))
    return [(node.lineno, node.end_lineno or 0, node.name) for node in tree if isinstance(node, kinds)]


def heads() -> Iterator[tuple[Figure, object]]:
    """Yield for how many added lines inside definitions each head is shown or named."""
    draw = random.Random(5)
    sources = _sources(".py")
    good = {"without": 0, "with": 0}
    total = 0
    for path, text in draw.sample(sources, min(HEAD_FILES * 2, len(sources))):
        try:
            defined = _heads(text)
        except (SyntaxError, ValueError):
            continue
        lines = text.split("\n")
        bodies = [n for first, last, _ in defined for n in range(first + 1, last + 1) if n <= len(lines)]
        for number in draw.sample(bodies, min(EDITS_OF_A_FILE, len(bodies))):
            changed = [*lines[: number - 1], lines[number - 1] + "  # edited", *lines[number:]]
            file = FileChange(path, Action.EDIT, old_text=text, new_text="\n".join(changed))
            around = [(head, name) for head, last, name in defined if head < number <= last]
            if not around or "\\" in lines[number - 1]:
                continue
            total += 1
            by_indentation = diff_file(file).hunks
            good["without"] += _has_heads(
                around,
                {line.new_no for hunk in by_indentation for line in hunk.lines},
                " ".join(hunk.section for hunk in by_indentation),
            )
            made = prepare(_change(file), Redactor()).chunks
            good["with"] += _has_heads(
                around,
                {line.number for chunk in made for hunk in chunk.hunks for line in hunk.lines},
                " ".join(hunk.text.text.split("\n")[0] for chunk in made for hunk in chunk.hunks),
            )
    say(f"enclosing heads by indentation alone: {good['without'] / total:.1%} of {total} lines")
    yield figure_of("enclosing heads shown or named", good["with"] / total, ">=", 0.98), 0.99


def _change(file: FileChange) -> Change:
    return Change("1", "perforce", "ann", "", ChangeStatus.SUBMITTED, 0, "v", (file,))


def _has_heads(around: Sequence[tuple[int, str]], shown: AbstractSet[int | None], section: str) -> bool:
    return all(head in shown or re.search(rf"\b{name}\b", section) for head, name in around)


def outlines() -> Iterator[tuple[Figure, object]]:
    """Yield the processor time of an outline, for 100 kB of files of installed packages."""
    files = [
        one
        for suffix in (".py", ".js", ".ts", ".h")
        for one in [x for x in _sources(suffix) if len(x[1]) in LARGE and not generated_reason(*x)][:60]
    ]
    spent = [math.inf] * len(files)
    for _ in range(ROUNDS):  # others use the caches of this processor too, but not all of the time
        for number, (path, text) in enumerate(files):
            began = time.thread_time()
            outline(path, text)
            taken = (time.thread_time() - began) * 1000 * 100_000 / len(text)
            spent[number] = min(spent[number], taken)
    say(f"outlines of {len(spent)} files: median {statistics.median(spent):.1f} ms for 100 kB")
    yield figure_of("outline of 100 kB, p95", statistics.quantiles(spent, n=20)[-1], "<=", 20.0, "ms"), 10.0
