"""Recipients of a trigger's job: found with its files and frozen with its fetch.

Each is told only what it may read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group, Permission
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from criticizer.resilience import gate
from criticizer.resilience.failures import DependencyUnavailable, PermanentFailure, RetryableFailure
from criticizer.resilience.health_checks import CHECKS
from reviews.intake import source_events
from reviews.intake.source_events import Event, Kind
from reviews.models import JobEvent, RecipientOrigin, ReviewJob, Subscription, ViewerScope
from reviews.pipeline import StageClaim
from reviews.recipients import recipient_reports, subscriptions
from reviews.recipients import resolve as found_recipients
from reviews.recipients.viewing_scopes import Scope
from reviews.reports import report_of
from reviews.stages import fetch
from reviews.states import Stage
from tests import factories
from tests.fakes.p4.server import CONNECTION_REFUSED, FakeDepot, added, moved

pytestmark = pytest.mark.django_db

ANN, BOB, HOOK = "mail:ann@example.com", "mail:bob@example.com", "webhook:https://ci.example.com/x"
A, SECRET = "//depot/main/a.c", "//depot/secret/plan.txt"
O = RecipientOrigin  # noqa: E741


def subscribe(recipient: str, pattern: str, author: str = "") -> Subscription:
    return Subscription.objects.create(recipient=recipient, pattern=pattern, author=author, reason="OPS-1")


def account(name: str, *prefixes: str, **more: Any) -> Any:
    user = factories.UserFactory(username=name, email=f"{name}@example.com", reads=False, **more)
    group = Group.objects.create(name=f"readers {name}")
    user.groups.add(group, Group.objects.get(name="reviewer"))
    for prefix in prefixes:
        ViewerScope.objects.create(group=group, prefix=prefix, reason="theirs")
    return user


def own(user: Any, pattern: str, author: str = "") -> Subscription:
    return Subscription.objects.create(owner=user, pattern=pattern, author=author)


def covering(*paths: str, author: str = "carol") -> dict[str, RecipientOrigin]:
    return subscriptions.covering(paths, author)


# -- subscriptions -------------------------------------------------------------------------------


def test_a_subscription_covers_changes_of_its_files() -> None:
    subscribe(ANN, "//depot/main/...")
    subscribe(BOB, "//depot/libs/*.h")
    subscribe(HOOK, "//depot/main/b.c")
    assert covering(A) == {ANN: O.SUBSCRIPTION}
    assert covering("//depot/libs/x.h", "//depot/main/b.c") == dict.fromkeys([ANN, BOB, HOOK], O.SUBSCRIPTION)
    assert covering("//depot/libs/sub/x.h") == {}


def test_an_author_narrows_it_whatever_the_case() -> None:
    subscribe(ANN, "//depot/main/...", "carol")
    subscribe(BOB, "//depot/main/...", "dave")
    assert covering(A, author="Carol") == {ANN: O.SUBSCRIPTION}
    assert covering(A, author="") == {}


def test_invalid_stored_pattern_covers_nothing() -> None:
    subscribe(ANN, "//depot/ma...")
    subscribe(BOB, "//...")
    assert covering(A) == {}


def test_what_people_subscribe_to_themselves_covers_what_they_may_read() -> None:
    ann = account("ann", "//depot/main/...")
    bob = account("bob", "//depot/secret/...")
    for user in (ann, bob, account("eve")):
        own(user, "//depot/main/...")
        own(user, "//depot/secret/...")
    assert covering(A) == {ANN: O.OWN}
    assert covering(SECRET) == {BOB: O.OWN}
    assert covering(A, SECRET) == {ANN: O.OWN, BOB: O.OWN}


def test_it_goes_to_the_address_the_account_has_now_and_ends_with_the_account() -> None:
    ann = account("ann", "//depot/main/...")
    own(ann, "//depot/main/...")
    ann.email = "ann@example.org"
    ann.save()
    assert covering(A) == {"mail:ann@example.org": O.OWN}
    ann.email = "nobody"
    ann.save()
    assert covering(A) == {}
    ann.email, ann.is_active = "ann@example.org", False
    ann.save()
    assert covering(A) == {}


def test_an_administrators_subscription_is_the_stronger_reason() -> None:
    own(account("ann", "//depot/main/..."), "//depot/main/...")
    subscribe(ANN, "//depot/main/...")
    assert covering(A) == {ANN: O.SUBSCRIPTION}


def test_thousands_of_owners_cost_a_handful_of_queries() -> None:
    for number in range(30):
        own(account(f"u{number}", "//depot/main/..."), "//depot/main/...")
    with CaptureQueriesContext(
        connection,
    ) as asked:
        assert len(covering(A, SECRET)) == 30
    assert len(asked) <= 6


@pytest.mark.parametrize(
    ("recipient", "owner", "pattern"),
    [("", None, "//depot/main/..."), (ANN, "ann", "//depot/main/..."), (ANN, None, "depot/main/...")],
)
def test_database_refuses_subscriptions_without_one_recipient_or_path(
    recipient: str, owner: str | None, pattern: str
) -> None:
    user = account(owner) if owner else None
    with pytest.raises(IntegrityError), transaction.atomic():
        Subscription.objects.create(recipient=recipient, owner=user, pattern=pattern)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("//depot/other/...", "outside the allow-list"),
        ("//depot/...", "outside the allow-list"),
        ("-//depot/main/...", "without the leading -"),
        ("//depot/ma...", "write"),
        ("//depot/../x/...", "not canonical"),
        ("depot", "not a depot path"),
        ("", "empty"),
        ("*", "The path .* is not a depot path: write //depot/directory/...$"),
    ],
)
def test_a_pattern_is_checked_against_the_approved_scope(settings: Any, pattern: str, words: str) -> None:
    settings.DEPOT_ALLOW_LIST = ["//depot/main/..."]
    with pytest.raises(ValueError, match=words):
        subscriptions.check_pattern(pattern)


def test_a_pattern_inside_the_scope_is_stored_as_it_is(settings: Any) -> None:
    settings.DEPOT_ALLOW_LIST = ["//depot/main/..."]
    for pattern in ("//depot/main/...", "//depot/main/src/*.c", "//depot/main/a.c"):
        assert subscriptions.check_pattern(f" {pattern} ") == pattern
    factories.AllowListEntryFactory(kind="exclude", pattern="//depot/main/src/...")
    with pytest.raises(ValueError, match="outside the allow-list"):
        subscriptions.check_pattern("//depot/main/src/*.c")


# -- a trigger's job -----------------------------------------------------------------------------


@pytest.fixture
def depot(tmp_path: Path, settings: Any) -> FakeDepot:
    made = FakeDepot(tmp_path)
    settings.DATA_DIR = tmp_path
    settings.CHANGE_SOURCES = ["perforce"]
    settings.P4_EXECUTABLE = str(made.executable)
    settings.P4PORT, settings.P4USER = "127.0.0.1:1666", "criticizer"
    settings.DEPOT_ALLOW_LIST = ["//depot/main/...", "//depot/secret/..."]
    CHECKS.clear()
    gate.forget()
    return made


def told_by_trigger(number: str, *defaults: str) -> ReviewJob:
    entry = source_events.receive(Event(Kind.CHANGE, number, "main", defaults, "key:p4"))
    return ReviewJob.objects.get(pk=entry.job_id)


def fetched(job: ReviewJob, attempt: int = 1) -> ReviewJob:
    """Run the job's stage fetch and store what it returns."""
    run = job.stages.get(stage=Stage.FETCH)
    claim = StageClaim(run.pk, uuid4(), attempt, Stage.FETCH, attempt, 5, 1, job.pk, job.changelist_id, 1)
    write = fetch.run(claim)
    assert write is not None
    with transaction.atomic():
        write()
    job.refresh_from_db()
    return job


