"""`POST /api/v1/reviews/` to the letter of the contract."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from reviews.api.parsers import MAX_BODY_BYTES
from reviews.intake import api_keys, source_events, unknown_changes
from reviews.intake.source_events import Event, Kind
from reviews.models import ReviewJob
from reviews.states import JobStatus
from tests.api.conftest import ApiClient, Maker, assert_error, review
from tests.factories import DeadLetterFactory, ReviewJobFactory
from tests.sources.gitrepo import GitRepo

pytestmark = pytest.mark.django_db

URL = "/api/v1/reviews/"
JOB_KEYS = {
    "id", "idempotency_key", "changelist_id", "review_version", "status", "stage", "deadline_at",
    "created_at", "finished_at", "is_late", "partial", "banner", "footer", "stages", "deliveries", "fates",
    "findings", "findings_left_out", "documents",
    "configuration", "coverage", "coverage_left_out", "dead_letter", "links",
}  # fmt: skip


@pytest.fixture
def repo(tmp_path: Path, settings: Any) -> GitRepo:
    settings.GIT_REPOSITORIES = {"demo": tmp_path / "repo"}
    return GitRepo(tmp_path / "repo")


def test_a_request_becomes_a_queued_job(trigger: ApiClient, settings: Any) -> None:
    settings.BASE_URL = "https://review.example.com"
    response = trigger.post_json(URL, review())
    assert response.status_code == 201
    job = response.json()
    assert set(job) == JOB_KEYS
    assert job["idempotency_key"] == "p4-main-12345-1"
    assert (job["changelist_id"], job["review_version"]) == ("12345", 1)
    assert (job["status"], job["stage"], job["finished_at"]) == ("queued", "fetch", None)
    assert [run["stage"] for run in job["stages"]] == ["fetch", "llm", "notify"]
    assert job["stages"][0] == {
        "stage": "fetch", "status": "pending", "attempts": 0, "max_attempts": 5, "next_attempt_at": None,
        "error_class": "",
    }  # fmt: skip
    assert (job["deliveries"], job["findings"], job["coverage"], job["dead_letter"]) == ([], [], [], None)
    assert job["links"] == {
        "self": f"https://review.example.com/api/v1/reviews/{job['id']}/",
        "html": f"https://review.example.com/reviews/{job['id']}/",
    }
    assert response["Location"] == job["links"]["self"]
    row = ReviewJob.objects.get()
    assert row.recipients == ["mail:ann@example.com", "webhook:https://ci.example.com/hooks/review"]
    assert row.requested_by == "key:the trigger"


def test_new_request_needs_two_statements(trigger: ApiClient, django_assert_num_queries: Any) -> None:
    trigger.post_json(URL, review(idempotency_key="warm", changelist_id="1"))
    with django_assert_num_queries(2):  # the key, the intake; the answer follows from the request
        assert trigger.post_json(URL, review()).status_code == 201


def test_the_deadline_counts_from_the_creation(trigger: ApiClient, settings: Any) -> None:
    settings.REVIEW_SLA_SECONDS = {"": 1200, "git": 900, "shelved": 600}
    job = trigger.post_json(URL, review()).json()
    begun, ends = (datetime.fromisoformat(job[name]) for name in ("created_at", "deadline_at"))
    assert ends - begun == timedelta(seconds=1200)


def test_version_defaults_to_one_and_rerun_to_false(trigger: ApiClient) -> None:
    body = {"idempotency_key": "k", "changelist_id": "12345"}
    assert trigger.post_json(URL, body).json()["review_version"] == 1


def test_a_changelist_may_be_a_number(trigger: ApiClient) -> None:
    assert trigger.post_json(URL, review(changelist_id=12345)).json()["changelist_id"] == "12345"


def test_a_commit_is_a_changelist(trigger: ApiClient, repo: GitRepo) -> None:
    commit = f"git:demo@{repo.commit()}"
    posted = review(changelist_id=commit.replace(commit[-40:], commit[-40:].upper()))
    assert trigger.post_json(URL, posted).json()["changelist_id"] == commit


@pytest.mark.parametrize(
    ("repository", "why"),
    [("demo", "the repository has no such commit"), ("other", "no git repository is named other")],
)
def test_an_unknown_commit_is_refused_and_nothing_is_made(
    trigger: ApiClient, repo: GitRepo, repository: str, why: str
) -> None:
    repo.commit()
    answer = trigger.post_json(URL, review(changelist_id=f"git:{repository}@{'1' * 40}"))
    assert answer.status_code == 400
    assert why in str(answer.json()["details"]["changelist_id"])
    assert not ReviewJob.objects.exists()


def test_a_source_that_is_not_configured_is_refused_with_the_configured_names(
    trigger: ApiClient, repo: GitRepo, settings: Any
) -> None:
    """G221: names that a key's prefixes hide are not in the answer."""
    settings.GIT_REPOSITORIES = {"demo": repo.path, "secret": repo.path}
    settings.CHANGE_SOURCES = ["git"]
    details = assert_error(trigger.post_json(URL, review()), 400, "SCHEMA_INVALID")
    assert "no Perforce server is configured" in details["changelist_id"][0]
    assert "configured here: git:demo, git:secret." in details["changelist_id"][0]
    ours = ApiClient(api_keys.create("ours", "trigger", ("//demo/...", "//gone/...")))
    details = assert_error(
        ours.post_json(URL, review(changelist_id=f"git:gone@{'1' * 40}")), 400, "SCHEMA_INVALID"
    )
    assert "no git repository is named gone; configured here: git:demo." in details["changelist_id"][0]
    settings.CHANGE_SOURCES = ["perforce"]
    answer = trigger.post_json(URL, review(changelist_id=f"git:demo@{repo.commit()}"))
    details = assert_error(answer, 400, "SCHEMA_INVALID")
    assert "configured here: numbers of Perforce changelists." in details["changelist_id"][0]
    assert not ReviewJob.objects.exists()


