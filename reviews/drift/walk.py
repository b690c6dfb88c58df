"""The documents of one tree and their claims, read within the bounds of a scan."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from reviews.drift import verify
from reviews.drift.change import MAX_CLAIMS, MAX_DOCUMENTS, Report, judged
from reviews.drift.claims import Claim, Judgement, Kind
from reviews.drift.index import Index, documents_in
from reviews.drift.trees import Tree

TOO_MANY = "more claims than a scan verifies"
UNREADABLE = "too large, or no text"
NO_TIME = "the time was over"


class Document(NamedTuple):
    """A document with its claims; without any where `unread` says why it was not read."""

    path: str
    claims: Sequence[Claim]
    unread: str = ""


class Found(NamedTuple):
    """The documents of a scan, and how many more there are than it takes."""

    documents: Sequence[Document]
    beyond: int


def read(
    index: Index, report: Report, paths: Sequence[str], kinds: Collection[Kind] = frozenset(Kind)
) -> Found:
    """Read documents for claims, within the bounds of a scan.

    Each is read as a whole or not at all.
    """
    kept = paths[:MAX_DOCUMENTS]
    index.prefetch(kept)
    return Found(list(_documents(index, report, kept, kinds)), len(paths) - len(kept))


def _documents(
    index: Index, report: Report, paths: Sequence[str], kinds: Collection[Kind]
) -> Iterator[Document]:
    count = 0
    for path in paths:
        if index.is_late or count >= MAX_CLAIMS:
            yield Document(path, (), NO_TIME if index.is_late else TOO_MANY)
            continue
        page = index.page(path)
        if page is None:
            yield Document(path, (), UNREADABLE)
            continue
        claims = [claim for claim in report.read(path, page) if claim.kind in kinds]
        if count + len(claims) > MAX_CLAIMS:
            yield Document(path, (), TOO_MANY)
            continue
        count += len(claims)
        yield Document(path, claims)


def scan(tree: Tree, seconds: float = 60.0) -> tuple[Report, dict[Claim, Judgement]]:
    """Verify every claim of a tree, in at most `seconds` of the processor.

    Nothing is a finding without a change.
    """
    report = Report()
    index = Index(tree, {}, until=time.thread_time() + seconds)
    documents, beyond = read(index, report, list(documents_in(index.entries)))
    report.changed += [each.path for each in documents if not each.unread]
    report.unread = beyond + sum(bool(each.unread) for each in documents)
    claims = [claim for each in documents for claim in each.claims]
    index.look_for(verify.words_of(claims))
    found = {claim: judged(claim, index) for claim in claims}
    for judgement in found.values():
        report.count(judgement)
    report.not_indexed = tuple(sorted(index.unparsed))
    return report, found
