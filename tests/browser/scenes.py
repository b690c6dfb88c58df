"""Made-up reviews, letters and scans for the browser tests and the screenshots."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth.models import Group

from criticizer.queue import outbox
from deadletters.models import DeadLetter, DeadLetterGroupDay
from notifications.delivery import snapshot
from notifications.models import Delivery
from reviews.configuration.keys import Ceiling
from reviews.configuration.resolving import resolve
from reviews.drift.claims import Verdict
from reviews.models import RepositoryConfiguration, ReviewJob, Scan, ScanDocument, ScanTarget, StageRun
from reviews.reports import messages_for, report_of
from reviews.repository_configuration import RootConfiguration, as_json
from tests import factories
from tests.changes import store_diff
from tests.reviewers.build import edited

LONG_PATH = "//depot/main/" + "/".join(["generated-by-the-exporter"] * 12) + "/Überblick%40v2.java"


_BEFORE = (
    """import logging

from shop.gateway import Gateway, GatewayTimeout

log = logging.getLogger(__name__)
MAX_ATTEMPTS = 5


def charge(order, card, gateway: Gateway):
    \"\"\"Charge a card once.\"\"\"
    amount = order.total
"""
    + "".join(f"    # step {number} of the settlement\n" for number in range(12, 40))
    + "    for attempt in range(MAX_ATTEMPTS):\n        try:\n"
)
_AFTER = "\n        except GatewayTimeout:\n            continue\n    raise GatewayTimeout\n"
_CHARGE_OLD = f"{_BEFORE}            return gateway.charge(card, amount){_AFTER}"
_CHARGE = (
    f"{_BEFORE.replace('# step 12 of the settlement', 'breakpoint()')}"
    '            log.info("charging %s for order %d", card.masked, order.id)\n'
    f"            return gateway.charge(card, amount, timeout=2.5)  # seconds{_AFTER}"
)
_RETRY_OLD = (
    '"""Delays between attempts."""\n\nimport time\n\n\nimport os\n\n\n'
    + "".join(f"STEP_{number} = {number}\n" for number in range(9, 29))
    + "def wait(attempt):\n    # doubles each time\n    time.sleep(2 * attempt)\n"
)
_RETRY = _RETRY_OLD.replace("import os\n", 'import os\nGATEWAY_PASSWORD = "Tr0ub4dor&3-horse"', 1).replace(
    "2 * attempt", "2 ** attempt"
)


def now() -> datetime:
    return datetime.now(UTC)


def bob() -> Any:
    """A reviewer: may log in, nothing more."""
    return factories.UserFactory(username="bob")


def ann(*groups: str, is_superuser: bool = False) -> Any:
    """An operator."""
    user = factories.UserFactory(username="ann", is_staff=True, is_superuser=is_superuser)
    user.groups.set(Group.objects.filter(name__in=groups))
    return user


def live_workers() -> None:
    """Clusters that stay alive however slow the machine is."""
    for queue in outbox.queues():
        factories.WorkerClusterFactory(queue=queue, beat_at=now() + timedelta(hours=1))


def running_review() -> ReviewJob:
    """Fetched at the second attempt, now being reviewed."""
    job = factories.ReviewJobFactory(
        changelist_id="48213",
        status="in_progress",
        title="Retry uploads that the gateway dropped",
        author="bob",
        created_at=now() - timedelta(seconds=41),
    )
    fetch = factories.StageRunFactory(
        job=job,
        stage="fetch",
        status="succeeded",
        attempts=2,
        started_at=now() - timedelta(seconds=33),
        finished_at=now() - timedelta(seconds=31),
    )
    factories.AttemptFactory(
        stage_run=fetch,
        number=1,
        outcome="failed",
        error_class="NETWORK_TIMEOUT",
        code="CRITICIZER_E101",
        detail="p4 describe did not answer within 30 s",
        retry_delay_seconds=0.7,
    )
    factories.AttemptFactory(stage_run=fetch, number=2, outcome="succeeded")
    review = factories.StageRunFactory(
        job=job,
        stage="llm",
        status="running",
        started_at=now() - timedelta(seconds=31),
        progress={"a": "{}", "b": "{}", StageRun.PARTS: [2, 10]},
    )
    factories.AttemptFactory(stage_run=review, number=1)
    factories.StageRunFactory(job=job, stage="notify")
    return job


def finished_review() -> ReviewJob:
    """Two versions of one changelist; the newer one has findings of every kind."""
    older = factories.ReviewJobFactory(
        changelist_id="git:shop@0123456789abcdef0123456789abcdef01234567",
        status="superseded",
        title="Charge stored cards through the new gateway",
        author="bob",
    )
    job = factories.ReviewJobFactory(
        changelist_id=older.changelist_id,
        review_version=2,
        status="succeeded",
        title=older.title,
        author="bob",
        requested_by="ci",
        model_name="example-model",
        usage={"calls": 2, "input_tokens": 6120, "output_tokens": 540},
        created_at=now() - timedelta(minutes=4),
        finished_at=now() - timedelta(minutes=3, seconds=12),
    )
    for number, stage in enumerate(("fetch", "llm", "notify")):
        run = factories.StageRunFactory(
            job=job,
            stage=stage,
            status="succeeded",
            started_at=now() - timedelta(seconds=240 - 14 * number),
            finished_at=now() - timedelta(seconds=230 - 14 * number),
        )
        factories.AttemptFactory(stage_run=run, number=1, outcome="succeeded")
    _findings(job)
    store_diff(
        job,
        edited("//shop/payments/charge.py", _CHARGE_OLD, _CHARGE),
        edited("//shop/payments/retry.py", _RETRY_OLD, _RETRY),
    )
    factories.CoverageRowFactory(job=job, file="//shop/payments/charge.py")
    factories.CoverageRowFactory(job=job, file="//shop/payments/retry.py", status="checked")
    factories.CoverageRowFactory(
        job=job, file="//shop/payments/fixtures.json", status="partial", reason="2 of 5 parts read"
    )
    factories.CoverageRowFactory(
        job=job, file="//shop/static/logo.png", status="skipped", reason="binary file"
    )
    factories.CoverageRowFactory(job=job, file=LONG_PATH, status="skipped", reason="generated file")
    factories.DeliveryFactory(job=job, recipient="mail:carol@example.com", status="sent", attempts=1)
    factories.DeliveryFactory(
        job=job,
        recipient="webhook:https://ci.example.com/hooks/review",
        status="failed",
        attempts=5,
        detail="the server answered 410",
    )
    return job


def _findings(job: ReviewJob) -> None:
    factories.FindingRowFactory(
        job=job,
        file="//shop/payments/charge.py",
        line=42,
        end_line=43,
        severity="critical",
        category="data-loss",
        title="A retry charges the card a second time",
        message="`gateway.charge` is called again without the `idempotency_key` of the first call. "
        "When the answer is lost after the charge was made, the customer pays twice.",
        suggestion="Make the key once per order and pass it on every attempt:\n\n```python\n"
        '            log.info("charging %s for order %d", card.masked, order.id)\n'
        "            return gateway.charge(card, amount, timeout=2.5, idempotency_key=order.charge_key)\n```",
        source="llm",
        confidence=92,
        excerpt=[
            [40, " ", "    for attempt in range(MAX_ATTEMPTS):"],
            [41, " ", "        try:"],
            [None, "-", "            return gateway.charge(card, amount)"],
            [42, "+", '            log.info("charging %s for order %d", card.masked, order.id)'],
            [43, "+", "            return gateway.charge(card, amount, timeout=2.5)  # seconds"],
            [44, " ", "        except GatewayTimeout:"],
            [45, " ", "            continue"],
        ],
        edit=[
            39,
            [
                "    order.lock()",
                "    for attempt in range(MAX_ATTEMPTS):",
                "        try:",
                '            log.info("charging %s for order %d", card.masked, order.id)',
                "            return gateway.charge(card, amount, timeout=2.5)  # seconds",
                "        except GatewayTimeout:",
                "            continue",
            ],
            3,
            5,
            [
                '            log.info("charging %s for order %d", card.masked, order.id)',
                "            return gateway.charge(card, amount, timeout=2.5, "
                "idempotency_key=order.charge_key)",
            ],
        ],
    )
    factories.FindingRowFactory(
        job=job,
        file="//shop/payments/retry.py",
        line=7,
        end_line=7,
        severity="high",
        category="secret",
        title="A credential was added",
        message="The new line assigns a literal to a name that holds a password. Whoever can read the depot "
        "can read it.",
        suggestion="Rotate it, and read it from the environment.",
        source="check:secrets",
        excerpt=[
            [6, " ", "import os"],
            [7, "+", 'GATEWAY_PASSWORD = "[REDACTED:password]"'],
            [8, " ", ""],
        ],
    )
    factories.FindingRowFactory(
        job=job,
        file="//shop/payments/retry.py",
        line=31,
        end_line=31,
        severity="medium",
        category="bug",
        title="The delay grows without a bound",
        message="After 20 attempts the delay is twelve days.",
        source="llm",
        confidence=70,
        excerpt=[[31, "+", "    time.sleep(2 ** attempt)"]],
    )
    factories.FindingRowFactory(
        job=job,
        file="//shop/payments/charge.py",
        line=12,
        severity="low",
        category="maintenance",
        title="A debugger call was left in",
        message="`breakpoint()` stops the worker.",
        source="check:debugger",
        excerpt=[[12, "+", "    breakpoint()"]],
    )
    factories.FindingRowFactory(
        job=job,
        file=LONG_PATH,
        line=None,
        end_line=None,
        severity="medium",
        category="file",
        title="A file of 4.2 MB was added",
        message="Large files make every clone slower.",
        source="check:large_file",
    )


def delivery_with_message() -> Delivery:
    """The mail about the finished review, compared with the version before it."""
    job = finished_review()
    older = ReviewJob.objects.get(changelist_id=job.changelist_id, review_version=1)
    factories.StageRunFactory(job=older, stage="llm", status="succeeded")
    store_diff(older, edited("//shop/payments/charge.py", _CHARGE_OLD, _CHARGE.replace("2.5", "30")))
    factories.CoverageRowFactory(job=older, file="//shop/payments/charge.py")
    charge = {"job": older, "file": "//shop/payments/charge.py", "source": "llm", "category": "bug"}
    factories.FindingRowFactory(
        **charge, line=20, end_line=20, severity="high", title="The amount is rounded before the tax is added"
    )
    delay = {"job": older, "file": "//shop/payments/retry.py", "source": "llm", "category": "bug"}
    factories.FindingRowFactory(
        **delay, line=28, end_line=28, severity="medium", title="The delay grows without a bound"
    )
    recipient = "mail:dana@example.com"
    message = messages_for(job, {recipient: report_of(job)})[recipient]
    payload, digest = snapshot.freeze(message)
    delivery: Delivery = factories.DeliveryFactory(
        job=job,
        recipient=recipient,
        status="sent",
        attempts=1,
        token=message.token,
        subject=message.subject,
        payload=payload,
        payload_sha256=digest,
    )
    return delivery


def open_letter() -> DeadLetter:
    """A fetch that gave up, with everything an operator looks at."""
    job = factories.ReviewJobFactory(
        changelist_id="48190", status="dead_lettered", title="Bump the map tiles", author="mallory"
    )
    run = factories.StageRunFactory(
        job=job, stage="fetch", status="failed", attempts=5, error_class="NETWORK_TIMEOUT"
    )
    for number in range(1, 6):
        factories.AttemptFactory(
            stage_run=run,
            number=number,
            outcome="failed",
            error_class="NETWORK_TIMEOUT",
            code="CRITICIZER_E101",
            detail="p4 describe did not answer within 30 s",
        )
    for stage in ("llm", "notify"):
        factories.StageRunFactory(job=job, stage=stage, status="cancelled", attempts=0)
    letter = factories.DeadLetterFactory(
        job=job,
        stage="fetch",
        error_class="NETWORK_TIMEOUT",
        code="CRITICIZER_E101",
        severity="medium",
        detail="p4 describe did not answer within 30 s",
        attempts=5,
        sanitized_context={"attempt": 5, "command": "describe -S 48190", "server": "main"},
        last_stack=(
            "Traceback (most recent call last):\n"
            '  File "criticizer/workers/subprocesses.py", line 88, in run\n'
            "    raise RetryableFailure(ErrorClass.NETWORK_TIMEOUT, Place.SOURCE)\n"
            "criticizer.resilience.failures.RetryableFailure: p4 describe did not answer within 30 s\n"
        ),
        first_failure_at=now() - timedelta(minutes=9),
        last_failure_at=now() - timedelta(minutes=2),
    )
    factories.DeadLetterEventFactory(letter=letter, actor="criticizer", reason="budget of 5 attempts used up")
    return letter


def list_of_reviews() -> None:
    """A list with every status in it."""
    running_review()
    finished_review()
    open_letter()
    waiting = factories.ReviewJobFactory(
        changelist_id="48210", status="retryable_failed", title="Speed up the tile cache", author="bob"
    )
    factories.StageRunFactory(
        job=waiting,
        stage="fetch",
        status="retry_wait",
        attempts=3,
        next_attempt_at=now() + timedelta(seconds=12),
    )
    clean = factories.ReviewJobFactory(
        changelist_id="48201",
        status="succeeded",
        title="Correct a typing error in the manual",
        author="carol",
    )
    factories.CoverageRowFactory(job=clean, file="//depot/main/manual.md")
    for status in ("queued", "timed_out", "cancelled"):
        factories.ReviewJobFactory(status=status, title=f"A change that is {status.replace('_', ' ')}")


def failures() -> DeadLetter:
    """Make three groups of dead letters in many states, with a history; return a letter."""
    today = now().date()
    for error_class, stage, code, source, message, count in [
        ("AUTH_DENIED", "llm", "CRITICIZER_E207", "llm:openai", "the model server refused the key", 4),
        ("NOT_FOUND", "fetch", "CRITICIZER_E107", "p4:main", "the server does not know the changelist", 2),
        ("RATE_LIMITED", "llm", "CRITICIZER_E205", "llm:openai", "the model server wants fewer calls", 1),
    ]:
        group = factories.DeadLetterGroupFactory(
            stage=stage,
            error_class=error_class,
            source=source,
            normalized_message=message,
            first_seen=now() - timedelta(days=9),
            total_count=31 * count,
            owner="carol" if count == 2 else "",
            status="acknowledged" if count == 2 else "open",
            runbook_url="https://runbooks.example.com/keys" if count == 4 else "",
        )
        for back in range(0, 9, count):
            DeadLetterGroupDay.objects.create(
                group=group, day=today - timedelta(days=back), count=(back * 7) % 11 + 1
            )
        states = ("new", "triaged", "remediated", "validated")[:count]
        for number, status in enumerate(states):
            letter = factories.DeadLetterFactory(
                group=group,
                job=factories.job_with_stages(
                    changelist_id=str(48_300 + 10 * count + number), status="dead_lettered"
                ),
                stage=stage,
                error_class=error_class,
                code=code,
                status=status,
                detail=message,
                last_failure_at=now() - timedelta(minutes=7 * number + 2),
                last_stack="Failure: the server answered 401\n  reviews/reviewers/openai.py:112 _post\n",
                sanitized_context={"attempt": 1, "status": 401},
                is_escalated=count == 4 and number == 1,
                failed_replay_count=int(count == 4 and number == 1),
            )
            factories.DeadLetterEventFactory(letter=letter, actor="criticizer", reason=error_class)
    return DeadLetter.objects.get(status="remediated", error_class="AUTH_DENIED")


_CLAIMS = (
    (12, "command", "make lint", "holds", "", ""),
    (31, "path_reference", "src/payments/gateway.py", "refuted", "", "no such file"),
    (
        40,
        "environment",
        "SHOP_" + "VERY_" * 20 + "LONG",
        "uncheckable",
        "not true before the change either",
        "",
    ),
    (52, "path_reference", "settings.py", "ambiguous", "a bare name may be anywhere", ""),
)


def scans(newest: str = "succeeded") -> ScanTarget:
    """Make a scanned path with three scans, of which the newest is half done.

    `newest` is the status of the newest one.
    """
    target = ScanTarget.objects.create(
        path="//shop/...", every_hours=24, reason="DOC-1", problem="the repository cannot be opened"
    )
    for number, share in ((1, 4), (2, 2), (3, 4)):
        job = factories.ReviewJobFactory(
            changelist_id=f"git:shop@{number:040}", kind="scan", series=f"scan:{target.pk}",
            status=newest if number == 3 else "succeeded", requested_by="schedule",
            created_at=datetime.now(UTC) - timedelta(days=4 - number),
        )  # fmt: skip
        scan = Scan.objects.create(job=job, target=target)
        names = ("line", "kind", "text", "verdict", "reason", "says")
        claims = [
            {
                **dict(zip(names, claim, strict=True)),
                "id": str(claim[0]),
                "instead": "src/gateway.py",
                "found": "",
            }
            for claim in _CLAIMS[:share]
        ]
        ScanDocument.objects.create(
            scan=scan, digest="a", path="//shop/README.md", total=share, verified_at=job.created_at,
            claims=claims,
            **{name: sum(each["verdict"] == name for each in claims) for name in Verdict},
        )  # fmt: skip
        ScanDocument.objects.create(scan=scan, digest="b", path=LONG_PATH, total=3 if number == 3 else 0)
        ScanDocument.objects.create(
            scan=scan, digest="c", path="//shop/old.md", unread="too large, or no text"
        )
    return target


def configuration() -> RepositoryConfiguration:
    """A repository's configuration with a warning and values of its own."""
    text = "min_severity: severe\npaths:\n  exclude: [vendor/]\n"
    found = RootConfiguration("//shop/", ".criticizer.yml", text, resolve(text.encode(), Ceiling()))
    return RepositoryConfiguration.objects.create(
        root=found.root, text=text, configuration=as_json([found])[0]
    )