def test_a_repository_of_a_host_that_is_not_enabled_is_refused_with_the_enabled_ones(
    trigger: ApiClient, settings: Any
) -> None:
    """G221: names that a key's prefixes hide are not in the answer."""
    settings.CHANGE_SOURCES, settings.GIT_REPOSITORIES = ["git"], {}
    settings.DEPOT_ALLOW_LIST = ["//github/acme/website/...", "//gitlab/...", "//gitea/..."]
    settings.GITLAB_REPOSITORIES, settings.GITEA_REPOSITORIES = ["acme/lib/*"], ["acme/app"]

    def why(client: ApiClient, changelist_id: str) -> str:
        answer = client.post_json(URL, review(changelist_id=changelist_id))
        return str(assert_error(answer, 400, "SCHEMA_INVALID")["changelist_id"][0])

    names = "github:acme/website, gitea:acme/app, gitlab:acme/lib/*"
    for place in ("github:acme/other#7", "gitlab:acme/web!7", "gitea:acme/other#7"):
        refused = place.rstrip("!#7")
        assert why(trigger, place) == f"no repository {refused} is enabled; configured here: {names}."
    ours = ApiClient(api_keys.create("ours", "trigger", ("//gitea/...",)))
    assert why(ours, "gitea:acme/other#7").endswith("configured here: gitea:acme/app.")
    assert why(trigger, "gitlab:acme/lib/web!7").startswith("no webhook reported this pull request")
    assert not ReviewJob.objects.exists()


def test_a_repeated_request_is_answered_although_its_source_is_gone(
    trigger: ApiClient, settings: Any
) -> None:
    made = trigger.post_json(URL, review()).json()
    settings.CHANGE_SOURCES = ["git"]
    again = trigger.post_json(URL, review()).json()
    assert (again["id"], again["duplicate"]) == (made["id"], True)


def test_an_event_without_a_perforce_server_waits_at_its_trigger(trigger: ApiClient, settings: Any) -> None:
    settings.CHANGE_SOURCES = ["git"]
    event = {"event": "change-commit", "change": 7, "server": "main"}
    details = assert_error(trigger.post_json("/api/v1/triggers/perforce/", event), 400, "SCHEMA_INVALID")
    assert list(details) == ["request"]  # by which the trigger keeps the event
    assert "no Perforce server" in details["request"][0]


def test_a_commit_that_no_branch_leads_to_any_more_is_refused_unless_it_was_accepted(
    trigger: ApiClient, repo: GitRepo
) -> None:
    first, second = repo.commit(), repo.commit("Another.")
    body = review(changelist_id=f"git:demo@{second}")
    assert trigger.post_json(URL, body).status_code == 201
    repo.git("reset", "-q", "--hard", first)
    assert trigger.post_json(URL, body).json()["duplicate"]
    again = trigger.post_json(URL, {**body, "idempotency_key": "2", "review_version": 2, "rerun": True})
    assert again.status_code == 400
    assert "no branch of the repository leads to this commit" in str(again.json()["details"])


