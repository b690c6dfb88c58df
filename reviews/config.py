"""The configuration of sources and reviewers, made from settings: adapters take dataclasses."""

from __future__ import annotations

import getpass
import os
import socket
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from pathlib import Path
from urllib.parse import urlsplit

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Lower
from django.utils import timezone

from criticizer.codehosts.base import Pull
from criticizer.codehosts.registry import HOSTS, repositories_variable
from criticizer.models import SecurityEvent
from criticizer.queue import advisory_locks
from criticizer.redaction import clean
from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure
from criticizer.resilience.gate import guarded, name_of
from notifications import config as notification_config
from notifications.recipients import normalise
from reviews.models import AllowListEntry, HostChange, HostVersion, ReviewJob, SkippedPath
from reviews.models import TeamRule as TeamRuleRow
from reviews.reviewers.model import LlmConfig
from reviews.sources import pull
from reviews.sources.allowlist import AllowList, effective
from reviews.sources.base import Source
from reviews.sources.enforcement import SecurityViolation, report
from reviews.sources.mirror import MirrorConfig
from reviews.sources.mirror_space import delete_unused
from reviews.sources.perforce.client import PerforceConfig
from reviews.sources.pull import PullSource
from reviews.sources.registry import SourcesConfig, depot_prefix, source_for
from reviews.sources.rules import TeamRule
from reviews.sources.skipped_paths import SkippedPaths

log = structlog.get_logger(__name__)
_ANTHROPIC = "https://api.anthropic.com/v1"  # the other kind has no address of its own
MAX_TEAM_RULES = 2_000
EMBEDDINGS_SECONDS = 20.0  # of a call, at most: the review waits for it
MIRRORS = "mirrors"  # below the data directory
_recorded: list[str] | None = None  # the ceiling that this process knows to be recorded


def sources() -> SourcesConfig:
    """Return the configured sources of changes."""
    enabled = set(settings.CHANGE_SOURCES)
    perforce = None
    if "perforce" in enabled and settings.P4PORT:
        perforce = PerforceConfig(
            executable=settings.P4_EXECUTABLE or "p4",
            port=settings.P4PORT,
            user=settings.P4USER,
            home=settings.DATA_DIR / "p4",
            tickets_files=tuple(Path(file) for file in (settings.P4TICKETS, settings.P4TICKETS_NEXT) if file),
            trust_file=Path(settings.P4TRUST) if settings.P4TRUST else None,
            replica=settings.P4_REPLICA,
        )
    return SourcesConfig(
        perforce=perforce,
        git=settings.GIT_REPOSITORIES if "git" in enabled else {},
        git_executable=settings.GIT_EXECUTABLE or "git",
        git_references=settings.GIT_REFERENCES,
    )


def is_enabled_repository(host: str, full_name: str) -> bool:
    """Return whether pull requests of a repository are reviewed.

    <HOST>_REPOSITORIES decides; where it is not set, the allow-list: nothing below it could be read.
    """
    name = full_name.lower()
    if patterns := getattr(settings, repositories_variable(host)):
        return any(fnmatchcase(name, pattern) for pattern in patterns)
    return allow_list().may_touch(f"//{host}/{name}/")


def source_of_job(job: ReviewJob) -> Source:
    """Return the source of a job's change.

    Raises as `registry.source_for`, and NOT_FOUND for a pull request that no host reported.
    """
    if (root := pull.commit_prefix(job.changelist_id)) is not None:
        if (change := hosted_at(root)) is None:
            detail = "no webhook reported a pull request of this repository, or it is not enabled any more"
            raise PermanentFailure(ErrorClass.NOT_FOUND, Component.SOURCE, detail)
        return pull.CommitSource(job.changelist_id, mirror_of(change))
    if pull.depot_prefix(job.changelist_id) is None:
        return source_for(job.changelist_id, sources())
    version = HostVersion.of_job(job)
    if version is None:
        detail = "no webhook reported this pull request"
        raise PermanentFailure(ErrorClass.NOT_FOUND, Component.SOURCE, detail)
    change = version.change
    _check_renamed(change, job.changelist_id)
    mirror, host = mirror_of(change), notification_config.host(change.host)
    reference = host.head_reference(change.number)
    return PullSource(
        job.changelist_id, reference, version.head_sha, version.base_sha, version.base_ref, mirror
    )


def mirror_of(change: HostChange) -> MirrorConfig:
    """Return where the repository of a pull request is fetched from, and where its mirror lies."""
    host = notification_config.host(change.host)
    return MirrorConfig(
        url=host.clone_url(change.full_name),
        directory=settings.DATA_DIR / MIRRORS / change.host / f"{change.repository_id}.git",
        token=partial(_git_password, change),
        executable=settings.GIT_EXECUTABLE or "git",
        lag_pauses_seconds=host.lag_pauses_seconds,
    )


