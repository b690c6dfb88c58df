"""Scans the documents of a commit, each stored once it is verified (guarantee G540).

    commit ─► scanning process ─► a row per document ─► the change that the next stages take for a review

A worker that dies leaves the rows, and the next one goes on with the documents that are not verified. When
the soft deadline comes, the verified documents are the result.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from criticizer import texts
from criticizer.redaction import clean
from criticizer.resilience import gate
from criticizer.resilience.failures import (
    Component,
    DependencyUnavailable,
    ErrorClass,
    PermanentFailure,
    RetryableFailure,
)
from criticizer.workers.child_process import ProcessLost
from reviews import config, pipeline, scans
from reviews.configuration.effects import DocumentRules, FileRules
from reviews.drift.claims import Reason, Verdict
from reviews.drift.fetching import Sight
from reviews.drift.scan_process import ScanProcess
from reviews.models import ReviewJob, Scan, ScanDocument, StageRun
from reviews.pipeline import LostLease, StageClaim
from reviews.pipeline.executor import with_reconnect
from reviews.recipients.viewing_scopes import Scope
from reviews.repository_configuration import Configurations, RootConfiguration
from reviews.sources.base import (
    Action,
    Change,
    ChangeStatus,
    FileChange,
    UntrueClaim,
    VerifiedDocuments,
)
from reviews.sources.git import GitSource
from reviews.sources.mirror import made_anew
from reviews.sources.paths import encode_path
from reviews.sources.perforce.source import PerforceSource
from reviews.sources.pull import CommitSource
from reviews.sources.registry import depot_prefix
from reviews.stages import depot_scan
from reviews.states import StageStatus

SLICE_SECONDS = 60.0  # of one attempt from its first document on; then other work comes first
DOCUMENT_SECONDS = 60.0  # of one document; then it is left out
LISTING_SECONDS = 180.0  # of each step until the first document is begun
MAX_LOST = 5  # documents that may end the process in one attempt
PAUSED = "The scan paused after a minute so that other work can run."
TOO_HARD = "it takes too much time or memory"
_OF_A_LOST_MIRROR = (ErrorClass.NOT_FOUND, ErrorClass.CONFIG_INVALID)
NEVER_HELD = "not true when it was written either"
_TEXT, _SAYS = 300, 300  # characters of a claim that are kept

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Scanned:
    """A scan as the fetch stage stores it; `configuration` is frozen with the job."""

    change: Change
    configuration: RootConfiguration


def run(claim: StageClaim, job: ReviewJob) -> Scanned:
    """Scan the commit of a job; return the change that stands for it.

    Raises the failures of git and Perforce; CONFIG_INVALID and NOT_FOUND of the source; and LostLease. Raises
    DependencyUnavailable while its code host or Perforce must not be called, and when its slice is over: the
    attempt is given back, and the rest comes later.
    """
    source = config.source_of_job(job)
    assert isinstance(source, GitSource | PerforceSource)
    if not with_reconnect(Scan.objects.filter(pk=job.pk).exists):
        raise PermanentFailure(
            ErrorClass.NOT_FOUND, Component.CONFIGURATION, "the path is no longer scanned: it was deleted"
        )
    folder = job.scope_prefixes[0]
    dependency = config.source_dependency(job.changelist_id)
    root = own = depot_prefix(job.changelist_id) or folder

    def configured() -> RootConfiguration:
        read = Configurations(source, allow_list, job, is_before=False)
        return with_reconnect(lambda: read.of_root(_of_commit(job), own))

    with gate.guarded(dependency) if dependency else nullcontext():
        case_sensitive = source.case_sensitive
        allow_list = config.allow_list().with_case(case_sensitive)
        if isinstance(source, GitSource):
            source.look_up(job.changelist_id)  # all that a code host is asked for: the rest is read here
        else:
            own = allow_list.root_of(f"{folder}x") or folder
            configuration = configured()
    if isinstance(source, GitSource):
        configuration = configured()
    values = configuration.resolved.values
    files = FileRules(configuration.root, values, case_sensitive=case_sensitive)
    documents = DocumentRules(configuration.root, values, case_sensitive=case_sensitive)
    sight = Sight(
        allow_list,
        literal_names=source.literal_names,
        may_read=None if folder == root else Scope(prefixes=(folder,)).allows,
        is_excluded=files.is_excluded if documents.excludes_paths else None,
    )
    work = _Scan(claim, job, root, sight, documents, source)
    if documents.is_on:
        work.verify()
    depot_scan.delete(job.pk)
    note = "" if documents.is_on else texts.DOCUMENTS_OFF.text
    is_unlisted = documents.is_on and not work.is_listed
    made = with_reconnect(lambda: _change(job, folder, note, is_unlisted=is_unlisted, left_out=work.left_out))
    return Scanned(made, configuration)


class _Scan:
    def __init__(
        self,
        claim: StageClaim,
        job: ReviewJob,
        root: str,
        sight: Sight,
        rules: DocumentRules,
        source: GitSource | PerforceSource,
    ) -> None:
        self._claim, self._job, self._root, self._sight, self._rules = claim, job, root, sight, rules
        self._source = source
        self._until = time.monotonic() + claim.soft_deadline_in
        self._slice_until = math.inf
        self._is_whole = sight.is_whole(root)
        self.is_listed = False  # the documents of the commit are known
        # Counts: `beyond` of documents, `left_out` of statements, `cut` of sentences, `not_indexed` of files,
        # `unfetched` of revisions of files. An earlier attempt may have counted more.
        self.left_out = Counter({name: int(n) for name, n in pipeline.progress_of(claim).items()})

    def verify(self) -> None:
        """Verify the documents that are left, until none is or the time is over."""
        if self._left() <= 0:
            return
        self._where = self._commit()
        for _ in range(MAX_LOST):
            with ScanProcess() as process:
                lost = self._verified(process)
            if not lost:
                return
            log.warning("scan_document_lost", job=self._job.pk, documents=1)
            self._store(lost, [], TOO_HARD)
            self._give_way()
        raise RetryableFailure(
            ErrorClass.WORKER_LOST,
            Component.QUEUE,
            "the scanning process ended too often: look for its limits",
        )

    def _commit(self) -> tuple[Sequence[str], str]:
        """Return git's location and commit of what is scanned: the job's, or a copy of its path."""
        if not isinstance(self._source, PerforceSource):
            return self._source.location, self._job.changelist_id.rpartition("@")[2]
        made = depot_scan.copy_of(self._job, self._source, self._sight, self._left() / 2)
        self.left_out |= Counter(unfetched=made.unread)
        self._is_whole &= made.is_whole  # the allow-list may have included less then
        return made.git.location, made.sha

    def _left(self) -> float:
        return self._until - time.monotonic()

    def _verified(self, process: ScanProcess) -> str:
        """Store documents as they come; return the one at which the process ended, or ""."""
        location, sha = self._where
        asked = {
            "git": list(location),
            "sha": sha,
            # A file of a depot that was not read may hold any word, so a missing word refutes nothing.
            "is_whole": self._is_whole and not self.left_out["unfetched"],
            "kinds": list(self._rules.kinds),
        }
        current, document_until = "", 0.0
        try:
            process.send(asked)
            while self._left() > 0:
                seconds = document_until - time.monotonic() if current else LISTING_SECONDS
                message = process.receive(max(0.0, min(seconds, self._left())))
                if "end" in message:
                    log.info("scan_done", job=self._job.pk, **self.left_out)
                    return ""
                if "begin" in message:
                    current, document_until = message["begin"], time.monotonic() + DOCUMENT_SECONDS
                    self._slice_until = min(self._slice_until, time.monotonic() + SLICE_SECONDS)
                elif "document" in message:
                    self._store(message["document"], message["claims"])
                    self.left_out |= Counter(not_indexed=message["not_indexed"])
                    current = ""
                    self._give_way()
                elif "defect" in message:  # the end of the process follows
                    log.error("scan_document_defect", job=self._job.pk, error=str(message["defect"])[:100])
                else:
                    process.send(self._answer(message))
            return ""
        except PermanentFailure as failure:
            is_own_copy = isinstance(self._source, CommitSource | PerforceSource)
            if not is_own_copy or failure.error_class not in _OF_A_LOST_MIRROR:
                raise
            depot_scan.delete(self._job.pk)  # another attempt makes it again
            raise made_anew() from None
        except ProcessLost:
            if self._left() <= 0:
                return ""
            if current:
                return current
            raise RetryableFailure(
                ErrorClass.WORKER_LOST,
                Component.QUEUE,
                "the scanning process ended before it had read anything",
            ) from None

    def _give_way(self) -> None:
        if time.monotonic() >= self._slice_until:
            with_reconnect(partial(pipeline.keep_progress, self._claim, self.left_out))
            raise DependencyUnavailable("", 0.0, PAUSED)

    def _answer(self, message: Mapping[str, Any]) -> object:
        if "ask" in message:
            return [self._sight.sees(self._depot_path(path)) for path in message["ask"]]
        if "choose" in message:
            folder = self._job.scope_prefixes[0]
            depot = {path: self._depot_path(path) for path in message["choose"]}
            return [path for path, at in depot.items() if at.startswith(folder) and self._rules.reads(at)]
        self.left_out |= Counter({name: message[name] for name in ("beyond", "left_out", "cut")})
        return with_reconnect(partial(self._begun, message["found"]))

    def _begun(self, found: Sequence[tuple[str, int, str]]) -> list[str]:
        """Record the documents of the commit; return those that are not verified yet."""
        rows = [
            ScanDocument(
                scan_id=self._job.pk, digest=_digest(path), path=clean(self._depot_path(path), 1024),
                total=total, unread=unread,
            )
            for path, total, unread in found
        ]  # fmt: skip
        with transaction.atomic():
            self._hold_lease()
            ScanDocument.objects.bulk_create(rows, ignore_conflicts=True)
        self.is_listed = True
        done = ScanDocument.objects.filter(~Q(verified_at=None) | ~Q(unread=""), scan=self._job.pk)
        known = set(done.values_list("digest", flat=True))
        return [path for path, _, unread in found if not unread and _digest(path) not in known]

    def _store(self, path: str, claims: Sequence[Mapping[str, Any]], unread: str = "") -> None:
        counts = Counter(each["verdict"] for each in claims)
        kept = [_kept(self._root, each) for each in claims]
        with_reconnect(partial(self._write, path, counts, kept, unread))

    def _write(
        self, path: str, counts: Mapping[str, int], kept: Sequence[Mapping[str, Any]], unread: str
    ) -> None:
        with transaction.atomic():
            self._hold_lease()
            row = ScanDocument.objects.filter(scan=self._job.pk, digest=_digest(path), verified_at=None)
            row.update(
                verified_at=None if unread else Now(),
                unread=unread,
                claims=list(kept),
                **{verdict.value: counts.get(verdict, 0) for verdict in Verdict},
            )

    def _hold_lease(self) -> None:
        """Lock the stage for the transaction. Raises LostLease where another worker has it."""
        runs = StageRun.objects.select_for_update(no_key=True).filter(
            pk=self._claim.stage_run_id, lease_token=self._claim.token, status=StageStatus.RUNNING
        )
        if not runs.values_list("pk", flat=True):
            raise LostLease

    def _depot_path(self, path: str) -> str:
        return self._root + encode_path(path)


def _of_commit(job: ReviewJob) -> Change:
    """Return the commit of a job as a change without files."""
    return Change(
        changelist_id=job.changelist_id,
        source=job.changelist_id.partition("@")[0],
        author="",
        description="",
        status=ChangeStatus.SUBMITTED,
        created_at_epoch=int(job.created_at.timestamp()),
        version_key="",
    )


def _digest(path: str) -> str:
    return hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()


def _kept(root: str, claim: Mapping[str, Any]) -> dict[str, Any]:
    """Return a claim as it is stored, without secrets."""
    found = claim["found"]
    return {
        "line": claim["line"],
        "kind": claim["kind"],
        "text": clean(claim["text"], _TEXT),
        "verdict": claim["verdict"],
        "reason": NEVER_HELD if claim["reason"] == Reason.NEVER_HELD else claim["reason"],
        "says": clean(claim["says"], _SAYS),
        "instead": clean(claim["instead"], _SAYS),
        "found": clean(root + encode_path(found), 1024) if found else "",
        "id": hashlib.sha256("\0".join(claim["key"]).encode("utf-8", "surrogatepass")).hexdigest()[:16],
    }


def _why_unread(row: ScanDocument) -> str:
    if row.unread:
        return f"not read: {row.unread}"
    return "" if row.verified_at else "not verified: the time was over"


def _change(
    job: ReviewJob, folder: str, note: str, *, is_unlisted: bool, left_out: Mapping[str, int]
) -> Change:
    """Return the change that stands for a scan: its documents and the untrue claims in them."""
    rows = list(ScanDocument.objects.filter(scan=job.pk))
    result = scans.results_of([job.pk])[job.pk]
    is_unlisted = is_unlisted and not rows  # an earlier attempt may have listed them
    if is_unlisted:
        note = texts.SCAN_UNLISTED.text
    if result.is_partial:
        note = texts.SCAN_PARTIAL.of(verified=result.verified, total=result.total)
        log.warning("scan_partial", job=job.pk, claims_verified=result.verified, claims=result.total)
    elif not result.total and not note:
        log.warning("scan_without_claims", job=job.pk, documents=len(rows))
        if any(not row.unread for row in rows):
            note = texts.SCAN_NO_CLAIMS.text
    untrue = tuple(
        UntrueClaim(
            path=row.path, line=each["line"], kind=each["kind"], text=each["text"], says=each["says"],
            instead=each["instead"], evidence=(each["found"],) if each["found"] not in ("", row.path) else (),
        )
        for row in rows
        for each in row.claims
        if each["verdict"] == Verdict.REFUTED
    )  # fmt: skip
    most = settings.FINDING_BUDGET
    counts = {**result.counts, "documents": len(rows), **left_out}
    counts["unread"] = sum(bool(row.unread) for row in rows) + left_out.get("beyond", 0)
    counts["unlisted"] = int(is_unlisted)
    counts["unreported"] = max(0, len(untrue) - most)
    return replace(
        _of_commit(job),
        description=f"Documents of {folder}...",
        files=tuple(
            FileChange(row.path, Action.EDIT, old_text="", new_text="", unsent=_why_unread(row))
            for row in rows
        ),
        documents=VerifiedDocuments(
            untrue[:most], tuple(row.path for row in rows), counts, note, is_scan=True
        ),
    )
