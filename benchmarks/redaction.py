"""Redaction: speed on diffs beside a peer's, on dense and hostile text, and recall.

CPU seconds of one core, so that a busy machine does not decide. The diffs are made of the Python that runs
this, with secrets planted; the slowest of them is a figure too. Peers read the same texts in the same run,
in an environment of their own (`redaction_peers.py`); of detect-secrets' two ways the faster counts.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks import redaction_dense
from benchmarks.figures import Figure, Must, emit, percentile, say
from criticizer.redaction import RedactionBlocked, redact
from tests.redaction.generated import Report, measure, rows

DOCUMENT = 32 << 10
MOST = 4_000_000  # bytes of a commit that is measured
COMMITS = 100  # of this repository, evenly spaced
SOURCES = 80  # of installed packages
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


def real() -> list[Figure]:
    """Measure the diffs of this repository's history and of installed sources, each by itself."""
    figures: list[Figure] = []
    for name, documents in (("commits of this repository", _commits()), ("installed packages", _sources())):
        if not documents:
            say(f"redaction: no {name} at hand")
            continue
        sizes = {title: len(text.encode()) for title, text in documents.items()}
        seconds = {
            title: min(_seconds(partial(_try, text)) for _ in range(2)) for title, text in documents.items()
        }
        speeds = sorted((sizes[title] / seconds[title] / 1e6, title) for title in documents)
        for speed_of, title in speeds[:5]:
            say(f"  {speed_of:.1f} MB/s: {title}, {sizes[title]} bytes")
        total = sum(sizes.values()) / sum(seconds.values()) / 1e6
        figures += [
            Figure(f"redaction of {name}", total, "MB/s", must=Must("value", ">=", 10)),
            Figure(f"redaction of {name}, slowest", speeds[0][0], "MB/s", must=Must("value", ">=", 3)),
        ]
    return figures


def dense() -> list[Figure]:
    """Measure documents of which most lines are judged, each class by itself."""
    figures = []
    for name, text in redaction_dense.documents(1).items():
        seconds = min(_seconds(partial(_try, text)) for _ in range(ROUNDS))
        bound = Must("value", ">=", 3)
        figures.append(Figure(f"redaction, dense: {name}", len(text) / seconds / 1e6, "MB/s", must=bound))
    return figures


def _commits() -> dict[str, str]:
    """Return diffs of commits; those of some bytes measure the call alone and are left out."""
    git = ["git", "-C", str(Path(__file__).resolve().parents[1])]
    found = subprocess.run([*git, "log", "--format=%H"], capture_output=True, text=True, check=False)
    names = found.stdout.split()
    documents: dict[str, str] = {}
    for name in names[:: max(len(names) // COMMITS, 1)]:
        shown = subprocess.run([*git, "show", name], capture_output=True, check=False).stdout
        text = shown.decode("utf-8", "replace").replace("\0", "")
        if DOCUMENT // 8 < len(text) < MOST:
            documents[name[:10]] = text
    return documents


def _sources() -> dict[str, str]:
    """Return files of installed packages as diffs that add them."""
    paths = sorted(Path(sysconfig.get_path("purelib")).rglob("*.py"))
    chosen = random.Random(2).sample(paths, min(SOURCES, len(paths)))
    documents: dict[str, str] = {}
    for path in chosen:
        text = path.read_text(encoding="utf-8", errors="replace").replace("\0", "")
        if len(text) > DOCUMENT // 8:
            body = "\n".join("+" + line for line in text.split("\n"))
            head = f"diff --git a/{path.name} b/{path.name}\n--- /dev/null\n+++ b/{path.name}\n"
            documents[f"{path.parent.name}/{path.name}"] = f"{head}@@ -0,0 +1,{len(text)} @@\n{body}\n"
    return documents


def _peer(tool: str, texts: list[str]) -> tuple[dict[str, str], float] | None:
    """Return the texts without what a peer finds in them, and its seconds.

    None where the peer is missing. Peers have an environment of their own (`make peers`, 420 MB):
    `REDACTION_PEERS` is its Python.
    """
    python = os.environ.get("REDACTION_PEERS", sys.executable)
    script = Path(__file__).with_name("redaction_peers.py")
    done = subprocess.run(
        [python, str(script), tool], input=json.dumps(texts), capture_output=True, text=True, check=False
    )
    if done.returncode:
        say(f"redaction: {tool} does not run (make peers): {done.stderr.strip()[-300:]}")
        return None
    answer = json.loads(done.stdout)
    return dict(zip(texts, answer["texts"], strict=True)), answer["seconds"]


def _peer_speed(documents: list[str]) -> float | None:
    """Return detect-secrets' MB/s over the same text, as lines or files: what is faster."""
    answers = [_peer(tool, documents) for tool in ("detect-secrets", "detect-secrets by line")]
    taken = [answer[1] for answer in answers if answer is not None]
    return sum(len(text.encode()) for text in documents) / min(taken) / 1e6 if taken else None


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
    ours = measure(sample, lambda text: redact(text).text)
    recall, changed = 1 - report.share(secret=True), report.share(secret=False)
    worst = max(report.failed[group] / report.total[group] for group in report.secret_groups)
    figures = [
        Figure("redaction, worst class of drawn texts", 1 - worst, "share", must=Must("value", ">=", 0.93)),
        Figure("redaction recall, drawn texts", recall, "share", must=Must("value", ">=", 0.985)),
        Figure(
            "ordinary drawn texts changed",
            changed,
            "share",
            lower_is_better=True,
            must=Must("value", "<=", 0.015),
        ),
    ]
    for peer in ("CredSweeper", "detect-secrets"):
        answer = _peer(peer, [row.text for row in sample])
        figures += _beside(peer, ours, None if answer is None else measure(sample, answer[0].__getitem__))
    return figures


def _beside(peer: str, ours: Report, theirs: Report | None) -> list[Figure]:
    """Return recall and the share of rows changed in vain, on the same rows.

    Each beside a peer's, with the difference.
    """
    figures = []
    for name, secret, bound in (
        ("recall", True, Must("value", ">=", 0.15)),
        ("changed in vain", False, Must("value", "<=", 0.01)),
    ):
        of = [None if one is None else abs(secret - one.share(secret=secret)) for one in (ours, theirs)]
        figures.append(
            Figure(f"drawn texts, {name}", of[0] or 0, "share", peer, of[1], lower_is_better=not secret)
        )
        if of[1] is not None:
            apart = (of[0] or 0) - of[1]
            figures.append(Figure(f"drawn texts, {name}: ours less {peer}'s", apart, "share", must=bound))
    return figures


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
    emit([*speed(), *real(), *dense(), *hostile(), *drawn(), *quality()])


if __name__ == "__main__":
    main()
