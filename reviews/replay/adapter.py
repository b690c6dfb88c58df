"""Adapter of the dead letters' port to review jobs (settings.DEADLETTER_RECOVERY).

Database checks run for sets, in a few statements; health checks run once for each dependency and object.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from criticizer.db import prepared
from criticizer.resilience import health_checks
from criticizer.resilience.failures import Failure
from criticizer.resilience.states import CircuitState
from criticizer.wording import plural_count
from deadletters.types import Check, CheckKind, Failed
from notifications.delivery import operator_actions
from notifications.states import UNRESOLVED_DELIVERY
from reviews import config, pipeline
from reviews.artifacts.recipe import enough_for_a_review
from reviews.models import Artifact, ReviewJob
from reviews.pipeline.dependencies import dependencies_of, why_not_configured
from reviews.replay import editing, effects, preflight
from reviews.states import ACTIVE_JOB, Stage

_FACTS = """
SELECT j.id, j.changelist_id, j.review_version, j.status, n.version AS newer, n.active AS newer_active,
       (SELECT max(m.job_id) FROM scans s JOIN scans m ON m.target_id = s.target_id AND m.job_id > s.job_id
         WHERE s.job_id = j.id) AS newer_scan,
       coalesce(d.sent, 0) AS sent, coalesce(d.uncertain, 0) AS uncertain,
       coalesce(d.in_doubt, 0) AS in_doubt
  FROM jobs j
  LEFT JOIN LATERAL (
    SELECT max(o.review_version) FILTER (WHERE o.review_version > j.review_version) AS version,
           bool_or(o.status = ANY(%(active)s)) AS active
      FROM jobs o WHERE o.changelist_id = j.changelist_id AND o.series = j.series AND o.id <> j.id) n ON true
  LEFT JOIN LATERAL (
    SELECT count(*) FILTER (WHERE e.status = 'sent') AS sent,
           count(*) FILTER (WHERE e.status = 'uncertain') AS uncertain,
           count(*) FILTER (WHERE e.status = ANY(%(unresolved)s)) AS in_doubt
      FROM deliveries e WHERE e.job_id = j.id) d ON true
 WHERE j.id = ANY(%(jobs)s)"""

_CIRCUITS = "SELECT name, state, needs_call FROM circuits WHERE name = ANY(%(names)s)"


class JobRecovery:
    """Implements `deadletters.ports.Recovery`, which documents the methods."""

    probe = staticmethod(preflight.probe)
    verify = staticmethod(effects.verify)
    why_not_give_up = staticmethod(editing.why_not_give_up)
    give_up = staticmethod(operator_actions.give_up_refused)
    data = staticmethod(editing.data)
    why_not = staticmethod(editing.why_not)
    apply = staticmethod(editing.apply)

    def __init__(self) -> None:
        self._asked: dict[str, Check] = {}

    def lanes(self, job_ids: Collection[int]) -> dict[int, str]:
        """Return the changelist of each job: one version of it runs at a time."""
        return dict(ReviewJob.objects.filter(pk__in=job_ids).values_list("pk", "changelist_id"))

    def survey(self, failed: Sequence[Failed], *, restart: bool | None) -> dict[int, list[Check]]:
        stages = {one.job_id: one.stage for one in failed}
        active = [status.value for status in ACTIVE_JOB]
        unresolved = [status.value for status in UNRESOLVED_DELIVERY]
        found = prepared.rows(_FACTS, {"jobs": list(stages), "active": active, "unresolved": unresolved})
        kept = _kept(stages)
        restarted = _restarted(failed, restart)
        needed = dependencies_of(failed, restarted=restarted)
        circuits = self._circuits({name for names in needed.values() for name in names})
        checks = {}
        for job in found:
            source = self._source(job, circuits) if job["id"] in restarted else None
            is_kept = job["id"] in kept
            artifact = _of_artifact(
                stages[job["id"]], source, is_kept=is_kept, is_decided=restart is not None
            )
            others = [_of_deliveries(job), *(circuits[name].advised for name in needed[job["id"]])]
            # The circuit that a failed artifact check depends on comes first: it says more.
            rest = [artifact, *others] if artifact.ok or artifact.is_hard else [*others, artifact]
            checks[job["id"]] = [*_of_job(job), *rest]
        gone = Check(CheckKind.JOB, False, "the job no longer exists", is_hard=True)
        return {job_id: checks.get(job_id, [gone]) for job_id in stages}

    def circuits(self, failed: Sequence[Failed], *, restart: bool | None) -> list[Check]:
        needed = dependencies_of(failed, restarted=_restarted(failed, restart))
        found = self._circuits({name for names in needed.values() for name in names})
        return [circuit.check for circuit in found.values()]

    def answers(self, failed: Sequence[Failed], *, restart: bool | None) -> dict[int, list[Check]]:
        needed = dependencies_of(failed, restarted=_restarted(failed, restart))
        return {job_id: [self._answers(name) for name in names] for job_id, names in needed.items()}

    def replay(self, job_id: int, stage: str, *, restart: bool) -> bool:
        return pipeline.replay(job_id, Stage.FETCH if restart else Stage(stage))

    def normalised(self, job_id: int, values: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        return editing.normalised(values)

    def _circuits(self, names: Collection[str]) -> dict[str, _Circuit]:
        found = {row["name"]: row for row in prepared.rows(_CIRCUITS, {"names": sorted(names)})}
        circuits = {}
        for name in sorted(names):
            state = CircuitState(found[name]["state"] if name in found else CircuitState.CLOSED)
            needs_call = name in found and found[name]["needs_call"]
            circuits[name] = _Circuit(state, self._circuit(name, state, needs_call=needs_call))
        return circuits

    def _circuit(self, name: str, state: CircuitState, *, needs_call: bool) -> Check:
        """Return whether a replay now reaches its dependency, given what `answers` found."""
        words = f"the circuit of {name} is {state.label.lower()}"
        if state in {CircuitState.CLOSED, CircuitState.FORCED_CLOSED}:
            return Check(CheckKind.CIRCUIT, True, words, name)
        if state == CircuitState.HALF_OPEN:
            who = "only a real call closes it, and a replay is one: it" if needs_call else "the next call"
            return Check(CheckKind.CIRCUIT, True, f"{words}: {who} tries it, and uses no attempt", name)
        asked = self._asked.get(name)
        if state == CircuitState.OPEN and asked and asked.ok and health_checks.check_of(name) is not None:
            words += f", but {name} answers: a replay waits for it, and uses no attempt"
            return Check(CheckKind.CIRCUIT, True, words, name)
        return Check(CheckKind.CIRCUIT, False, words, name, is_waited_for=state == CircuitState.OPEN)

    def _answers(self, name: str) -> Check:
        """Run a dependency's health check, once for this object."""
        if name not in self._asked:
            self._asked[name] = _ask(name)
        return self._asked[name]

    def _source(self, job: Mapping[str, Any], circuits: Mapping[str, _Circuit]) -> Check:
        """Return whether the change can be fetched, by its source's circuit and health check."""
        name = config.source_dependency(job["changelist_id"])
        if not name:
            return Check(CheckKind.SOURCE, True, "its repository is local")
        asked = self._asked.get(name)
        circuit = circuits[name].check
        return circuit if asked is None or not circuit.ok else asked


