"""Webhooks, ids and git server of every code host: one suite for all of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from criticizer.codehosts.names import Project
from criticizer.codehosts.registry import HOSTS, repositories_variable, secrets_variable
from criticizer.environment.variables import VARIABLES
from criticizer.resilience import gate, rate_limit
from criticizer.resilience.failures import ErrorClass, PermanentFailure
from criticizer.resilience.health_checks import CHECKS
from notifications.config import host as host_of
from notifications.config import providers
from notifications.recipients import CHANNELS, normalise, variables_of
from notifications.recipients import split as split_recipient
from reviews import config
from reviews.api import serializers
from reviews.intake import host_poll
from reviews.models import HostChange, HostDelivery, HostVersion, ReviewJob, SourcePosition
from reviews.sources.allowlist import AllowList
from reviews.sources.base import Action
from reviews.sources.fetcher import ChangeFetcher
from reviews.sources.mirror import MirrorConfig
from reviews.sources.pull import PullSource, canonical_id, depot_prefix
from tests import skips
from tests.fakes.git_http import GitHost, PullRequests
from tests.fakes.github import Act, GitHubServer, Pull
from tests.hosts.deliveries import HEAD
from tests.hosts.kinds import KINDS, Kind, as_bytes, webhook_settings

OTHER = "c" * 40
Post = Callable[..., tuple[int, Any]]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, settings: Any) -> Kind:
    for name, value in webhook_settings().items():
        setattr(settings, name, value)
    return KINDS[request.param]


@pytest.fixture
def post(kind: Kind, db: None) -> Post:
    """Return a sender of events, as in `post("opened", at=1)` or `post(content=...)`."""
    client = Client(raise_request_exception=False)

    def send(
        action: str = "opened", *, content: Any = None, event: str = "", delivery: str = "",
        headers: dict[str, str] | None = None, **given: Any,
    ) -> tuple[int, Any]:  # fmt: skip
        body = as_bytes(kind.event(action, **given) if content is None else content)
        signed = kind.headers(body, event or "pull_request", delivery)
        sent = {**signed, **(headers or {})}
        content_type = sent.pop("Content-Type")
        answer = client.post(kind.path, body, content_type=content_type, headers=sent)
        return answer.status_code, answer.json() if answer.content else None

    return send


def versions() -> list[tuple[int, str]]:
    return list(ReviewJob.objects.order_by("pk").values_list("review_version", "status"))


def test_every_host_of_the_registry_is_in_this_suite() -> None:
    assert set(HOSTS) == set(KINDS)


def test_channels_limits_health_checks_and_settings_come_from_the_class(kind: Kind) -> None:
    declared = HOSTS[kind.name]
    assert {kind.name, f"{kind.name}-review"} <= set(CHANNELS)
    assert f"{kind.name}:" in serializers.ANY_CHANNEL
    dependency = f"{kind.name}:host:acme"
    assert rate_limit.concurrency_limit_of(dependency) == declared.calls_at_once
    assert rate_limit.rate_of(dependency) == declared.calls_per_second
    assert kind.name in CHECKS
    names = [variable.name for variable in declared.variables]
    needed = {*declared.credentials, declared.address[0], secrets_variable(kind.name)}
    assert {*needed, repositories_variable(kind.name)} <= set(names) <= set(VARIABLES)
    assert VARIABLES["REVIEW_SLA_SECONDS"].parse(f"1200,{kind.name}=900")[kind.name] == 900
    assert variables_of(kind.name)


def test_its_webhooks_are_listed_by_host(kind: Kind, post: Post, admin_client: Client) -> None:
    post()
    for page in ("hostdelivery", "hostchange"):
        listed = admin_client.get(f"/admin/reviews/{page}/", {"host": kind.name}).content.decode()
        assert "acme/website" in listed.lower()
        assert HOSTS[kind.name].label in listed  # of the filter
        elsewhere = admin_client.get(f"/admin/reviews/{page}/", {"host": "nowhere"}).content.decode()
        assert "acme/website" not in elsewhere.lower()


def test_a_new_head_is_a_job_with_its_head_frozen_and_its_pull_request_as_id(kind: Kind, post: Post) -> None:
    status, answer = post()
    job = ReviewJob.objects.get()
    assert (status, answer) == (202, {"job": job.pk, "duplicate": False})
    assert (job.changelist_id, job.review_version) == (kind.pull, 1)
    assert job.requested_by == f"{kind.name}:acme/website"
    version = HostVersion.objects.get()
    assert (version.head_sha, version.base_ref, version.change.number) == (HEAD, "main", 7)
    assert (version.change.host, version.change.repository_id) == (kind.name, 500)


def test_gitea_is_understood_by_its_own_headers_alone(post: Post, kind: Kind) -> None:
    """A proxy may keep them only, and drop the copies of GitHub's."""
    if kind.name != "gitea":
        return
    copies = {"X-GitHub-Event": "", "X-GitHub-Delivery": "", "X-Hub-Signature-256": ""}
    status, answer = post(headers=copies)
    assert (status, answer) == (202, {"job": ReviewJob.objects.get().pk, "duplicate": False})