def hosted_at(folder: str) -> HostChange | None:
    """Return the newest pull request of the hosted repository that a depot folder is in.

    None where there is none, or the repository is not enabled.
    """
    host, *names = folder.strip("/").split("/")
    if host not in HOSTS:
        return None
    paths = ["/".join(names[:count]) for count in range(2, len(names) + 1)]
    found = HostChange.objects.annotate(name=Lower("full_name")).filter(host=host, name__in=paths)
    for change in found.exclude(state=HostChange.State.REMOVED).order_by("-reported_at")[:1]:
        if is_enabled_repository(host, change.full_name):
            return change
    return None


def _check_renamed(change: HostChange, changelist_id: str) -> None:
    """Raise POLICY_REJECTED where the repository was renamed to one that may not be read.

    The paths of the job have the name of its request, which the allow-list is asked for.
    """
    prefix = depot_prefix(pull.pull_request_id(change.host, change.full_name, change.number))
    if prefix is None or prefix == depot_prefix(changelist_id):
        return
    if not (is_enabled_repository(change.host, change.full_name) and allow_list().may_touch(prefix)):
        detail = "the repository was renamed or transferred, and is not enabled under its name of today"
        raise PermanentFailure(ErrorClass.POLICY_REJECTED, Component.CONFIGURATION, detail)


def pull_now(change: HostChange) -> Pull | None:
    """Ask the host for a pull request as it is; None where we have no credentials.

    Another repository may have the name of its own by now, or this one another name. Raises what the host's
    calls raise, and DependencyUnavailable.
    """
    host = notification_config.host(change.host, Component.SOURCE)
    if not host.is_connected:
        return None
    with guarded(name_of(host.dependency(change.full_name))):
        return host.pull(host.repository(change.full_name, change.repository_id), change.number)


def source_dependency(changelist_id: str) -> str:
    """Return the name of the circuit of a change's source; "" for a local git repository.

    A host's git server has one of its own, `github-git:<host>`: its fetches are long, and count for none of
    the limits of its API.
    """
    if depot_prefix(changelist_id) is None:
        return perforce_dependency()
    if pull.depot_prefix(changelist_id) is None and pull.commit_prefix(changelist_id) is None:
        return ""
    name = changelist_id.partition(":")[0]
    return name_of(f"{name}-git", urlsplit(notification_config.host(name).clone_url("")).netloc)


def delete_unused_mirrors() -> int:
    """Delete the mirrors that are not needed any more. Run by maintenance.

    A mirror is deleted when the raw artifacts of its last fetch are deleted, or sooner where all mirrors
    together are too large.
    """
    days, gigabytes = settings.ARTIFACT_RAW_TTL_DAYS, settings.MIRRORS_MAX_GB
    return delete_unused(settings.DATA_DIR / MIRRORS, days * 86_400, gigabytes * 1_000_000_000)


def _git_password(change: HostChange, refused: str) -> str:
    """Return the password to fetch a repository with; "" without credentials, for public ones.

    Once the repository is no longer ours, the host is not asked for another in place of `refused`.
    """
    is_removed = HostChange.objects.filter(pk=change.pk, state=HostChange.State.REMOVED)
    if refused and is_removed.exists():
        return refused
    found = notification_config.host(change.host, Component.SOURCE)
    return found.git_password(found.repository(change.full_name, change.repository_id), refused)


def perforce_dependency() -> str:
    """Return the name of the Perforce server's circuit: `p4:<P4PORT>`."""
    return name_of("p4", settings.P4PORT or "unset")


def model_dependency() -> str:
    """Return the name of the model server's circuit: `llm:<provider>`."""
    return name_of("llm", settings.LLM_PROVIDER)


def fallback_dependency() -> str:
    """Return the name of the circuit of the model that takes over: `llm:fallback:<provider>`."""
    return name_of("llm", "fallback", settings.LLM_FALLBACK_PROVIDER)


def embeddings_dependency() -> str:
    """Return the name of the circuit of the server of embeddings."""
    return name_of("embeddings", urlsplit(settings.EMBEDDINGS_BASE_URL).netloc.rpartition("@")[2])


def allow_list() -> AllowList:
    """Return the configured ceiling narrowed by the stored entries, read now.

    Raises PermanentFailure CONFIG_INVALID when a stored entry is not a valid line: fail closed.
    """
    record_ceiling()
    rows = tuple(
        ("-" if entry.kind == AllowListEntry.Kind.EXCLUDE else "") + entry.pattern
        for entry in AllowListEntry.objects.order_by("position", "id")
    )
    try:
        return _parsed(tuple(settings.DEPOT_ALLOW_LIST), rows)
    except ValueError as error:
        raise PermanentFailure(
            ErrorClass.CONFIG_INVALID, Component.CONFIGURATION, f"an allow-list entry is not valid: {error}"
        ) from error


