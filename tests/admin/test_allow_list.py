"""The allow-list in the admin: lines inside the ceiling, each with a reason and a history."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client

from reviews.admin.allow_list import AllowListEntryAdmin
from reviews.audit.history import events_of
from reviews.models import AllowListEntry
from tests import factories
from tests.beside import Beside

pytestmark = pytest.mark.django_db
LIST = "/admin/reviews/allowlistentry/"
LINE = {
    "kind": "include",
    "pattern": "//depot/main/tiles/...",
    "position": 1,
    "reason": "TICKET-7",
    "denies_others": "on",
}


@pytest.fixture(autouse=True)
def _ceiling(settings: object) -> None:
    settings.DEPOT_ALLOW_LIST = ["//depot/main/...", "//art/*/textures/...", "//one/level/*.c"]  # type: ignore[attr-defined]


@pytest.fixture
def ann() -> Client:
    return factories.staff_client("ann", "security admin")


def add(client: Client, **changes: object) -> str:
    return client.post(f"{LIST}add/", {**LINE, **changes}, follow=True).content.decode()


@pytest.mark.parametrize(
    "pattern",
    [
        "//depot/main/...",
        "//depot/main/a/b.c",
        "//depot/main/*/c.h",
        "//art/cars/textures/...",
        "//one/level/*.c",
        "//one/level/a.c",
    ],
)
def test_a_line_inside_the_ceiling_is_accepted(ann: Client, pattern: str) -> None:
    add(ann, pattern=pattern)
    assert AllowListEntry.objects.get().pattern == pattern


@pytest.mark.parametrize(
    "pattern",
    [
        "//depot/...",
        "//depot/other/...",
        "//depot/main2/...",
        "//art/cars/...",
        "//art/cars/models/...",
        "//one/level/...",
        "//one/level/deeper/*.c",
        "//one/level/*",
    ],
)
def test_a_line_outside_the_ceiling_is_refused_and_says_why(ann: Client, pattern: str) -> None:
    assert "outside the ceiling that DEPOT_ALLOW_LIST sets" in add(ann, pattern=pattern)
    assert not AllowListEntry.objects.exists()


@pytest.mark.parametrize(
    "pattern", ["depot/main/...", "//depot/main/../x", "//depot/main/.../b", "//depot/main/a%%1"]
)
def test_a_line_that_is_not_canonical_is_refused(ann: Client, pattern: str) -> None:
    assert "errorlist" in add(ann, pattern=pattern)
    assert not AllowListEntry.objects.exists()


def test_an_exclusion_may_point_anywhere_and_is_written_without_its_sign(ann: Client) -> None:
    assert "choose the kind Exclude" in add(ann, kind="exclude", pattern="-//depot/main/x/...")
    asked = add(ann, kind="exclude", pattern="//depot/main/x/...")
    assert "will end as PATH_DENIED" in asked
    assert "Skipped paths" in asked
    assert not AllowListEntry.objects.exists()
    add(ann, kind="exclude", pattern="//depot/main/x/...", stops_changes="on")
    assert AllowListEntry.objects.get().kind == "exclude"


def test_the_first_include_asks_before_it_denies_all_other_paths(ann: Client) -> None:
    factories.AllowListEntryFactory(kind="exclude", pattern="//depot/main/x/...")
    asked = add(ann, denies_others="")
    assert "All other paths of the ceiling (//depot/main/..., //art/*/textures/..., //one/level/*.c)" in asked
    assert "Tick the box to confirm" in asked
    assert not AllowListEntry.objects.filter(kind="include").exists()
    add(ann)
    add(ann, pattern="//depot/main/maps/...", denies_others="")  # the first has denied the others already
    assert AllowListEntry.objects.filter(kind="include").count() == 2


def test_turning_the_only_line_into_an_include_asks_too(ann: Client) -> None:
    line = factories.AllowListEntryFactory(kind="exclude", pattern="//depot/main/x/...")
    form = {**LINE, "reason": "TICKET-8", "denies_others": ""}
    asked = ann.post(f"{LIST}{line.pk}/change/", form, follow=True).content.decode()
    assert "This is the first Include." in asked
    assert AllowListEntry.objects.get().kind == "exclude"


def test_an_include_of_the_whole_ceiling_asks_nothing(ann: Client, settings: object) -> None:
    settings.DEPOT_ALLOW_LIST = ["//depot/main/...", "-//depot/main/x/..."]  # type: ignore[attr-defined]
    add(ann, pattern="//depot/main/...", denies_others="")
    assert AllowListEntry.objects.exists()
    changed = {"pattern": "//depot/main/...", "position": 2, "reason": "TICKET-8", "denies_others": ""}
    ann.post(f"{LIST}{AllowListEntry.objects.get().pk}/change/", {**LINE, **changed})
    assert AllowListEntry.objects.get().position == 2


@pytest.mark.parametrize("reason", ["", " ", "x"])
def test_every_line_needs_a_reason(ann: Client, reason: str) -> None:
    add(ann, reason=reason)
    assert not AllowListEntry.objects.exists()


def test_the_history_says_who_when_what_and_from_where(ann: Client) -> None:
    add(ann)
    entry = AllowListEntry.objects.get()
    ann.post(f"{LIST}{entry.pk}/change/", {**LINE, "pattern": "//depot/main/maps/...", "reason": "TICKET-8"})
    text = ann.get(f"{LIST}{entry.pk}/history/").content.decode()
    assert "pattern: //depot/main/tiles/... \u2192 //depot/main/maps/..." in text
    assert "reason: TICKET-7 \u2192 TICKET-8" in text
    for part in ("Added", "Changed", ">ann<", f"127.0.0.1 {LIST}{entry.pk}/change/"):
        assert part in text


@pytest.mark.parametrize("page", ["history", "delete"])
@pytest.mark.parametrize("digits", [20, 5000])
def test_a_number_that_no_row_has_is_answered_like_one_that_is_gone(
    ann: Client, page: str, digits: int
) -> None:
    answer = ann.get(f"{LIST}{'9' * digits}/{page}/", follow=True)
    assert answer.status_code == 200
    assert "exist" in answer.content.decode()


def test_an_edit_outside_the_admin_is_in_the_history_too(ann: Client) -> None:
    entry = factories.AllowListEntryFactory()
    AllowListEntry.objects.update(reason="by hand")
    text = ann.get(f"{LIST}{entry.pk}/history/").content.decode()
    assert "a program" in text
    assert "by hand" in text


def test_deleting_needs_a_reason_and_leaves_a_trace(ann: Client) -> None:
    entry = factories.AllowListEntryFactory(kind="exclude")
    address = f"{LIST}{entry.pk}/delete/"
    refused = ann.post(address, {"post": "yes"}, follow=True)
    assert "Nothing was deleted. A reason is required." in refused.content.decode()
    assert AllowListEntry.objects.exists()
    ann.post(address, {"post": "yes", "reason": "the part is gone"})
    assert not AllowListEntry.objects.exists()
    last = events_of(AllowListEntry).objects.select_related("pgh_context").order_by("-pgh_id").first()
    assert (last.pgh_label, last.pgh_context.metadata["deletion_reason"]) == ("delete", "the part is gone")


def test_the_last_include_asks_before_it_opens_all_of_the_ceiling(ann: Client) -> None:
    last = factories.AllowListEntryFactory(kind="include", pattern="//depot/main/tiles/...")
    other = factories.AllowListEntryFactory(kind="include", pattern="//depot/main/maps/...")
    ann.post(f"{LIST}{other.pk}/delete/", {"post": "yes", "reason": "TICKET-8"})  # one Include remains
    assert AllowListEntry.objects.get() == last

    address = f"{LIST}{last.pk}/delete/"
    assert "This is the last Include." in ann.get(address).content.decode()
    refused = ann.post(address, {"post": "yes", "reason": "TICKET-8"}, follow=True).content.decode()
    assert "Nothing was deleted. This is the last Include." in refused
    as_exclude = {**LINE, "kind": "exclude", "reason": "TICKET-8", "stops_changes": "on", "denies_others": ""}
    change = f"{LIST}{last.pk}/change/"
    assert "This is the last Include." in ann.post(change, as_exclude, follow=True).content.decode()
    assert AllowListEntry.objects.get().kind == "include"

    ann.post(change, {**as_exclude, "allows_others": "on"})
    assert AllowListEntry.objects.get().kind == "exclude"
    last.save()  # an Include again
    ann.post(address, {"post": "yes", "reason": "TICKET-9", "allows_others": "on"})
    assert not AllowListEntry.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("second_way", ["delete", "change"])
def test_two_edits_at_once_do_not_take_the_last_includes_away(
    ann: Client, monkeypatch: pytest.MonkeyPatch, second_way: str
) -> None:
    first = factories.AllowListEntryFactory(kind="include", pattern="//depot/main/tiles/...")
    second = factories.AllowListEntryFactory(kind="include", pattern="//depot/main/maps/...")
    bob = factories.staff_client("bob", "security admin")
    as_exclude = {**LINE, "kind": "exclude", "stops_changes": "on", "denies_others": ""}
    body = {"delete": {"post": "yes", "reason": "TICKET-9"}, "change": as_exclude}[second_way]
    beside: list[Beside] = []
    delete = AllowListEntryAdmin.delete_model

    def delete_while_bob_edits(*given: Any) -> None:
        """Stop between the check and the deletion of the first line."""
        if not beside:
            address = f"{LIST}{second.pk}/{second_way}/"
            beside.append(Beside(lambda: bob.post(address, body, follow=True).content.decode()))
            beside[0].is_blocked()
        delete(*given)

    monkeypatch.setattr(AllowListEntryAdmin, "delete_model", delete_while_bob_edits)
    ann.post(f"{LIST}{first.pk}/delete/", {"post": "yes", "reason": "TICKET-8"})
    beside[0].join()
    assert "This is the last Include." in beside[0].result
    assert [(row.pk, row.kind) for row in AllowListEntry.objects.all()] == [(second.pk, "include")]


def test_an_include_of_the_whole_ceiling_goes_without_a_question(ann: Client, settings: object) -> None:
    settings.DEPOT_ALLOW_LIST = ["//depot/main/..."]  # type: ignore[attr-defined]
    line = factories.AllowListEntryFactory(kind="include", pattern="//depot/main/...")
    ann.post(f"{LIST}{line.pk}/delete/", {"post": "yes", "reason": "TICKET-8"})
    assert not AllowListEntry.objects.exists()


def test_the_list_of_edits_keeps_deleted_lines(ann: Client) -> None:
    entry = factories.AllowListEntryFactory(kind="exclude", reason="as it was added")
    ann.post(f"{LIST}{entry.pk}/delete/", {"post": "yes", "reason": "the part is gone"})
    last = events_of(AllowListEntry).objects.latest("pgh_id")
    one = ann.get(f"/admin/reviews/allowlistentryevent/{last.pk}/change/").content.decode()
    assert f"Allow-list edit {last.pk}" in one
    assert "Deleted" in one
    assert "Pgh" not in one
    assert "Event object" not in one
    text = ann.get("/admin/reviews/allowlistentryevent/").content.decode()
    assert entry.pattern in text
    assert "Deleted" in text
    assert ">ann<" in text
    assert (text.count("the part is gone"), text.count("as it was added")) == (1, 1)  # each edit has its own
    old_link = ann.get(f"{LIST}{entry.pk}/history/")
    assert old_link["Location"] == "/admin/reviews/allowlistentryevent/"


def test_lines_are_not_deleted_in_bulk(ann: Client) -> None:
    factories.AllowListEntryFactory()
    assert "delete_selected" not in ann.get(LIST).content.decode()


def test_an_operator_may_not_edit_the_allow_list(client: Client) -> None:
    user = factories.UserFactory(is_staff=True)
    user.groups.add(Group.objects.get(name="operator"))
    client.force_login(user)
    assert client.get(LIST).status_code == 403
    assert client.post(f"{LIST}add/", LINE).status_code == 403


def test_a_change_needs_a_reason_of_its_own(ann: Client) -> None:
    add(ann)
    entry = AllowListEntry.objects.get()
    address = f"{LIST}{entry.pk}/change/"
    text = ann.post(address, {**LINE, "position": 9}, follow=True).content.decode()
    assert "Enter a new reason: this one belongs to the previous change." in text
    assert AllowListEntry.objects.get().position == 1
    ann.post(address, {**LINE, "position": 9, "reason": "TICKET-9"})
    assert AllowListEntry.objects.get().position == 9


@pytest.mark.parametrize(
    "pattern",
    [
        "//depot/main...",
        "//depot/.../x",
        "//dep*/main/...",
        "//depot/main/./x",
        "//depot//main/...",
        "//depot/main/%zz",
        "//depot/main/a@1",
        "//depot/main/a#2",
        "//depot/main/a\tb",
        "\\\\depot\\main",
        "//depot/main/\u202ebad",
        "//depot/" + "x" * 1030,
    ],
)
def test_a_pattern_in_another_form_is_refused(ann: Client, pattern: str) -> None:
    assert "errorlist" in add(ann, pattern=pattern)
    assert not AllowListEntry.objects.exists()


def test_a_wildcard_does_not_slip_through_a_narrower_one_of_the_ceiling(
    ann: Client, settings: object
) -> None:
    settings.DEPOT_ALLOW_LIST = ["//depot/a*/..."]  # type: ignore[attr-defined]
    assert "outside the ceiling" in add(ann, pattern="//depot/*/...")
    add(ann, pattern="//depot/art/...")
    assert AllowListEntry.objects.get().pattern == "//depot/art/..."


def ask(client: Client, path: str, **more: str) -> str:
    return client.get(f"{LIST}explain/", {"path": path, **more}).content.decode()


def test_the_admin_explains_a_decision_of_the_ceiling_alone(ann: Client) -> None:
    text = ask(ann, "//depot/main/a.c")
    assert "allowed by the line //depot/main/..." in text
    text = ask(ann, "//depot/other/a.c")
    assert "no line of the allow-list matches" in text
    assert ">Denied<" in text


def test_the_admin_explains_which_row_decided_and_why_it_is_there(ann: Client) -> None:
    factories.AllowListEntryFactory(pattern="//depot/main/tiles/...", position=1, reason="TICKET-7")
    row = factories.AllowListEntryFactory(
        kind="exclude", pattern="//depot/main/tiles/keys/...", position=2, reason="keys are private"
    )
    text = ask(ann, "//depot/main/tiles/keys/id")
    assert "excluded by the line -//depot/main/tiles/keys/..." in text
    assert "keys are private" in text
    assert f"{LIST}{row.pk}/change/" in text
    assert "allows: allowed by the line //depot/main/..." in text  # the ceiling alone would allow it
    assert ">Allowed<" in ask(ann, "//depot/main/tiles/x")
    assert "no line of the allow-list matches" in ask(ann, "//depot/main/maps/x")


def test_the_admin_shows_the_form_that_is_compared(ann: Client) -> None:
    assert "//depot/main/c%23/x%2A.h" in ask(ann, "//Depot/MAIN/C%23/x%2a.h", ignore_case="on").replace(
        "%2a.h", "%2A.h"
    )
    assert ">Allowed<" in ask(ann, "//Depot/MAIN/x", ignore_case="on")
    assert ">Denied<" in ask(ann, "//Depot/MAIN/x")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("//depot/main/../secret", "relative segment"),
        ("//depot/main//x", "empty segment"),
        ("depot/main/x", "does not start with //"),
        ("//depot/main/...", "wildcard"),
        (" //depot/main/x", "does not start with //"),
        ("//depot/main/<b>x</b>@1", "raw @, # or *"),
    ],
)
def test_a_path_that_is_not_canonical_is_denied_and_says_why(ann: Client, path: str, reason: str) -> None:
    text = ask(ann, path)
    assert ">Denied<" in text
    assert reason in text
    assert "<b>x</b>" not in text


def test_a_name_with_special_characters_gets_advice(ann: Client) -> None:
    assert "its depot path is //depot/main/a%40b.c" in ask(ann, "//depot/main/a@b.c")


def test_the_answer_is_the_fetchers(ann: Client) -> None:
    """The tool decides as `config.allow_list()` does, for rows and paths of every kind."""
    from reviews import config
    from reviews.admin.allow_list import explain

    for kind, pattern in (("include", "//depot/main/a/..."), ("exclude", "//depot/main/a/k*")):
        factories.AllowListEntryFactory(kind=kind, pattern=pattern)
    for path in ("//depot/main/a/x", "//depot/main/a/k1", "//depot/main/b", "//art/x/textures/a", "", "//"):
        assert explain(path).decision == config.allow_list().decide(path)


def test_a_stored_line_that_is_not_valid_denies_everything_and_says_so(ann: Client) -> None:
    factories.AllowListEntryFactory(pattern="//depot/main...")
    text = ask(ann, "//depot/main/x")
    assert ">Denied<" in text
    assert "an allow-list entry is not valid" in text


def test_who_may_not_see_the_list_may_not_ask(client: Client) -> None:
    client.force_login(factories.UserFactory(is_staff=True))
    assert client.get(f"{LIST}explain/", {"path": "//depot/main/x"}).status_code == 403
