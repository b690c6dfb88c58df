"""Audit of deliveries, every few minutes in a worker: wrong and open rows of ended jobs.

- Rows marked sent without evidence are looked up, back-filled or requeued, and alerted.
- Rows of ended jobs that a killed worker left open are settled, never sent.
- Rows of succeeded jobs that are due again are sent; the job stays succeeded.
- Rows that wait for an operator are looked up again.
- Jobs whose deliveries were decided and that did not go on are resumed.
- A sample of sent rows is looked up, and alerted when the provider does not have one.

One outbox message is the clock, as for the polling of sources.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import structlog
from django.conf import settings

from criticizer.db import prepared
from criticizer.queue import advisory_locks, outbox
from criticizer.queue.advisory_locks import Lock
from criticizer.queue.periodic import Pause
from criticizer.resilience.failures import DependencyUnavailable, Failure
from notifications import config
from notifications.delivery import audit, operator_actions, send
from notifications.providers.base import Evidence, Provider
from notifications.states import SETTLED_DELIVERY, UNRESOLVED_DELIVERY
from reviews.pipeline.base import statement
from reviews.replay import delivery_resolution
from reviews.states import JobStatus

log = structlog.get_logger(__name__)

CLOCK = delivery_resolution.AUDIT_CLOCK
SYSTEM = "criticizer"
SAMPLE = 20
# The worker of a job that was ended may still be sending; no provider's call takes as long.
GRACE_SECONDS = 300.0
SENDING_SECONDS = 60.0  # of one run, which holds a worker
_AT_ONCE = 200
_ASK_AGAIN_FOR = timedelta(days=1)
_LATELY = timedelta(days=7)


@dataclass(slots=True)
class AuditReport:
    """Findings of one run: counts of deliveries; the last three hold ids of jobs.

    `told_together`: succeeded, due again, and in the digest of another such job.
    """

    suspicious: int = 0
    held: int = 0
    unsettled: int = 0
    absent_in_sample: int = 0
    redelivered: set[int] = field(default_factory=set)
    told_together: list[int] = field(default_factory=list)
    found: set[int] = field(default_factory=set)


def ensure() -> None:
    """Start or stop the clock (DELIVERY_AUDIT_SECONDS). Run by maintenance."""
    CLOCK.ensure(is_enabled=settings.DELIVERY_AUDIT_SECONDS > 0)


def run_due() -> Pause:
    """Run once; return when the next run is due."""
    # The whole table about once a day: it only grows, and wrong rows are mostly new.
    run(is_whole=random.random() < settings.DELIVERY_AUDIT_SECONDS / 86_400)  # noqa: S311
    return Pause(settings.DELIVERY_AUDIT_SECONDS)


def run(*, is_whole: bool = True) -> AuditReport | None:
    """Audit once, or return None while another run is active. Database errors propagate.

    Unless `is_whole`, only the last week's rows marked sent are audited.
    """
    with advisory_locks.held(Lock.DELIVERY_AUDIT) as is_mine:
        if is_mine:
            return _audit(config.providers(), is_whole=is_whole)
    log.info("delivery_audit_runs_elsewhere")
    return None


def _audit(providers: Mapping[str, Provider], *, is_whole: bool) -> AuditReport:
    report = AuditReport()
    suspicious = audit.audit_sent(providers, within=None if is_whole else _LATELY)
    report.suspicious, report.held = suspicious.suspicious, suspicious.held
    until = time.monotonic() + SENDING_SECONDS
    for row in prepared.rows(_LEFT_OPEN, {"grace": outbox.scaled(GRACE_SECONDS), "limit": _AT_ONCE}):
        if time.monotonic() > until:
            break  # slow receivers: the next run begins with others
        _settle(row["job_id"], JobStatus(row["status"]), providers, report, until, is_newest=row["newest"])
    for job_id in report.told_together:
        _redeliver(job_id, providers, report, until)
    report.found = audit.recheck_uncertain(providers, within=_ASK_AGAIN_FOR)
    for job_id in report.found:
        delivery_resolution.resume_job(
            job_id, actor=SYSTEM, reason="the provider was found to have the message"
        )
    delivery_resolution.resume_decided_jobs()
    report.absent_in_sample = audit.audit_sample(providers, SAMPLE)[Evidence.ABSENT]
    log.info(
        "deliveries_audited",
        suspicious=report.suspicious,
        held=report.held,
        unsettled=report.unsettled,
        redelivered=len(report.redelivered),
        found=len(report.found),
        absent_in_sample=report.absent_in_sample,
    )
    return report


# Jobs that have ended and whose deliveries have not. In random order: rows that cannot be settled
# now must not keep the others waiting. What a dead-lettered job has not begun waits for its replay.
_LEFT_OPEN = statement(
    """
