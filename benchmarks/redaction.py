"""Redaction: speed on diffs beside a peer's, the slowest of them, hostile text, and recall.

CPU seconds of one core, so that a busy machine does not decide. The diffs are made of the
Python that runs this, with secrets planted. detect-secrets reads the same text line by line,
as its `scan_line` does for a text that lies in no file, and as files; the faster of the two counts.
"""

from __future__ import annotations

import gzip
import json
import random
import sysconfig
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import Figure, Must, emit, percentile, say
from criticizer.redaction import RedactionBlocked, redact
from tests.redaction.generated import Row, measure, rows

DOCUMENT = 32 << 10
DOCUMENTS = 80
HOSTILE = 200_000
ROUNDS = 3
ROWS = Path(__file__).resolve().parents[2] / "shared" / "data" / "redaction_dev.jsonl.gz"
SEEDS, ROWS_PER_SEED = 10, 5_000
PEER_ROWS = 3_000
PEER_DOCUMENTS = 4  # the peer takes seconds for each
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
    "key_",
    "key(",
    "aaa8Q~",
    "xoxp-xoxe-",
    "live_?code=passw",
    "A1b2C3d4E5f6G7h8I9j0",
    "password=hunter2x;",
    "bearer aaaaaaaa",
    "%3A%2F%2F",
    "\u202e",
    "kind: Secret\ndata:\n  a: bcdefg\n",
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
    peer = _peer_speed(documents[:PEER_DOCUMENTS])
    return [
        Figure("redaction throughput, one core", throughput, "MB/s", must=Must("value", ">=", 8)),
        Figure(
            "redaction throughput beside detect-secrets",
            throughput,
            "MB/s",
            peer="detect-secrets",
            peer_value=peer,
            must=Must("ratio", ">=", 20),
        ),
        Figure("redaction, 32 KiB diff, p99", tail, "ms", lower_is_better=True, must=Must("value", "<=", 25)),
    ]


def _peer_speed(documents: list[str]) -> float | None:
    """Return the peer's MB/s over the same text, None where it is not installed."""
    try:
        from detect_secrets.core.scan import scan_file, scan_line
        from detect_secrets.settings import default_settings
    except ImportError:
        say("redaction: detect-secrets is not installed (pip install -e .[bench])")
        return None

    def by_line() -> None:
        with default_settings():
            for text in documents:
                for line in text.split("\n"):
                    list(scan_line(line))

    def by_file() -> None:
        with default_settings(), TemporaryDirectory() as place:
            for number, text in enumerate(documents):
                path = Path(place) / f"{number}.diff"
                path.write_text(text, encoding="utf-8")
                list(scan_file(str(path)))

    lines, files = _seconds(by_line), _seconds(by_file)
    say(f"  detect-secrets: {len(documents)} diffs in {lines:.1f} s by line, {files:.1f} s as files")
    seconds = min(lines, files)
    return sum(len(text.encode()) for text in documents) / seconds / 1e6


def hostile() -> list[Figure]:
    """Measure the slowest of some 200 kB floods."""
    worst = 0.0
    for unit in UNITS:
        text = (unit * (HOSTILE // len(unit) + 1))[:HOSTILE]
        seconds = min(_seconds(partial(_try, text)) for _ in range(2))
        say(f"  flood of {unit!r}: {seconds:.3f} s")
        worst = max(worst, seconds)
    bound = Must("value", "<=", 1)
    return [
        Figure("redaction of 200 kB of hostile text, worst", worst, "s", lower_is_better=True, must=bound)
    ]


def drawn() -> list[Figure]:
    """Measure recall and what is taken out in vain on drawn texts, beside peers."""
    chosen = [row for seed in range(1, SEEDS + 1) for row in rows(seed, ROWS_PER_SEED)]
    report = measure(chosen, lambda text: redact(text).text)
    for line in report.lines():
        say(f"  {line}")
    sample = chosen[:PEER_ROWS]
    peers = {"detect-secrets": _detect_secrets(sample), "CredSweeper": _credsweeper(sample)}
    worst = max(report.failed[group] / report.total[group] for group in report.secret_groups)
    figures = [
        Figure("redaction, worst class of drawn texts", 1 - worst, "share", must=Must("value", ">=", 0.93)),
    ]
    for peer, found in peers.items():
        theirs = None if found is None else measure(sample, found.__getitem__)
        figures += [
            Figure(
                "redaction recall, drawn texts",
                1 - report.share(secret=True),
                "share",
                peer=peer,
                peer_value=None if theirs is None else 1 - theirs.share(secret=True),
                must=Must("value", ">=", 0.985),
            ),
            Figure(
                "ordinary drawn texts changed",
                report.share(secret=False),
                "share",
                lower_is_better=True,
                peer=peer,
                peer_value=None if theirs is None else theirs.share(secret=False),
                must=Must("value", "<=", 0.015),
            ),
        ]
    return figures


def _without(text: str, values: Iterable[str]) -> str:
    for value in sorted(filter(None, values), key=len, reverse=True):
        text = text.replace(value, "<found>")
    return text


def _detect_secrets(chosen: list[Row]) -> dict[str, str] | None:
    """Return each text without what the peer finds in it, None where it is not installed."""
    try:
        from detect_secrets.core.scan import scan_file
        from detect_secrets.settings import default_settings
    except ImportError:
        return None
    with default_settings(), TemporaryDirectory() as place:
        path = Path(place) / "text.py"
        found = {}
        for row in chosen:
            path.write_text(row.text, encoding="utf-8")
            found[row.text] = _without(row.text, (one.secret_value or "" for one in scan_file(str(path))))
    return found


def _credsweeper(chosen: list[Row]) -> dict[str, str] | None:
    """Return each text without what the peer finds in it, None where it is not installed."""
    try:
        from credsweeper import CredSweeper
        from credsweeper.file_handler.text_content_provider import TextContentProvider
    except ImportError:
        return None
    sweeper = CredSweeper()
    with TemporaryDirectory() as place:
        found = {}
        for number, row in enumerate(chosen):
            path = Path(place) / f"{number}.py"
            path.write_text(row.text, encoding="utf-8")
            candidates = sweeper.file_scan(TextContentProvider(str(path)))
            values = (line.value for one in candidates for line in one.line_data_list)
            found[row.text] = _without(row.text, values)
    return found


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
        Figure("redaction recall", found / wanted, "share", must=Must("value", ">=", 0.97)),
        Figure("rows in vain", changed_share, "share", lower_is_better=True, must=Must("value", "<=", 0.03)),
        Figure("redaction precision by row", precision, "share", must=Must("value", ">=", 0.98)),
    ]


def main() -> None:
    """Print one JSON line per figure."""
    emit([*speed(), *hostile(), *drawn(), *quality()])


if __name__ == "__main__":
    main()
