"""A worker is killed at each point of a delivery; another one comes after it.

Real processes, a real database, a real file system and real sockets. With the maildir and
the webhook every recipient sees each token once, whatever the point. Plain SMTP cannot
promise that, so an uncertain delivery is held and never sent again by itself.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db.models.functions import Now

from criticizer.models import PaceSlot
from criticizer.resilience.failures import UncertainFailure
from notifications.delivery import audit, operator_actions
from notifications.models import Delivery, DeliveryAttempt, Digest
from notifications.states import DeliveryStatus, SendOutcome
from reviews.models import ReviewJob
from tests.factories import ReviewJobFactory
from tests.fakes.smtp import SmtpServer
from tests.fakes.webhook import WebhookReceiver
from tests.notifications.crash import provider_for
from tests.notifications.crash_child import POINTS
from tests.notifications.scripted import ANN, BOB, deliver, prepare
from tests.notifications.together import make_due, states, tell, waiting
from tests.stack import process_environment

pytestmark = pytest.mark.django_db(transaction=True)

D = DeliveryStatus
ROOT = Path(__file__).resolve().parents[2]


DieAt = Callable[[str, ReviewJob, str, object], None]


@pytest.fixture(scope="module")
def die_at(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DieAt]:
    """Return a function that runs a worker which is killed at a point of its first delivery."""
    folder = tmp_path_factory.mktemp("workers")
    environment = process_environment(folder, CRITICIZER_DATA_DIR=str(settings.DATA_DIR))
    with (
        (folder / "errors").open("w+") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "tests.notifications.crash_child"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as workers,
    ):

        def die(point: str, job: ReviewJob, channel: str, argument: object) -> None:
            assert workers.stdin is not None
            assert workers.stdout is not None
            print(job.pk, point, channel, argument, file=workers.stdin, flush=True)
            assert workers.stdout.readline().strip() == str(int(signal.SIGKILL)), (
                folder / "errors"
            ).read_text()

        yield die
        assert workers.stdin is not None
        workers.stdin.close()


@pytest.fixture
def job() -> ReviewJob:
    return ReviewJobFactory(changelist_id="12345")


def rows_are_truthful() -> None:
    for row in Delivery.objects.all():
        assert row.status == D.SENT
        assert row.notified_at is not None
        evidence = row.attempt_rows.filter(outcome__in=[SendOutcome.ACCEPTED, SendOutcome.FOUND])
        assert [attempt.notification_id for attempt in evidence] == [row.notification_id]
        assert not row.attempt_rows.filter(outcome=SendOutcome.STARTED).exists()


# Messages are marked as those in the maildir are: of the others, and of digests, `make test` has the points
# between which one may have arrived.
TELLING_POINTS = [
    pytest.param(point, marks=() if point in {"attempt_written", "accepted"} else pytest.mark.long)
    for point in POINTS
]


@pytest.mark.parametrize("point", POINTS)
def test_the_maildir_holds_each_message_once(
    point: str, job: ReviewJob, die_at: DieAt, tmp_path: Path
) -> None:
    rows = prepare(job, ANN, BOB)
    die_at(point, job, "maildir", tmp_path)

    outcome = deliver(job, {"mail": provider_for("maildir", str(tmp_path))})
    assert outcome.sent == (1 if point == "after_the_mark" else 2)
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert sorted(name.split(".")[1] for name in names) == sorted(str(row.token) for row in rows)
    assert sorted(Delivery.objects.values_list("notification_id", flat=True)) == names
    rows_are_truthful()


@pytest.mark.parametrize("point", TELLING_POINTS)
def test_the_webhook_receiver_processes_each_token_once(point: str, job: ReviewJob, die_at: DieAt) -> None:
    with WebhookReceiver() as receiver:
        rows = prepare(job, f"webhook:{receiver.url}", f"webhook:{receiver.url}2")
        die_at(point, job, "webhook", "-")
        PaceSlot.objects.update(expires_at=Now())  # the dead worker's call is over

        deliver(job, {"webhook": provider_for("webhook", "-")})
        assert receiver.processed == {str(row.token): 1 for row in rows}
    rows_are_truthful()


@pytest.mark.parametrize("point", POINTS)
def test_plain_smtp_never_repeats_what_may_have_arrived(point: str, job: ReviewJob, die_at: DieAt) -> None:
    with SmtpServer() as server:
        first, second = prepare(job, ANN, BOB)
        die_at(point, job, "smtp", server.port)
        providers = {"mail": provider_for("smtp", str(server.port))}
        if point in {"before_the_attempt", "after_the_mark"}:
            deliver(job, providers)
            rows_are_truthful()
        else:
            for _ in range(2):
                with pytest.raises(UncertainFailure):
                    deliver(job, providers)
            first.refresh_from_db()
            assert (first.status, first.notified_at) == (D.UNCERTAIN, None)
        arrived = [mail.token for mail in server.accepted]
        assert arrived.count(str(first.token)) == (0 if point == "attempt_written" else 1)
        assert arrived.count(str(second.token)) == 1


@pytest.mark.parametrize("point", TELLING_POINTS)
def test_a_digest_is_in_the_maildir_once_and_all_its_rows_say_so(
    point: str, die_at: DieAt, tmp_path: Path
) -> None:
    jobs, rows = waiting("1", "2", "3")
    make_due()
    die_at(point, jobs[0], "maildir", tmp_path)
    providers = {"mail": provider_for("maildir", str(tmp_path))}
    # The jobs of the others come first: they wait for the dead worker, and do not send beside it.
    tell([*jobs[1:], jobs[0]], providers)
    tell(jobs, providers)
    (name,) = [path.name for path in (tmp_path / "new").iterdir()]
    assert states(rows) == ["sent"] * 3
    assert [row.notification_id for row in rows] == [name] * 3
    assert len({row.notified_at for row in rows}) == 1
    digest = Digest.objects.get()
    assert name.split(".")[1] == str(digest.token)
    evidence = DeliveryAttempt.objects.filter(outcome__in=[SendOutcome.ACCEPTED, SendOutcome.FOUND])
    assert [attempt.delivery_id for attempt in evidence] == [digest.carrier_id]
    assert not DeliveryAttempt.objects.filter(outcome=SendOutcome.STARTED).exists()
    assert audit.audit_sent(providers).suspicious == 0


@pytest.mark.parametrize("point", TELLING_POINTS)
def test_a_digest_over_plain_smtp_is_never_repeated_by_itself(point: str, die_at: DieAt) -> None:
    with SmtpServer() as server:
        jobs, rows = waiting("1", "2", "3")
        make_due()
        die_at(point, jobs[0], "smtp", server.port)
        providers = {"mail": provider_for("smtp", str(server.port))}
        tell(jobs, providers)
        arrived = [mail.token for mail in server.accepted]
        if point in {"before_the_attempt", "after_the_mark"}:
            assert states(rows) == ["sent"] * 3
            assert len(arrived) == 1
        else:
            found = tell(jobs, providers)
            assert [type(one) for one in found] == [UncertainFailure] * 3
            assert states(rows) == ["uncertain"] * 3
            assert len(arrived) == (0 if point == "attempt_written" else 1)
            assert all(row.notified_at is None for row in rows)


def test_an_operator_decides_a_delivery_left_uncertain_by_a_crash(job: ReviewJob, die_at: DieAt) -> None:
    with SmtpServer() as server:
        (row,) = prepare(job, ANN)
        die_at("attempt_written", job, "smtp", server.port)
        providers = {"mail": provider_for("smtp", str(server.port))}
        with pytest.raises(UncertainFailure):
            deliver(job, providers)
        assert operator_actions.resend_uncertain(row.pk, "ann", "not in the mailbox, nor in the server's log")
        assert deliver(job, providers).sent == 1
        assert [mail.token for mail in server.accepted] == [str(row.token)]
