"""Documentation of real packages, under changes that make nothing of it untrue."""

from __future__ import annotations

from importlib import metadata

from benchmarks.drift import installed, with_one_comment
from reviews.drift.change import compare
from reviews.drift.claims import Verdict
from reviews.drift.extraction import is_document
from tests.drift.memory_tree import MemoryTree

PACKAGES = 30
MAX_BYTES = 1_500_000  # of a package: the benchmark reads larger ones


def trees() -> list[tuple[str, dict[str, bytes]]]:
    """Return the smaller ones of the installed packages that have documentation."""
    found = []
    for one in sorted(metadata.distributions(), key=lambda each: each.name.lower()):
        files = installed(one)
        if (
            sum(map(len, files.values())) <= MAX_BYTES
            and any(map(is_document, files))
            and with_one_comment(files)
        ):
            found.append((one.name, files))
        if len(found) == PACKAGES:
            break
    return found


def test_one_changed_comment_and_touched_documents_are_no_findings_in_30_packages() -> None:
    packages = trees()
    assert len(packages) == PACKAGES
    claims = 0
    for name, files in packages:
        after = with_one_comment(files)
        assert after is not None
        assert compare(MemoryTree(files), MemoryTree(after)).drifted == [], name
        touched = {path: data + b"\n" if is_document(path) else data for path, data in files.items()}
        report = compare(MemoryTree(files), MemoryTree(touched))
        assert report.drifted == [], name
        claims += sum(report.counts.values())
        assert report.counts[Verdict.REFUTED] == 0
    assert claims >= 100
