"""Documentation drift: recall and false positives beside peers, and speed at scale.

The mutated trees are those of `tests/drift/corpus.py`, each a commit on its clean tree; every tool reads
both, and what it says of the mutated tree and not of the clean one counts. Real documentation is that of
installed packages, or of the source distributions in DRIFT_SDISTS. The peers are commands in the environment
of `make peers`, or in the folder DRIFT_PEERS; ours runs in this process.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from email import message_from_string
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import structlog

from benchmarks.figures import Figure, Must
from reviews.drift.change import compare
from reviews.drift.claims import Kind, Verdict
from reviews.drift.extraction import claims_of, is_document, page_of
from reviews.drift.fetching import DocumentVerifier, Root, Sight
from reviews.drift.git_tree import GitTree, renames_between
from reviews.drift.walk import scan
from reviews.reviewers import redactor
from reviews.sources.allowlist import AllowList
from reviews.sources.fetcher import ChangeFetcher
from reviews.sources.git import GitSource
from reviews.sources.git_command import GitCommand
from tests.drift.corpus import MUTATIONS, TREES, Files
from tests.drift.memory_tree import MemoryTree
from tests.sources.gitrepo import GitRepo

ROOT = Path(__file__).resolve().parents[1]
PEERS = Path(os.environ.get("DRIFT_PEERS", ROOT / ".venv-peers" / "bin"))
MAX_PACKAGES = 60
MAX_PACKAGE_BYTES = 20_000_000
SCALE_FILES, SCALE_DOCUMENTS, CLAIMS_OF_DOCUMENT = 20_000, 500, 10


class Said(NamedTuple):
    """One finding of a tool."""

    document: str
    line: int
    text: str


# -- the corpus, and the peers -------------------------------------------------------------------------


def _ours(repo: Path, base: str, head: str) -> list[Said]:
    git = GitCommand("corpus", repo, "git", timeout_seconds=60)
    drifted = compare(GitTree(git, base), GitTree(git, head), renames_between(git, base, head)).drifted
    return [Said(one.claim.document, one.claim.line, one.says) for one in drifted]


def _docrot(repo: Path, base: str, head: str) -> list[Said]:
    done = subprocess.run(
        [str(PEERS / "docrot"), "check", "--format", "json"],
        cwd=repo,
        capture_output=True,
        text=True,
        check=False,
    )
    return [_said(one) for one in json.loads(done.stdout)["findings"]]


def _realitylint(repo: Path, base: str, head: str) -> list[Said]:
    done = subprocess.run(
        [str(PEERS / "realitylint"), "--all-docs", "--docs", "**/*.md,**/*.rst", "--format", "json"],
        cwd=repo, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return [_said(one) for one in json.loads(done.stdout)["findings"]]


def _said(one: dict[str, object]) -> Said:
    place = one.get("location") if isinstance(one.get("location"), dict) else one
    assert isinstance(place, dict)
    path = str(place.get("file") or place.get("path") or place.get("doc") or "")
    return Said(path.removeprefix("./"), int(place.get("line") or 0), json.dumps(one))


def _lines_of(files: Files) -> dict[tuple[str, str, str], set[int]]:
    """Return the lines of each claim of a tree."""
    found: dict[tuple[str, str, str], set[int]] = {}
    for path, text in files.items():
        page = page_of(path, text.encode()) if is_document(path) else None
        for claim in claims_of(path, page) if page else ():
            found.setdefault((path, claim.kind.value, claim.subject), set()).add(claim.line)
    return found


def _judged(tool: Callable[[Path, str, str], list[Said]], folder: Path) -> tuple[int, int, int, float]:
    """Return how many flips a tool finds, of how many, its findings in vain, and its seconds."""
    hits = total = vain = 0
    seconds = 0.0
    for number, mutation in enumerate(MUTATIONS):
        repo = GitRepo(folder / str(number))
        base = repo.commit_files(dict(TREES[mutation.tree]))
        start = time.monotonic()
        clean = {(one.document, one.line) for one in tool(repo.path, base, base)}
        seconds += time.monotonic() - start
        after = mutation.applied()
        gone = {path: None for path in TREES[mutation.tree] if path not in after}
        head = repo.commit_files({**gone, **after})
        start = time.monotonic()
        said = {(one.document, one.line) for one in tool(repo.path, base, head)}
        seconds += time.monotonic() - start
        lines = _lines_of(after)
        wanted = [{(flip[0], line) for line in lines.get(flip, ())} for flip in mutation.flips]
        total += len(wanted)
        hits += sum(bool(places & said) for places in wanted)
        vain += len(clean) + len(said - clean - set().union(*wanted))
        shutil.rmtree(repo.path)
    return hits, total, vain, seconds


def _corpus() -> None:
    tools: dict[str, Callable[[Path, str, str], list[Said]]] = {"ours": _ours}
    for name, peer in (("docrot", _docrot), ("realitylint", _realitylint)):
        if (PEERS / name).exists():
            tools[name] = peer
        else:
            print(f"{name} is not in {PEERS}: run make peers", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        found = {name: _judged(tool, Path(folder) / name) for name, tool in tools.items()}
    hits, total, vain, seconds = found.pop("ours")
    _figure(Figure("drift_recall", hits / total, "share of untrue claims", must=Must("value", ">=", 1.0)))
    _figure(Figure("drift_in_vain", vain, "findings", must=Must("value", "<=", 0)))
    for name, (its_hits, its_total, its_vain, its_seconds) in found.items():
        recall = its_hits / its_total
        must = Must("ratio", ">=", 1.0)
        _figure(Figure("drift_recall", hits / total, "share of untrue claims", name, recall, must=must))
        bound = Must("value", "<=", its_vain)
        _figure(Figure("drift_in_vain", vain, "findings", name, its_vain, lower_is_better=True, must=bound))
        _figure(Figure("drift_seconds", seconds, "s for all trees", name, its_seconds, lower_is_better=True))


# -- real documentation --------------------------------------------------------------------------------


def _packages() -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield trees with documentation.

    They are source distributions, else installed packages with their readme.
    """
    if folder := os.environ.get("DRIFT_SDISTS"):
        for archive in sorted(Path(folder).glob("*.tar.gz")):
            yield archive.name, _in_archive(archive)
        return
    for one in sorted(metadata.distributions(), key=lambda found: found.name):
        yield one.name, installed(one)


