"""Invitations: one form, one commit, one mail over SMTP; only the person knows the password."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import Group, Permission, User
from django.contrib.auth.tokens import default_token_generator
from django.http import HttpRequest
from django.test import Client

from criticizer.models import SecurityEvent
from criticizer.security import reauthentication
from criticizer.security.reauthentication import SetOtherPasswordForm
from notifications import config
from notifications.providers.email.smtp import Smtp, SmtpConfig
from reviews.audit.history import events_of
from reviews.models import ViewerScope
from reviews.web import welcome
from tests import factories
from tests.admin.test_letters import messages_of
from tests.fakes.smtp import SmtpServer, Switches
from tests.notifications.samples import SENDER
from tests.security.conftest import grow_old

pytestmark = pytest.mark.django_db
FORM = "/admin/invite/"
GIVEN = {"mail": "eve@example.com", "username": "eve", "team": "shop", "trees": "//depot/shop/...\n"}
NEW = "a long and quiet sentence"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmtpServer]:
    with SmtpServer() as running:
        mail = Smtp(SmtpConfig(host="127.0.0.1", port=running.port, sender=SENDER))
        monkeypatch.setattr(config, "providers", lambda: {"mail": mail})
        monkeypatch.setattr(config, "problems", dict)
        yield running


@pytest.fixture
def root() -> Client:
    user = factories.UserFactory(username="root", is_staff=True, is_superuser=True)
    client = Client()
    client.login(username=user.username, password=factories.PASSWORD)
    return client


def invite(client: Client, **changes: Any) -> Any:
    role = Group.objects.get(name="reviewer")
    return client.post(FORM, {**GIVEN, "roles": [role.pk], **changes}, follow=True)


def link_in(server: SmtpServer) -> str:
    text = server.accepted[-1].mail.get_body(("plain",)).get_content()
    found = re.search(r"https?://[^/]+(/welcome/\S+)", text)
    assert found, text
    return found[1]


def test_one_form_makes_a_person_who_sets_the_password_and_reads_what_the_team_may(
    root: Client, server: SmtpServer, caplog: pytest.LogCaptureFixture
) -> None:
    assert messages_of(invite(root)) == ["The account eve was made; the link was mailed to eve@example.com."]
    eve = User.objects.get(username="eve")
    assert (eve.email, eve.is_staff, eve.has_usable_password()) == ("eve@example.com", False, False)
    assert set(eve.groups.values_list("name", flat=True)) == {"reviewer", "shop"}
    assert ViewerScope.objects.get().prefix == "//depot/shop/..."
    event = SecurityEvent.objects.get(kind="person_invited")
    assert (event.actor, event.context["trees"]) == ("root", ["//depot/shop/..."])
    assert events_of(ViewerScope).objects.get().pgh_context.metadata["url"] == FORM

    link, person = link_in(server), Client()
    asked = person.get(link)
    assert asked["Location"] == "/welcome/"  # the key is in no history and in no Referer
    page = person.get("/welcome/").content.decode()
    assert "Welcome, eve" in page
    short = person.post("/welcome/", {"new_password1": "short", "new_password2": "short"})
    assert "too short" in short.content.decode()
    done = person.post("/welcome/", {"new_password1": NEW, "new_password2": NEW}, follow=True)
    assert done.redirect_chain[-1][0] == "/"
    assert Client().login(username="eve", password=NEW)

    key = link.partition("key=")[2].partition("&")[0]
    for secret in (NEW, key):
        assert secret not in caplog.text
        assert secret not in str(SecurityEvent.objects.values_list("reason", "context"))


def test_a_link_works_once_and_only_for_an_active_account_without_a_password(
    root: Client, server: SmtpServer
) -> None:
    invite(root)
    link = link_in(server)
    first, second = Client(), Client()
    for client in (first, second):
        client.get(link)
    first.post("/welcome/", {"new_password1": NEW, "new_password2": NEW})
    assert "does not work any more" in second.get("/welcome/").content.decode()
    second.post(
        "/welcome/", {"new_password1": "another long sentence", "new_password2": "another long sentence"}
    )
    assert Client().login(username="eve", password=NEW)
    # Nor does a link reset what somebody uses, or open what was closed.
    eve = User.objects.get(username="eve")
    assert "has a password already" in messages_of(root.post(f"{FORM}{eve.pk}/", follow=True))[0]
    invite(root, username="abe", mail="abe@example.com")
    User.objects.filter(username="abe").update(is_active=False)
    closed = Client()
    closed.get(link_in(server))
    assert "does not work any more" in closed.get("/welcome/").content.decode()


def test_a_link_whose_time_is_over_opens_no_form_and_ends_one_that_is_open(
    root: Client, server: SmtpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    invite(root)
    opened, late = Client(), Client()
    opened.get(link_in(server))
    assert 'name="new_password1"' in opened.get("/welcome/").content.decode()
    over = default_token_generator._now() + timedelta(seconds=settings.PASSWORD_RESET_TIMEOUT + 60)
    monkeypatch.setattr(default_token_generator, "_now", lambda: over)
    given = {"new_password1": NEW, "new_password2": NEW}
    assert "does not work any more" in opened.post("/welcome/", given).content.decode()
    late.get(link_in(server))
    assert "does not work any more" in late.post("/welcome/", given).content.decode()
    assert not User.objects.get(username="eve").has_usable_password()


def test_of_two_requests_at_once_with_one_link_one_sets_the_password(
    root: Client, server: SmtpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second is answered between the first one's look at the link and its writing."""
    invite(root)
    first, second = Client(), Client()
    for client in (first, second):
        client.get(link_in(server))
    real, looks = welcome.may_be_invited, []

    def look(user: User) -> bool:
        found = real(user)
        looks.append(user)
        if len(looks) == 1:
            other = "another long sentence"
            done = second.post("/welcome/", {"new_password1": other, "new_password2": other})
            assert done["Location"] == "/login/"
            User.objects.filter(username="eve").update(is_superuser=False, first_name="Eve")
        return found

    monkeypatch.setattr(welcome, "may_be_invited", look)
    late = first.post("/welcome/", {"new_password1": NEW, "new_password2": NEW})
    assert "does not work any more" in late.content.decode()
    assert Client().login(username="eve", password="another long sentence")


