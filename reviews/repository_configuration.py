"""Configuration that a repository brings: read before the change, resolved once, frozen.

    roots of the changed files ─► read before the change ─► resolve ─► marks on the files, frozen with the job

Perforce has a root for each allow-list entry, every other source one. A file that is not there means
defaults; one that could not be read is a failure, which is retried (guarantee G444).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import structlog
from django.conf import settings
from django.db.models import Q

from criticizer.redaction import clean
from criticizer.resilience.failures import Component, ErrorClass, RetryableFailure
from reviews.configuration import FILE_NAMES, MAX_FILE_BYTES
from reviews.configuration.effects import DocumentRules, FileRules
from reviews.configuration.keys import Ceiling
from reviews.configuration.loading import Unreadable
from reviews.configuration.resolving import OPERATOR, Fault, Resolved, resolve
from reviews.models import HostVersion, RepositoryConfiguration, ReviewJob
from reviews.sources.allowlist import AllowList
from reviews.sources.base import Change, FileChange, Source
from reviews.sources.enforcement import denied
from reviews.sources.registry import depot_prefix

log = structlog.get_logger(__name__)

MAX_ROOTS = 20
_MAX_LOGGED = 10  # warnings
_READ_BYTES = 4_000_000  # what is larger than MAX_FILE_BYTES is refused with a warning, not taken for absent
_READ_SECONDS = 20.0
_TOO_MANY_ROOTS = Unreadable(
    f"the change and its context touch more than {MAX_ROOTS} allow-list entries", kind="not_read"
)
_NO_ORDINARY_FILE = Unreadable("it is a link, a binary file, unreadable or too large", kind="not_read")


def ceiling() -> Ceiling:
    """Return the operator's settings, which bound every file."""
    return Ceiling(llm=settings.LLM_PROVIDER != "none", max_findings=settings.FINDING_BUDGET)


@dataclass(frozen=True, slots=True)
class RootConfiguration:
    """Configuration of one root.

    `name` is the path of its file, "" without one; `proposed` is what the change's own file would set.
    """

    root: str
    name: str
    text: str
    resolved: Resolved
    is_edited: bool = False
    proposed: tuple[str, ...] = ()
    revision: str = ""  # at which the file was read
    case_sensitive: bool = True
    is_read: bool = True