def test_a_repository_that_does_not_answer_in_time_leaves_the_decision_to_the_fetch(
    trigger: ApiClient, repo: GitRepo, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "git"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    settings.GIT_EXECUTABLE = str(slow)
    monkeypatch.setattr(unknown_changes, "LOOK_UP_SECONDS", 0.2)
    assert trigger.post_json(URL, review(changelist_id=f"git:demo@{'1' * 40}")).status_code == 201


def test_a_key_whose_requests_end_as_unknown_changes_has_to_wait_and_others_do_not(
    trigger: ApiClient, client_with_role: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unknown_changes, "LETTERS_AN_HOUR", 2)
    monkeypatch.setattr(unknown_changes, "LOOK_EVERY", 1)
    monkeypatch.setattr(unknown_changes, "_refused_until", {})
    for _ in range(2):
        job = ReviewJobFactory.create(requested_by="key:the trigger")
        DeadLetterFactory.create(job=job, stage="fetch", error_class="NOT_FOUND")
    refused = trigger.post_json(URL, review())
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "600")
    assert client_with_role("trigger", name="another").post_json(URL, review()).status_code == 201


# -- duplicates and versions ------------------------------------------------------------------


def test_a_repeated_key_answers_the_original_job(trigger: ApiClient) -> None:
    first = trigger.post_json(URL, review()).json()
    again = trigger.post_json(URL, review())
    assert again.status_code == 200
    assert again.json() == {**first, "duplicate": True}
    assert ReviewJob.objects.count() == 1


def test_repeated_key_with_another_body_is_payload_mismatch(trigger: ApiClient) -> None:
    first = trigger.post_json(URL, review()).json()
    again = trigger.post_json(URL, review(changelist_id="999"))
    assert again.status_code == 200
    body = again.json()
    assert "a new idempotency_key" in body.pop("message")
    assert body == {**first, "duplicate": True, "payload_mismatch": True}


def test_another_key_for_the_same_version_answers_the_original_job(trigger: ApiClient) -> None:
    first = trigger.post_json(URL, review()).json()
    again = trigger.post_json(URL, review(idempotency_key="other"))
    assert again.status_code == 200
    assert again.json() == {**first, "duplicate": True}


def test_recipients_of_a_second_request_are_reported_as_not_added(trigger: ApiClient) -> None:
    first = trigger.post_json(URL, review(recipients=["ann@example.com"])).json()
    body = review(idempotency_key="other", recipients=["bob@example.com", "mail:ann@example.com"])
    again = trigger.post_json(URL, body)
    assert again.status_code == 200
    assert again.json() == {
        **first, "duplicate": True, "payload_mismatch": True,
        "recipients_not_added": ["mail:bob@example.com"],
        "message": "Version 1 exists already and was not changed. It does not notify these recipients:"
        " mail:bob@example.com. To review it again, post review_version 2 with rerun true and a new"
        " idempotency_key.",
    }  # fmt: skip
    assert ReviewJob.objects.get().recipients == ["mail:ann@example.com"]


def test_message_names_ten_recipients_not_added_and_counts_the_rest(trigger: ApiClient) -> None:
    trigger.post_json(URL, review())
    more = [f"mail:bob{number}@example.com" for number in range(12)]
    answer = trigger.post_json(URL, review(idempotency_key="other", recipients=more)).json()
    assert answer["recipients_not_added"] == more
    assert "bob9@example.com and 2 more." in answer["message"]


def test_recipients_not_found_yet_are_not_reported_as_not_added(trigger: ApiClient) -> None:
    trigger.post_json(
        "/api/v1/triggers/perforce/", {"event": "change-commit", "change": 12345, "server": "main"}
    )
    named = trigger.post_json(URL, review(recipients=["ann@example.com"])).json()
    # A subscription may tell ann all the same: nobody can say yet that she is not told.
    assert "recipients_not_added" not in named
    assert named["payload_mismatch"] is True
    assert "exists already and was not changed" in named["message"]
    assert "does not notify" not in named["message"]
    unnamed = trigger.post_json(URL, review(idempotency_key="third", recipients=[])).json()
    assert unnamed["duplicate"] is True
    assert {"payload_mismatch", "message", "recipients_not_added"} & set(unnamed) == set()