def _in_archive(archive: Path) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    with tarfile.open(archive) as opened:
        for member in opened:
            name = member.name.partition("/")[2]
            if (
                member.isfile()
                and name
                and member.size < 1_000_000
                and (stream := opened.extractfile(member))
            ):
                files[name] = stream.read()
    return files if sum(map(len, files.values())) < MAX_PACKAGE_BYTES else {}


def installed(one: metadata.Distribution) -> dict[str, bytes]:
    """Return the files of an installed package, and the readme that its metadata holds."""
    files: dict[str, bytes] = {}
    for path in one.files or ():
        if (
            ".." not in path.parts
            and not path.parts[0].endswith(".dist-info")
            and path.suffix in (".py", ".md", ".rst")
        ):
            with suppress(OSError):
                files[str(path)] = Path(str(one.locate_file(path))).read_bytes()
    said = message_from_string(one.read_text("METADATA") or "")
    text = said.get_payload() or said.get("Description", "")
    ending = "md" if "markdown" in said.get("Description-Content-Type", "") else "rst"
    if isinstance(text, str) and text.strip():
        files[f"README.{ending}"] = text.encode("utf-8", "replace")
    return files if sum(map(len, files.values())) < MAX_PACKAGE_BYTES else {}


def with_one_comment(files: dict[str, bytes]) -> dict[str, bytes] | None:
    """Return a tree with one comment more in its first Python file that can be read."""
    path = next((path for path in sorted(files) if path.endswith(".py") and files[path].strip()), None)
    return None if path is None else {**files, path: files[path] + b"\n# A comment.\n"}


def _real_documentation() -> None:
    packages = documents = comment = edited = claims = new = 0
    for name, files in _packages():
        own = [path for path in files if is_document(path)]
        after = with_one_comment(files)
        if packages >= MAX_PACKAGES or not own or after is None:
            continue
        packages += 1
        documents += len(own)
        before = MemoryTree(files)
        comment += len(compare(before, MemoryTree(after), seconds=60).drifted)
        touched = {path: data + b"\n" if path in own else data for path, data in files.items()}
        report = compare(before, MemoryTree(touched), seconds=60)
        edited += len(report.drifted)
        bare = MemoryTree({path: data for path, data in files.items() if path not in own})
        written = compare(bare, before, seconds=60)
        claims += sum(written.counts.values())
        new += len(written.drifted)
        for one in written.drifted:
            print(
                f"{name}: {one.claim.document}:{one.claim.line}: {one.claim.text[:80]}: {one.says}",
                file=sys.stderr,
            )
    _figure(Figure("drift_packages", packages, "trees with documentation", must=Must("value", ">=", 30)))
    _figure(Figure("drift_documents", documents, "documents in them"))
    _figure(Figure("drift_one_comment", comment, "findings", must=Must("value", "<=", 0)))
    _figure(Figure("drift_documents_touched", edited, "findings", must=Must("value", "<=", 0)))
    _figure(
        Figure(
            "drift_documents_new", 1000 * new / max(claims, 1), "findings in 1,000 claims of new documents"
        )
    )


