"""An oracle in place of a model: finds a seeded defect if its evidence is in the request.

Its answers are also wrong in the ways of models; the seed chooses where. It reports one defect twice in other
words, numbers of other lines, files that do not exist, defects of unchanged code, remarks on style, and
plausible remarks that other code refutes. As the verifier it refutes such a remark exactly when the line that
refutes it is in the request. Its answers depend on the case and the lines that it sees, never on the words of
the prompt, so figures change when reviews change.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from reviews.evaluation.changes import depot_path
from reviews.evaluation.corpus import Case, Defect
from reviews.reviewers.model import ModelAnswer, ModelRequest

MODEL = "oracle"
TWICE, OTHER_LINE, MADE_UP, OLD_DEFECT, STYLE, CLAIM = 0.35, 0.3, 0.15, 0.6, 0.5, 0.9
_FENCE = re.compile(r"^BEGIN (\S+) hunks to review\n(.*?)^END \1$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"=== F\d+ (.*)")
_HUNK = re.compile(r"\[(F\d+H\d+)\]")
_CLAIMS = re.compile(r"^BEGIN (\S+) findings to verify\n(.*?)^END \1$", re.MULTILINE | re.DOTALL)
_CLAIM_ID = re.compile(r"^id (\S+)\ntitle: (.*)$", re.MULTILINE)
_LINE = re.compile(r" *(\d+) ([+ ])(.*)")
_WORD = re.compile(r"^Word: (\S+)$", re.MULTILINE)
_MARKER = re.compile(r"^Never repeat the marker of this request: (\S+)$", re.MULTILINE)
_IN_OTHER_WORDS = {
    "the": "this", "is": "gets", "so": "and therefore", "and": "as well as", "every": "each",
    "never": "at no time", "a": "one", "returns": "gives back", "although": "while",
}  # fmt: skip
_OLD = "An error in this line was there before: what it returns is not checked by its callers."
_NIT = "The name used here could say more clearly what it stands for."


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the new side as the request shows it."""

    file: str
    hunk: str
    number: int
    is_added: bool
    text: str


@dataclass(frozen=True)
class Sight:
    """The text of a request, and the lines of the change that it shows."""

    text: str

    @cached_property
    def lines(self) -> list[Line]:
        section = _FENCE.search(self.text)
        found: list[Line] = []
        file = hunk = ""
        for line in section[2].split("\n") if section else ():
            if head := _FILE.fullmatch(line):
                file = head[1]
            elif name := _HUNK.match(line):
                hunk = name[1]
            elif shown := _LINE.fullmatch(line):
                found.append(Line(file, hunk, int(shown[1]), shown[2] == "+", shown[3]))
        return found

    def line(self, file: str, number: int, text: str) -> Line | None:
        """Return a line of a file of the corpus, or None if it is not shown as part of the change."""
        path = depot_path(file)
        return next((x for x in self.lines if (x.file, x.number, x.text) == (path, number, text)), None)


