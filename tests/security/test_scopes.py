"""People see files under the prefixes of their groups and nothing else, wherever files show."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import DatabaseError, IntegrityError, transaction
from django.test import Client

from reviews.api import representations
from reviews.api.auth import ApiClient
from reviews.artifacts import reader
from reviews.audit.history import events_of
from reviews.intake import api_keys
from reviews.models import ApiKey, Artifact, FindingRow, ReviewJob, ViewerScope
from reviews.recipients.recipient_reports import reports_for
from reviews.recipients.viewing_scopes import EVERYTHING, Scope, scope_of, scope_of_job, scope_of_lines
from reviews.reports import report_of
from reviews.states import JobStatus
from tests import factories

pytestmark = pytest.mark.django_db

OPEN_FILE, SECRET_FILE = "//depot/main/app.py", "//depot/secret/plan.py"


def reviewer(*prefixes: str, is_staff: bool = False) -> Any:
    group = Group.objects.create(name=f"readers {prefixes}")
    group.permissions.add(*Group.objects.get(name="reviewer").permissions.all())
    for prefix in prefixes:
        ViewerScope.objects.create(group=group, prefix=prefix, reason="their project")
    user = factories.UserFactory(reads=False, is_staff=is_staff)
    user.groups.add(group)
    return user


def logged_in(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def mixed() -> Any:
    """A review of an open and of a secret file, each with a finding and an excerpt."""
    job = factories.job_with_stages(title="A change of both")
    for file in (OPEN_FILE, SECRET_FILE):
        factories.CoverageRowFactory(job=job, file=file)
        factories.FindingRowFactory(
            job=job, file=file, title=f"About {file}", excerpt=[[1, "+", f"text of {file}"]], severity="high"
        )
    return job


@pytest.fixture
def hidden() -> Any:
    job = factories.job_with_stages(title="The secret change", status=JobStatus.SUCCEEDED)
    factories.CoverageRowFactory(job=job, file=SECRET_FILE)
    factories.FindingRowFactory(job=job, file=SECRET_FILE)
    return job


def test_only_files_of_the_scope_are_shown_and_counted(mixed: Any) -> None:
    client = logged_in(reviewer("//depot/main/..."))
    for address in (f"/reviews/{mixed.pk}/", f"/reviews/{mixed.pk}/live/", "/", "/reviews/live/"):
        text = client.get(address).content.decode()
        assert SECRET_FILE not in text
        assert "secret" not in text
    detail = client.get(f"/reviews/{mixed.pk}/").content.decode()
    assert OPEN_FILE in detail
    assert "1 of 1 file read" in detail
    assert "1 high" in client.get("/").content.decode()
    assert "2 high" in logged_in(factories.UserFactory()).get("/").content.decode()  # who sees all files


def test_a_finding_is_shown_to_those_who_may_see_all_that_it_rests_on(mixed: Any) -> None:
    """In the page, the list's counts, the API and the messages alike."""
    shared = "//depot/shared/lib.py"
    for evidence in ([SECRET_FILE], [shared, SECRET_FILE], [shared]):
        factories.FindingRowFactory(
            job=mixed, file=OPEN_FILE, title=f"Rests on {evidence}", evidence=evidence, severity="high"
        )
    rests_on_shared = f"Rests on {[shared]}"
    expected = {
        ("//depot/main/...",): {f"About {OPEN_FILE}"},
        ("//depot/main/...", "//depot/shared/..."): {f"About {OPEN_FILE}", rests_on_shared},
        ("//depot/shared/...",): set(),  # its file counts as well
    }
    for prefixes, titles in expected.items():
        scope = scope_of_lines(prefixes)
        user = reviewer(*prefixes)
        rows = FindingRow.objects.filter(scope.findings(), job=mixed)
        assert {row.title for row in rows} == titles
        answer = representations.job(mixed.pk, ApiClient(1, "key", "reviewer", scope))
        assert answer is not None
        assert {row["title"]: row["evidence"] for row in answer["findings"]} == {
            title: [shared] if title == rests_on_shared else [] for title in titles
        }
        assert answer["findings_left_out"] == 0
        user.email = f"{user.username}@example.com"
        user.save(update_fields=["email"])
        report = reports_for(report_of(mixed), [f"mail:{user.email}"], {})[f"mail:{user.email}"]
        assert {finding.title for finding in report.findings} == titles
        page = logged_in(user).get(f"/reviews/{mixed.pk}/")
        assert ("Rests on" in page.content.decode()) == (rests_on_shared in titles)
        assert "secret" not in page.content.decode()
        if titles:
            assert f"{len(titles)} high" in logged_in(user).get("/").content.decode()


