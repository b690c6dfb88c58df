"""Suggestions as edits: shown ones apply with git, parse, and change what they name (G430)."""

from __future__ import annotations

import ast
import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from random import Random
from typing import Any

from notifications.rendering.report import MAX_TEXT
from reviews import fixes
from reviews.models import FindingRow
from reviews.reviewers.anchoring import anchor
from reviews.reviewers.answer import parse_answer
from reviews.reviewers.edit_proofs import _errors, why_refused
from reviews.reviewers.grammars import language_of
from reviews.reviewers.suggestions import parts, suggestion_of
from reviews.sources.base import FileChange
from tests.reviewers.build import edited, fake_token
from tests.reviewers.test_anchoring import chunk_of
from tests.reviewers.test_answer import answer_of, raw_finding

# By language: a function around the lines at @, and pairs of a wrong text there and its correct repair.
# `#N` becomes a number, so that lines of several functions differ.
PROGRAMS: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "py": (
        "def step_#N(rows, limit):\n    total_#N = sum(rows)\n@\n    log(total_#N)\n    return total_#N\n",
        [
            ("    mean_#N = total_#N / len(rows)", "    mean_#N = total_#N / len(rows) if rows else 0"),
            ("    open_#N = open(rows[0])", "    with open(rows[0]) as open_#N:\n        read(open_#N)"),
            (
                "    if limit == None:\n        return total_#N + 1\n    limit_#N = limit",
                "    if limit is None:\n        return total_#N\n    limit_#N = limit",
            ),
            ("    retry_#N(rows)", "    for row in rows:\n        if row:\n            retry_#N(row)"),
        ],
    ),
    "js": (
        "function step#N(rows, limit) {\n  let total#N = add(rows);\n@\n"
        "  log(total#N);\n  return total#N;\n}\n",
        [
            (
                "  let mean#N = total#N / rows.length;",
                "  let mean#N = rows.length ? total#N / rows.length : 0;",
            ),
            ("  if (limit == 0) {\n    stop#N();\n  }", "  if (limit === 0) {\n    return stop#N();\n  }"),
            ("  send#N(rows[0]);", "  if (rows.length > 0) {\n    send#N(rows[0]);\n  }"),
        ],
    ),
    "go": (
        "package p\n\nfunc step#N(rows []int, limit int) int {\n\ttotal#N := add(rows)\n@\n"
        "\treturn total#N\n}\n",
        [
            (
                "\tmean#N := total#N / len(rows)\n\tlog(mean#N)",
                "\tif len(rows) > 0 {\n\t\tlog(total#N / len(rows))\n\t}",
            ),
            ("\tf#N, _ := open(limit)", "\tf#N, err := open(limit)\n\tif err != nil {\n\t\treturn 0\n\t}"),
        ],
    ),
    "java": (
        "class Step#N {\n    int run(int[] rows, int limit) {\n        int total#N = add(rows);\n@\n"
        "        return total#N;\n    }\n}\n",
        [
            ("        int mean#N = total#N / size;", "        int mean#N = size == 0 ? 0 : total#N / size;"),
            (
                "        lock#N.lock();\n        run#N(limit);",
                "        lock#N.lock();\n        try {\n            run#N(limit);\n        } finally {\n"
                "            lock#N.unlock();\n        }",
            ),
        ],
    ),
    "c": (
        "int step#N(int *rows, int limit)\n{\n    int total#N = add(rows);\n@\n    return total#N;\n}\n",
        [
            (
                "    char *copy#N = malloc(limit);",
                "    char *copy#N = calloc(limit, 1);\n    if (!copy#N)\n        die();",
            ),
            ("    total#N = rows[limit];", "    if (limit < size)\n        total#N = rows[limit - 1];"),
        ],
    ),
    "kt": (
        "fun step#N(rows: List<Int>, limit: Int): Int {\n    val total#N = add(rows)\n@\n"
        "    return total#N\n}\n",
        [("    val mean#N = total#N / size", "    val mean#N = if (size == 0) 0 else total#N / size")],
    ),
}
FAILURES = (
    "ambiguous", "stale", "repeats", "broken", "indentation", "placeholder", "no change", "overreach",
    "secret", "marked",
)  # fmt: skip
COMMENT = {"py": "#"}


@dataclass(frozen=True)
class Case:
    """One suggestion: `wanted` is the file after the repair that its author meant."""

    file: FileChange
    answer: dict[str, Any]
    wanted: str