def test_subscribers_and_perforce_readers_are_notified(depot: FakeDepot) -> None:
    depot.user("bob", "bob@example.com", "//depot/main/...")
    subscribe(HOOK, "//depot/main/...")
    job = told_by_trigger(depot.submit(added(A, "1\n")), ANN)
    assert (job.recipients, job.recipients_are) == ([ANN], "to_find")
    fetched(job)
    assert job.recipients == [HOOK, BOB]
    assert job.recipient_origins == {HOOK: "subscription", BOB: "perforce"}
    assert job.recipients_are == "found"


def test_uncovered_change_notifies_the_default_recipients(depot: FakeDepot) -> None:
    subscribe(HOOK, "//depot/libs/...")
    job = fetched(told_by_trigger(depot.submit(added(A, "1\n")), ANN))
    assert (job.recipients, job.recipient_origins) == ([ANN], {ANN: "default"})


def test_a_renamed_file_is_covered_by_where_it_was_too(depot: FakeDepot) -> None:
    subscribe(HOOK, "//depot/main/old/...")
    job = told_by_trigger(depot.submit(moved("//depot/main/old/a.c", "//depot/main/new/a.c", "1\n")), ANN)
    assert fetched(job).recipients == [HOOK]


def test_recipients_that_a_request_gave_stay_as_given(depot: FakeDepot) -> None:
    depot.user("bob", "bob@example.com", "//depot/main/...")
    subscribe(HOOK, "//depot/main/...")
    job = factories.job_with_stages(changelist_id=depot.submit(added(A, "1\n")), recipients=[ANN])
    assert fetched(job).recipients == [ANN]
    assert depot.calls("reviews") == []