def test_an_owner_with_a_dot_is_one_everywhere(kind: Kind, post: Post, settings: Any) -> None:
    setattr(settings, repositories_variable(kind.name), ["john.doe/*"])
    setattr(settings, HOSTS[kind.name].address[0], "https://host.example.com")
    assert post(repository={"id": 501, "full_name": "John.Doe/web"})[0] == 202
    job = ReviewJob.objects.get()
    assert job.changelist_id == f"{kind.name}:john.doe/web{kind.sign}7" == normalise(job.changelist_id)
    source = config.source_of_job(job)
    assert isinstance(source, PullSource)
    assert source._mirror._config.token("") == ""
    assert host_of(kind.name).repository("John.Doe/web", 501).number == 501


def test_a_name_that_is_too_long_is_no_refusal(kind: Kind, post: Post, settings: Any) -> None:
    setattr(settings, repositories_variable(kind.name), ["*"])
    names = [f"{'a' * 40}/{'b' * 100}"]
    if HOSTS[kind.name].repositories is Project:
        names += [f"{'group/' * 60}web", f"acme/{'a' * 101}"]
    for name in names:
        status, answer = post(repository={"id": 501, "full_name": name})
        assert (status, "too long" in answer["ignored"]) == (200, True)
    assert not ReviewJob.objects.exists()


def test_commits_of_sha_256_are_refused_with_the_reason(kind: Kind, post: Post) -> None:
    status, answer = post(head="c" * 64)
    assert (status, "SHA-256" in answer["ignored"]) == (200, True)
    assert not ReviewJob.objects.exists()


def test_repeats_under_one_id_and_under_another_make_no_second_review(kind: Kind, post: Post) -> None:
    _, first = post(delivery="guid-1")
    again = (200, {"job": first["job"], "duplicate": True})
    assert post(delivery="guid-1") == again
    assert post(delivery="guid-2") == again
    assert HostDelivery.objects.get(delivery_id="guid-1").repeats == 1
    assert versions() == [(1, "queued")]


