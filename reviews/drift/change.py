"""Search for claims that a change makes untrue, by verdicts before and after it.

Only documents that the change touches, or that hold a name which it takes away, are read for claims: no
other claim can have changed its verdict.
"""

from __future__ import annotations

import posixpath
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from reviews.drift import paths, routes, verify
from reviews.drift.claims import Claim, Form, Judgement, Kind, Reason, Verdict, uncheckable
from reviews.drift.extraction import MAX_CLAIMS as MAX_CLAIMS_OF_DOCUMENT
from reviews.drift.extraction import claims_of
from reviews.drift.index import Index, documents_in
from reviews.drift.page import Page
from reviews.drift.removed_words import MAX_NEEDLES, needles
from reviews.drift.trees import Tree

MAX_DOCUMENTS = 500
MAX_CLAIMS = 5_000
MAX_CHANGED = 2_000  # files; a larger change is not compared
MAX_DRIFTED = 200
_OF_TESTS = re.compile(r"(?:^|/)(?:tests?|testdata|fixtures|__tests__)/")
# Files that list an installation's variables.
_SETTINGS = (
    ".env.example", ".env.sample", ".env.template", "settings.py", "config.py", "variables.py", "compose.yaml"
)  # fmt: skip
SECONDS = 10.0  # of the processor; what is left then is not checked, and counted


@dataclass(frozen=True, slots=True)
class Drifted:
    """One claim that the change made untrue, or makes. Paths are relative to the root.

    `says` is what is there instead, `instead` the text to write where it is certain. `gone` is the path
    that the claim rested on, where that is no more; `rests_on` the files that prove it.
    """

    claim: Claim
    is_new: bool
    says: str
    instead: str = ""
    gone: str = ""
    rests_on: tuple[str, ...] = ()


@dataclass(slots=True)
class Report:
    """Result of a comparison. `counts` has all verdicts, `reasons` those that are no findings."""

    drifted: list[Drifted] = field(default_factory=list)
    counts: Counter[Verdict] = field(default_factory=Counter)
    reasons: Counter[Reason] = field(default_factory=Counter)
    documents: int = 0
    changed: list[str] = field(default_factory=list)  # those of `documents` that the change touches
    unread: int = 0  # documents left out: too many, too large, or no time
    left_out: int = 0  # claims, marked words and sentences beyond the bounds of a document or of all
    cut: int = 0  # sentences that are read in part
    unreported: int = 0  # refuted claims beyond MAX_DRIFTED
    not_indexed: tuple[str, ...] = ()  # files that do not parse

    def count(self, judgement: Judgement) -> None:
        self.counts[judgement.verdict] += 1
        if judgement.reason:
            self.reasons[judgement.reason] += 1

    def read(self, document: str, page: Page) -> list[Claim]:
        """Return the claims of a document, within its bound; count it, and what is left out of it."""
        claims = claims_of(document, page)
        self.documents += 1
        self.left_out += page.left_out + max(0, len(claims) - MAX_CLAIMS_OF_DOCUMENT)
        self.cut += page.cut
        return claims[:MAX_CLAIMS_OF_DOCUMENT]

    @property
    def figures(self) -> dict[str, int]:
        """Return the counts for `wording.summary`; documents are those that the change touches."""
        return {
            **{verdict.value: self.counts[verdict] for verdict in Verdict if self.counts[verdict]},
            "documents": len(self.changed),
            "unread": self.unread,
            "left_out": self.left_out,
            "cut": self.cut,
            "unreported": self.unreported,
            "not_indexed": len(self.not_indexed),
        }


def judged(claim: Claim, index: Index) -> Judgement:
    """Return the verdict on a claim; once the time of the index is over, none."""
    return uncheckable(Reason.NO_TIME) if index.is_late else verify.judge(claim, index)


def compare(
    before: Tree,
    after: Tree,
    renames: Mapping[str, str] | None = None,
    *,
    reads: Callable[[str], bool] = lambda document: True,
    kinds: Collection[Kind] = frozenset(Kind),
    seconds: float = SECONDS,
) -> Report:
    """Return what a change makes untrue. `renames` maps old paths to new ones.

    `reads` chooses the documents, `kinds` the claims in them.
    """
    comparison = _Comparison(before, after, renames or {}, kinds, time.thread_time() + seconds)
    comparison.run(reads)
    return comparison.report


