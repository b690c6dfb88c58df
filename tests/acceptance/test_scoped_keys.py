"""A key with prefixes: its requests read, stop, silence and tell nothing outside them."""

from __future__ import annotations

from typing import Any

import pytest

from notifications.models import Delivery
from reviews.intake import api_keys
from reviews.models import CoverageRow, ReviewJob
from reviews.web import rerun
from tests.acceptance.world import MAIL, World
from tests.api.conftest import ApiClient
from tests.fakes.closed import closed_port
from tests.fakes.p4.server import edited

BOB = "mail:bob@example.com"
OPEN, CLOSED = "//depot/main/open/a.c", "//depot/main/closed/plan.c"
REVIEWS = "/api/v1/reviews/"


@pytest.fixture
def team(world: World) -> ApiClient:
    """A trigger key of the people who may read `open`; deterministic checks only."""
    world.settings.LLM_PROVIDER, world.settings.LLM_REQUIRED = "none", False
    return ApiClient(api_keys.create("team", "trigger", ["//depot/main/open/..."]))


def mixed_change(world: World) -> str:
    return world.depot.submit(
        edited(OPEN, "int a;\n", "int a;\n__debugbreak();\n"),
        edited(CLOSED, "int b;\n", "int b;\nraise(SIGTRAP);\n"),
    )


def post(client: ApiClient, changelist: str, *recipients: str, **more: Any) -> Any:
    body = {"idempotency_key": "k-1", "changelist_id": changelist, "recipients": recipients, **more}
    return client.post_json(REVIEWS, body)


def told(world: World) -> str:
    """Return everything that left the installation."""
    mails = [str(mail) for mail in world.mails()]
    hooks = [str(request.body) for request in world.receiver.requests]
    return "\n".join([*mails, *hooks, *(str(request.body) for request in world.llm.requests)])


def test_its_recipients_get_the_files_below_its_prefixes_and_no_other_file_is_read(
    world: World, team: ApiClient
) -> None:
    made = post(team, mixed_change(world), world.hook, MAIL).json()
    world.settle()
    assert world.status(made["id"]) == "succeeded"
    assert Delivery.objects.filter(status="sent").count() == 2
    for text in (told(world), team.get(f"{REVIEWS}{made['id']}/").content.decode()):
        assert "open/a.c" in text
        assert "closed" not in text
        assert "SIGTRAP" not in text
    assert set(CoverageRow.objects.values_list("file", flat=True)) == {OPEN}
    assert not [call for call in world.depot.calls("print") if "closed" in str(call)]
    assert "limited to //depot/main/open/..." in " ".join(told(world).split())


@pytest.mark.parametrize("known", ["hidden", pytest.param("unknown", marks=pytest.mark.long)])
def test_a_change_outside_its_prefixes_looks_like_one_that_does_not_exist(
    world: World, team: ApiClient, known: str
) -> None:
    number = "424242"
    if known == "hidden":
        number = world.depot.submit(edited(CLOSED, "int b;\n", "int b;\nraise(SIGTRAP);\n"))
    made = post(team, number, world.hook, MAIL).json()
    world.settle()
    job = team.get(f"{REVIEWS}{made['id']}/").json()
    assert (job["status"], job["stages"][0]["error_class"]) == ("dead_lettered", "NOT_FOUND")
    assert told(world) == ""
    assert ReviewJob.objects.get().title == ""


def test_a_repository_outside_its_prefixes_is_refused_at_once(world: World, team: ApiClient) -> None:
    answer = post(team, world.commit, MAIL)
    assert (answer.status_code, answer.json()["error"]) == (403, "PERMISSION_DENIED")
    assert "//demo/" in answer.json()["details"]["reason"]
    assert not ReviewJob.objects.exists()


@pytest.mark.parametrize("channel", ["gitea", "gitea-review", "github"])
def test_it_comments_on_no_pull_request_outside_its_prefixes(
    world: World, team: ApiClient, channel: str
) -> None:
    answer = post(team, mixed_change(world), MAIL, f"{channel}:acme/app#1")
    assert (answer.status_code, answer.json()["error"]) == (403, "PERMISSION_DENIED")
    assert "acme/app#1" in answer.json()["details"]["reason"]
    assert not ReviewJob.objects.exists()


