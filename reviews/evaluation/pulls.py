"""Pull requests of public benchmarks as changes, from clones that the owner has."""

from __future__ import annotations

from pathlib import Path

from reviews.evaluation.answers import NotMeasured
from reviews.evaluation.changes import fetched_commit, git_output
from reviews.evaluation.corpus import CorpusError
from reviews.evaluation.public_sets import Pull
from reviews.sources.base import Change
from reviews.sources.git import GitSource


def depot_of(pull: Pull) -> str:
    """Return the name under which a pull request's repository is read."""
    return pull.repository.rpartition("/")[2]


def fetched_pull(pull: Pull, repositories: Path, directory: Path, git: str) -> Change:
    """Return the whole pull request as one change: its head against the merge base.

    The clone is `repositories/owner/name` or `repositories/name`, with the commits of the benchmark,
    or the reference refs/pull/<number>/head where the benchmark names none. It is only read: the
    commit is made in `directory`. Raises NotMeasured when it lacks something, and as `ChangeFetcher.fetch`.
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