def test_artifacts_of_a_review_with_context_need_the_right_to_the_context() -> None:
    job = factories.job_with_stages(context_files=[SECRET_FILE])
    factories.CoverageRowFactory(job=job, file=OPEN_FILE)
    main, both = scope_of_lines(["//depot/main/..."]), scope_of_lines(["//depot/..."])
    assert not ReviewJob.objects.filter(main.of_whole_jobs(), pk=job.pk).exists()
    assert ReviewJob.objects.filter(main.of_jobs(), pk=job.pk).exists()
    assert ReviewJob.objects.filter(both.of_whole_jobs(), pk=job.pk).exists()
    assert SECRET_FILE in reader._known_files(Artifact(job=job, kind=Artifact.Kind.PROMPT))


def test_a_review_without_an_open_file_is_not_there(hidden: Any) -> None:
    client = logged_in(reviewer("//depot/main/..."))
    assert client.get(f"/reviews/{hidden.pk}/").status_code == 404
    assert client.get(f"/reviews/{hidden.pk}/live/").status_code == 404
    for query in ("", "?text=secret", f"?changelist={hidden.changelist_id}", "?status=succeeded"):
        text = client.get(f"/{query}").content.decode()
        assert "The secret change" not in text
        assert f"/reviews/{hidden.pk}/" not in text


def test_without_a_scope_nothing_is_seen_and_the_page_says_why(mixed: Any) -> None:
    client = logged_in(reviewer())
    assert client.get(f"/reviews/{mixed.pk}/").status_code == 404
    assert "No files are visible to you yet" in client.get("/").content.decode()


def test_a_review_whose_files_are_not_known_yet_is_hidden() -> None:
    job = factories.job_with_stages()
    assert logged_in(reviewer("//depot/main/...")).get(f"/reviews/{job.pk}/").status_code == 404


def test_the_admin_follows_the_scope(mixed: Any, hidden: Any) -> None:
    client = logged_in(reviewer("//depot/main/...", is_staff=True))
    shown = client.get(f"/admin/reviews/reviewjob/{mixed.pk}/change/").content.decode()
    assert OPEN_FILE in shown
    assert SECRET_FILE not in shown
    assert client.get(f"/admin/reviews/reviewjob/{hidden.pk}/change/").status_code == 302
    assert "The secret change" not in client.get("/admin/reviews/reviewjob/").content.decode()


def test_other_versions_that_may_not_be_seen_are_not_linked(mixed: Any) -> None:
    older = factories.job_with_stages(
        changelist_id=mixed.changelist_id, review_version=2, status=JobStatus.SUCCEEDED
    )
    factories.CoverageRowFactory(job=older, file=SECRET_FILE)
    text = logged_in(reviewer("//depot/main/...")).get(f"/reviews/{mixed.pk}/").content.decode()
    assert f"/reviews/{older.pk}/" not in text


def test_what_attempts_say_in_words_is_for_those_who_see_everything(mixed: Any) -> None:
    factories.AttemptFactory(
        stage_run=mixed.stages.get(stage="fetch"), outcome="failed", detail=f"cannot read {SECRET_FILE}"
    )
    address = f"/reviews/{mixed.pk}/"
    assert SECRET_FILE not in logged_in(reviewer("//depot/main/...")).get(address).content.decode()
    assert "cannot read" in logged_in(factories.UserFactory()).get(address).content.decode()


def test_a_scope_ends_at_its_directory() -> None:
    scope = scope_of_lines(["//depot/main/..."])
    assert scope.allows("//depot/main/a")
    assert not scope.allows("//depot/mainline/a")
    assert not scope.allows("//depot/Main/a")
    assert not scope.allows("//depot/main")


@pytest.mark.parametrize("line", ["", "...", "//...", "/...", "//", "depot/...", "-//depot/a/...", None, 7])
def test_a_stored_line_that_is_no_tree_opens_nothing(line: object) -> None:
    assert scope_of_lines([line]) == Scope()


def test_wildcards_of_like_are_plain_text_in_a_scope() -> None:
    job = factories.job_with_stages()
    factories.CoverageRowFactory(job=job, file="//depot/main/app.py")
    for prefix in ("//depot/m_in/", "//depot/%/", "//dep%/"):
        assert not Scope(prefixes=(prefix,)).jobs().exists()