def test_found_recipients_are_frozen_for_replays(depot: FakeDepot) -> None:
    first = subscribe(HOOK, "//depot/main/...")
    job = fetched(told_by_trigger(depot.submit(added(A, "1\n"))))
    first.delete()
    subscribe(ANN, "//depot/main/...")
    depot.user("bob", "bob@example.com", "//depot/main/...")
    assert fetched(job).recipients == [HOOK]
    assert len(depot.calls("reviews")) == 1


def test_recipients_of_a_failed_fetch_are_not_saved(depot: FakeDepot) -> None:
    """Found and frozen in the commit that records the fetch, or not at all."""
    job = told_by_trigger(depot.submit(added(A, "1\n")), ANN)
    subscribe(HOOK, "//depot/main/...")
    run = job.stages.get(stage=Stage.FETCH)
    fetch.run(StageClaim(run.pk, uuid4(), 1, Stage.FETCH, 1, 5, 1, job.pk, job.changelist_id, 1))
    job.refresh_from_db()
    assert (job.recipients, job.recipients_are) == ([ANN], "to_find")


def test_perforce_readers_are_retried_while_attempts_are_left(depot: FakeDepot) -> None:
    depot.user("bob", "bob@example.com", "//depot/main/...")
    job = told_by_trigger(depot.submit(added(A, "1\n")), ANN)
    depot.misbehave("reviews", stderr=CONNECTION_REFUSED, exit=1)
    with pytest.raises(RetryableFailure):
        fetched(job)
    assert fetched(job, attempt=2).recipients == [BOB]
    assert not JobEvent.objects.exists()


@pytest.mark.parametrize(
    ("trouble", "attempt", "error_class"),
    [
        ({"stderr": CONNECTION_REFUSED, "exit": 1}, 5, "NETWORK_UNREACHABLE"),
        ({"messages": ["no_permission"]}, 1, "PERMISSION_DENIED"),
        ({"messages": ["unknown_command"]}, 1, "INTERNAL_BUG"),
    ],
)
def test_unknown_perforce_readers_do_not_fail_the_job(
    depot: FakeDepot, trouble: dict[str, Any], attempt: int, error_class: str
) -> None:
    subscribe(HOOK, "//depot/main/...")
    depot.user("bob", "bob@example.com", "//depot/main/...")
    job = told_by_trigger(depot.submit(added(A, "1\n")), ANN)
    depot.misbehave("reviews", **trouble)
    fetched(job, attempt=attempt)
    assert job.recipients == [HOOK]
    event = JobEvent.objects.get(job=job, kind="alert")
    assert error_class in event.reason
    assert "they are not notified" in event.reason