SELECT * FROM (
  SELECT DISTINCT d.job_id, j.status,
         NOT EXISTS (SELECT 1 FROM jobs n WHERE n.changelist_id = j.changelist_id AND n.series = j.series
                        AND n.review_version > j.review_version) AS newest
    FROM deliveries d JOIN jobs j ON j.id = d.job_id
   WHERE NOT (d.status IN $SETTLED)
     AND d.status <> 'uncertain' AND j.status NOT IN $ACTIVE
     AND (j.status = 'succeeded'
          OR d.status IN $DOUBTFUL
             AND d.updated_at < now() - make_interval(secs => %(grace)s))) open
 ORDER BY random() LIMIT %(limit)s""",
    SETTLED=prepared.sql_list(SETTLED_DELIVERY),
    DOUBTFUL=prepared.sql_list(UNRESOLVED_DELIVERY),
)


def _settle(
    job_id: int,
    status: JobStatus,
    providers: Mapping[str, Provider],
    report: AuditReport,
    until: float,
    *,
    is_newest: bool,
) -> None:
    if status is JobStatus.SUCCEEDED and is_newest:
        _redeliver(job_id, providers, report, until)
        return
    may_go_on = status is JobStatus.DEAD_LETTERED
    report.unsettled += audit.settle(job_id, providers, may_go_on=may_go_on)
    if status in {JobStatus.SUPERSEDED, JobStatus.SUCCEEDED}:
        operator_actions.supersede_unsent(job_id)
    elif not may_go_on:
        operator_actions.cancel_unsent(job_id)


def _redeliver(job_id: int, providers: Mapping[str, Provider], report: AuditReport, until: float) -> None:
    """Send what a succeeded job turned out not to have sent, unless the time `until` is over."""
    tried: Mapping[str, str] = {}
    why = "out of time"
    try:
        while time.monotonic() <= until:
            outcome = send.deliver(job_id, providers, may_continue=lambda: _is_newest(job_id), tried=tried)
            if outcome.sent:
                report.redelivered.add(job_id)
                log.warning("delivered_after_success", job=job_id, deliveries=outcome.sent)
            if not outcome.is_out_of_time:
                return
            tried = outcome.tried
    except (Failure, DependencyUnavailable) as error:
        if (
            isinstance(error, DependencyUnavailable)
            and not error.dependency
            and job_id not in report.told_together
        ):
            # Another of these jobs carries its digest, and sends it by the end of the run.
            report.told_together.append(job_id)
            return
        why = type(error).__name__
    report.unsettled += 1
    log.error("delivery_not_made_after_success", job=job_id, reason=why)


def _is_newest(job_id: int) -> bool:
    return bool(
        prepared.value(
            """
            SELECT NOT EXISTS (SELECT 1 FROM jobs n WHERE n.changelist_id = j.changelist_id
                                  AND n.series = j.series AND n.review_version > j.review_version)
              FROM jobs j WHERE j.id = %(job)s AND j.status = 'succeeded'""",
            {"job": job_id},
        )
    )