def test_an_account_that_was_closed_sees_nothing() -> None:
    user = reviewer("//depot/main/...")
    user.is_active = False
    assert scope_of(user) == Scope()


def test_the_database_refuses_a_scope_that_is_no_tree() -> None:
    group = Group.objects.create(name="g")
    with pytest.raises(IntegrityError, match="viewer_scopes_trees"), transaction.atomic():
        ViewerScope.objects.create(group=group, prefix="//depot/main", reason="x")


# -- keys --------------------------------------------------------------------------------------


def bearing(*prefixes: str, role: str = "reviewer") -> Client:
    key = api_keys.create(f"{role} {prefixes}", role, prefixes)
    return Client(headers={"Authorization": f"Bearer {key}"})


def test_a_key_with_prefixes_reads_files_below_them_only(mixed: Any, hidden: Any) -> None:
    client = bearing("//depot/main/...")
    job = client.get(f"/api/v1/reviews/{mixed.pk}/").json()
    assert [finding["file"] for finding in job["findings"]] == [OPEN_FILE]
    assert [covered["file"] for covered in job["coverage"]] == [OPEN_FILE]
    assert client.get(f"/api/v1/reviews/{hidden.pk}/").status_code == 404
    listed = client.get("/api/v1/reviews/").json()
    assert (listed["count"], [row["id"] for row in listed["results"]]) == (1, [mixed.pk])
    assert SECRET_FILE not in str(listed)


def test_a_key_without_prefixes_reads_everything_its_role_may(mixed: Any, hidden: Any) -> None:
    assert bearing().get("/api/v1/reviews/").json()["count"] == 2
    assert SECRET_FILE in str(bearing(role="trigger").get(f"/api/v1/reviews/{hidden.pk}/").json())


def test_a_trigger_sees_its_own_review_before_its_files_are_known() -> None:
    client = bearing("//depot/main/...", role="trigger")
    body = {"idempotency_key": "k-1", "changelist_id": "77", "recipients": ["mail:ann@example.com"]}
    made = client.post("/api/v1/reviews/", body, content_type="application/json").json()
    assert client.get(f"/api/v1/reviews/{made['id']}/").status_code == 200


def test_the_pages_of_a_review_follow_the_keys_scope(mixed: Any, hidden: Any) -> None:
    client = bearing("//depot/main/...")
    for name in ("findings", "coverage"):
        page = client.get(f"/api/v1/reviews/{mixed.pk}/{name}/").json()
        assert [row["file"] for row in page["results"]] == [OPEN_FILE]
        assert client.get(f"/api/v1/reviews/{hidden.pk}/{name}/").status_code == 404


def test_letters_of_hidden_reviews_are_hidden_too_and_others_without_free_text(
    mixed: Any, hidden: Any
) -> None:
    letter = factories.DeadLetterFactory()
    factories.CoverageRowFactory(job=letter.job, file=SECRET_FILE)
    client = bearing("//depot/main/...", role="operator")
    assert client.get(f"/api/v1/dead-letters/{letter.pk}/").status_code == 404
    assert client.get("/api/v1/dead-letters/").json()["count"] == 0
    seen = factories.DeadLetterFactory(
        job=mixed, detail=f"cannot read {SECRET_FILE}", last_stack=SECRET_FILE, payload_reference=SECRET_FILE,
        sanitized_context={"path": SECRET_FILE},
    )  # fmt: skip
    factories.DeadLetterEventFactory(letter=seen, action="noted", reason=f"as in {SECRET_FILE}")
    answer = client.get(f"/api/v1/dead-letters/{seen.pk}/")
    assert (answer.status_code, answer.json()["job"]) == (200, mixed.pk)
    assert SECRET_FILE not in answer.content.decode()


def test_an_operator_key_with_prefixes_cancels_nothing_and_reads_no_metrics(mixed: Any) -> None:
    client = bearing("//depot/main/...", role="operator")
    cancelled = client.post(f"/api/v1/reviews/{mixed.pk}/cancel/", {}, content_type="application/json")
    assert (cancelled.status_code, cancelled.json()["error"]) == (403, "PERMISSION_DENIED")
    mixed.refresh_from_db()
    assert mixed.is_active
    away = {"REMOTE_ADDR": "192.0.2.7"}
    assert client.get("/metrics", **away).status_code == 403
    assert bearing(role="operator").get("/metrics", **away).status_code == 200


