"""Share of changes whose describing section is found, on this repository's own documents.

    python -m benchmarks.drift_mapping

Each mutation renames one symbol in the file that defines it; a hit is a section whose code names it and
that is among the first five. The other two runs take the symbol, and then the names of files too, out of all
documents, so that the words around them have to do. One JSON line a run.
"""

from __future__ import annotations

import json
import posixpath
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from reviews.drift.extraction import is_document
from reviews.drift.meaning.changed import ChangedFile
from reviews.drift.meaning.mapping import Mapped, Sections, mapped
from reviews.drift.meaning.sections import Section, sections_of
from reviews.reviewers.outline import outline

ROOT = Path(__file__).resolve().parent.parent
FIRST = 5
LEAST_NAME = 6  # characters
_GENERATED = ("docs/configuration.md", "docs/roles.md", "docs/failures.md", "docs/guarantees")
_PRODUCT = ("criticizer/", "reviews/", "notifications/", "deadletters/")


def main() -> None:
    files = _tracked()
    documents = {
        path: (ROOT / path).read_text()
        for path in files
        if is_document(path) and not path.startswith(_GENERATED)
    }
    code = {path: (ROOT / path).read_text() for path in files if path.endswith(".py") and _is_product(path)}
    counted = Counter(posixpath.basename(path) for path in files)
    names = {name for name, count in counted.items() if count == 1}
    whole = Sections([one for path, text in documents.items() for one in sections_of(path, text)])
    mutations = list(_mutations(whole, code))
    runs: dict[str, Callable[[Section, str], str]] = {
        "all": lambda section, name: section.text,
        "without the symbol": lambda section, name: re.sub(rf"\b{name}\b", "it", section.text),
        "without symbol and paths": lambda section, name: re.sub(
            rf"\b{name}\b|[\w./-]*/[\w./-]+|[\w-]+\.(?:py|md)\b", "it", section.text
        ),
    }
    for run, rewritten in runs.items():
        started, hits, firsts = time.process_time(), 0, 0
        for path, name in mutations:
            wanted = {n for n, symbols in enumerate(whole.symbols) if name in symbols}
            known = whole
            if run != "all":
                known = Sections(
                    [
                        one._replace(text=rewritten(one, name)) if n in wanted else one
                        for n, one in enumerate(whole.sections)
                    ]
                )
            places = {(one.document, one.line): n for n, one in enumerate(known.sections)}
            found = _found(known, path, name, code[path], names)
            ranks = [places[one.section.document, one.section.line] for one in found[:FIRST]]
            hits += any(n in wanted for n in ranks)
            firsts += bool(ranks) and ranks[0] in wanted
        figures = {
            "benchmark": "drift_mapping",
            "documents": run,
            "sections": len(whole.sections),
            "mutations": len(mutations),
            "among_first_5": round(hits / len(mutations), 3),
            "first": round(firsts / len(mutations), 3),
            "seconds_each": round((time.process_time() - started) / len(mutations), 3),
        }
        print(json.dumps(figures), flush=True)


def _found(known: Sections, path: str, name: str, before: str, names: set[str]) -> list[Mapped]:
    after = re.sub(rf"\b{name}\b", f"{name}_renamed", before)
    return mapped(known, [ChangedFile(path, path, before, after)], names)


def _mutations(known: Sections, code: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield file and name of each symbol that one file defines and code of a document names."""
    documented = set().union(*known.symbols)
    definers: dict[str, set[str]] = {}
    for path, text in code.items():
        for one in outline(path, text, 2.0) or ():
            if len(one.name) >= LEAST_NAME and one.name in documented:
                definers.setdefault(one.name, set()).add(path)
    yield from sorted((next(iter(paths)), name) for name, paths in definers.items() if len(paths) == 1)


def _is_product(path: str) -> bool:
    return path.startswith(_PRODUCT) and "/migrations/" not in path


def _tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for path in listed.stdout.splitlines() if (ROOT / path).is_file()]


if __name__ == "__main__":
    main()
