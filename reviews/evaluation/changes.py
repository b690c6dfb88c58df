"""Prepares the changes of a corpus with the real pipeline: git, fetch, redaction, packing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from criticizer.workers import subprocesses
from reviews.evaluation.corpus import Case, CorpusError
from reviews.reviewers import prepared_change_codec, redactor
from reviews.reviewers.prepare import ReviewLimits
from reviews.reviewers.prepared_change import Prepared
from reviews.reviewers.unsent import unsent_reason
from reviews.sources import change_codec
from reviews.sources.allowlist import AllowList
from reviews.sources.base import Change
from reviews.sources.context_files import ContextFetcher, ContextLimits
from reviews.sources.enforcement import SecurityViolation
from reviews.sources.fetcher import ChangeFetcher
from reviews.sources.git import GitSource
from reviews.sources.paths import encode_path

DEPOT = "corpus"
PERSON = {"NAME": "Ann Example", "EMAIL": "ann@example.com", "DATE": "1767603600 +0000"}
CONTEXT_SECONDS = 120.0
_RECIPE = "evaluation"
_ENVIRONMENT = {
    "PATH": os.defpath,
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    # A clone that the owner names may belong to another account.
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
    **{f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in PERSON.items()},
}


@dataclass(frozen=True, slots=True)
class Fetched:
    """A case of the corpus and its change as fetched."""

    case: Case
    change: Change


def depot_path(file: str) -> str:
    """Return the depot path of a file of the corpus."""
    return f"//{DEPOT}/{encode_path(file)}"


def fetched(cases: Sequence[Case], directory: Path, git: str | Path) -> Iterator[Fetched]:
    """Commit each case to a new repository in `directory`, fetch it and yield both.

    Raises CorpusError when git refuses, and the failures of `ChangeFetcher.fetch`.
    """
    repository = directory / "corpus.git"
    git_output(git, directory, "init", "--quiet", "--bare", "--template=", str(repository))
    stream = b"".join(_commits(cases))
    ids = git_output(git, repository, "fast-import", "--quiet", "--date-format=raw", stdin=stream).split()
    source = GitSource(DEPOT, repository, git)
    for case, commit in zip(cases, ids, strict=True):
        yield Fetched(case, fetched_commit(source, commit))


def fetched_commit(source: GitSource, commit: str) -> Change:
    """Return a commit with its context.

    Raises as `ChangeFetcher.fetch`, and CorpusError for a path that is denied.
    """
    allow_list = AllowList([f"//{source.name.removeprefix('git:')}/..."])
    change = ChangeFetcher(source, allow_list, _refused).fetch(f"{source.name}@{commit}")
    # A busy machine must not change the figures.
    limits = ContextLimits(seconds=CONTEXT_SECONDS)
    return ContextFetcher(source, allow_list, lambda path: not unsent_reason(path, ()), limits).added_to(
        change
    )


def prepared(change: Change, policy: Mapping[str, object], limits: ReviewLimits) -> Prepared:
    """Redact and pack a change in the redacting process. Raises as `redactor.redact_change`."""
    data = redactor.redact_change(change_codec.to_json(change), policy, limits, _RECIPE)
    opened = prepared_change_codec.from_json(data, _RECIPE, dict(policy))
    assert opened is not None
    return opened


def _commits(cases: Sequence[Case]) -> Iterator[bytes]:
    """Yield the input of git fast-import: a branch with two commits for each case."""
    for number, case in enumerate(cases, start=1):
        yield _commit(2 * number, "Before.", case.before)
        changed = {p: text for p, text in case.after.items() if case.before.get(p) != text}
        yield _commit(2 * number + 1, case.description, changed, f"from :{2 * number}\n")
        yield f"get-mark :{2 * number + 1}\n".encode()


def _commit(mark: int, message: str, files: Mapping[str, bytes], start: str = "") -> bytes:
    person = f"{PERSON['NAME']} <{PERSON['EMAIL']}> {PERSON['DATE']}"
    head = f"commit refs/heads/change-{mark // 2}\nmark :{mark}\ncommitter {person}\n".encode()
    body = b"".join(f'M 100644 inline "{path}"\n'.encode() + _data(text) for path, text in files.items())
    return head + _data(message.encode()) + start.encode() + body


def _data(content: bytes) -> bytes:
    return b"data %d\n%b\n" % (len(content), content)


def git_output(git: str | Path, directory: Path, *arguments: str, stdin: bytes = b"") -> str:
    """Return the output of a git command in a directory. Raises CorpusError when it fails."""
    done = subprocesses.run(
        [str(subprocesses.resolve_executable(git)), *arguments],
        environment=_ENVIRONMENT,
        timeout_seconds=120,
        cwd=directory,
        stdin=stdin,
    )
    if done.exit_code != 0:
        raise CorpusError(f"git {arguments[0]}: {' '.join(done.stderr.split())[:300]}")
    return done.text


def _refused(violation: SecurityViolation) -> None:
    raise CorpusError(f"a path of the change is not allowed: {violation.path}")
