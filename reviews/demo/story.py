"""Story of the demo: versions, a timeout, dead letters, a replay and a scan, all recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from criticizer.wording import plural_count
from deadletters import batches, groups
from deadletters.models import DeadLetter
from deadletters.states import OPEN_LETTER, LetterStatus
from reviews import scans, verdicts
from reviews.demo import REVIEW_SECONDS, Client, Commit, DemoError, example, ticks
from reviews.drift.claims import Verdict
from reviews.intake import scans as intake
from reviews.models import FindingRow, ReviewJob, ScanTarget
from reviews.states import ACTIVE_JOB, JobStatus

ACTOR = "demo"
EVIDENCE = "The account of the model server has credit again (part of the demo)"
NOTE = (
    "Part of the demo: the cause is removed already, the account of the model server has credit again. "
    "Say so in the form of the failure group, and the review is replayed."
)
WRONG = "The gateway's errors carry the order only (part of the demo)"
RECORDED = """\
The language model is a recording: its answers were written for these two commits,
and a server on this machine replays them. All else is real. Your own repository:
make demo REPO=/path, with the model of LLM_PROVIDER or with the checks alone."""
OVERVIEW = """
What to look at:
  - Reviews: one has two versions. Each finding of the second is new or still there, and
    the one that was marked wrong stays dismissed. The coverage says why a picture was not
    read. Version 1 shows a call of the model that timed out and was repeated
  - Findings: a search over all reviews
  - Scans: the documents of the repository, with a claim that is no longer true
  - Admin, Now: a dead letter is left open for you. Open its group and replay it with one
    form. The group also has the dead letter that the demo replayed and resolved"""
SCANNED = f"//{example.NAME}/..."


def play(
    client: Client,
    commits: Sequence[Commit],
    tend: Callable[[], None],
    say: Callable[[str], None],
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each review with its heading as it ends.

    `commits` are those of `example`. Raises DemoError.
    """
    report, refunds, payments = commits
    asked = {client.post(commit): commit for commit in (refunds, payments)}
    numbers = {commit: job_id for job_id, commit in asked.items()}
    letter = 0
    for job in client.follow(list(asked), tend):
        if asked[job["id"]] is payments:
            yield payments.subject, job
            continue
        letter = _replay(job)
        say("\nOne review failed: the model server's account has no credit. Its dead letter was replayed.")
    _dismiss(numbers[payments])
    again = client.post(payments, version=2)
    for job in client.follow([again], tend):
        yield f"{payments.subject}, version 2", job
    for _ in ticks(REVIEW_SECONDS, tend):
        if DeadLetter.objects.filter(pk=letter, status=LetterStatus.RESOLVED).exists():
            yield f"{refunds.subject}, after the replay", client.job(numbers[refunds])
            break
    else:
        raise DemoError("the replay of the dead letter did not end.")
    _leave_open(client, report, tend)
    say("\nAnother review was refused in the same way: its dead letter is left for you.")
    say(_scan(tend))


def _leave_open(client: Client, commit: Commit, tend: Callable[[], None]) -> None:
    """Request a review that the model refuses, and wait for its dead letter."""
    (job,) = client.follow([client.post(commit)], tend)
    letter = DeadLetter.objects.filter(job_id=job["id"], status__in=OPEN_LETTER).first()
    if letter is None:
        raise DemoError(f"review {job['id']} ended as {job['status']}, without an open dead letter.")
    if letter.group_id:
        groups.annotate(letter.group_id, actor=ACTOR, note=NOTE)


def _scan(tend: Callable[[], None]) -> str:
    """Scan the documents of the example, and return what was found. Raises DemoError."""
    target = ScanTarget.objects.create(path=SCANNED, reason="Part of the demo")
    job_id = intake.request(target, "demo", ACTOR).job_id
    for _ in ticks(REVIEW_SECONDS, tend):
        job = ReviewJob.objects.get(pk=job_id)
        if job.status not in ACTIVE_JOB:
            break
    else:
        raise DemoError(f"the scan of {SCANNED} did not end.")
    found = scans.results_of([job_id])[job_id]
    if job.status != JobStatus.SUCCEEDED:
        raise DemoError(f"the scan of {SCANNED} ended as {job.status}.")
    claims = plural_count(found.total, "claim")
    return f"Scanned the documents of {SCANNED}: {claims}, {found.counts[Verdict.REFUTED]} refuted."


def _replay(job: dict[str, Any]) -> int:
    """Replay a job's dead letter by saying that its cause is fixed; return its number.

    An operator does so on the group's page.
    """
    letter = DeadLetter.objects.filter(job_id=job["id"]).first()
    if letter is None:
        raise DemoError(f"review {job['id']} ended as {job['status']}, without a dead letter.")
    started = batches.replay_fixed(letter.group_id, actor=ACTOR, evidence=EVIDENCE)
    if not started.result.ok:
        raise DemoError(f"the dead letter cannot be replayed: {started.result.message}.")
    return int(letter.pk)


def _dismiss(job_id: int) -> None:
    row = FindingRow.objects.filter(job_id=job_id, title="The gateway's reason is lost").first()
    if row is not None:
        verdicts.give(row, "wrong", ACTOR, WRONG)
