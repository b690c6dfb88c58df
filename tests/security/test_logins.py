"""Logins: throttled with one constant answer, and nobody is locked out for ever.

Dangerous actions ask for the password again.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client, RequestFactory

from criticizer.models import LoginTry, SecurityEvent
from criticizer.security import login_throttle
from criticizer.security.client_ip import client_ip, rate_limit_subnet
from reviews.models import ApiKey
from tests import factories
from tests.factories import PASSWORD
from tests.security.conftest import grow_old

pytestmark = pytest.mark.django_db

HOME, ELSEWHERE = "203.0.113.7", "198.51.100.9"


@pytest.fixture
def ann() -> Any:
    return factories.UserFactory(username="ann")


def log_in(password: str, address: str = HOME, name: str = "ann") -> Any:
    form = {"username": name, "password": password}
    return Client().post("/login/", form, REMOTE_ADDR=address)


def is_in(response: Any) -> bool:
    return bool(response.status_code == 302)


def fail(times: int, address: str = HOME, name: str = "ann") -> None:
    for _ in range(times):
        login_throttle.note_failure(name, address)


def let_time_pass(**fields: int) -> None:
    """Move every row into the past."""
    past = timedelta(**fields)
    for row in LoginTry.objects.all():
        row.window_ends_at -= past
        row.locked_until = row.locked_until and row.locked_until - past
        row.succeeded_at = row.succeeded_at and row.succeeded_at - past
        row.save()


def text_of(response: Any) -> str:
    import re

    return re.sub(r'name="csrfmiddlewaretoken" value="[^"]*"', "", response.content.decode())


def test_the_right_password_is_refused_during_a_lock_with_the_same_answer(ann: Any) -> None:
    wrong = [log_in("wrong") for _ in range(login_throttle.PAIR_LIMIT)]
    right = log_in(PASSWORD)
    assert not is_in(right)
    assert (right.status_code, text_of(right)) == (wrong[0].status_code, text_of(wrong[0]))
    unknown = log_in("wrong", name="nobody")
    assert text_of(unknown).replace("nobody", "ann") == text_of(wrong[0])


def test_a_lock_expires_and_attempts_during_it_do_not_extend_it(ann: Any) -> None:
    fail(login_throttle.PAIR_LIMIT)
    until = LoginTry.objects.order_by("-locked_until").exclude(locked_until=None).get().locked_until
    for _ in range(3):
        assert not is_in(log_in(PASSWORD))
    assert LoginTry.objects.exclude(locked_until=None).get().locked_until == until
    let_time_pass(seconds=login_throttle.LOCK_SECONDS + 1)
    assert is_in(log_in(PASSWORD))


def test_a_lock_leaves_one_security_event_that_names_no_unknown_account(ann: Any) -> None:
    fail(login_throttle.PAIR_LIMIT)
    fail(login_throttle.PAIR_LIMIT, name="hunter2 typed into the wrong field")
    events = SecurityEvent.objects.filter(kind="login_locked").order_by("id")
    assert [event.actor for event in events] == ["ann", "(unknown account)"]
    assert "hunter2" not in str(list(events.values()))
    assert "hunter2" not in str(list(LoginTry.objects.values()))


def test_failures_from_elsewhere_do_not_lock_this_address(ann: Any) -> None:
    fail(login_throttle.PAIR_LIMIT, ELSEWHERE)
    assert not is_in(log_in(PASSWORD, ELSEWHERE))
    assert is_in(log_in(PASSWORD, HOME))


def test_strangers_cannot_lock_an_owner_out_of_a_known_address(ann: Any) -> None:
    assert is_in(log_in(PASSWORD, HOME))
    for number in range(login_throttle.ACCOUNT_LIMIT):
        login_throttle.note_failure("ann", f"198.51.100.{number}")
    assert not is_in(log_in(PASSWORD, "192.0.2.1"))  # from an address it never used
    assert is_in(log_in(PASSWORD, HOME))


def test_one_address_cannot_try_many_accounts(ann: Any) -> None:
    for number in range(login_throttle.ADDRESS_LIMIT):
        login_throttle.note_failure(f"name{number}", ELSEWHERE)
    assert not is_in(log_in(PASSWORD, ELSEWHERE))
    assert is_in(log_in(PASSWORD, HOME))


def test_a_success_forgets_the_failures_before_it(ann: Any) -> None:
    fail(login_throttle.PAIR_LIMIT - 1)
    assert is_in(log_in(PASSWORD))
    fail(login_throttle.PAIR_LIMIT - 1)
    assert is_in(log_in(PASSWORD))


def test_the_admin_and_the_asked_again_password_are_throttled_alike(ann: Any) -> None:
    fail(login_throttle.PAIR_LIMIT)
    ann.is_staff = True
    ann.save()
    form = {"username": "ann", "password": PASSWORD}
    assert not is_in(Client().post("/admin/login/", form, REMOTE_ADDR=HOME))
    client = Client(REMOTE_ADDR=HOME)
    client.force_login(ann)
    assert client.post("/reauth/", {"password": PASSWORD, "next": "/"}).status_code == 200


def test_an_operator_on_the_machine_can_end_a_lock(ann: Any) -> None:
    fail(login_throttle.PAIR_LIMIT)
    call_command("unlock_login", "ann", stdout=io.StringIO())
    assert is_in(log_in(PASSWORD))


def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_throttle, "MAX_ROWS", 30)
    for number in range(40):
        login_throttle.note_failure(f"name{number}", f"198.51.100.{number}")
    assert LoginTry.objects.count() <= 33


def test_old_rows_go_and_known_addresses_stay(ann: Any) -> None:
    log_in(PASSWORD, HOME)
    fail(3, ELSEWHERE, "bob")
    let_time_pass(days=1)
    login_throttle.note_failure("carl", "192.0.2.5")
    assert LoginTry.objects.count() == 4  # ann at home; carl, his address, both
    assert LoginTry.objects.filter(succeeded_at__isnull=False).count() == 1


def test_neighbours_of_an_ipv6_address_count_together() -> None:
    assert rate_limit_subnet("2001:db8::1") == rate_limit_subnet("2001:db8::ffff") == "2001:db8::/64"
    assert rate_limit_subnet("2001:db8:0:1::1") != rate_limit_subnet("2001:db8::1")
    assert rate_limit_subnet("::ffff:203.0.113.7") == HOME
    assert rate_limit_subnet("not an address") == ""


@pytest.mark.parametrize(
    ("peer", "forwarded", "found"),
    [
        (HOME, "192.0.2.1", HOME),  # anybody can write the header
        ("10.0.0.1", "192.0.2.1, 198.51.100.9", ELSEWHERE),  # the proxy appends what it saw
        ("10.0.0.1", "192.0.2.1, 198.51.100.9, 10.0.0.2", ELSEWHERE),
        ("10.0.0.1", f"{'192.0.2.1, ' * 200}198.51.100.9", ELSEWHERE),  # however much the client sent before
        ("10.0.0.1", f"192.0.2.1,{' ' * 990}198.51.100.9", "10.0.0.1"),  # a hop that is cut in two
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "not an address", "10.0.0.1"),
    ],
)
def test_forwarded_addresses_are_believed_from_named_proxies_only(
    rf: RequestFactory, settings: Any, peer: str, forwarded: str, found: str
) -> None:
    settings.TRUSTED_PROXIES = ["10.0.0.0/8"]
    request = rf.get("/", REMOTE_ADDR=peer, headers={"X-Forwarded-For": forwarded})
    assert client_ip(request) == found


# -- the password again ------------------------------------------------------------------------


def _revoke() -> tuple[str, dict[str, Any]]:
    key = factories.ApiKeyFactory()
    return "/admin/reviews/apikey/", {"action": "revoke", "_selected_action": [key.pk]}


# The answers to the questions of lists: test_password_again.py.
DANGEROUS: dict[str, Callable[[], tuple[str, dict[str, Any]]]] = {
    "revoke a key": _revoke,
    "make a key": lambda: ("/admin/reviews/apikey/add/", {"name": "ci", "role": "trigger"}),
    "edit the allow-list": lambda: ("/admin/reviews/allowlistentry/add/", {}),
    "edit a subscription": lambda: ("/admin/reviews/subscription/add/", {}),
    "edit a viewing scope": lambda: ("/admin/reviews/viewerscope/add/", {}),
}


@pytest.mark.parametrize("what", DANGEROUS)
def test_an_old_password_is_asked_for_again_before(what: str, sam: Client) -> None:
    address, form = DANGEROUS[what]()
    assert not sam.post(address, form).headers.get("Location", "").startswith("/reauth/")
    grow_old(sam)
    answer = sam.post(address, form)
    assert answer["Location"].startswith("/reauth/?next=%2Fadmin%2F")


def test_nothing_is_done_while_it_is_asked(sam: Client) -> None:
    grow_old(sam)
    sam.post("/admin/reviews/apikey/add/", {"name": "ci", "role": "operator"})
    assert not ApiKey.objects.exists()
    address, form = DANGEROUS["revoke a key"]()
    sam.post(address, form)
    assert ApiKey.objects.get().revoked_at is None


def test_reading_asks_for_nothing(sam: Client) -> None:
    grow_old(sam)
    for address in ("/", "/admin/", "/admin/deadletters/deadletter/", "/admin/reviews/apikey/"):
        assert sam.get(address).status_code == 200


def test_the_right_password_goes_on_where_one_was_going(sam: Client) -> None:
    grow_old(sam)
    where = sam.get("/admin/reviews/apikey/add/")["Location"]
    page = sam.get(where)
    assert "Confirm your password" in page.content.decode()
    before = sam.session.session_key
    done = sam.post("/reauth/", {"password": PASSWORD, "next": "/admin/reviews/apikey/add/"})
    assert done["Location"] == "/admin/reviews/apikey/add/"
    assert sam.session.session_key != before
    assert sam.get("/admin/reviews/apikey/add/").status_code == 200


def test_the_wrong_password_stays_and_leaves_an_event(sam: Client) -> None:
    grow_old(sam)
    answer = sam.post("/reauth/", {"password": "wrong", "next": "/admin/reviews/apikey/add/"})
    assert "This is not the password" in answer.content.decode()
    assert "wrong" not in answer.content.decode().replace("wrong account", "")
    assert SecurityEvent.objects.get(kind="password_refused").actor == "sam"
    assert sam.get("/admin/reviews/apikey/add/").status_code == 302


@pytest.mark.parametrize(
    "target", ["https://mallory.example/", "//mallory.example/", "javascript:alert(1)", ""]
)
def test_it_leads_to_no_other_host(sam: Client, target: str) -> None:
    done = sam.post("/reauth/", {"password": PASSWORD, "next": target})
    assert done["Location"] == "/"


# -- one's own password -----------------------------------------------------------------------

NEW = "a long enough phrase"


def change(client: Client, old: str, new: str = NEW, page: str = "/password/") -> Any:
    return client.post(
        page,
        {"old_password": old, "new_password1": new, "new_password2": new},
        REMOTE_ADDR=HOME,
    )


def test_a_reviewer_changes_the_password_and_other_sessions_end(client: Client) -> None:
    user = factories.UserFactory(username="bob")
    other = Client()
    for each in (client, other):
        each.force_login(user)
    assert 'href="/password/"' in client.get("/").content.decode()
    assert change(client, PASSWORD)["Location"] == "/"
    assert "Your password is changed" in client.get("/").content.decode()
    assert other.get("/").status_code == 302
    assert (is_in(log_in(PASSWORD, name="bob")), is_in(log_in(NEW, name="bob"))) == (False, True)


@pytest.mark.parametrize("page", ["/password/", "/admin/password_change/"])
def test_a_wrong_or_weak_password_changes_nothing_and_guesses_are_throttled(
    ann: Any, client: Client, page: str
) -> None:
    ann.is_staff = True
    ann.save()
    client.force_login(ann)
    assert "too short" in change(client, PASSWORD, "short", page).content.decode()
    for _ in range(login_throttle.PAIR_LIMIT):
        assert "not the password of this account" in change(client, "guess", page=page).content.decode()
    assert "not the password of this account" in change(client, PASSWORD, page=page).content.decode()
    ann.refresh_from_db()
    assert ann.check_password(PASSWORD)
    assert SecurityEvent.objects.filter(kind=SecurityEvent.Kind.PASSWORD_REFUSED, actor="ann").exists()