def case(random: Random, number: int, failure: str = "") -> Case:
    kind = random.choice(list(PROGRAMS))
    frame, pairs = PROGRAMS[kind]
    wrong, right = random.choice(pairs)
    names = [str(n) for n in random.sample(range(10, 99), 3)]
    texts = [frame.replace("#N", name).replace("@", wrong.replace("#N", name)) for name in names]
    name = names[1]
    wrong, right = wrong.replace("#N", name), right.replace("#N", name)
    if kind == "go":
        texts = [texts[0], *(text.removeprefix("package p\n\n") for text in texts[1:])]
    if failure == "ambiguous":
        texts[2] = texts[1]
    new = "\n".join(texts)
    old = new.replace(f"{wrong}\n", "")
    quotes = wrong.split("\n")
    quote, quote_end, code = quotes[0], quotes[-1], right
    frame_lines = texts[1].split("\n")
    at = frame_lines.index(quotes[0])
    match failure:
        case "stale":
            quote = f"{quote} + stale_{name}"
        case "repeats":
            many = random.choice([1, 3])
            code = "\n".join(
                [*frame_lines[max(0, at - many) : at], right, *frame_lines[at + len(quotes) :][:many]]
            )
        case "broken":
            code = random.choice([right + " (", right + "\n}}", right[:-1] + "[("])
        case "indentation":
            flat = "\n".join(line.strip() for line in right.split("\n"))
            code = random.choice(
                [
                    " " + right,
                    right.replace("\t", "    ") if kind == "go" else "\t" + right.lstrip(),
                    "  " + flat,
                ]
            )
        case "placeholder":
            left_open = random.choice(
                ["... existing code ...", "TODO: handle it", "rest of the function unchanged"]
            )
            code = f"{right}\n{quotes[0][: -len(quotes[0].lstrip())]}{COMMENT.get(kind, '//')} {left_open}"
        case "no change":
            code = wrong
        case "overreach":
            code = "\n".join([*frame_lines[:at], right, *frame_lines[at + len(quotes) :]])
        case "secret":
            code = f"{right}  {COMMENT.get(kind, '//')} {fake_token()}"
        case "marked":
            mark = random.choice(["+", f"{at + 1} "])
            code = "\n".join(mark + line for line in right.split("\n"))
    where = f"//depot/main/f{number}.{kind}"
    finding = raw_finding(file=where, quote=quotes[0], line=None, replace=[quote, quote_end])
    finding["with"] = code
    return Case(edited(where, old, new), finding, new.replace(wrong, right, 1))


def shown(one: Case) -> tuple[str, str]:
    """Return the patch that a review offers, or why it offers none."""
    answer = parse_answer(json.dumps(answer_of(one.answer)), 10)
    done = anchor(answer, chunk_of(one.file), {0: one.file.path}, [one.file.path])
    if not done.findings or done.findings[0].edit is None:
        return "", "place"
    edit = done.findings[0].edit
    why = why_refused(one.file, edit)
    row = FindingRow(file=one.file.path, edit=list(astuple(edit)))
    return ("", why) if why else (fixes.patch_of(row), "")


def offered(cases: list[Case], folder: Path) -> Iterator[tuple[Case, str, str]]:
    """Yield each case with the file after git applied its patch, or "" and why there is none."""
    found = [(one, *shown(one)) for one in cases]
    for one, patch, _ in found:
        if patch:
            path = folder / one.file.path.removeprefix("//depot/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(one.file.new_text or "")
    patches = "".join(patch for _, patch, _ in found)
    subprocess.run(["git", "apply", "-"], cwd=folder, input=patches.encode(), check=True)
    for one, patch, why in found:
        yield one, (folder / one.file.path.removeprefix("//depot/")).read_text() if patch else "", why


def parses(path: str, text: str) -> bool:
    language = language_of(path, text)
    if language == "python":
        ast.parse(text)
    return language is None or _errors(language, text) == 0


def test_of_500_suggestions_every_one_that_is_shown_applies_and_parses(tmp_path: Path) -> None:
    random = Random(10)
    meant = [("", case(random, n)) for n in range(250)]
    failing = [(way, case(random, n, way)) for n, way in enumerate(FAILURES * 25, start=250)]
    ways = [way for way, _ in (*meant, *failing)]
    survived, why_not, kept = 0, Counter[str](), Counter[str]()
    for way, (one, after, why) in zip(
        ways, offered([c for _, c in (*meant, *failing)], tmp_path), strict=True
    ):
        if not after:
            why_not[f"{way or 'correct'}: {why}"] += 1
            continue
        assert parses(one.file.path, after), (way, after)
        assert after == one.wanted, (way, "another line was overwritten")
        survived += not way
        kept[way] += 1
    assert len(ways) == 500
    assert survived >= 225, why_not
    # Repeated lines right around the range are taken into it; nothing else is mended.
    assert set(kept) <= {"", "repeats"}, kept
    assert all(any(said.startswith(way) for said in why_not) for way in FAILURES), why_not


def test_code_that_is_too_long_for_a_message_is_cut_between_lines_and_its_fence_is_closed() -> None:
    code = "\n".join(f"    value_{n} = compute({n})" for n in range(120))
    shown = suggestion_of({"suggestion": "word " * 200, "with": code})
    _, block = parts(shown)
    assert len(shown) <= MAX_TEXT
    assert block.text.endswith(")\n[... more lines]")
    assert suggestion_of({"suggestion": "", "with": "x = 1"}) == "```\nx = 1\n```"