def test_what_is_not_authentic_is_401_without_a_body_and_leaves_nothing(
    kind: Kind, post: Post, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    good = kind.headers(as_bytes(kind.event()))[kind.proof]
    with caplog.at_level(logging.DEBUG):
        for wrong in ("", good[:-1], good.upper(), good.partition("=")[2], f"x{good}"):
            assert post(headers={kind.proof: wrong, "X-Gitea-Signature": ""}) == (401, None)
        assert post(content=b'{"planted": 1}', headers={kind.proof: good, "X-Gitea-Signature": ""}) == (
            401,
            None,
        )
        setattr(settings, secrets_variable(kind.name), [])
        assert post() == (401, None)
    assert not HostDelivery.objects.exists()
    assert "webhook_refused" in caplog.text
    assert "missing" not in caplog.text  # the id of the delivery
    assert "planted" not in caplog.text
    assert good not in caplog.text


def test_a_second_secret_counts_while_the_first_is_new(kind: Kind, post: Post, settings: Any) -> None:
    newest = "whsec_bm90IHRoZSBvbmUgdGhhdCBpcyBpbiB1c2U="
    setattr(settings, secrets_variable(kind.name), [newest, kind.secret])
    assert post()[0] == 202


def test_a_new_head_or_base_supersedes_and_an_older_event_replaces_nothing(kind: Kind, post: Post) -> None:
    post(at=1)
    assert post("synchronize", head=OTHER, at=3)[0] == 202
    assert post("synchronize", head="d" * 40, at=2)[1]["ignored"].startswith("a newer event")
    assert post("edited", head=OTHER, base_ref="next", at=4)[0] == 202
    assert versions() == [(1, "superseded"), (2, "superseded"), (3, "queued")]


@pytest.mark.parametrize("ends", ["closed", "converted_to_draft"])
def test_what_is_closed_or_a_draft_is_cancelled_and_reviewed_when_it_opens(
    kind: Kind, post: Post, ends: str
) -> None:
    post()
    status, answer = post(ends, at=1)
    assert (status, "1 running" in answer["ignored"]) == (200, True)
    assert versions() == [(1, "cancelled")]
    assert post("reopened" if ends == "closed" else "ready_for_review", at=2)[0] == 202
    assert versions() == [(1, "cancelled"), (2, "queued")]


def test_what_asks_for_nothing_is_200_with_the_reason(kind: Kind, post: Post) -> None:
    event, content = kind.unknown
    assert "nothing" in post(content=content, event=event)[1]["ignored"]
    assert "nothing" in post("labeled")[1]["ignored"]
    assert "draft" in post(draft=True)[1]["ignored"]
    elsewhere = post(repository={"id": 9, "full_name": "Else/Where"})[1]["ignored"]
    assert repositories_variable(kind.name) in elsewhere
    assert not ReviewJob.objects.exists()


def test_wrong_forms_are_refused_after_the_proof(post: Post) -> None:
    for content in (b"[]", b"{", b"\xff", b'{"a": NaN}'):
        assert post(content=content)[0] == 400
    for wrong in (
        {"head": "main"},
        {"number": -1},
        {"base_ref": "../x y"},
        {"repository": {"id": 5, "full_name": "a/../b"}},
    ):
        status, answer = post(**wrong)
        assert (status, answer["error"]) == (400, "SCHEMA_INVALID")
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert post(headers=form)[0] == 415
    assert not HostDelivery.objects.exists()


_JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.text(max_size=8), st.just([]), st.just({}),
    st.sampled_from(["..", "a/b c/d", "\x00", "-", "refs/heads/x y", "A" * 40, "\ud800", 1.5]),
)  # fmt: skip