def test_a_new_password_brings_back_nothing_that_was_taken_away_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An account is demoted and closed between the reading of its row and the writing (G578)."""
    factories.UserFactory(username="eve", is_staff=True, is_superuser=True)
    client = Client()
    client.login(username="eve", password=factories.PASSWORD)
    real = reauthentication.note_password

    def demoted(request: HttpRequest) -> None:
        User.objects.filter(username="eve").update(is_superuser=False, is_staff=False, is_active=False)
        real(request)

    monkeypatch.setattr(reauthentication, "note_password", demoted)
    given = {"old_password": factories.PASSWORD, "new_password1": NEW, "new_password2": NEW}
    assert client.post("/password/", given).status_code == 302
    eve = User.objects.get(username="eve")
    assert (eve.is_superuser, eve.is_staff, eve.is_active, eve.check_password(NEW)) == (
        False,
        False,
        False,
        True,
    )


@pytest.mark.parametrize(
    "given",
    [
        {"password1": NEW, "password2": NEW, "usable_password": "true"},
        {"usable_password": "false", "unset-password": "yes"},
    ],
)
def test_an_admin_who_sets_a_password_brings_back_nothing_either(
    root: Client, monkeypatch: pytest.MonkeyPatch, given: dict[str, str]
) -> None:
    eve = factories.UserFactory(username="eve", is_staff=True, is_superuser=True)
    real = SetOtherPasswordForm.clean

    def demoted(form: SetOtherPasswordForm) -> Any:
        User.objects.filter(pk=eve.pk).update(is_superuser=False, is_staff=False, is_active=False)
        return real(form)

    monkeypatch.setattr(SetOtherPasswordForm, "clean", demoted)
    assert root.post(f"/admin/auth/user/{eve.pk}/password/", given).status_code == 302
    found = User.objects.get(pk=eve.pk)
    assert (found.is_superuser, found.is_staff, found.is_active) == (False, False, False)
    assert not found.check_password(factories.PASSWORD)
    assert found.has_usable_password() == ("password1" in given)


@pytest.mark.parametrize(
    "query",
    ["", "?person=&key=", "?person=MQ&key=x-y", "?key=1", f"?person={'9' * 500}&key={'a' * 5000}"],
)
def test_no_other_address_opens_the_form(query: str) -> None:
    factories.UserFactory(username="bob")
    page = Client().get(f"/welcome/{query}", follow=True)
    assert "does not work any more" in page.content.decode()
    assert 'name="new_password1"' not in page.content.decode()


def test_an_account_whose_mail_failed_gets_the_link_again(root: Client, server: SmtpServer) -> None:
    server.switches = Switches(rcpt="550 5.1.1 no such user")
    text = messages_of(invite(root))[0]
    assert "The account eve was made, but the link was not mailed" in text
    assert "eve@example.com" not in text.partition("mailed")[2]
    eve = User.objects.get(username="eve")
    assert "Mail the link again" in root.get(f"/admin/auth/user/{eve.pk}/change/").content.decode()
    server.switches = Switches()
    assert "mailed to eve@example.com" in messages_of(root.post(f"{FORM}{eve.pk}/", follow=True))[0]
    assert link_in(server)


def test_without_a_mail_server_the_form_says_so_and_makes_the_account(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "providers", dict)
    monkeypatch.setattr(config, "problems", dict)
    assert "no mail server is configured" in root.get(FORM).content.decode()
    assert "no mail server is configured" in messages_of(invite(root))[0]
    assert User.objects.filter(username="eve").exists()


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"team": "operator"}, "This is a role"),
        ({"team": ""}, "Name the team"),
        ({"trees": "depot/shop"}, "depot/shop"),
        ({"trees": "//depot/*/..."}, "//depot/*/..."),
        ({"username": "ROOT"}, "has this name already"),
        ({"mail": "no address"}, "valid email"),
        ({"trees": "\n".join(f"//depot/{n}/..." for n in range(51))}, "At most 50"),
    ],
)
def test_wrong_values_make_nothing(
    root: Client, server: SmtpServer, changes: dict[str, str], error: str
) -> None:
    answer = invite(root, **changes)
    assert error in answer.content.decode()
    assert not User.objects.filter(username="eve").exists()
    assert not ViewerScope.objects.exists()
    assert server.accepted == []


def test_two_with_one_address_are_refused(root: Client, server: SmtpServer) -> None:
    invite(root)
    assert "has this address already" in invite(root, username="eva", mail="EVE@example.com").content.decode()


def test_others_may_not_invite_and_an_old_password_is_asked_for(root: Client, server: SmtpServer) -> None:
    for role in ("operator", "security admin", "auditor"):
        client = factories.staff_client(f"{role[:3]}-person", role)
        assert client.get(FORM).status_code == 403
        assert client.post(FORM, GIVEN).status_code == 403
    assert "Invite a person" in root.get("/admin/auth/user/").content.decode()
    grow_old(root)
    assert root.get(FORM).status_code == 302


@pytest.mark.long
def test_the_buttons_are_shown_to_those_who_may_invite_and_for_accounts_that_may_be_invited(
    root: Client, server: SmtpServer
) -> None:
    invite(root)
    eve = User.objects.get(username="eve")
    helper = factories.UserFactory(username="helper", is_staff=True)
    most = ("view_user", "add_user", "change_user", "add_viewerscope")
    helper.user_permissions.set(Permission.objects.filter(codename__in=most))
    client = Client()
    client.force_login(helper)

    def shown() -> tuple[bool, bool]:
        pages = [client.get(f"/admin/auth/user/{page}") for page in ("", f"{eve.pk}/change/")]
        assert [page.status_code for page in pages] == [200, 200]
        texts = [page.content.decode() for page in pages]
        return "Invite a person" in texts[0], "Mail the link again" in texts[1]

    assert (client.get(FORM).status_code, shown()) == (403, (False, False))
    helper.user_permissions.add(Permission.objects.get(codename="add_group"))
    assert (client.get(FORM).status_code, shown()) == (200, (True, True))
    User.objects.filter(pk=eve.pk).update(is_active=False)
    assert shown() == (True, False)