def test_a_key_with_a_damaged_prefix_requests_nothing_but_its_own_nothing() -> None:
    client = bearing("//depot/main/...", role="trigger")
    ApiKey.objects.update(prefixes=["//depot/main"])
    body = {"idempotency_key": "k-1", "changelist_id": "77", "recipients": ["mail:ann@example.com"]}
    made = client.post("/api/v1/reviews/", body, content_type="application/json").json()
    assert made["limited_to"] == []
    assert scope_of_job(ReviewJob.objects.get()) == Scope()


def test_two_keys_with_prefixes_do_not_meet() -> None:
    body = {
        "idempotency_key": "k-1",
        "changelist_id": "77",
        "recipients": ["webhook:https://a.example/T0KEN"],
    }
    for number, prefix in enumerate(["//depot/main/...", "//depot/libs/..."], 1):
        made = bearing(prefix, role="trigger").post("/api/v1/reviews/", body, content_type="application/json")
        assert made.status_code == 201
        assert ReviewJob.objects.count() == number


@pytest.mark.parametrize("prefix", ["//depot/main", "-//depot/main/...", "//depot/*/...", "//depot/../..."])
def test_a_key_takes_whole_trees_only(prefix: str) -> None:
    with pytest.raises(ValueError, match="write"):
        api_keys.create("k", "reviewer", [prefix])


# -- editing -----------------------------------------------------------------------------------


def test_edits_are_kept_with_who_what_why_and_from_where() -> None:
    ann = factories.UserFactory(username="ann", is_staff=True, reads=False)
    ann.groups.add(Group.objects.get(name="security admin"))
    client = logged_in(ann)
    group = Group.objects.get(name="reviewer")
    form = {"group": group.pk, "prefix": "//depot/main/...", "reason": "TICKET-1"}
    client.post("/admin/reviews/viewerscope/add/", form)
    scope = ViewerScope.objects.get()
    change = f"/admin/reviews/viewerscope/{scope.pk}/change/"
    without_reason = client.post(change, {**form, "prefix": "//depot/libs/..."})
    assert "Enter a new reason: this one belongs to the previous change." in without_reason.content.decode()
    client.post(change, {**form, "prefix": "//depot/libs/...", "reason": "TICKET-2"})
    delete = f"/admin/reviews/viewerscope/{scope.pk}/delete/"
    client.post(delete, {"post": "yes"})
    assert ViewerScope.objects.exists()  # not without a reason
    client.post(delete, {"post": "yes", "reason": "they left"})
    kept = events_of(ViewerScope).objects.order_by("pgh_id")
    assert [(row.pgh_label, row.prefix) for row in kept] == [
        ("insert", "//depot/main/..."),
        ("update", "//depot/libs/..."),
        ("delete", "//depot/libs/..."),
    ]
    assert all(row.pgh_context.metadata["user"] == ann.pk for row in kept)
    assert kept[2].pgh_context.metadata["deletion_reason"] == "they left"
    assert "ann" in client.get("/admin/reviews/viewerscopeevent/").content.decode()


@pytest.mark.parametrize(
    "prefix", ["//depot/main", "//depot/main...", "depot/...", "//depot/a/../...", "//depot/*/..."]
)
def test_the_form_takes_whole_trees_only(prefix: str) -> None:
    root = logged_in(factories.UserFactory(is_staff=True, is_superuser=True))
    group = Group.objects.get(name="reviewer")
    root.post("/admin/reviews/viewerscope/add/", {"group": group.pk, "prefix": prefix, "reason": "because"})
    assert not ViewerScope.objects.exists()


def test_a_scope_narrowed_by_another_allows_what_both_allow() -> None:
    trees = ("//a/", "//a/b/", "//a/c/", "//d/")
    some = [Scope(prefixes=chosen) for number in range(4) for chosen in combinations(trees, number)]
    for one, other in product([EVERYTHING, *some], repeat=2):
        both = one & other
        assert both.everything == (one.everything and other.everything)
        for path in (f"{tree}file" for tree in trees):
            assert both.allows(path) == (one.allows(path) and other.allows(path)), (one, other, path)


@pytest.mark.parametrize("statement", ["UPDATE {} SET reason = 'x'", "DELETE FROM {}", "TRUNCATE {}"])
def test_the_history_of_scopes_cannot_be_changed(statement: str) -> None:
    from django.db import connection

    ViewerScope.objects.create(group=Group.objects.get(name="reviewer"), prefix="//d/a/...", reason="x")
    with (
        pytest.raises(DatabaseError, match=r"cannot|Cannot"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement.format("reviews_viewerscopeevent"))
