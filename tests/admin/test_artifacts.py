"""Artifacts in the admin: read with the right permission only, and never without a trace."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group, Permission
from django.test import Client

from criticizer.models import SecurityEvent
from reviews.artifacts import reader as artifact_reading
from reviews.artifacts import store
from reviews.models import Artifact, ViewerScope
from reviews.pipeline import StageClaim
from reviews.sources import change_codec
from reviews.sources.base import Action, Change, ChangeStatus, FileChange
from reviews.states import Stage
from tests import factories

pytestmark = pytest.mark.django_db
K = Artifact.Kind


def stored(kind: Artifact.Kind, text: bytes) -> Artifact:
    job = factories.ReviewJobFactory()
    claim = StageClaim(1, uuid4(), 1, Stage.FETCH, 1, 5, 1, job.pk, "12345", 1)
    store.store(claim, kind, text).save()
    return Artifact.objects.latest("id")


def address(artifact: Artifact) -> str:
    return f"/admin/reviews/artifact/{artifact.pk}/content/"


def login(client: Client, *permissions: str, group: str = "", staff: bool = True) -> Client:
    user = factories.UserFactory(username="ann", is_staff=staff)
    # Every file is open to ann: what a scope narrows is tested below.
    user.user_permissions.set(Permission.objects.filter(codename__in=(*permissions, "view_all_files")))
    if group:
        user.groups.add(Group.objects.get(name=group))
    client.force_login(user)
    return client


def trace() -> list[tuple[str, str, bool]]:
    rows = SecurityEvent.objects.filter(kind__startswith="artifact_").order_by("id")
    return [(row.kind, row.actor, row.context["raw"]) for row in rows]


def test_a_redacted_artifact_is_shown_escaped_and_the_reading_recorded(client: Client) -> None:
    artifact = stored(K.PROMPT, b"<script>alert(1)</script> \xe2\x80\xae hidden \x00 end")
    answer = login(client, "read_artifact").get(address(artifact), REMOTE_ADDR="192.0.2.7")
    text = answer.content.decode()
    assert answer.status_code == 200
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<script>alert" not in text
    assert "\u202e" not in text
    assert "no-store" in answer["Cache-Control"]
    event = SecurityEvent.objects.get(kind="artifact_read")
    assert (event.actor, event.path, event.context["address"]) == ("ann", artifact.name, "192.0.2.7")
    assert "alert" not in str(event.__dict__)


@pytest.mark.parametrize(
    ("permissions", "kind", "status"),
    [
        ((), K.PROMPT, 403),
        ((), K.CHANGE, 403),
        (("read_artifact",), K.PROMPT, 200),
        (("read_artifact",), K.CHANGE, 403),
        (("read_raw_artifact",), K.CHANGE, 200),
        (("read_raw_artifact",), K.MAIL, 403),
        (("view_artifact",), K.ANSWER, 403),
    ],
)
def test_raw_and_redacted_need_each_their_own_permission(
    client: Client, permissions: tuple[str, ...], kind: Artifact.Kind, status: int
) -> None:
    artifact = stored(kind, b"the content")
    answer = login(client, *permissions).get(address(artifact))
    assert answer.status_code == status
    assert (b"the content" in answer.content) == (status == 200)
    assert trace() == [("artifact_read" if status == 200 else "artifact_refused", "ann", kind == K.CHANGE)]


@pytest.mark.parametrize("group", ["reviewer", "operator"])
def test_only_the_security_admin_reads_raw(client: Client, group: str) -> None:
    artifact = stored(K.CHANGE, b"the content")
    assert login(client, group=group).get(address(artifact)).status_code == 403
    assert trace() == [("artifact_refused", "ann", True)]


def test_the_security_admin_reads_raw(client: Client) -> None:
    artifact = stored(K.CHANGE, b"the content")
    assert b"the content" in login(client, group="security admin").get(address(artifact)).content


# -- and only of files in their viewing scope -----------------------------------------------------


def scoped(client: Client, *prefixes: str) -> Client:
    """Log in somebody who may read every kind of artifact, of files below the prefixes."""
    group = Group.objects.create(name="some readers")
    group.permissions.add(*Permission.objects.filter(codename__in=["read_artifact", "read_raw_artifact"]))
    for prefix in prefixes:
        ViewerScope.objects.create(group=group, prefix=prefix, reason="theirs")
    user = factories.UserFactory(username="sam", is_staff=True, reads=False)
    user.groups.add(group)
    client.force_login(user)
    return client


def of_files(artifact: Artifact, *files: str) -> Artifact:
    for file in files:
        factories.CoverageRowFactory(job=artifact.job, file=file)
    return artifact


@pytest.mark.parametrize(
    ("files", "status"),
    [
        (("//depot/main/a.c", "//depot/main/b.c"), 200),
        (("//depot/main/a.c", "//depot/secret/plan.txt"), 403),
        (("//depot/secret/plan.txt",), 403),
        ((), 403),  # not known yet
    ],
)
@pytest.mark.parametrize("kind", [K.PROMPT, K.MAIL])
def test_an_artifact_is_read_when_all_its_files_are_in_scope(
    client: Client, kind: Artifact.Kind, files: tuple[str, ...], status: int
) -> None:
    artifact = of_files(stored(kind, b"the content"), *files)
    answer = scoped(client, "//depot/main/...").get(address(artifact))
    assert (answer.status_code, b"the content" in answer.content) == (status, status == 200)
    assert trace() == [("artifact_read" if status == 200 else "artifact_refused", "sam", False)]
    assert SecurityEvent.objects.get().reason == ("" if status == 200 else "outside the viewing scope")


def test_a_finding_alone_shows_that_a_file_is_outside(client: Client) -> None:
    artifact = of_files(stored(K.PROMPT, b"the content"), "//depot/main/a.c")
    factories.FindingRowFactory(job=artifact.job, file="//depot/secret/plan.txt")
    assert scoped(client, "//depot/main/...").get(address(artifact)).status_code == 403


@pytest.mark.parametrize(("old_path", "status"), [(None, 200), ("//depot/secret/plan.txt", 403)])
def test_where_a_renamed_file_came_from_counts_too(client: Client, old_path: str | None, status: int) -> None:
    file = FileChange("//depot/main/a.c", Action.RENAME if old_path else Action.EDIT, old_path=old_path)
    change = Change("12345", "perforce", "ann", "why", ChangeStatus.SUBMITTED, 0, "k", (file,))
    artifact = of_files(stored(K.CHANGE, change_codec.to_json(change)), "//depot/main/a.c")
    assert scoped(client, "//depot/main/...").get(address(artifact)).status_code == status
    assert trace() == [("artifact_read" if status == 200 else "artifact_refused", "sam", True)]


def test_without_a_scope_even_the_security_admin_reads_nothing(client: Client) -> None:
    artifact = of_files(stored(K.CHANGE, b"the content"), "//depot/main/a.c")
    user = factories.UserFactory(username="sam", is_staff=True, reads=False)
    user.groups.add(Group.objects.get(name="security admin"))
    client.force_login(user)
    assert client.get(address(artifact)).status_code == 403
    assert trace() == [("artifact_refused", "sam", True)]


def test_the_list_names_reviews_within_the_viewing_scope_only(client: Client) -> None:
    inside = of_files(stored(K.PROMPT, b"x"), "//depot/main/a.c")
    outside = of_files(stored(K.PROMPT, b"x"), "//depot/secret/plan.txt")
    scoped(client, "//depot/main/...")
    Group.objects.get(name="some readers").permissions.add(Permission.objects.get(codename="view_artifact"))
    base = "/admin/reviews/artifact/"
    page = client.get(base).content.decode()
    assert [f"{base}{one.pk}/change/" in page for one in (inside, outside)] == [True, False]
    codes = [client.get(f"{base}{one.pk}/change/").status_code for one in (inside, outside)]
    assert codes == [200, 302]  # as for a row that is not there


def test_an_old_password_is_asked_for_before_the_content_is_shown(client: Client) -> None:
    artifact = stored(K.PROMPT, b"the content")
    login(client, "read_artifact")
    session = client.session
    session["password_at"] = 0
    session.save()
    assert client.get(address(artifact))["Location"].startswith("/reauth/")
    assert trace() == []


def test_somebody_without_the_admin_is_refused_and_recorded(client: Client) -> None:
    artifact = stored(K.PROMPT, b"the content")
    login(client, "read_artifact", "read_raw_artifact", staff=False)
    assert client.get(address(artifact)).status_code == 403
    assert trace() == [("artifact_refused", "ann", False)]


def test_somebody_unknown_is_asked_to_log_in(client: Client) -> None:
    answer = client.get(address(stored(K.PROMPT, b"the content")))
    assert answer.status_code == 302
    assert answer["Location"].startswith("/admin/login/?next=/admin/reviews/artifact/")
    assert trace() == []


def test_an_expired_artifact_says_so_and_the_attempt_is_recorded(client: Client) -> None:
    artifact = stored(K.PROMPT, b"the content")
    Artifact.objects.update(expires_at="2020-01-01T00:00Z")
    store.delete_expired()
    login(client, "read_artifact", "view_artifact")
    assert "has expired" in client.get(address(artifact), follow=True).content.decode()
    assert trace() == [("artifact_refused", "ann", False)]


def test_a_long_artifact_is_cut_and_says_so(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifact_reading, "MAX_SHOWN", 100)
    artifact = stored(K.ANSWER, b"a" * 100 + b"b!" * 25)
    text = login(client, "read_artifact").get(address(artifact)).content.decode()
    assert "50 more characters are not shown" in text
    assert "b!" not in text  # no token of the page holds that


def test_the_list_and_the_row_show_no_content_and_link_only_what_may_be_read(client: Client) -> None:
    raw, redacted = stored(K.CHANGE, b"the content"), stored(K.PROMPT, b"the content")
    login(client, "view_artifact", "read_artifact")
    pages = [
        client.get(f"/admin/reviews/artifact/{tail}").content.decode()
        for tail in ("", f"{raw.pk}/change/", f"{redacted.pk}/change/")
    ]
    assert not any("the content" in page for page in pages)
    assert [address(raw) in pages[1], address(redacted) in pages[2]] == [False, True]
    assert trace() == []


def test_an_artifact_that_is_not_there_is_not_found(client: Client) -> None:
    assert login(client, "read_artifact").get("/admin/reviews/artifact/999/content/").status_code == 404


def test_even_the_superuser_changes_nothing(client: Client) -> None:
    artifact: Any = stored(K.PROMPT, b"x")
    client.force_login(factories.UserFactory(is_staff=True, is_superuser=True))
    base = f"/admin/reviews/artifact/{artifact.pk}"
    assert client.post(f"{base}/change/", {"name": "y"}).status_code == 403
    assert client.post(f"{base}/delete/", {"post": "yes"}).status_code == 403
    assert client.get("/admin/reviews/artifact/add/").status_code == 403