class _Circuit(NamedTuple):
    state: CircuitState
    check: Check

    @property
    def advised(self) -> Check:
        """Return the check; if it stops a replay, with what the operator can do."""
        if self.check.ok:
            return self.check
        advice = (
            "validate again when it is half-open or closed, or override the check for a single dead letter:"
            " its replay then waits, and a batch would stop"
        )
        if self.state is CircuitState.FORCED_OPEN:
            advice = "an operator stopped all calls; release it in the admin, under Circuits"
        return replace(self.check, message=f"{self.check.message}: {advice}")


def _restarted(failed: Sequence[Failed], restart: bool | None) -> set[int]:
    """Return the jobs whose replay begins with the fetch: by choice, or for want of an artifact."""
    if restart is not None:
        return {one.job_id for one in failed} if restart else set()
    reviewing = {one.job_id for one in failed if one.stage == Stage.LLM}
    return reviewing - _kept(reviewing)


def _kept(job_ids: Collection[int]) -> set[int]:
    """Return the jobs of which the fetched change is still there."""
    kept = Artifact.objects.filter(enough_for_a_review(), job_id__in=job_ids)
    return set(kept.values_list("job_id", flat=True))


def _of_job(job: dict[str, Any]) -> list[Check]:
    is_dead = job["status"] == "dead_lettered"
    words = "the job is dead-lettered" if is_dead else f"the job is {job['status']}, not dead-lettered"
    newer = ""
    if job["newer_scan"] is not None:
        newer = (
            f"a newer scan of its path exists: {job['newer_scan']};"
            " request a scan on the page of the path instead"
        )
    elif job["newer"] is not None:
        newer = f"newer version exists: {job['newer']}"
    elif job["newer_active"]:
        newer = "another version of this changelist is being worked on"
    return [
        Check(CheckKind.JOB, is_dead, words, is_hard=True),
        Check(CheckKind.VERSION, not newer, newer or "no newer version exists", is_hard=bool(newer)),
    ]