class _Comparison:
    def __init__(
        self, before: Tree, after: Tree, renames: Mapping[str, str], kinds: Collection[Kind], until: float
    ) -> None:
        memory: dict[tuple[str, str], object] = {}
        tops = frozenset(path.split("/", 1)[0] for tree in (before, after) for path in tree.entries)
        self._base, self._head = Index(before, memory, tops, until), Index(after, memory, tops, until)
        self._renames, self._kinds = renames, kinds
        self._came_from = {new: old for old, new in renames.items()}
        self.report = Report()

    def run(self, reads: Callable[[str], bool]) -> None:
        base, head = self._base, self._head
        changed = {
            path
            for path in base.entries.keys() | head.entries.keys()
            if base.entries.get(path) != head.entries.get(path)
        }
        if not changed or len(changed) > MAX_CHANGED:
            self.report.unread = len(changed)
            return
        base.prefetch(sorted(changed))
        head.prefetch(sorted(changed))
        own, others = self._documents(changed, reads)
        pairs: list[tuple[Claim, Claim | None]] = []
        for document in (*own, *others):
            if len(pairs) >= MAX_CLAIMS or head.is_late:
                self.report.unread += 1
                continue
            pairs += self._claims(document, is_changed=document in changed)
        head.look_for(verify.words_of(claim for claim, _ in pairs))
        self.report.left_out += max(0, len(pairs) - MAX_CLAIMS)
        for claim, old in pairs[:MAX_CLAIMS]:
            self._verify(claim, old)
        self.report.drifted.sort(key=lambda one: (one.claim.document, one.claim.line, one.claim.key))
        self.report.unreported = max(0, len(self.report.drifted) - MAX_DRIFTED)
        del self.report.drifted[MAX_DRIFTED:]
        self.report.not_indexed = tuple(sorted(base.unparsed | head.unparsed))

    def _documents(self, changed: set[str], reads: Callable[[str], bool]) -> tuple[list[str], list[str]]:
        """Return the changed documents, and the others that the change could make untrue."""
        documents = [path for path in documents_in(self._head.entries) if reads(path)]
        own = [path for path in documents if path in changed][:MAX_DOCUMENTS]
        others = [path for path in documents if path not in changed][: MAX_DOCUMENTS - len(own)]
        self.report.unread += len(documents) - len(own) - len(others)
        wanted = needles(self._base, self._head, changed)
        if self._head.is_late:  # what the change takes away is not all known
            self.report.unread += len(others)
            return own, []
        if not wanted:
            return own, []
        self._head.prefetch(others)
        if len(wanted) > MAX_NEEDLES:
            return own, others
        return own, [path for path in others if wanted.are_in(self._head.bytes_of(path) or b"")]

    def _claims(self, document: str, *, is_changed: bool) -> list[tuple[Claim, Claim | None]]:
        """Return the claims of a document, each with the same claim before the change.

        None in its place where the change makes the claim.
        """
        page = self._head.page(document)
        if page is None:
            self.report.unread += 1
            return []
        claims = [claim for claim in self.report.read(document, page) if claim.kind in self._kinds]
        if not is_changed:
            return [(claim, claim) for claim in claims]
        self.report.changed.append(document)
        old_path = self._came_from.get(document, document)
        old_page = self._base.page(old_path) if old_path in self._base.entries else None
        old = {claim.key: claim for claim in claims_of(old_path, old_page)} if old_page else {}
        return [(claim, old.get(claim.key)) for claim in claims]

    def _verify(self, claim: Claim, old: Claim | None) -> None:
        now = judged(claim, self._head)
        if now.verdict is Verdict.REFUTED:
            before = judged(old, self._base) if old else now
            is_drift = before.verdict is Verdict.HOLDS if old else self._is_ours(claim)
            if is_drift:
                self._report(claim, now, before, is_new=old is None)
            else:
                now = uncheckable(Reason.NEVER_HELD)
        self.report.count(now)

    def _is_ours(self, claim: Claim) -> bool:
        """Return whether a claim that the change makes is about what only this repository can have."""
        if not claim.is_firm or _OF_TESTS.search(claim.document):
            return False
        if claim.kind is Kind.VERSION:
            return claim.form is Form.REQUIRED
        if claim.kind is Kind.PATH:
            if claim.form is Form.PAGE:  # of other projects, by the name they have here
                folder = posixpath.dirname(posixpath.join(posixpath.dirname(claim.document), claim.subject))
                return claim.subject.startswith("/") or posixpath.normpath(folder) in self._head.folders
            if claim.subject.lower().endswith((".html", ".htm")):  # what is built is not here
                return False
            is_below = claim.subject.removeprefix("./").split("/", 1)[0] in self._head.own_tops
            if claim.form is Form.MENTION:
                return "/" in claim.subject and is_below
            return claim.form is Form.LINK or (claim.form is Form.RUN and is_below)
        if claim.kind is Kind.ENVIRONMENT:
            prefix = claim.subject.split("_")[0] + "_"
            listed = sorted(path for name in _SETTINGS for path in self._head.by_name.get(name, ()))[:20]
            known = {name for path in listed if (code := self._head.code(path)) for name in code.reads}
            return sum(name.startswith(prefix) for name in known) >= 3
        if claim.kind is Kind.ROUTE:
            return self._head.routes is not None and routes.has_relatives(claim.value, self._head.routes[0])
        return True

    def _report(self, claim: Claim, now: Judgement, before: Judgement, *, is_new: bool) -> None:
        instead = now.instead or ("" if is_new else self._renamed(claim, before))
        if claim.kind is Kind.PATH and now.instead and claim.subject:
            instead = claim.text.replace(claim.subject, now.instead, 1)
        gone = before.found if before.found and before.found not in self._head.entries else ""
        rests_on = {
            path for path in (before.found, now.found, self._moved(gone)) if path and path != claim.document
        }
        says = now.says
        if gone and gone in self._base.entries and not is_new:
            moved = self._moved(gone)
            says = f"this change renames {gone} to {moved}" if moved else f"this change deletes {gone}"
        self.report.drifted.append(Drifted(claim, is_new, says, instead, gone, tuple(sorted(rests_on))))

    def _moved(self, path: str) -> str:
        """Return where the change moves a file, or a folder as a whole.

        "" where that is not certain.
        """
        if path in self._renames:
            return self._renames[path]
        inside = [old for old in self._base.entries if old.startswith(f"{path}/")] if path else []
        targets = {
            new.removesuffix(old[len(path) :])
            if (new := self._renames.get(old, "")).endswith(old[len(path) :])
            else ""
            for old in inside
        }
        return targets.pop() if len(targets) == 1 else ""

    def _renamed(self, claim: Claim, before: Judgement) -> str:
        """Return the text of the claim with the name that the change gives its subject.

        "" unless exactly one name came for one that went.
        """
        if claim.kind is Kind.PATH and not (claim.value and before.found in self._head.entries):
            moved = self._moved(before.found)
            return claim.text.replace(claim.subject, paths.written(claim, moved), 1) if moved else ""
        place, old = before.found, claim.value or claim.subject
        if place not in self._head.entries:
            return ""
        then, now = (_names(claim, place, index) for index in (self._base, self._head))
        is_renamed = then - now == {old} and len(now - then) == 1
        return claim.text.replace(old, next(iter(now - then)), 1) if is_renamed else ""


def _names(claim: Claim, place: str, index: Index) -> frozenset[str]:
    """Return the names of a claim's kind in a file."""
    found: Iterable[str] | None = ()
    if claim.kind is Kind.ENVIRONMENT and (code := index.code(place)):
        found = code.reads
    elif claim.kind is Kind.EXAMPLE and (code := index.code(place)):
        found = code.symbols
    elif claim.kind is Kind.COMMAND and claim.subject != "manage.py":
        listed = index.scripts(claim.subject, [posixpath.dirname(place)])
        found = (name for _, one in listed if one for name in one.names)
    elif claim.kind is Kind.PATH and (page := index.page(place)):
        found = (name for name in page.anchors if not re.search(r"[-_]\d+$", name))
    return frozenset(found or ())
