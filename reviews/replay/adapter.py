"""The port through which dead letters put jobs back to work (settings.DEADLETTER_RECOVERY).

What the rows say is asked for sets, in a few statements; what the outside says is asked
harmlessly, once for each dependency and object of this class.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from criticizer.db import prepared
from criticizer.resilience import health_checks
from criticizer.resilience.failures import Failure
from criticizer.resilience.states import CircuitState
from criticizer.wording import plural_count
from deadletters.types import Change, Check, CheckKind, DataField, Failed
from notifications.states import EVIDENCE, UNRESOLVED_DELIVERY, UNSENT_DELIVERY
from reviews import config, pipeline
from reviews.models import Artifact, ReviewJob
from reviews.pipeline.dependencies import dependencies_of, why_not_configured
from reviews.recipients import resolve
from reviews.replay import allowlist_recheck, editing, preflight
from reviews.states import ACTIVE_JOB, Stage

_FACTS = f"""
SELECT j.id, j.changelist_id, j.review_version, j.status, n.version AS newer, n.active AS newer_active,
       a.artifact, coalesce(d.sent, 0) AS sent, coalesce(d.unsent, 0) AS unsent,
       coalesce(d.uncertain, 0) AS uncertain, coalesce(d.in_doubt, 0) AS in_doubt
  FROM jobs j
  LEFT JOIN LATERAL (
    SELECT max(o.review_version) FILTER (WHERE o.review_version > j.review_version) AS version,
           bool_or(o.status = ANY(%(active)s)) AS active
      FROM jobs o WHERE o.changelist_id = j.changelist_id AND o.id <> j.id) n ON true
  LEFT JOIN LATERAL (
    SELECT (f.deleted_at IS NULL) AS artifact FROM artifacts f
     WHERE f.job_id = j.id AND f.kind = 'change' ORDER BY f.id DESC LIMIT 1) a ON true
  LEFT JOIN LATERAL (
    SELECT count(*) FILTER (WHERE e.status = 'sent') AS sent,
           count(*) FILTER (WHERE e.status IN ('pending', 'failed')) AS unsent,
           count(*) FILTER (WHERE e.status = 'uncertain') AS uncertain,
           count(*) FILTER (WHERE e.status IN {prepared.sql_list(UNRESOLVED_DELIVERY)}) AS in_doubt
      FROM deliveries e WHERE e.job_id = j.id) d ON true
 WHERE j.id = ANY(%(jobs)s)"""  # noqa: S608

# Who does not want a message has no delivery: events of the job say who, the others are `wanting` one.
_EFFECTS = f"""
SELECT j.status,
       (SELECT s.status FROM stage_runs s WHERE s.job_id = j.id AND s.stage = 'fetch') AS fetch,
       (SELECT s.status FROM stage_runs s WHERE s.job_id = j.id AND s.stage = 'llm') AS llm,
       (SELECT s.status FROM stage_runs s WHERE s.job_id = j.id AND s.stage = 'notify') AS notify,
       EXISTS (SELECT FROM artifacts a WHERE a.job_id = j.id AND a.kind = 'change') AS artifact,
       (SELECT count(*) FROM findings f WHERE f.job_id = j.id) AS findings,
       (SELECT count(*) FROM coverage c WHERE c.job_id = j.id) AS coverage,
       (SELECT count(*) FROM jsonb_array_elements_text(j.recipients) r
         WHERE NOT EXISTS (SELECT FROM job_events e WHERE e.job_id = j.id AND e.kind = 'not_told'
                              AND jsonb_exists(e.context -> 'recipients', r))) AS wanting,
       jsonb_array_length(j.recipients) AS recipients,
       (SELECT count(*) FROM deliveries d WHERE d.job_id = j.id AND d.status <> 'superseded') AS deliveries,
       (SELECT count(*) FROM deliveries d WHERE d.job_id = j.id AND d.status = 'abandoned') AS abandoned,
       (SELECT count(*) FROM deliveries d WHERE d.job_id = j.id
           AND d.status IN {prepared.sql_list(UNSENT_DELIVERY)}) AS unsettled,
       (SELECT count(*) FROM deliveries d WHERE d.job_id = j.id AND d.status = 'sent'
           AND d.notification_id <> '' AND d.notified_at IS NOT NULL
           AND EXISTS (SELECT FROM delivery_attempts t
                        WHERE t.delivery_id = coalesce(
                                (SELECT g.carrier_id FROM digests g WHERE g.id = d.digest_id), d.id)
                          AND t.outcome IN {prepared.sql_list(EVIDENCE)})) AS proven
  FROM jobs j WHERE j.id = %(job)s"""  # noqa: S608

_CIRCUITS = "SELECT name, state, needs_call FROM circuits WHERE name = ANY(%(names)s)"


class JobRecovery:
    """Describes, surveys, probes, replays and verifies review jobs (specification 000, 8.5)."""

    def __init__(self) -> None:
        self._asked: dict[str, Check] = {}

    def describe(self, job_id: int) -> str:
        """Return one line that names the job to an operator."""
        job = ReviewJob.objects.get(pk=job_id)
        return f"changelist {job.changelist_id}, version {job.review_version}"

    def lanes(self, job_ids: Collection[int]) -> dict[int, str]:
        """Return the changelist of each job: one version of it can be at work at a time."""
        return dict(ReviewJob.objects.filter(pk__in=job_ids).values_list("pk", "changelist_id"))

    def survey(self, failed: Sequence[Failed], *, restart: bool | None) -> dict[int, list[Check]]:
        """Return, by job, what the rows alone say about a replay now; None: from where is not decided."""
        stages = {one.job_id: one.stage for one in failed}
        found = prepared.rows(
            _FACTS, {"jobs": list(stages), "active": [status.value for status in ACTIVE_JOB]}
        )
        restarted = _restarted(failed, restart)
        needed = dependencies_of(failed, restarted=restarted)
        circuits = self._circuits({name for names in needed.values() for name in names})
        checks = {}
        for job in found:
            source = self._source(job, circuits) if job["id"] in restarted else None
            artifact = _of_artifact(job, stages[job["id"]], source, is_decided=restart is not None)
            others = [_of_deliveries(job), *(circuits[name].advised for name in needed[job["id"]])]
            # A circuit that it depends on says more.
            rest = [artifact, *others] if artifact.ok or artifact.is_hard else [*others, artifact]
            checks[job["id"]] = [*_of_job(job), *rest]
        gone = Check(CheckKind.JOB, False, "the job does not exist any more", is_hard=True)
        return {job_id: checks.get(job_id, [gone]) for job_id in stages}

    def circuits(self, failed: Sequence[Failed], *, restart: bool | None) -> list[Check]:
        """Return whether the circuits that a replay needs let calls pass."""
        needed = dependencies_of(failed, restarted=_restarted(failed, restart))
        found = self._circuits({name for names in needed.values() for name in names})
        return [circuit.check for circuit in found.values()]

    def answers(self, failed: Sequence[Failed], *, restart: bool | None) -> dict[int, list[Check]]:
        """Return, by job, what harmless questions to its dependencies say; each is asked once."""
        needed = dependencies_of(failed, restarted=_restarted(failed, restart))
        return {job_id: [self._answers(name) for name in names] for job_id, names in needed.items()}

    def probe(self, failed: Failed, *, restart: bool | None) -> list[Check]:
        """Return what can be asked harmlessly about this very job: its artifact, its paths."""
        return preflight.probe(failed, restart=restart)

    def replay(self, job_id: int, stage: str, *, restart: bool) -> bool:
        """Put the job back to work inside the caller's transaction; False when it cannot be."""
        return pipeline.replay(job_id, Stage.FETCH if restart else Stage(stage))

    def verify(self, failed: Failed) -> list[Check]:
        """Return whether the effects of the stage are there, and of the whole job where it succeeded."""
        facts = prepared.row(_EFFECTS, {"job": failed.job_id})
        if facts is None:
            return [Check(CheckKind.JOB, False, "the job does not exist any more")]
        stages = list(Stage)
        is_done = facts["status"] == "succeeded"
        if is_done:
            checks = [Check(CheckKind.JOB, True, "the job succeeded")]
        else:
            checks = [_of_stage(facts, failed.stage)]
            stages = stages[: stages.index(Stage(failed.stage)) + 1]
        facts["files"] = _files_of(failed.job_id) if not facts["coverage"] else None
        return [*checks, *(_EFFECT_OF[stage](facts) for stage in stages)]

    def data(self, job_id: int) -> list[DataField]:
        """Return what the job was asked to do, and which of it may be changed."""
        return editing.data(job_id)

    def normalised(self, job_id: int, values: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Return values as the job would keep them. Raises WrongData."""
        return editing.normalised(values)

    def why_not(self, job_id: int, change: Change) -> str:
        """Return why the change cannot be made now, one sentence, or an empty string."""
        return editing.why_not(job_id, change)

    def apply(self, job_id: int, change: Change, *, asked_by: str, approved_by: str, reason: str) -> str:
        """Make the change inside the caller's transaction; else change nothing and return why not."""
        return editing.apply(job_id, change, asked_by=asked_by, approved_by=approved_by, reason=reason)

    # -- inside --------------------------------------------------------------------------------

    def _circuits(self, names: Collection[str]) -> dict[str, _Circuit]:
        found = {row["name"]: row for row in prepared.rows(_CIRCUITS, {"names": sorted(names)})}
        circuits = {}
        for name in sorted(names):
            state = CircuitState(found[name]["state"] if name in found else CircuitState.CLOSED)
            needs_call = name in found and found[name]["needs_call"]
            circuits[name] = _Circuit(state, self._circuit(name, state, needs_call=needs_call))
        return circuits

    def _circuit(self, name: str, state: CircuitState, *, needs_call: bool) -> Check:
        """Return whether a replay now reaches its dependency; an answer to `answers` speaks for it."""
        words = f"the circuit of {name} is {state.label.lower()}"
        if state in {CircuitState.CLOSED, CircuitState.FORCED_CLOSED}:
            return Check(CheckKind.CIRCUIT, True, words, name)
        if state == CircuitState.HALF_OPEN:
            who = "only a real call closes it, and a replay is one: it" if needs_call else "the next call"
            return Check(CheckKind.CIRCUIT, True, f"{words}: {who} tries it, at no cost of attempts", name)
        asked = self._asked.get(name)
        if state == CircuitState.OPEN and asked and asked.ok and health_checks.check_of(name) is not None:
            words += f", but {name} answers: a replay waits its turn at no cost of attempts"
            return Check(CheckKind.CIRCUIT, True, words, name)
        return Check(CheckKind.CIRCUIT, False, words, name, is_waited_for=state == CircuitState.OPEN)

    def _answers(self, name: str) -> Check:
        """Ask a dependency harmlessly, where there is a way to, once."""
        if name not in self._asked:
            self._asked[name] = _ask(name)
        return self._asked[name]

    def _source(self, job: Mapping[str, Any], circuits: Mapping[str, _Circuit]) -> Check:
        """Return whether a change can be fetched, as far as its source's circuit and answers tell."""
        if job["changelist_id"].startswith("git:"):
            return Check(CheckKind.SOURCE, True, "its repository is local")
        name = config.perforce_dependency()
        asked = self._asked.get(name)
        circuit = circuits[name].check
        return circuit if asked is None or not circuit.ok else asked


class _Circuit(NamedTuple):
    state: CircuitState
    check: Check

    @property
    def advised(self) -> Check:
        """Return the check of a circuit that stops a replay with what can be done about it."""
        if self.check.ok:
            return self.check
        advice = (
            "validate again when it is half-open or closed, or overrule it for a letter alone:"
            " its replay then waits its turn, and a batch would stop"
        )
        if self.state is CircuitState.FORCED_OPEN:
            advice = "an operator stopped all calls; release it in the console, under Circuits"
        return replace(self.check, message=f"{self.check.message}: {advice}")


def _restarted(failed: Sequence[Failed], restart: bool | None) -> set[int]:
    """Return the jobs whose replay begins with the fetch: as chosen, or as nothing else can work."""
    if restart is not None:
        return {one.job_id for one in failed} if restart else set()
    reviewing = {one.job_id for one in failed if one.stage == Stage.LLM}
    kept = Artifact.objects.filter(job_id__in=reviewing, kind=Artifact.Kind.CHANGE, deleted_at=None)
    return reviewing - set(kept.values_list("job_id", flat=True))


def _of_job(job: dict[str, Any]) -> list[Check]:
    is_dead = job["status"] == "dead_lettered"
    checks = [
        Check(
            CheckKind.JOB,
            is_dead,
            "the job is dead-lettered" if is_dead else f"the job is {job['status']}, not dead-lettered",
            is_hard=True,
        )
    ]
    if job["newer"] is not None:
        return [
            *checks,
            Check(CheckKind.VERSION, False, f"newer version exists: {job['newer']}", is_hard=True),
        ]
    if job["newer_active"]:
        words = "another version of this changelist is being worked on"
        return [*checks, Check(CheckKind.VERSION, False, words, is_hard=True)]
    return [*checks, Check(CheckKind.VERSION, True, "no newer version exists")]


def _of_artifact(job: dict[str, Any], stage: str, source: Check | None, *, is_decided: bool) -> Check:
    """Return whether the replay will have its change. `source`: where it is fetched again from."""
    if source is None:
        if stage != Stage.LLM:
            is_read = stage == Stage.FETCH
            words = "the change is read from its source" if is_read else "the fetched change is not needed"
            return Check(CheckKind.ARTIFACT, True, words)
        if job["artifact"]:
            return Check(CheckKind.ARTIFACT, True, "the fetched change is still there")
        words = "the change artifact has expired; restart from the first stage instead"
        return Check(CheckKind.ARTIFACT, False, words, is_hard=True)
    if job["artifact"] or stage == Stage.FETCH:
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
        words = f"{plural_count(job['uncertain'], 'delivery')} may have been made: decide about that first"
        return Check(CheckKind.DELIVERIES, False, words, is_hard=True)
    made = f"{plural_count(job['sent'], 'delivery')} made already, not repeated; " if job["sent"] else ""
    if job["in_doubt"]:
        asked = plural_count(job["in_doubt"], "delivery")
        made += f"{asked} asked about at the provider before anything is sent; "
    return Check(CheckKind.DELIVERIES, True, f"{made}safe to replay: every delivery has its own key")


def _ask(name: str) -> Check:
    if missing := why_not_configured(name):
        return Check(CheckKind.ANSWER, False, missing, name)
    health_check = health_checks.check_of(name)
    if health_check is None:
        words = f"{name} has no harmless question: the first call will tell"
        return Check(CheckKind.ANSWER, True, words, name)
    try:
        health_check(name)
    except Failure as failure:
        return Check(CheckKind.ANSWER, False, f"{name}: {preflight.words_of(failure)}", name)
    return Check(CheckKind.ANSWER, True, f"{name} answers, and takes our credentials", name)


def _of_stage(facts: dict[str, Any], stage: str) -> Check:
    passed = facts[stage] == "succeeded"
    at_work = facts["status"] in {status.value for status in ACTIVE_JOB}
    words = f"stage {stage} succeeded" if passed else f"stage {stage} is {facts[stage]}"
    return Check(CheckKind.STAGE, passed, words, is_waiting=at_work)


def _fetched(facts: dict[str, Any]) -> Check:
    words = "the fetched change was stored" if facts["artifact"] else "no fetched change was stored"
    return Check(CheckKind.CHANGE, facts["artifact"], words)


def _reviewed(facts: dict[str, Any]) -> Check:
    if facts["files"] == 0:
        return Check(CheckKind.FINDINGS, True, "the review is stored; the change has no files")
    stored = facts["findings"] + facts["coverage"] > 0
    words = (
        f"{plural_count(facts['findings'], 'finding')} and the coverage of"
        f" {plural_count(facts['coverage'], 'file')} are stored"
    )
    return Check(CheckKind.FINDINGS, stored, words if stored else "neither findings nor coverage are stored")


def _files_of(job_id: int) -> int | None:
    """Return how many files the fetched change has, None when it cannot be read any more."""
    try:
        return len(allowlist_recheck.fetched(job_id).files)
    except Failure:
        return None


def _told(facts: dict[str, Any]) -> Check:
    wanted = facts["deliveries"] - facts["abandoned"]
    given_up = f", {facts['abandoned']} given up" if facts["abandoned"] else ""
    if facts["recipients"] and not facts["deliveries"]:
        if not facts["wanting"]:
            return Check(CheckKind.DELIVERIES, True, resolve.DECLINED)
        return Check(CheckKind.DELIVERIES, False, "nobody was told, and there are recipients")
    words = (
        f"{facts['proven']} of {plural_count(wanted, 'delivery')} with their provider's evidence{given_up}"
    )
    if facts["unsettled"]:
        words += f", {facts['unsettled']} not settled yet"
    is_waiting = wanted - facts["proven"] == facts["unsettled"] > 0
    return Check(CheckKind.DELIVERIES, facts["proven"] == wanted, words, is_waiting=is_waiting)


_EFFECT_OF: dict[str, Callable[[dict[str, Any]], Check]] = {
    Stage.FETCH: _fetched,
    Stage.LLM: _reviewed,
    Stage.NOTIFY: _told,
}
