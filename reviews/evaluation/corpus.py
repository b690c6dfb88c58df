"""Reads a corpus: TOML files of small projects with edits that are right or wrong.

A file is one project:

    language = "python"
    [files]                      # before any change; "@@fill 40" becomes 40 lines of other code or some more
    [[edits]]                    # id, why, file, before, right, wrong; of the wrong one: level,
                                 # severity, quote, title, problem, needs = ["path:text", ...]
    claim = {...}                # a remark that is not true: problem, quote, refuted_by = "path:text"
    [[changes]]                  # one commit: wrong = [ids], right = [ids], files = {added}, trap,
                                 # encodings = {path: codec}, copies = {directory: directory}

`level` says where the evidence of a defect (`needs`) lies: in the diff, elsewhere in the file, or in a file
of the repository that the change does not touch. The seed chooses the other code, and so all line numbers.
"""

from __future__ import annotations

import hashlib
import posixpath
import random
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LEVELS = ("diff", "file", "repository")
_DIRECTIVE = re.compile(r"@@(fill|bytes) (\d+)|@@(secret)")
_NOUNS = ("basket", "voucher", "parcel", "shelf", "ticket", "window", "signal", "branch", "marker", "ribbon")
_VERBS = ("describe", "measure", "label", "rank", "encode", "compare", "mirror", "sample")
# One function, `{f}` its name, `{n}` a number and `{w}` a word.
_FUNCTIONS = {
    "python": 'def {f}(value: int) -> str:\n    """Return a {w} as text."""\n    if value < {n}:\n'
    '        return "{w} below {n}"\n    return f"{w} {{value}}"\n\n\n',
    "typescript": "export function {f}(value: number): string {{\n  if (value < {n}) {{\n"
    '    return "{w} below {n}";\n  }}\n  return `{w} ${{value}}`;\n}}\n\n',
    "go": "func {f}(value int) string {{\n\tif value < {n} {{\n"
    '\t\treturn "{w} below {n}"\n\t}}\n\treturn fmt.Sprint("{w} ", value)\n}}\n\n',
    "java": "    static String {f}(int value) {{\n        if (value < {n}) {{\n"
    '            return "{w} below {n}";\n        }}\n        return "{w} " + value;\n    }}\n\n',
    "csharp": "    public static string {f}(int value)\n    {{\n        if (value < {n})\n"
    '            return "{w} below {n}";\n        return $"{w} {{value}}";\n    }}\n\n',
    "cpp": "std::string {f}(int value) {{\n  if (value < {n}) {{\n"
    '    return "{w} below {n}";\n  }}\n  return "{w} " + std::to_string(value);\n}}\n\n',
    "rust": "pub fn {f}(value: u32) -> String {{\n    if value < {n} {{\n"
    '        return String::from("{w} below {n}");\n    }}\n    format!("{w} {{value}}")\n}}\n\n',
    "ruby": '  def {f}(value)\n    return "{w} below {n}" if value < {n}\n\n    "{w} #{{value}}"\n  end\n\n',
}