def test_default_recipients_are_not_reported_as_not_added(trigger: ApiClient, settings: Any) -> None:
    trigger.post_json(URL, review())
    settings.DEFAULT_RECIPIENTS = ["team@example.com"]
    answer = trigger.post_json(URL, review(idempotency_key="other", recipients=None)).json()
    assert answer["payload_mismatch"] is True
    assert "recipients_not_added" not in answer
    assert "exists already and was not changed" in answer["message"]


def test_rerun_without_a_version_names_the_next_version(trigger: ApiClient) -> None:
    first = trigger.post_json(URL, review()).json()
    trigger.post_json(URL, review(idempotency_key="second", review_version=2, rerun=True))
    body = review(idempotency_key="third", review_version=None, rerun=True)
    again = trigger.post_json(URL, body)
    assert (again.status_code, again.json()["id"], again.json()["duplicate"]) == (200, first["id"], True)
    assert again.json()["message"] == (
        "Version 1 exists already, so nothing was started. To review it again, post review_version 3 with"
        " rerun true and a new idempotency_key."
    )
    made = trigger.post_json(URL, review(idempotency_key="third", review_version=3, rerun=True))
    assert made.status_code == 201


def test_repeated_rerun_has_no_message(trigger: ApiClient) -> None:
    trigger.post_json(URL, review())
    body = review(idempotency_key="second", review_version=2, rerun=True)
    made = trigger.post_json(URL, body).json()
    assert trigger.post_json(URL, body).json() == {**made, "duplicate": True}


@pytest.mark.parametrize(
    ("version", "rerun"), [(4, False), (2, True), (2, False)], ids=["no rerun", "lower", "lower, no rerun"]
)
def test_a_version_that_is_not_an_explicit_higher_rerun_conflicts(
    trigger: ApiClient, version: int, rerun: bool
) -> None:
    trigger.post_json(URL, review(review_version=3))
    body = review(idempotency_key="other", review_version=version, rerun=rerun)
    details = assert_error(trigger.post_json(URL, body), 409, "VERSION_CONFLICT")
    assert details == {
        "changelist_id": "12345", "review_version": version, "newest_version": 3, "rerun": rerun
    }  # fmt: skip
    assert ReviewJob.objects.count() == 1


def test_a_higher_version_with_rerun_is_a_new_job(trigger: ApiClient) -> None:
    first = trigger.post_json(URL, review(review_version=3)).json()
    second = trigger.post_json(URL, review(idempotency_key="other", review_version=4, rerun=True))
    assert second.status_code == 201
    assert second.json()["id"] != first["id"]
    assert ReviewJob.objects.get(pk=first["id"]).status == JobStatus.SUPERSEDED


# -- the key in a header ----------------------------------------------------------------------


def test_idempotency_key_header_replaces_the_field(trigger: ApiClient) -> None:
    response = trigger.post_json(
        URL, review(idempotency_key=None), headers={"Idempotency-Key": "from-header"}
    )
    assert (response.status_code, response.json()["idempotency_key"]) == (201, "from-header")


def test_field_and_header_may_agree(trigger: ApiClient) -> None:
    assert trigger.post_json(URL, review(), headers={"Idempotency-Key": "p4-main-12345-1"}).status_code == 201


@pytest.mark.parametrize("header", ["another", "", "x" * 256, "caf\xc3\xa9"])
def test_field_and_header_may_not_differ(trigger: ApiClient, header: str) -> None:
    response = trigger.post_json(URL, review(), headers={"Idempotency-Key": header})
    assert "idempotency_key" in assert_error(response, 400, "SCHEMA_INVALID")


def test_a_request_without_any_key_is_refused(trigger: ApiClient) -> None:
    details = assert_error(trigger.post_json(URL, review(idempotency_key=None)), 400, "SCHEMA_INVALID")
    assert list(details) == ["idempotency_key"]


# -- recipients -------------------------------------------------------------------------------


def test_recipients_are_normalised_and_counted_once(trigger: ApiClient) -> None:
    recipients = ["ann@EXAMPLE.com", "mail:ann@example.com", "WEBHOOK:HTTPS://ci.example.com:443/x"]
    trigger.post_json(URL, review(recipients=recipients))
    assert ReviewJob.objects.get().recipients == ["mail:ann@example.com", "webhook:https://ci.example.com/x"]


