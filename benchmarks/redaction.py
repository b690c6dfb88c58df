"""Redaction: speed on diffs, the slowest of them, hostile text, and recall where rows are at hand.

CPU seconds of one core, so that a busy machine does not decide. The diffs are made of the
Python that runs this, with secrets planted.
"""

from __future__ import annotations

import gzip
import json
import random
import sysconfig
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.figures import Figure, Must, emit, percentile, say
from criticizer.redaction import RedactionBlocked, redact

DOCUMENT = 32 << 10
DOCUMENTS = 80
HOSTILE = 200_000
ROUNDS = 3
ROWS = Path(__file__).resolve().parents[2] / "shared" / "data" / "redaction_dev.jsonl.gz"
UNITS = (
    "a",
    "a@",
    "key=",
    "://",
    "authorization:",
    'password "',
    "-----BEGIN PRIVATE KEY-----\n",
    "eyJ.",
    "&quot;",
    "1|",
)


def _diffs(source: random.Random) -> list[str]:
    """Return unified diffs of about 32 KiB, one planted secret in each tenth of them."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    documents: list[str] = []
    document = ""
    while len(documents) < DOCUMENTS:
        for path in files:
            lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[:300]
            body = [source.choices("+- ", (30, 20, 50))[0] + line for line in lines]
            if len(documents) % 10 == 0:
                body.insert(len(body) // 2, f'+password = "{source.getrandbits(64):x}!A"')
            old, new = (sum(line[0] in kept for line in body) for kept in (" -", " +"))
            document += f"diff --git a/{path.name} b/{path.name}\n--- a/{path.name}\n+++ b/{path.name}\n"
            document += f"@@ -1,{old} +1,{new} @@\n" + "\n".join(body) + "\n"
            while len(document) >= DOCUMENT:
                documents.append(document[:DOCUMENT])
                document = document[DOCUMENT:]
    return documents[:DOCUMENTS]


def _seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def _try(text: str) -> None:
    try:
        redact(text)
    except RedactionBlocked as blocked:
        say(f"  refused: {blocked.reason_code}")


def speed() -> list[Figure]:
    """Measure throughput and the slow tail on 32 KiB diffs."""
    documents = _diffs(random.Random(1))
    size = sum(len(text.encode()) for text in documents)
    say(f"redaction: {len(documents)} diffs, {size / 1e6:.1f} MB, {ROUNDS} rounds")
    redact(documents[0])  # tables are built on first use
    rounds = [[_seconds(partial(redact, text)) for text in documents] for _ in range(ROUNDS)]
    best = min(rounds, key=sum)
    throughput, tail = size / sum(best) / 1e6, percentile(best, 99) * 1000
    return [
        Figure("redaction throughput, one core", throughput, "MB/s", must=Must("value", ">=", 8)),
        Figure("redaction, 32 KiB diff, p99", tail, "ms", lower_is_better=True, must=Must("value", "<=", 25)),
    ]


def hostile() -> list[Figure]:
    """Measure the slowest of some 200 kB floods."""
    worst = 0.0
    for unit in UNITS:
        text = (unit * (HOSTILE // len(unit) + 1))[:HOSTILE]
        seconds = min(_seconds(partial(_try, text)) for _ in range(2))
        say(f"  flood of {unit!r}: {seconds:.3f} s")
        worst = max(worst, seconds)
    bound = Must("value", "<=", 2)
    return [
        Figure("redaction of 200 kB of hostile text, worst", worst, "s", lower_is_better=True, must=bound)
    ]


def quality() -> list[Figure]:
    """Measure recall and what is taken out in vain, over labelled rows where they are at hand."""
    if not ROWS.is_file():
        say("redaction: labelled rows are not at hand, recall is not measured")
        return []
    with gzip.open(ROWS, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    found = wanted = changed = kept = 0
    for row in rows:
        text = redact(row["text"], row["policy"]).text
        if row["expect"] == "redact":
            wanted += 1
            found += not any(secret in text for secret in row["secrets"])
        else:
            kept += 1
            changed += text != row["text"]
    changed_share = changed / kept
    precision = found / (found + changed)
    return [
        Figure("redaction recall", found / wanted, "share", must=Must("value", ">=", 0.95)),
        Figure("rows in vain", changed_share, "share", lower_is_better=True, must=Must("value", "<=", 0.04)),
        Figure("redaction precision by row", precision, "share", must=Must("value", ">=", 0.98)),
    ]


def main() -> None:
    """Print one JSON line per figure."""
    emit([*speed(), *hostile(), *quality()])


if __name__ == "__main__":
    main()