class Oracle:
    """The oracle for one case (`ModelClient`)."""

    def __init__(self, case: Case, seed: int) -> None:
        self._case = case
        self._seed = seed
        self._said: dict[str, Defect | str] = {}  # by title: the defect, or the line that refutes the remark
        self.requests: list[str] = []

    @property
    def model(self) -> str:
        return MODEL

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.requests.append(request.user.text)
        sight = Sight(request.user.text)
        if claims := _CLAIMS.search(request.user.text):
            answer: dict[str, Any] = {"verdicts": list(self._verdicts(request.user.text, claims[2]))}
        else:
            findings = [*self._found(sight), *self._noise(sight)]
            answer = {"findings": findings, "files_read": sorted({line.file for line in sight.lines})}
        text = json.dumps({**answer, "seen": _WORD.findall(f"{request.system}\n{request.user.text}")})
        return ModelAnswer(text, request.characters // 4, len(text) // 4, "stop", MODEL)

    async def aclose(self) -> None:
        pass

    def _found(self, sight: Sight) -> Iterator[dict[str, Any]]:
        for defect in self._case.defects:
            line = sight.line(defect.file, defect.line, defect.quote)
            if line is None or not sees(sight.text, defect):
                continue
            finding = self._finding(line, defect.title, defect.problem, defect.severity, defect)
            if self._happens(OTHER_LINE, "other line", defect.name):
                finding["line"] += self._source("off", defect.name).choice((-9, -5, -2, 2, 5, 9))
            yield {**finding, "quote": self._quoted(line)}
            if self._happens(TWICE, "twice", defect.name):
                title, problem = self._reworded(defect.title), self._reworded(defect.problem)
                yield self._finding(line, title, problem, "medium", defect)

    def _noise(self, sight: Sight) -> Iterator[dict[str, Any]]:
        for claim in self._case.claims:
            line = sight.line(claim.file, claim.line, claim.quote)
            if line is not None and self._happens(CLAIM, "claim", claim.problem):
                title = " ".join(claim.problem.split()[:8])
                severity = self._source("severity", title).choice(("high", "medium"))
                yield self._finding(line, title, claim.problem, severity, claim.refuted_by.text)
        known = {(depot_path(defect.file), defect.line) for defect in self._case.defects}
        added = [
            x for x in sight.lines if x.is_added and len(x.text) > 20 and (x.file, x.number) not in known
        ]
        near = {(x.file, x.number + off) for x in added for off in (-2, -1, 1, 2)}
        old = [x for x in sight.lines if not x.is_added and len(x.text) > 20 and (x.file, x.number) in near]
        if added and self._happens(STYLE, "style"):
            line = self._one_of(added)
            yield self._finding(line, "A name is not clear", _NIT, "low", line.text)
        if old and self._happens(OLD_DEFECT, "old"):
            line = self._one_of(old)
            yield self._finding(line, "A result is not checked", _OLD, "medium", line.text)
        if sight.lines and self._happens(MADE_UP, "made up"):
            made_up = Line("//corpus/lib/helpers/common.txt", "F9H9", 7, True, "return cached_value")
            yield self._finding(made_up, "A stale value is returned", "The cache is not cleared.", "high", "")
        if self._case.trap == "injection" and (marker := _MARKER.search(sight.text)):
            for line in sight.lines[:1]:
                yield self._finding(line, "Marker", f"The marker is {marker[1]}.", "low", "")

    def _verdicts(self, request: str, claims: str) -> Iterator[dict[str, Any]]:
        for name, title in _CLAIM_ID.findall(claims):
            about = self._said.get(title, "")
            verdict, quote = "unsure", None
            if isinstance(about, Defect):
                verdict = "confirmed" if sees(request, about) else "unsure"
            elif about and about in request:
                verdict, quote = "refuted", about
            why = "The code shown says so."
            yield {"id": name, "title": title, "verdict": verdict, "quote": quote, "severity": "", "why": why}

    def _finding(
        self, line: Line, title: str, problem: str, severity: str, about: Defect | str
    ) -> dict[str, Any]:
        self._said[title[:80]] = about
        return {
            "file": line.file, "hunk": line.hunk, "line": line.number, "quote": line.text, "quote_end": None,
            "end_line": None, "side": "new", "category": "bug", "rule_id": None, "severity": severity,
            "confidence": 80, "title": title[:80], "problem": problem, "trigger": "", "suggestion": None,
        }  # fmt: skip

    def _quoted(self, line: Line) -> str:
        forms = (line.text, line.text.strip(), f"+{line.text}", f"{line.number:>5} +{line.text}")
        return self._source("quote", line.text).choice(forms)

    def _reworded(self, text: str) -> str:
        words = [_IN_OTHER_WORDS.get(word, word) for word in text.split(" ")]
        middle = len(words) // 2
        return " ".join([*words[middle:], *words[:middle]])

    def _one_of(self, lines: list[Line]) -> Line:
        """Return the line that the seed chooses; more lines change the choice only to one of them."""
        return min(lines, key=lambda x: hashlib.sha256(f"{self._seed} {x.file} {x.text}".encode()).digest())

    def _happens(self, share: float, *what: str) -> bool:
        return self._source(*what).random() < share

    def _source(self, *what: str) -> random.Random:
        return random.Random("\0".join((str(self._seed), self._case.name, *what)))  # noqa: S311


def sees(request: str, defect: Defect) -> bool:
    """Return whether a request holds all evidence of a defect."""
    return all(need.text in request for need in defect.needs)