def record_ceiling() -> None:
    """Write a security event when DEPOT_ALLOW_LIST has changed (guarantee G173).

    It is compared with what the last process saw, once a process: by the maintenance or before the ceiling
    is first used. Processes that start at the same time write one event.
    """
    global _recorded
    ceiling = list(settings.DEPOT_ALLOW_LIST)
    if _recorded == ceiling:
        return
    kind = SecurityEvent.Kind.CEILING_CHANGED
    with transaction.atomic():
        advisory_locks.take(advisory_locks.Lock.CEILING, kind)
        last = SecurityEvent.objects.filter(kind=kind).order_by("-id").first()
        old = list(last.context["new"]) if last else []
        if last is None or old != ceiling:
            changes = [f"added {line}" for line in ceiling if line not in old]
            changes += [f"removed {line}" for line in old if line not in ceiling]
            host = socket.gethostname()
            SecurityEvent.objects.create(
                kind=kind,
                reason=("; ".join(changes) or "another order")[:512],
                actor=f"{_account()}@{host}"[:255],
                context={"old": old if last else None, "new": ceiling, "host": host, "pid": os.getpid()},
            )
            log.warning("security_event", kind=kind.value, lines=len(ceiling), changes=len(changes))
    if not connection.in_atomic_block:  # the caller's transaction may still be rolled back
        _recorded = ceiling


def _account() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number without a name
        return f"uid {os.getuid()}"


@lru_cache(maxsize=8)
def _parsed(ceiling: tuple[str, ...], rows: tuple[str, ...]) -> AllowList:
    """Return the same object for the same lines: they are parsed once."""
    return effective(AllowList(ceiling), rows)


def team_rules() -> list[TeamRule]:
    """Return the team's rules that are in force."""
    fields = ("name", "pattern", "severity", "text", "good", "bad")
    rows = TeamRuleRow.objects.filter(since__lte=timezone.now().date()).order_by("name").values(*fields)
    return [TeamRule(**row) for row in rows[:MAX_TEAM_RULES]]


def skipped_paths(source: Source) -> SkippedPaths:
    """Return the paths that operators keep from the model, as a source compares names."""
    patterns = list(SkippedPath.objects.order_by("pattern").values_list("pattern", flat=True))
    return SkippedPaths(patterns, case_sensitive=source.case_sensitive)


def default_recipients() -> tuple[str, ...]:
    """Return the recipients of reviews that have no others (DEFAULT_RECIPIENTS)."""
    return tuple(dict.fromkeys(normalise(recipient) for recipient in settings.DEFAULT_RECIPIENTS))


def record_violation(violation: SecurityViolation) -> None:
    """Write the security event of a denied path."""
    SecurityEvent.objects.create(
        kind=SecurityEvent.Kind.PATH_DENIED,
        changelist_id=violation.changelist_id[:128],
        path=clean(violation.path, 2048),
        reason=clean(violation.reason, 512),
        context={"stage": violation.stage},
    )


def may_scan(folder: str, changelist_id: str = "") -> bool:
    """Return whether anything below a depot folder may be read.

    A folder that the allow-list denies is recorded as a security event.
    """
    if allow_list().may_touch(folder):
        return True
    report(changelist_id, [(folder, "nothing below it is in the allow-list")], "query", record_violation)
    return False


def models() -> dict[str, LlmConfig]:
    """Return the configured models by the names of their circuits.

    The first model comes before the one that takes over.
    """
    found = {model_dependency(): model(), fallback_dependency(): fallback_model()}
    return {name: llm for name, llm in found.items() if llm is not None}


def model() -> LlmConfig | None:
    """Return the configuration of the language model, or None without one of ours."""
    if settings.LLM_PROVIDER in ("none", "agent"):
        return None
    return LlmConfig(
        base_url=settings.LLM_BASE_URL or _ANTHROPIC,
        model=settings.LLM_MODEL,
        provider=settings.LLM_PROVIDER,
        api_keys=settings.LLM_API_KEYS,
        timeout_seconds=settings.LLM_TIMEOUT_SECONDS,
        max_concurrency=settings.LLM_MAX_CONCURRENCY,
        max_output_tokens=settings.LLM_MAX_OUTPUT_TOKENS,
        extra_body=settings.LLM_EXTRA_BODY,
    )


def embeddings() -> LlmConfig | None:
    """Return the configuration of the server of embeddings, or None without one."""
    if not settings.EMBEDDINGS_BASE_URL or not settings.EMBEDDINGS_MODEL:
        return None
    return LlmConfig(
        base_url=settings.EMBEDDINGS_BASE_URL,
        model=settings.EMBEDDINGS_MODEL,
        api_keys=settings.EMBEDDINGS_API_KEY,
        timeout_seconds=min(settings.LLM_TIMEOUT_SECONDS, EMBEDDINGS_SECONDS),
        max_answer_bytes=16_000_000,
    )


def fallback_model() -> LlmConfig | None:
    """Return the configuration of the model that takes over, or None without one.

    LLM_EXTRA_BODY is not for it: its fields are those of the first server's manual.
    """
    if settings.LLM_FALLBACK_PROVIDER == "none":
        return None
    return LlmConfig(
        base_url=settings.LLM_FALLBACK_BASE_URL or _ANTHROPIC,
        model=settings.LLM_FALLBACK_MODEL,
        provider=settings.LLM_FALLBACK_PROVIDER,
        api_keys=settings.LLM_FALLBACK_API_KEY,
        timeout_seconds=settings.LLM_TIMEOUT_SECONDS,
        max_concurrency=settings.LLM_MAX_CONCURRENCY,
        max_output_tokens=settings.LLM_MAX_OUTPUT_TOKENS,
    )