def test_what_it_requested_first_keeps_nothing_from_others(world: World, team: ApiClient) -> None:
    number = mixed_change(world)
    squatted = post(team, number, BOB).json()
    for version in (1, 2):  # the same key and version, once it has ended and once it has not
        answer = post(world.api, number, world.hook, MAIL, idempotency_key=f"k-{version}",
                      review_version=version, rerun=version > 1)  # fmt: skip
        assert (answer.status_code, answer.json()["review_version"]) == (201, version)
        world.settle()
        whole = answer.json()["id"]
        assert {row.recipient for row in Delivery.objects.filter(job=whole, status="sent")} == {
            world.hook,
            MAIL,
        }
        post(team, number, MAIL, idempotency_key="k-2", review_version=2, rerun=True)
    assert world.status(squatted["id"]) == "succeeded"
    assert "closed/plan.c" in told(world)


@pytest.mark.long
def test_an_event_is_not_covered_by_what_it_requested(world: World, team: ApiClient) -> None:
    world.settings.DEFAULT_RECIPIENTS = [MAIL]
    number = mixed_change(world)
    post(team, number, BOB, idempotency_key=f"perforce:main:change-commit:{number}")
    event = {"event": "change-commit", "change": int(number), "server": "main"}
    refused = team.post_json("/api/v1/triggers/perforce/", event)
    assert (refused.status_code, refused.json()["error"]) == (403, "PERMISSION_DENIED")
    answer = world.api.post_json("/api/v1/triggers/perforce/", event).json()
    assert answer["duplicate"] is False
    world.settle()
    assert [row.recipient for row in Delivery.objects.filter(job=answer["job"], status="sent")] == [MAIL]


@pytest.mark.long
def test_its_rerun_stops_no_review_of_others_and_shows_none(world: World, team: ApiClient) -> None:
    number = mixed_change(world)
    running = post(world.api, number, world.hook, MAIL).json()["id"]
    answer = post(team, number, BOB, review_version=2, rerun=True)
    assert world.status(running) == "queued"
    assert world.hook not in answer.content.decode()
    assert "ann@example.com" not in answer.content.decode()
    assert answer.json()["id"] != running
    assert team.get(f"{REVIEWS}{running}/").status_code == 404
    assert team.post_json(f"{REVIEWS}{running}/cancel/", {}).status_code == 404
    world.settle()
    # Its files are known by now, and one of them is open; it is theirs all the same.
    seen = team.get(f"{REVIEWS}{running}/").json()
    assert (seen["deliveries"], seen["idempotency_key"]) == ([], "")
    assert [file["file"] for file in seen["coverage"]] == [OPEN]
    assert team.post_json(f"{REVIEWS}{running}/cancel/", {}).status_code == 403
    assert {job.pk: job.status for job in ReviewJob.objects.all()}[running] == "succeeded"


def test_its_own_requests_are_idempotent_and_its_reruns_supersede(world: World, team: ApiClient) -> None:
    number = mixed_change(world)
    first = post(team, number, BOB).json()
    again = post(team, number, BOB)
    assert (again.status_code, again.json()["id"], again.json()["duplicate"]) == (200, first["id"], True)
    assert post(team, number, BOB, idempotency_key="k-2", review_version=2).status_code == 409
    second = post(team, number, BOB, idempotency_key="k-2", review_version=2, rerun=True)
    assert second.status_code == 201
    assert world.status(first["id"]) == "superseded"


@pytest.mark.long
def test_a_replay_and_an_operators_rerun_stay_limited(world: World, team: ApiClient) -> None:
    world.settings.LLM_PROVIDER, world.settings.LLM_REQUIRED = "openai", True
    world.settings.LLM_BASE_URL = f"http://127.0.0.1:{world.enter(closed_port())}"
    made = post(team, mixed_change(world), BOB).json()["id"]
    world.settle()
    assert world.status(made) == "dead_lettered"
    world.settings.LLM_PROVIDER, world.settings.LLM_REQUIRED = "none", False
    world.replay(made, restart=True)
    world.settle()
    job = ReviewJob.objects.get(pk=made)
    assert job.status == "succeeded"
    later = rerun.request(job, "ann", ReviewJob.objects.all())
    world.settle()
    assert later.job_id is not None
    assert world.status(later.job_id) == "succeeded"
    assert len(world.mails()) == 2
    assert "closed" not in told(world)


@pytest.mark.parametrize(("review", "status"), [("review-{}", 201), ("change-{}", 201), ("review-9{}", 403)])
def test_it_comments_on_the_review_of_its_own_change_only(
    world: World, team: ApiClient, review: str, status: int
) -> None:
    """A comment stands in the name of this installation, whatever it says (G150)."""
    change = mixed_change(world)
    answer = post(team, change, f"swarm:{review.format(change)}")
    assert answer.status_code == status
    if status == 403:
        assert "is not the changelist under review" in str(answer.json())
        assert not ReviewJob.objects.exists()