class Configurations:
    """Configurations that a change is reviewed by.

    Each is read when a file of its root is asked about.
    """

    def __init__(
        self,
        source: Source,
        allow_list: AllowList,
        job: ReviewJob | None = None,
        *,
        is_before: bool = True,
    ) -> None:
        """Keep what a job that was fetched before was reviewed by.

        `is_before`: files are read before the change, not at it.
        """
        self._source, self._allow_list, self._is_before = source, allow_list, is_before
        self._branch = branch_of(job) if job else ""
        self._kept = {each["root"]: _thawed(each) for each in job.configuration} if job else {}
        self._found: dict[str, tuple[RootConfiguration, FileRules]] = {}
        self._change: Change
        self._order: int | None = None

    def applied(self, change: Change) -> Change:
        """Return a fetched change with marks on its files. Raises what reading raises."""
        self._change, self._allow_list = change, self._allow_list.with_case(self._source.case_sensitive)
        self._order = self._source.order_of(change)
        files = tuple(map(self._marked, change.files))
        return replace(change, files=files)

    def of_root(self, change: Change, root: str) -> RootConfiguration:
        """Return the configuration of one root. Raises what reading raises."""
        self._change = change
        return self._read(root)[0]

    def may_send(self, path: str) -> bool:
        """Return whether a model may read a file outside the change. Raises what reading raises."""
        return not self._rules(path).unsent_reason(path)

    def is_excluded(self, path: str) -> bool:
        """Return whether the configuration of its root excludes a file. Raises what reading raises."""
        return self._rules(path).is_excluded(path)

    def rules(self) -> dict[str, tuple[FileRules, DocumentRules]]:
        """Return by root the rules for files and for documents, of the changed files' roots."""
        return {
            each.root: (
                self._found[each.root][1],
                DocumentRules(each.root, each.resolved.values, case_sensitive=self._source.case_sensitive),
            )
            for each in self.frozen()
            if each.root
        }

    def frozen(self) -> list[RootConfiguration]:
        """Return the configurations of the changed files."""
        roots = dict.fromkeys(self._root_of(file.path) for file in self._change.files)
        return [self._read(root)[0] for root in roots]

    def remember(self, job: ReviewJob) -> None:
        """Store what was read, for its page and for the next file to fall back on.

        Runs in a transaction. An older state, or an older review of one state, replaces nothing that a newer
        one has seen.
        """
        if self._order is None:
            return
        for each in sorted(self.frozen(), key=lambda one: one.root):
            if each.root in self._kept or not each.is_read:
                continue
            fields = {
                "text": each.text, "configuration": as_json([each])[0], "job": job, "seen_at": job.created_at,
                "revision": self._order,
            }  # fmt: skip
            if each.name and each.resolved.is_valid:
                fields["protecting"] = each.resolved.protecting()
            row, is_new = RepositoryConfiguration.objects.get_or_create(
                root=each.root, branch=self._branch, defaults=fields
            )
            if not is_new:
                is_older = Q(revision__lt=self._order)
                is_older |= Q(revision=self._order, seen_at__lte=job.created_at)
                RepositoryConfiguration.objects.filter(is_older, pk=row.pk).update(**fields)

    def _marked(self, file: FileChange) -> FileChange:
        """Return a file as it is to be reviewed; where it came from may lie below another root."""
        marked = self._rules(file.path).applied(file)
        if file.old_path is None or marked.unsent:
            return marked
        return replace(marked, unsent=self._rules(file.old_path).unsent_reason(file.old_path))

    def _rules(self, path: str) -> FileRules:
        return self._read(self._root_of(path))[1]

    def _root_of(self, path: str) -> str:
        return depot_prefix(self._change.changelist_id) or self._allow_list.root_of(path)

    def _read(self, root: str) -> tuple[RootConfiguration, FileRules]:
        if root not in self._found:
            found = self._resolved(root)
            rules = FileRules(
                root,
                found.resolved.values,
                case_sensitive=self._source.case_sensitive,
                is_llm_the_operators=found.resolved.sources["llm"] == OPERATOR,
            )
            self._found[root] = found, rules
        return self._found[root]

    def _resolved(self, root: str) -> RootConfiguration:
        if root in self._kept:
            return self._kept[root]
        row = RepositoryConfiguration.objects.filter(root=root, branch=self._branch).first()
        last_good = row.protecting if row else None
        if len(self._found) >= MAX_ROOTS:
            why = _TOO_MANY_ROOTS.reason
            log.warning("configuration_not_read", changelist=self._change.changelist_id, why=why)
            return RootConfiguration(
                root, "", "", resolve(_TOO_MANY_ROOTS, ceiling(), last_good), is_read=False
            )
        name, raw = self._file_of(root)
        found = resolve(raw, ceiling(), last_good)
        if found.warnings:
            log.warning(
                "configuration_warning",
                repository=root,
                codes=sorted({fault.code for fault in found.warnings}),
                kinds=sorted({fault.kind for fault in found.warnings}),
                warnings=[fault.text for fault in found.warnings[:_MAX_LOGGED]],
                resolved={path: value for path, value in found.values.items() if path != "suppress"},
            )
        edited = [file for file in self._change.files if _touches(file, root)]
        proposed = [resolve(_new(file), ceiling()) for file in edited if file.new_text is not None]
        texts = tuple(fault.text for each in proposed for fault in each.warnings)
        content = raw if isinstance(raw, bytes) else b""
        text = clean(content[:MAX_FILE_BYTES].decode("utf-8", "replace"), MAX_FILE_BYTES)
        revision = self._source.revision_before(self._change) if name else ""
        case = self._source.case_sensitive
        return RootConfiguration(root, name, text, found, bool(edited), texts, revision, case)

    def _file_of(self, root: str) -> tuple[str, bytes | Unreadable | None]:
        """Return name and bytes of a root's file before the change; None where it is proven absent."""
        paths = [
            f"{root}{name}"
            for name in FILE_NAMES
            if not denied([f"{root}{name}"], self._allow_list, literal_names=self._source.literal_names)
        ]
        if not paths or not root:
            return "", None
        start = time.monotonic()
        read = dict(
            self._source.read_at(
                paths,
                self._change,
                max_bytes=_READ_BYTES,
                seconds=_READ_SECONDS,
                is_before=self._is_before,
            )
        )
        for path in paths:
            if path in read:
                data = read[path]
                return path[len(root) :], data if data is not None else _NO_ORDINARY_FILE
        if time.monotonic() - start >= _READ_SECONDS:
            detail = "the repository's configuration could not be read in time"
            raise RetryableFailure(ErrorClass.NETWORK_TIMEOUT, Component.SOURCE, detail)
        return "", None


def _touches(file: FileChange, root: str) -> bool:
    names = {f"{root}{name}".casefold() for name in FILE_NAMES}
    return any((path or "").casefold() in names for path in (file.path, file.old_path))


def _new(file: FileChange) -> bytes:
    return (file.new_text or "").encode("utf-8", "replace")


def branch_of(job: ReviewJob) -> str:
    """Return the branch that a pull request is for, "" for other changes."""
    version = HostVersion.objects.filter(job=job).only("base_ref").first()
    return version.base_ref if version else ""


def _thawed(kept: Mapping[str, Any]) -> RootConfiguration:
    """Return what a job keeps; a key that is newer than the job has its default."""
    defaults = resolve(None, ceiling())
    warnings = tuple(Fault(**fault) for fault in kept["warnings"])
    resolved = Resolved(
        {**defaults.values, **kept["values"]}, {**defaults.sources, **kept["sources"]}, warnings,
        kept["digest"], hidden=kept["hidden"],
    )  # fmt: skip
    return RootConfiguration(
        kept["root"], kept["name"], "", resolved, kept["is_edited"], tuple(kept["proposed"]),
        kept.get("revision", ""), kept.get("case_sensitive", True),
    )  # fmt: skip


def as_json(found: Iterable[RootConfiguration]) -> list[dict[str, Any]]:
    """Return what is frozen with a job: all but the file's text."""
    return [
        {
            "root": each.root, "name": each.name, "revision": each.revision, "digest": each.resolved.digest,
            "values": dict(each.resolved.values), "sources": dict(each.resolved.sources),
            "warnings": [asdict(fault) for fault in each.resolved.warnings],
            "hidden": each.resolved.hidden, "is_edited": each.is_edited, "proposed": list(each.proposed),
            "case_sensitive": each.case_sensitive,
        }
        for each in found
    ]  # fmt: skip
