"""Loaders of public review benchmarks from paths that the owner gives.

Nothing of the benchmarks is shipped. Martian's code review benchmark (withmartian/code-review-benchmark, MIT)
has golden comments without lines, and recorded judgements of many tools. AACR-Bench (alibaba/aacr-bench,
Apache-2.0) has remarks with files and lines, confirmed or refuted by experts. Files may be compressed
(`.gz`). Pull requests become changes from clones that the owner has.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from reviews.evaluation.answers import NotMeasured
from reviews.evaluation.changes import fetched_commit, git_output
from reviews.evaluation.corpus import CorpusError
from reviews.evaluation.judging import Pair
from reviews.evaluation.matching import Remark
from reviews.sources.base import Change
from reviews.sources.git import GitSource

T = TypeVar("T")
_PULL = re.compile(r"https://[^/]+/([\w.-]+/[\w.-]+)/pull/(\d+)")
_LEVELS = {"Diff Level": "diff", "File Level": "file", "Repo Level": "repository"}


def depot_of(pull: Pull) -> str:
    """Return the name under which a pull request's repository is read."""
    return pull.repository.rpartition("/")[2]


def fetched_pull(pull: Pull, repositories: Path, directory: Path, git: str) -> Change:
    """Return the whole pull request as one change: its head against the merge base.

    The clone is `repositories/owner/name` or `repositories/name`. It holds the commits that the benchmark
    names, or else the reference refs/pull/<number>/head. It is only read: the commit is made in `directory`.
    Raises NotMeasured when the clone or a commit is missing, and as `ChangeFetcher.fetch`.
    """
    depot = depot_of(pull)
    clone = next((p for p in (repositories / pull.repository, repositories / depot) if p.is_dir()), None)
    if clone is None:
        raise NotMeasured(f"no clone at {repositories / pull.repository}")
    head = pull.head or f"refs/pull/{pull.number}/head"
    made = directory / f"{pull.repository.replace('/', '-')}-{pull.number}.git"
    try:
        base = git_output(git, clone, "merge-base", pull.base or "HEAD", head).strip()
        objects = clone / git_output(git, clone, "rev-parse", "--git-path", "objects").strip()
        git_output(git, directory, "init", "--quiet", "--bare", "--template=", str(made))
        (made / "objects/info").mkdir(exist_ok=True)
        (made / "objects/info/alternates").write_text(f"{objects.resolve()}\n")
        tree = git_output(git, clone, "rev-parse", f"{head}^{{tree}}").strip()
        message = f"Pull request {pull.number}."
        commit = git_output(git, made, "commit-tree", tree, "-p", base, "-m", message).strip()
        git_output(git, made, "update-ref", "refs/heads/main", commit)
    except CorpusError as error:
        raise NotMeasured(str(error)) from error
    return fetched_commit(GitSource(depot, made, git), commit)


@dataclass(frozen=True, slots=True)
class Pull:
    """A pull request of a benchmark; `base` and `head` are commits, or "" where it names none."""

    url: str
    remarks: tuple[Remark, ...]
    base: str = ""
    head: str = ""

    @property
    def repository(self) -> str:
        """Return the repository as `owner/name`."""
        return self._parts[0]

    @property
    def number(self) -> int:
        return int(self._parts[1])

    @property
    def _parts(self) -> tuple[str, ...]:
        found = _PULL.fullmatch(self.url)
        if found is None:
            raise NotMeasured(f"{self.url[:200]} is not the address of a pull request")
        return found.groups()


class Score(NamedTuple):
    """Precision and recall of one tool over all recorded judgements."""

    precision: float
    recall: float


def martian_goldens(directory: Path) -> list[Pull]:
    """Return the pull requests with golden comments from the `*.json` of a directory."""
    files = sorted(directory.glob("*.json"))
    if not files:
        raise NotMeasured(f"{directory} holds no *.json: give the directory golden_comments")
    return [pull for file in files for pull in _read(file, _goldens)]


def _goldens(rows: Any) -> list[Pull]:
    return [Pull(row["url"], tuple(Remark(one["comment"]) for one in row["comments"])) for row in rows]


def martian_scores(file: Path) -> dict[str, dict[str, Score]]:
    """Return the score of each tool by each judge, from recorded judgements.

    Shape: {judge: {pull: {tool: {"tp": [[golden, candidate], ...], "fp": [...], "fn": [...]}}}}.
    """
    return _read(file, lambda judges: {judge: _scores(pulls) for judge, pulls in judges.items()})


def _scores(pulls: Any) -> dict[str, Score]:
    counts: dict[str, Counter[str]] = {}
    for tools in pulls.values():
        for tool, made in tools.items():
            counts.setdefault(tool, Counter()).update({name: len(made[name]) for name in ("tp", "fp", "fn")})
    return {
        tool: Score(*(c["tp"] / (c["tp"] + c[others]) if c["tp"] else 0.0 for others in ("fp", "fn")))
        for tool, c in sorted(counts.items())
    }


def martian_pairs(file: Path) -> list[Pair]:
    """Return pairs of a golden comment and a candidate on which all recorded judges agree."""
    return _read(file, _pairs)


def _pairs(judges: Any) -> list[Pair]:
    votes: dict[tuple[str, str], set[bool]] = {}
    for pulls in judges.values():
        for tools in pulls.values():
            goldens = {
                g for made in tools.values() for g in (*made["fn"], *(golden for golden, _ in made["tp"]))
            }
            for made in tools.values():
                for golden, text in made["tp"]:
                    votes.setdefault((golden, text), set()).add(True)
                for text in made["fp"]:
                    for golden in goldens:
                        votes.setdefault((golden, text), set()).add(False)
    return [Pair(*pair, verdicts == {True}) for pair, verdicts in sorted(votes.items()) if len(verdicts) == 1]


def aacr(file: Path) -> list[Pull]:
    """Return the pull requests of a file of AACR-Bench; remarks have files and lines."""
    return _read(
        file,
        lambda rows: [
            Pull(
                row["githubPrUrl"],
                tuple(_remark(comment) for comment in row["comments"]),
                row["target_commit"],
                row["source_commit"],
            )
            for row in rows
        ],
    )


def _remark(comment: Mapping[str, Any]) -> Remark:
    first, last = sorted((comment["from_line"], comment["to_line"]))
    # A remark on the old side has no line on the side that reviews number.
    is_new = comment["side"] == "right"
    return Remark(
        comment["note"],
        comment["path"],
        first if is_new else None,
        last if is_new else None,
        _LEVELS.get(comment["context"], ""),
    )


def _read(file: Path, build: Callable[[Any], T]) -> T:
    try:
        data = file.read_bytes()
        value = json.loads(gzip.decompress(data) if file.suffix == ".gz" else data)
        return build(value)
    except (OSError, ValueError, EOFError) as error:
        raise NotMeasured(f"{file} cannot be read: {error}") from error
    except (KeyError, TypeError, AttributeError, zlib.error) as error:
        raise NotMeasured(f"{file} is not in the form of this benchmark: {error!r}") from error