class CorpusError(Exception):
    """Raised when the corpus cannot be read; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A line, in a file of the repository, that holds `text`."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.text}"


@dataclass(frozen=True, slots=True)
class Defect:
    """A seeded defect on line `line` of the new side; all its `needs` together prove it."""

    name: str
    file: str
    line: int
    quote: str  # the whole line
    level: str
    severity: str
    title: str
    problem: str
    needs: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """A remark that is plausible but untrue, as `refuted_by` shows."""

    file: str
    line: int
    quote: str
    problem: str
    refuted_by: Evidence


@dataclass(frozen=True, slots=True)
class Case:
    """One change of a project; `secrets` stand in it and may never be sent."""

    name: str
    description: str
    before: Mapping[str, bytes] = field(repr=False)
    after: Mapping[str, bytes] = field(repr=False)
    defects: tuple[Defect, ...] = ()
    claims: tuple[Claim, ...] = ()
    trap: str = ""
    secrets: tuple[str, ...] = ()


def digest(directory: Path) -> str:
    """Return a digest of a corpus: figures of different corpora cannot be compared."""
    sums = [f"{path.name}\0{path.read_text()}" for path in _files(directory)]
    return hashlib.sha256("\0".join(sums).encode()).hexdigest()[:16]


def load(directory: Path, seed: int) -> list[Case]:
    """Return the changes of a corpus; the same seed gives the same ones. Raises CorpusError."""
    cases: list[Case] = []
    for path in _files(directory):
        try:
            project = tomllib.loads(path.read_text())
            source = random.Random(f"{seed} {path.stem}")  # noqa: S311
            cases += _Project(path.stem, project, source).cases()
        except (tomllib.TOMLDecodeError, KeyError, ValueError, TypeError) as error:
            raise CorpusError(f"{path.name}: {type(error).__name__}: {error}") from error
    return cases


def _files(directory: Path) -> list[Path]:
    found = sorted(directory.glob("*.toml")) if directory.is_dir() else []
    if not found:
        raise CorpusError(f"{directory} holds no *.toml: give the directory of a corpus with --corpus")
    return found


class _Project:
    def __init__(self, name: str, fields: Mapping[str, Any], source: random.Random) -> None:
        self._name = name
        self._fields = fields
        self._source = source
        self._language = fields["language"]
        self._edits = {edit["id"]: edit for edit in fields["edits"]}
        self._secret = "gh" + "p_" + "".join(source.choices("ABCDEFGHabcdefgh23456789", k=36))
        self._before = {path: self._expanded(text) for path, text in fields["files"].items()}

    def cases(self) -> list[Case]:
        return [self._case(number, change) for number, change in enumerate(self._fields["changes"], start=1)]

    def _case(self, number: int, change: Mapping[str, Any]) -> Case:
        wrong, right = change.get("wrong", []), change.get("right", [])
        after = dict(self._before)
        for edit in (self._edits[name] for name in (*wrong, *right)):
            new = edit["wrong" if edit["id"] in wrong else "right"]
            if after[edit["file"]].count(edit["before"]) != 1:
                raise ValueError(f"edit {edit['id']}: `before` must occur once in {edit['file']}")
            after[edit["file"]] = after[edit["file"]].replace(edit["before"], new)
        texts = {path: self._expanded(text) for path, text in change.get("files", {}).items()}
        for old, new in change.get("copies", {}).items():
            texts |= {
                posixpath.join(new, posixpath.relpath(p, old)): after[p] for p in after if p.startswith(old)
            }
        if strange := [path for path in texts | after if set(path) & set('"\\\n')]:
            raise ValueError(f"the path {strange[0]!r} holds a quote, a backslash or a line feed")
        codecs = change.get("encodings", {})
        return Case(
            name=f"{self._name}-{number}",
            description="\n".join(self._edits[name]["why"] + "." for name in (*wrong, *right)),
            before=_encoded(self._before, codecs),
            after=_encoded(after | texts, codecs),
            defects=tuple(self._defect(self._edits[name], after) for name in wrong),
            claims=tuple(self._claims([*wrong, *right], after)),
            trap=change.get("trap", ""),
            secrets=(self._secret,) if any(self._secret in text for text in texts.values()) else (),
        )

    def _defect(self, edit: Mapping[str, Any], after: Mapping[str, str]) -> Defect:
        if edit["level"] not in LEVELS:
            raise ValueError(f"edit {edit['id']}: level must be one of {', '.join(LEVELS)}")
        line, quote = _line_of(edit["quote"], edit["wrong"], after[edit["file"]])
        return Defect(
            f"{self._name}/{edit['id']}", edit["file"], line, quote, edit["level"], edit["severity"],
            edit["title"], edit["problem"], tuple(map(_evidence, edit["needs"])),
        )  # fmt: skip

    def _claims(self, names: Sequence[str], after: Mapping[str, str]) -> list[Claim]:
        claims = []
        for edit in (self._edits[name] for name in names if "claim" in self._edits[name]):
            claim, text = edit["claim"], after[edit["file"]]
            for block in (edit["wrong"], edit["right"]):
                if block in text and claim["quote"] in block:
                    line, quote = _line_of(claim["quote"], block, text)
                    refuting = _evidence(claim["refuted_by"])
                    claims.append(Claim(edit["file"], line, quote, claim["problem"], refuting))
                    break
        return claims

    def _expanded(self, text: str) -> str:
        def filled(found: re.Match[str]) -> str:
            if found[3]:
                return self._secret
            size = int(found[2])
            return self._other_code(size) if found[1] == "fill" else "[0.25, 0.5],\n" * (size // 13)

        return _DIRECTIVE.sub(filled, text)

    def _other_code(self, lines: int) -> str:
        text = ""
        lines += self._source.randrange(15)
        while text.count("\n") < lines:
            name = (
                f"{self._source.choice(_VERBS)}_{self._source.choice(_NOUNS)}_{self._source.randrange(10**6)}"
            )
            number, word = self._source.randrange(2, 900), self._source.choice(_NOUNS)
            text += _FUNCTIONS[self._language].format(f=name, n=number, w=word)
        return text.rstrip("\n")


def _line_of(part: str, block: str, text: str) -> tuple[int, str]:
    """Return number, from 1, and text of the line in `text` that holds `part` of `block`."""
    start = text.index(block)
    at = text.index(part, start, start + len(block))
    number = text.count("\n", 0, at) + 1
    return number, text.split("\n")[number - 1]


def _evidence(written: str) -> Evidence:
    path, _, text = written.partition(":")
    return Evidence(path, text)


def _encoded(texts: Mapping[str, str], codecs: Mapping[str, str]) -> dict[str, bytes]:
    return {path: text.encode(codecs.get(path, "utf-8")) for path, text in texts.items()}