@examples(
    max_examples=200 if skips.is_all() else 25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(field=st.integers(0, 99), junk=_JUNK, cut=st.integers(1, 200), how=st.integers(0, 3))
def test_malformed_events_are_refused_and_leave_nothing(
    kind: Kind, post: Post, field: int, junk: Any, cut: int, how: int
) -> None:
    content: Any = kind.event()
    body, headers = as_bytes(content), {}
    if how == 0:
        content = body[:-cut]
    elif how == 1:
        headers = {kind.proof: kind.headers(body[cut:])[kind.proof]}
    else:
        *path, name = kind.needed[field % len(kind.needed)].split(".")
        target = content
        for step in path:
            target = target[step]
        target[name] = None if may_be(name, junk) else junk
    assert post(content=content, headers=headers)[0] == (401 if how == 1 else 400)
    assert not HostDelivery.objects.exists()
    assert not ReviewJob.objects.exists()


def may_be(name: str, junk: Any) -> bool:
    """Return whether the field may hold the junk."""
    if name in ("number", "iid", "id") and isinstance(junk, int) and not isinstance(junk, bool):
        return 0 < junk < (2**63 if name == "id" else 2**31)
    return isinstance(junk, str) and name in ("ref", "target_branch", "object_kind")


@pytest.fixture
def server(kind: Kind, settings: Any) -> Iterator[GitHubServer]:
    """Run the host's double with one repository, whose pull request 7 is at OTHER."""
    with kind.server() as made:
        for name, value in kind.connected(made.url).items():
            setattr(settings, name, value)
        settings.RATE_LIMITS, settings.RETRY_TIME_SCALE = {kind.name: 1000.0}, 0.001
        gate.forget()
        made.add("acme/website", {7: Pull(OTHER)})
        yield made
        assert made.faults == []
    gate.forget()


def test_whatever_writes_to_a_host_shares_one_client_and_its_token(kind: Kind, server: GitHubServer) -> None:
    found = providers()
    assert {kind.name, f"{kind.name}-review"} <= set(found)
    named = HOSTS[kind.name].repositories("acme/website", server.repos["acme/website"].number)
    writers: list[Any] = [found[name] for name in found if name.startswith(kind.name)]
    hosts = [host_of(kind.name), *(writer._host for writer in writers)]
    assert [host.pull(named, 7).head_sha for host in hosts] == [OTHER] * 3
    assert server.count("POST", ".*/access_tokens") == (kind.name == "github")


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_head_of_another_repository_under_the_name_is_not_requested(
    post: Post, server: GitHubServer, is_ours: bool
) -> None:
    repo = server.repos["acme/website"]
    post(repository={"id": repo.number, "full_name": "Acme/Website"})
    if not is_ours:
        server.repos["acme/renamed"] = repo
        repo.pulls[7].head = "d" * 40
        server.add("acme/website", {7: Pull(OTHER)})
    change = HostChange.objects.get()
    try:
        pull = config.pull_now(change)
        found = pull is not None and pull.head_sha == OTHER
    except PermanentFailure as refused:
        found = refused.error_class is not ErrorClass.NOT_FOUND
    assert found is is_ours


def test_a_head_whose_webhook_was_lost_is_found_once_by_the_poll(
    kind: Kind, post: Post, server: GitHubServer, settings: Any
) -> None:
    setattr(settings, repositories_variable(kind.name), ["acme/website"])
    repo = server.repos["acme/website"]
    repo.pulls |= {8: Pull(HEAD, is_draft=True), 9: Pull(HEAD, state="closed")}
    assert [host_poll.run(), host_poll.run()] == [1, 0]
    job = ReviewJob.objects.get()
    assert (job.changelist_id, HostVersion.objects.get().head_sha) == (kind.pull, OTHER)
    assert set(HostChange.objects.values_list("number", "state")) == {(7, "open"), (8, "draft")}
    named = {"id": repo.number, "full_name": "acme/website"}
    assert post(head=OTHER, repository=named) == (200, {"job": job.pk, "duplicate": True})  # after all
    repo.pulls[7] = Pull("d" * 40, updated_at="2026-01-31T12:05:00Z")
    assert host_poll.run() == 1
    assert versions() == [(1, "superseded"), (2, "queued")]
    server.script(Act(keep=False, status=503), on="GET ")
    assert host_poll.run() == 0  # the next run asks again
    assert SourcePosition.objects.get(stream=f"{kind.name} acme/website").missing == 2


def test_a_repository_with_capitals_is_found_by_the_poll_under_its_name(
    kind: Kind, db: None, server: GitHubServer, settings: Any
) -> None:
    name = "Acme/Web-Site"
    server.add(name, {7: Pull(OTHER)})
    variable = repositories_variable(kind.name)
    setattr(settings, variable, VARIABLES[variable].parse(name))
    settings.DEPOT_ALLOW_LIST = [f"//{kind.name}/{name.lower()}/..."]
    assert [host_poll.run(), host_poll.run()] == [1, 0]
    assert ReviewJob.objects.get().changelist_id == f"{kind.name}:{name.lower()}{kind.sign}7"
    change = HostChange.objects.get()
    assert change.full_name == name
    pull = config.pull_now(change)
    assert pull is not None
    assert pull.head_sha == OTHER


def test_a_command_asks_for_another_review_if_its_author_has_rights(kind: Kind, post: Post) -> None:
    post()
    event, content = kind.comment(" /review \nplease")
    assert post(content=content, event=event, delivery="guid-1")[0] == 202
    assert post(content=content, event=event, delivery="guid-1")[1]["duplicate"]
    assert versions() == [(1, "superseded"), (2, "queued")]
    for text, has_rights, reason in (
        ("/review", False, "author of the command"), ("Please /review", True, "no command"),
    ):  # fmt: skip
        event, content = kind.comment(text, has_rights=has_rights)
        assert reason in post(content=content, event=event)[1]["ignored"]
    assert len(versions()) == 2


def test_a_comment_is_one_command_under_however_many_delivery_ids(kind: Kind, post: Post) -> None:
    post()
    event, content = kind.comment("/review", number=5)
    made = post(content=content, event=event, delivery="of the App")
    assert made[0] == 202
    for delivery in ("of the repository", "replayed"):
        again = post(content=content, event=event, delivery=delivery)
        assert again == (200, {"job": made[1]["job"], "duplicate": True})
    assert len(versions()) == 2
    event, content = kind.comment("/review", number=6)
    assert post(content=content, event=event)[0] == 202
    assert len(versions()) == 3


def test_ids_prefixes_and_recipients_name_the_host(kind: Kind) -> None:
    assert canonical_id(kind.pull.upper()) == kind.pull
    assert depot_prefix(kind.pull) == f"//{kind.name}/acme/website/"
    assert split_recipient(normalise(kind.pull)) == (kind.name, kind.pull.partition(":")[2])
    for wrong in ("acme#7", "acme/../x#7", "acme/website#07", "acme/..#7", "acme/..!7", "acme/.!7"):
        assert canonical_id(f"{kind.name}:{wrong}") is None
        with pytest.raises(ValueError, match="names a pull request"):
            normalise(f"{kind.name}:{wrong.replace('#07', '#x')}")
    # As GitLab writes merge requests; "#" is taken there as well.
    assert kind.pull.endswith("!7" if kind.name == "gitlab" else "#7")
    assert canonical_id(f"{kind.name}:acme/website#7") == kind.pull
    assert canonical_id(f"{kind.name}:acme/website!7") == (kind.pull if kind.name == "gitlab" else None)
    is_deep = canonical_id(f"{kind.name}:acme/lib/website#7") is not None
    assert is_deep == (HOSTS[kind.name].repositories is Project)


def test_the_head_of_a_pull_request_is_fetched_by_its_reference_with_the_password(
    kind: Kind, settings: Any, tmp_path: Path
) -> None:
    with GitHost(tmp_path / "host", "a token of the tests") as server:
        setattr(settings, HOSTS[kind.name].address[0], server.url)
        host = host_of(kind.name)
        repository = PullRequests(server, tmp_path)
        repository.branch("topic")
        head = repository.work.commit_files({"src/b.py": "two = 2\n"}, "Add b.")
        repository.push(host.head_reference(7))
        mirror = MirrorConfig(
            host.clone_url("acme/website"),
            tmp_path / "m.git",
            lambda refused: server.token,
            lag_pauses_seconds=(),
        )
        source = PullSource(kind.pull, host.head_reference(7), head, "", "main", mirror)
        lines = [f"//{kind.name}/acme/website/..."]
        change = ChangeFetcher(source, AllowList(lines), pytest.fail).fetch(kind.pull)
        above = [f"//{kind.name}/{folder}REVIEW.md" for folder in ("", "acme/", "acme/website/")]
        assert source.read_at(above, change, max_bytes=100, seconds=9, is_before=True) == []
    assert [(file.path, file.action) for file in change.files] == [
        (f"//{kind.name}/acme/website/src/b.py", Action.ADD)
    ]
    assert (change.source, source.newest_head()) == (kind.name, head)


def test_the_source_of_a_reported_pull_request_is_its_host(kind: Kind, post: Post, settings: Any) -> None:
    setattr(settings, HOSTS[kind.name].address[0], "https://host.example.com")
    post()
    source = config.source_of_job(ReviewJob.objects.get())
    assert isinstance(source, PullSource)
    assert source._mirror._config.url == "https://host.example.com/Acme/Website.git"
    assert source._reference == kind.head
    assert HostChange.objects.get().changelist_id == kind.pull
    assert config.source_dependency(kind.pull).startswith(f"{kind.name}-git:")