@pytest.mark.parametrize("recipients", [None, []])
def test_default_recipients_are_used_without_recipients(
    trigger: ApiClient, settings: Any, recipients: list[str] | None
) -> None:
    settings.DEFAULT_RECIPIENTS = ["team@example.com", "mail:team@example.com"]
    assert trigger.post_json(URL, review(recipients=recipients)).status_code == 201
    assert ReviewJob.objects.get().recipients == ["mail:team@example.com"]


def test_a_review_may_have_no_recipient_at_all(trigger: ApiClient, settings: Any) -> None:
    settings.DEFAULT_RECIPIENTS = []
    assert trigger.post_json(URL, review(recipients=[])).status_code == 201
    assert ReviewJob.objects.get().recipients == []


def test_job_without_recipients_explains_why_in_message(
    trigger: ApiClient, operator: ApiClient, settings: Any
) -> None:
    settings.DEFAULT_RECIPIENTS = []
    made = trigger.post_json(URL, review(recipients=[])).json()
    why = "no recipients. The request named none, and DEFAULT_RECIPIENTS is empty."
    assert made["message"] == f"No one will be notified: {why}"
    again = trigger.post_json(URL, review(recipients=["ann@example.com"])).json()
    assert again["message"].startswith("Version 1 exists already")
    assert again["message"].endswith(f"No one will be notified: {why}")
    operator.post_json(f"{URL}{made['id']}/cancel/", {})
    assert operator.get(f"{URL}{made['id']}/").json()["message"] == f"No one was notified: {why}"


def test_each_bad_recipient_is_named_by_its_position(trigger: ApiClient) -> None:
    response = trigger.post_json(URL, review(recipients=["ann@example.com", "carrier-pigeon:home", 7]))
    details = assert_error(response, 400, "SCHEMA_INVALID")
    assert set(details["recipients"]) == {"1", "2"}


def test_a_request_may_name_webhooks_on_a_few_hosts(trigger: ApiClient, settings: Any) -> None:
    hooks = [f"webhook:https://ci{n}.example.com/{path}" for n in range(5) for path in "ab"]
    assert trigger.post_json(URL, review(recipients=hooks)).status_code == 201
    body = review(idempotency_key="k2", recipients=[*hooks, "webhook:https://ci0.example.com:8443/"])
    details = assert_error(trigger.post_json(URL, body), 400, "SCHEMA_INVALID")
    assert "webhooks on 6 hosts. One review may notify 5 (WEBHOOK_HOSTS_PER_REQUEST)" in str(details)
    settings.WEBHOOK_HOSTS_PER_REQUEST = 6
    assert trigger.post_json(URL, {**body, "changelist_id": "777"}).status_code == 201


# -- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("idempotency_key", ""),
        ("idempotency_key", "   "),
        ("idempotency_key", "x" * 256),
        ("idempotency_key", "line\nbreak"),
        ("idempotency_key", "nul\x00"),
        ("idempotency_key", "\ud800"),
        ("idempotency_key", 5),
        ("idempotency_key", ["k"]),
        ("changelist_id", "default"),
        ("changelist_id", ""),
        ("changelist_id", "0"),
        ("changelist_id", -5),
        ("changelist_id", 1.5),
        ("changelist_id", True),
        ("changelist_id", "12\x00"),
        ("changelist_id", "9" * 500),
        ("changelist_id", {"id": 1}),
        ("changelist_id", "git:demo@short"),
        ("review_version", 0),
        ("review_version", -1),
        ("review_version", 2_147_483_648),
        ("review_version", 10**400),
        ("review_version", "1"),
        ("review_version", True),
        ("review_version", 1.0),
        ("review_version", [1]),
        ("recipients", "ann@example.com"),
        ("recipients", {"mail": "ann@example.com"}),
        ("recipients", ["not an address"]),
        ("recipients", [None]),
        ("recipients", ["ann@example.com\x00"]),
        ("recipients", [f"ann{n}@example.com" for n in range(101)]),
        ("rerun", "true"),
        ("rerun", 1),
        ("unknown", 1),
        ("Rerun", True),
    ],
)
def test_a_bad_field_is_refused_by_name(trigger: ApiClient, field: str, value: object) -> None:
    details = assert_error(trigger.post_json(URL, review(**{field: value})), 400, "SCHEMA_INVALID")
    assert list(details) == [field]
    assert not ReviewJob.objects.exists()