def _of_artifact(stage: str, source: Check | None, *, is_kept: bool, is_decided: bool) -> Check:
    """Return whether the replay will have its change.

    `source` is the check of a fetch, if the replay fetches.
    """
    if source is None:
        if stage != Stage.LLM:
            is_read = stage == Stage.FETCH
            words = "the change is read from its source" if is_read else "the fetched change is not needed"
            return Check(CheckKind.ARTIFACT, True, words)
        if is_kept:
            return Check(CheckKind.ARTIFACT, True, "the fetched change is still there")
        words = "the change artifact has expired; restart from the first stage instead"
        return Check(CheckKind.ARTIFACT, False, words, is_hard=True)
    if is_kept or stage == Stage.FETCH:
        return Check(CheckKind.ARTIFACT, True, "the change is fetched again")
    if not source.ok:
        words = f"the change artifact has expired, and cannot be fetched again now: {source.message}"
        return Check(CheckKind.ARTIFACT, False, words, is_waited_for=source.is_waited_for)
    words = "the change artifact has expired and will be fetched again"
    if not is_decided:
        words = (
            "the change artifact has expired: only a restart from the first stage can work,"
            " which fetches it again"
        )
    return Check(CheckKind.ARTIFACT, True, f"{words}: {source.message}")


def _of_deliveries(job: dict[str, Any]) -> Check:
    if job["uncertain"]:
        words = f"{plural_count(job['uncertain'], 'delivery')} may have been made: decide about them first"
        return Check(CheckKind.DELIVERIES, False, words, is_hard=True)
    made = f"{plural_count(job['sent'], 'delivery')} already made, not repeated; " if job["sent"] else ""
    if job["in_doubt"]:
        asked = plural_count(job["in_doubt"], "delivery")
        made += f"{asked} looked up at the provider before anything is sent; "
    return Check(CheckKind.DELIVERIES, True, f"{made}safe to replay: every delivery has its own key")


def _ask(name: str) -> Check:
    if missing := why_not_configured(name):
        return Check(CheckKind.ANSWER, False, missing, name)
    health_check = health_checks.check_of(name)
    if health_check is None:
        words = f"{name} has no health check: the first call of the replay will show"
        return Check(CheckKind.ANSWER, True, words, name)
    try:
        health_check(name)
    except Failure as failure:
        return Check(CheckKind.ANSWER, False, f"{name}: {preflight.words_of(failure)}", name)
    return Check(CheckKind.ANSWER, True, f"{name} answers and accepts the credentials", name)