# -- scale ---------------------------------------------------------------------------------------------


def _large(folder: Path) -> tuple[GitRepo, str, str]:
    """Make a repository of 20,000 files with 5,000 claims, and a change of ten of them."""
    repo = GitRepo(folder / "large")
    files: dict[str, str | bytes | None] = {}
    for number in range(SCALE_FILES - SCALE_DOCUMENTS):
        name = f"src/p{number % 200}/m{number}.py"
        body = "".join(f"\n\ndef f{number}_{n}(size=1):\n    return size + {n}\n" for n in range(8))
        files[name] = f"import os\n\nKEY = os.environ.get('APP_KEY_{number}')\n{body}"
    for number in range(SCALE_DOCUMENTS):
        said = [number * CLAIMS_OF_DOCUMENT + n for n in range(CLAIMS_OF_DOCUMENT)]
        lines = [
            f"- `src/p{n % 200}/m{n}.py` is one." if n % 2 else f"- Set `APP_KEY_{n}` for it." for n in said
        ]
        files[f"docs/d{number}.md"] = f"# Document {number}\n\n" + "\n".join(lines) + "\n"
    base = repo.commit_files(files)
    change: dict[str, str | bytes | None] = {f"src/p{n}/m{n}.py": None for n in range(1, 10, 2)}
    change |= {f"src/p{n}/m{n}.py": "x = 1\n" for n in range(0, 10, 2)}
    return repo, base, repo.commit_files(change)


def _scale(folder: str, answers: multiprocessing.Queue[dict[str, float]]) -> None:
    _be_quiet()
    repo, base, head = _large(Path(folder))
    made = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    git = GitCommand("large", repo.path, "git", timeout_seconds=60)
    start = time.monotonic()
    report, _ = scan(GitTree(git, base))
    first = time.monotonic() - start
    assert report.counts[Verdict.HOLDS] == SCALE_DOCUMENTS * CLAIMS_OF_DOCUMENT, report
    start = time.monotonic()
    drifted = compare(GitTree(git, base), GitTree(git, head), renames_between(git, base, head)).drifted
    change = time.monotonic() - start
    source, lines = GitSource("large", repo.path), AllowList(["//large/..."])
    fetched = ChangeFetcher(source, lines, lambda violation: None).fetch(f"git:large@{head}")
    root = Root("//large/", Sight(lines, literal_names=True), lambda path: True, tuple(Kind), 50)
    DocumentVerifier(source, redactor.verify_documents).added_to(fetched, [root])  # the process starts
    start = time.monotonic()
    documents = DocumentVerifier(source, redactor.verify_documents).added_to(fetched, [root]).documents
    review = time.monotonic() - start
    redactor.close()
    assert documents is not None
    assert len(documents.untrue) == len(drifted) == 10, (documents, drifted)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    theirs = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    answers.put(
        {
            "first": first,
            "change": change,
            "review": review,
            "own": own / 1024,
            "made": made / 1024,
            "theirs": theirs / 1024,
        }
    )


def _at_scale() -> None:
    answers: multiprocessing.Queue[dict[str, float]] = multiprocessing.get_context("spawn").Queue()
    with tempfile.TemporaryDirectory() as folder:
        process = multiprocessing.get_context("spawn").Process(target=_scale, args=(folder, answers))
        process.start()
        found = answers.get(timeout=570)
        process.join()
    _figure(
        Figure(
            "drift_first_scan",
            found["first"],
            "s, 20,000 files and 5,000 claims",
            must=Must("value", "<=", 60),
        )
    )
    _figure(
        Figure("drift_change", found["change"], "s, a change of 10 files there", must=Must("value", "<=", 3))
    )
    _figure(
        Figure(
            "drift_change_in_review",
            found["review"],
            "s, the same under the allow-list",
            must=Must("value", "<=", 3),
        )
    )
    _figure(
        Figure(
            "drift_memory", max(found["own"], found["theirs"]), "MB at most", must=Must("value", "<=", 500)
        )
    )


def _figure(figure: Figure) -> None:
    print(figure.line(), flush=True)


def _be_quiet() -> None:
    """Keep logs from standard output, which has the figures."""
    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def main() -> None:
    _be_quiet()
    _at_scale()
    _real_documentation()
    _corpus()


if __name__ == "__main__":
    main()