@pytest.mark.parametrize(
    "field", ["idempotency_key", "changelist_id", "review_version", "recipients", "rerun"]
)
def test_null_is_refused(trigger: ApiClient, field: str) -> None:
    response = trigger.post_json(URL, {**review(), field: None})
    assert list(assert_error(response, 400, "SCHEMA_INVALID")) == [field]


def test_empty_body_names_all_missing_fields(trigger: ApiClient) -> None:
    details = assert_error(trigger.post_json(URL, {}), 400, "SCHEMA_INVALID")
    assert set(details) == {"idempotency_key", "changelist_id"}


def test_greatest_version_is_accepted(trigger: ApiClient) -> None:
    assert trigger.post_json(URL, review(review_version=2_000_000_000)).status_code == 201


def test_a_version_that_leaves_no_room_for_the_next_is_refused(trigger: ApiClient) -> None:
    answer = trigger.post_json(URL, review(changelist_id="12345", review_version=2_147_483_647))
    assert list(assert_error(answer, 400, "SCHEMA_INVALID")) == ["review_version"]
    trigger.post_json(URL, review(changelist_id="12345", review_version=2_000_000_000))
    entry = source_events.receive(Event(Kind.SHELVE, "12345", "main"))
    assert ReviewJob.objects.get(pk=entry.job_id).review_version == 2_000_000_001


def test_after_the_greatest_version_the_page_is_named_for_another_review(trigger: ApiClient) -> None:
    trigger.post_json(URL, review(review_version=2_000_000_000))
    body = review(idempotency_key="other", review_version=2_000_000_000, rerun=True)
    message = trigger.post_json(URL, body).json()["message"]
    assert "choose Review again on its page: a request names 2000000000 at most" in message


def test_all_invalid_fields_are_reported_at_once(trigger: ApiClient) -> None:
    body = {"changelist_id": "x", "review_version": 0, "colour": "blue", "<b>": 1}
    details = assert_error(trigger.post_json(URL, body), 400, "SCHEMA_INVALID")
    assert set(details) == {"idempotency_key", "changelist_id", "review_version", "colour", "<b>"}


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"nonsense", b'{"changelist_id": NaN}', b"\xff\xfe{}", b'{"a": "\x00"}', b"[" * 20_000,
        b'{"review_version": ' + b"1" * 5_000 + b"}",
    ],
)  # fmt: skip
def test_malformed_json_is_refused(trigger: ApiClient, body: bytes) -> None:
    response = trigger.post(URL, body, content_type="application/json")
    assert_error(response, 400, "SCHEMA_INVALID")


@pytest.mark.parametrize("body", ["[]", '"text"', "5", "null", "true", '[{"changelist_id": "1"}]'])
def test_only_an_object_is_a_request(trigger: ApiClient, body: str) -> None:
    response = trigger.post(URL, body, content_type="application/json", headers={"Idempotency-Key": "k"})
    assert list(assert_error(response, 400, "SCHEMA_INVALID")) == ["body"]


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "text/json", "x"]
)
def test_only_json_is_read(trigger: ApiClient, content_type: str) -> None:
    response = trigger.post(URL, b'{"changelist_id": "1"}', content_type=content_type)
    assert_error(response, 415, "UNSUPPORTED_MEDIA_TYPE")


def test_a_body_of_64_kib_is_read_and_one_byte_more_is_not(trigger: ApiClient) -> None:
    body = b'{"idempotency_key": "k", "changelist_id": "1"}'
    exact = trigger.post(URL, body.ljust(MAX_BODY_BYTES), content_type="application/json")
    assert exact.status_code == 201
    over = trigger.post(URL, body.ljust(MAX_BODY_BYTES + 1), content_type="application/json")
    assert_error(over, 413, "PAYLOAD_TOO_LARGE")


# -- who may ----------------------------------------------------------------------------------


def test_request_without_a_key_is_refused(mallory: ApiClient) -> None:
    response = mallory.post_json(URL, review())
    assert_error(response, 401, "AUTH_DENIED")
    assert response["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("role", ["reviewer", "operator"])
def test_only_a_trigger_key_requests_reviews(client_with_role: Maker, role: str) -> None:
    assert_error(client_with_role(role).post_json(URL, review()), 403, "PERMISSION_DENIED")
    assert not ReviewJob.objects.exists()