def test_an_open_circuit_waits_and_costs_no_attempt(
    depot: FakeDepot, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = told_by_trigger(depot.submit(added(A, "1\n")), ANN)

    def stopped(*_: Any) -> Any:
        raise DependencyUnavailable("p4:127.0.0.1:1666", 30.0, "the circuit is open")

    monkeypatch.setattr(found_recipients, "_perforce_readers", stopped)
    with pytest.raises(DependencyUnavailable):
        fetched(job, attempt=5)


def test_invalid_address_is_left_out(depot: FakeDepot) -> None:
    depot.user("bob", "bob at example", "//depot/main/...")
    depot.user("ann", "ann@example.com", "//depot/main/...")
    assert fetched(told_by_trigger(depot.submit(added(A, "1\n")))).recipients == [ANN]


def test_a_reader_whose_account_sees_none_of_the_files_is_not_told(depot: FakeDepot) -> None:
    account("bob", "//depot/main/...")
    for name in ("ann", "bob"):
        depot.user(name, f"{name}@example.com", "//depot/secret/...")
    job = fetched(told_by_trigger(depot.submit(added(SECRET, "1\n"))))
    assert job.recipients == [ANN]


def test_denied_change_has_no_found_recipients(depot: FakeDepot) -> None:
    job = told_by_trigger(depot.submit(added("//depot/other/a.c", "1\n")), ANN)
    with pytest.raises(PermanentFailure):
        fetched(job)
    assert depot.calls("reviews") == []


# -- what each may read --------------------------------------------------------------------------


@pytest.fixture
def mixed() -> ReviewJob:
    job: ReviewJob = factories.job_with_stages(title="A change of both", recipients=[ANN])
    for file, severity in ((A, "low"), (SECRET, "critical")):
        factories.CoverageRowFactory(job=job, file=file)
        factories.FindingRowFactory(job=job, file=file, severity=severity, title=f"About {file}")
    factories.FindingRowFactory(job=job, file="description", line=None, severity="medium", title="No ticket")
    return job


def seen(job: ReviewJob, recipient: str, origin: str = "") -> list[str]:
    report = recipient_reports.reports_for(report_of(job), [recipient], {recipient: origin})[recipient]
    return [finding.title for finding in report.findings] + list(report.status_lines)


def test_an_account_with_this_address_reads_of_its_files_and_what_is_hidden_is_counted(
    mixed: ReviewJob,
) -> None:
    account("ann", "//depot/main/...")
    line = "1 finding in files outside your viewing scope is not shown."
    assert seen(mixed, ANN) == [f"About {A}", "No ticket", line]
    assert seen(mixed, "mail:ANN@example.com")[-1] == line
    everything = [f"About {A}", f"About {SECRET}", "No ticket"]
    assert seen(mixed, BOB) == everything
    assert seen(mixed, HOOK) == everything
    of_key = Scope(prefixes=("//depot/main/",))
    (report,) = recipient_reports.reports_for(report_of(mixed), [BOB], {}, of_key).values()
    assert SECRET not in str(report)


def test_an_account_that_may_read_nothing_gets_the_number_only(mixed: ReviewJob) -> None:
    account("ann")
    report = recipient_reports.reports_for(report_of(mixed), [ANN], {})[ANN]
    assert (report.title, report.findings, report.coverage, report.since) == ("", (), (), None)
    assert report.status_lines == ("3 findings in files outside your viewing scope are not shown.",)


@pytest.mark.parametrize("lost", ["the role", "the role of one who sees all files"])
def test_an_account_whose_role_reads_no_reviews_is_told_nothing_of_them(
    mixed: ReviewJob, depot: FakeDepot, lost: str
) -> None:
    """No page shows it a review; a mail would have: its viewing scope alone decided (G583)."""
    ann = account("ann", "//depot/...")
    own(ann, "//depot/main/...")
    depot.user("ann", "ann@example.com", "//depot/...")
    assert len(seen(mixed, ANN)) == 3
    assert covering(A) == {ANN: O.OWN}
    ann.groups.remove(Group.objects.get(name="reviewer"))
    if lost != "the role":
        ann.user_permissions.add(Permission.objects.get(codename="view_all_files"))
    assert seen(mixed, ANN) == ["3 findings in files outside your viewing scope are not shown."]
    assert covering(A) == {}
    assert fetched(told_by_trigger(depot.submit(added(A, "1\n")))).recipients == []


def test_of_two_accounts_with_one_address_the_narrower_counts(mixed: ReviewJob) -> None:
    account("ann", "//depot/main/...")
    factories.UserFactory(username="root", email="Ann@Example.com", is_superuser=True)
    assert seen(mixed, ANN)[0] == f"About {A}"
    assert len(seen(mixed, ANN)) == 3


def test_account_that_sees_all_files_gets_the_whole_report(mixed: ReviewJob) -> None:
    factories.UserFactory(username="ann", email="ann@example.com")
    assert len(seen(mixed, ANN)) == 3
    assert seen(mixed, ANN)[1] == f"About {SECRET}"


def test_inactive_account_is_shown_nothing(mixed: ReviewJob) -> None:
    account("ann", "//depot/main/...", is_active=False)
    assert seen(mixed, ANN) == ["3 findings in files outside your viewing scope are not shown."]


def test_a_domain_in_another_spelling_is_the_same_account(mixed: ReviewJob) -> None:
    user = account("ann", "//depot/main/...")
    user.email = "ann@b\u00fccher.example"
    user.save()
    assert len(seen(mixed, "mail:ann@xn--bcher-kva.example")) == 3


@pytest.mark.parametrize(
    ("setting", "origin", "is_shown"),
    [
        ("named", "", True),
        ("named", "default", True),
        ("named", "subscription", True),
        ("named", "perforce", False),
        ("named", "own", False),  # of an account that is gone, or has another address by now
        ("everything", "perforce", True),
        ("nothing", "", False),
        ("nothing", "subscription", False),
    ],
)
def test_what_people_without_an_account_are_shown_is_a_setting(
    mixed: ReviewJob, settings: Any, setting: str, origin: str, is_shown: bool
) -> None:
    settings.UNKNOWN_RECIPIENTS = setting
    assert (f"About {SECRET}" in seen(mixed, ANN, origin)) is is_shown


def test_files_that_are_hidden_without_findings_are_said_to_be() -> None:
    account("ann", "//depot/main/...")
    job = factories.job_with_stages()
    for file in (A, SECRET):
        factories.CoverageRowFactory(job=job, file=file)
    assert seen(job, ANN) == ["Files outside your viewing scope are not shown."]


def test_the_worst_severity_is_that_of_what_is_shown(mixed: ReviewJob) -> None:
    account("ann", "//depot/main/...")
    reports = recipient_reports.reports_for(report_of(mixed), [ANN, BOB], {})
    assert [recipient_reports.worst_severity(reports[who]) for who in (ANN, BOB)] == ["medium", "critical"]
