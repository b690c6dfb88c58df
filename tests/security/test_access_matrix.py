"""Every address and every role: one table, in which each address of the resolver must stand.

A value of the table names who is served, by the letters of `People`; everybody else is sent to
log in (anonymous, or not staff) or refused. A new address fails here until it has its line.
A request goes through the real view. In `make test` some of the people ask at each address, one at least
who is served and one who is not, others at the next, and every second form and action is posted; in
`make test-all` everybody does all of it, and every page is rendered, not only those of the superuser and of
who has not logged in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from deadletters import workflow
from deadletters.models import DeadLetterGroup
from notifications.admin import preview
from notifications.delivery import snapshot
from reviews.intake import api_keys
from reviews.models import ApiKey, RepositoryConfiguration
from reviews.reports import messages_for, report_of
from tests import factories, skips
from tests.changes import store_diff
from tests.reviewers.build import added
from tests.security.addresses import addresses
from tests.security.conftest import People, World
from tests.security.hardened import assert_hardened
from tests.security.unrendered import READ, as_seen_by

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("_remembered_people")]

EVERY = 1 if skips.is_all() else 2  # form and action is posted
EVERYBODY, LOGGED_IN = "?NROAUSX", "NROAUSX"  # and C and D, see `with_scopes`
READERS = "ROAUSX"  # of reviews
TROUBLE = "OAUX"
SECURITY = "USX"


def read_only(who: str) -> dict[str, str]:
    return {"changelist": who, "change": who, "history": who, "add": "", "delete": ""}


# Table of the admin -> its views -> who is served on GET.
TABLES = {
    # The security admin has no viewing scope: the list is empty, the review is not there.
    "reviews_reviewjob": {**read_only("ROAUX"), "changelist": "ROAUSX", "accept_late": "OAX"},
    "reviews_allowlistentry": {
        "changelist": SECURITY, "change": SECURITY, "history": SECURITY, "explain": SECURITY,
        "add": "SX", "delete": "SX",
    },
    "reviews_allowlistentryevent": read_only(SECURITY),
    "reviews_viewerscope": {
        "changelist": SECURITY, "change": SECURITY, "history": SECURITY, "add": "SX", "delete": "SX",
    },
    "reviews_viewerscopeevent": read_only(SECURITY),
    "reviews_teamrule": {
        "changelist": TROUBLE, "change": TROUBLE, "history": TROUBLE, "add": "OX", "delete": "OX",
    },
    "reviews_teamruleevent": read_only(TROUBLE),
    "reviews_skippedpath": {
        "changelist": TROUBLE, "change": TROUBLE, "history": TROUBLE, "add": "OX", "delete": "OX",
    },
    "reviews_skippedpathevent": read_only(TROUBLE),
    "reviews_scantarget": {
        "changelist": TROUBLE, "change": TROUBLE, "history": TROUBLE, "add": "OX", "delete": "OX",
    },
    "reviews_scantargetevent": read_only(TROUBLE),
    "reviews_subscription": {
        "changelist": "OUSX", "change": "OUSX", "history": "OUSX", "add": "OX", "delete": "OX",
    },
    "reviews_subscriptionevent": read_only("OUSX"),
    "notifications_recipientpreference": read_only("OUSX"),
    "notifications_recipientpreferenceevent": read_only("OUSX"),
    "reviews_artifact": {  # raw, outside every scope
        **read_only("OUX"), "changelist": "OUSX", "content": "X",
    },
    "reviews_apikey": {**read_only(SECURITY), "add": "SX"},
    "reviews_attempt": read_only("ROAUX"),
    "reviews_ledgerentry": read_only(TROUBLE),
    "reviews_agenttask": read_only(TROUBLE),
    "reviews_sourceevent": read_only(TROUBLE),
    "reviews_sourceposition": read_only(TROUBLE),
    "reviews_hostinstallation": read_only(TROUBLE),
    "reviews_hostchange": read_only(TROUBLE),
    "reviews_hostdelivery": read_only(TROUBLE),
        "notifications_suppression": read_only(TROUBLE),
    "notifications_delivery": read_only(TROUBLE),
    "deadletters_deadlettergroup": {**read_only(TROUBLE), "fixed": "OX"},
    "deadletters_deadletter": {
        **read_only(TROUBLE), "triage": "OX", "remediate": "OX", "validate": "OX", "replay": "OX",
        "verify": "OX", "resolve": "OX", "discard": "OX", "give_up": "OX", "edit": "OX", "live": TROUBLE,
    },
    "deadletters_letterarchive": {**read_only(TROUBLE), "restore": "OX"},
    "deadletters_letteredit": {
        **read_only(TROUBLE), "approve": "AX", "refuse": "AX", "withdraw": "OX",
    },
    "deadletters_replaybatch": {
        **read_only(TROUBLE), "submit": "OX", "dry_run": "OAX", "pause": "OX", "pace": "OX", "resume": "OX",
        "cancel": "OX", "approve": "AX", "refuse": "AX", "live": TROUBLE, "csv": TROUBLE,
    },
    "criticizer_securityevent": {**read_only("UX"), "changelist": SECURITY},  # a review in no scope
    "criticizer_workercluster": read_only(TROUBLE),
    "criticizer_outboxmessage": read_only(TROUBLE),
    "criticizer_circuit": {**read_only(TROUBLE), "force": "OX"},
    "auth_group": {**read_only(SECURITY), "add": "X", "delete": "X"},
    "auth_user": {**read_only(SECURITY), "add": "X", "delete": "X", "password_change": "X"},
}  # fmt: skip

# Other addresses for people -> method -> who is served.
PAGES = {
    "reviews:list": {"GET": READERS, "POST": "405"},
    "reviews:findings": {"GET": READERS, "POST": "405"},
    "reviews:quality": {"GET": READERS, "POST": "405"},
    "reviews:quality-fold": {"GET": "405", "POST": "OX"},
    "reviews:list-live": {"GET": READERS, "POST": "405"},
    # The security admin may open the list but has no viewing scope: the review is not there.
    "reviews:detail": {"GET": "ROAUX", "POST": "405"},
    "reviews:detail-live": {"GET": "ROAUX", "POST": "405"},
    "reviews:file": {"GET": "ROAUX", "POST": "405"},
    "reviews:compare": {"GET": "ROAUX", "POST": "405"},
    "reviews:findings-file": {"GET": "ROAUX", "POST": "405"},
    "reviews:finding": {"GET": "ROAUX", "POST": "405"},
    "reviews:patch": {"GET": "ROAUX", "POST": "405"},
    "reviews:verdict": {"GET": "405", "POST": "ROX"},
    "reviews:comment": {"GET": "405", "POST": "ROX"},
    "reviews:again": {"GET": "ROX", "POST": "ROX"},
    "reviews:cancel": {"GET": "OX", "POST": "OX"},
    "reviews:configuration": {"GET": "ROAUX"},
    "reviews:scans": {"GET": READERS, "POST": "405"},
    "reviews:scan-target": {"GET": "ROAUX", "POST": "405"},
    "reviews:scan-target-live": {"GET": "ROAUX", "POST": "405"},
    "reviews:scan-now": {"GET": "405", "POST": "ROX"},
    "reviews:subscriptions": {"GET": READERS},
    "reviews:saved-view": {"GET": "405", "POST": READERS},
    "login": {"GET": EVERYBODY},
    "logout": {"GET": "405"},
    "reauth": {"GET": LOGGED_IN},
    "change-password": {"GET": LOGGED_IN},
    "admin:index": {"GET": LOGGED_IN},
    "admin:login": {"GET": EVERYBODY},
    "admin:logout": {"GET": "405"},
    "admin:password_change": {"GET": LOGGED_IN},
    "admin:password_change_done": {"GET": LOGGED_IN},
    "admin:jsi18n": {"GET": LOGGED_IN},
    "admin:autocomplete": {"GET": ""},  # no field of ours completes itself
    "failure-codes": {"GET": LOGGED_IN},
    "providers": {"GET": TROUBLE},
    "provider-test": {"POST": "OX"},
    "repositories": {"GET": TROUBLE, "POST": "X"},
    "repository-test": {"POST": "OX"},
    "delivery-message": {"GET": TROUBLE},
    "job-message": {"GET": TROUBLE},
    "dashboard-live": {"GET": TROUBLE},
    "saved-views": {"GET": "405"},
    "invite": {"GET": "X"},
    "invite-again": {"GET": "405", "POST": "X"},
    "welcome": {"GET": EVERYBODY},
    "admin:app_list": {"GET": "ROAUSX"},
}

# Pages that not both C and D see: those of the world's review, and those for who sees every file.
OF_A_REVIEW = {
    *("reviews:detail", "reviews:detail-live", "reviews:file", "reviews:findings-file", "reviews:compare"),
    *("reviews:finding", "reviews:verdict", "reviews:comment", "reviews:again", "reviews:cancel"),
    "reviews:patch",
}
PAGES_OF_SCOPES = {
    **dict.fromkeys(OF_A_REVIEW, "C"),
    "reviews:configuration": "C",
    "reviews:scan-target": "C",
    "reviews:scan-target-live": "C",
    "reviews:scan-now": "C",
    **dict.fromkeys(
        ("delivery-message", "job-message", "dashboard-live", "repositories", "repository-test"), ""
    ),
}

# Addresses of the API -> method -> roles of keys; other methods are 405, other roles 403.
API = {
    "api-reviews": {"GET": {"trigger", "reviewer", "operator", "approver", "auditor"}, "POST": {"trigger"}},
    "api-review": {"GET": {"trigger", "reviewer", "operator", "approver", "auditor"}},
    "api-review-findings": {"GET": {"trigger", "reviewer", "operator", "approver", "auditor"}},
    "api-review-findings-file": {"GET": {"trigger", "reviewer", "operator", "approver", "auditor"}},
    "api-review-coverage": {"GET": {"trigger", "reviewer", "operator", "approver", "auditor"}},
    "api-review-evidence": {
        "GET": {"trigger", "reviewer", "operator", "approver", "auditor"},
        "POST": {"trigger", "operator"},
    },
    "api-review-cancel": {"POST": {"trigger", "operator"}},
    "api-findings": {"GET": {"trigger", "reviewer", "operator", "approver", "auditor"}},
    "api-verdict": {"POST": {"reviewer", "operator"}},
    "api-perforce": {"POST": {"trigger"}},
    "api-config-validate": {"POST": {"trigger", "reviewer", "operator", "approver", "auditor"}},
    "api-agent-tasks": {"GET": {"agent"}},
    "api-agent-claim-next": {"POST": {"agent"}},
    "api-agent-claim": {"POST": {"agent"}},
    "api-agent-heartbeat": {"POST": {"agent"}},
    "api-agent-release": {"POST": {"agent"}},
    "api-agent-result": {"POST": {"agent"}},
    "api-scans": {
        "GET": {"trigger", "reviewer", "operator", "approver", "auditor"},
        "POST": {"trigger", "operator"},
    },
    "api-scan": {"GET": {"trigger", "reviewer", "operator", "approver", "auditor"}},
    "api-scan-documents": {"GET": {"trigger", "reviewer", "operator", "approver", "auditor"}},
    "api-dead-letters": {"GET": {"operator", "approver", "auditor"}},
    "api-dead-letter": {"GET": {"operator", "approver", "auditor"}},
}
OPEN = {"api-schema", "api-docs", "api-unknown", "metrics"}  # tested by name below
# Signed requests of mail services only: tests/notifications/test_mail_report_webhooks.py.
OPEN |= {"mail-events-resend", "mail-events-postmark"}
OPEN |= {"api-host-webhook"}  # signed requests of code hosts only: tests/hosts/test_webhook.py
# The signed link is the right: tests/pages/test_verdicts.py, tests/notifications/test_unsubscribe.py.
OPEN |= {"reviews:verdict-link", "reviews:verdict-link-in-path", "unsubscribe", "unsubscribe-in-path"}
OPEN |= {"reviews:feed"}  # the signed key is the right: tests/pages/test_feeds.py
# Shown in a frame without an origin, under a policy of their own.
MESSAGES = {"delivery-message-html", "job-message-html"}
# Unnamed: the admin's redirect from /<id>/ to /<id>/change/, and its catch-all.
UNNAMED = {"<path:object_id>/", "(?P<url>.*)$"}

OF_A_TARGET = {"reviews:scan-target", "reviews:scan-target-live", "reviews:scan-now"}
OF_A_SCAN = {"api-scan", "api-scan-documents"}
OF_A_TASK = {"api-agent-claim", "api-agent-heartbeat", "api-agent-release", "api-agent-result"}

# (list, action) -> who may do it.
ACTIONS = {
    **{
        ("deadletters_deadletter", name): "OX"
        for name in (
            "triage",
            "remediate",
            "validate",
            "replay_batch",
            "verify",
            "resolve",
            "discard",
            "reopen",
        )
    },
    **{
        ("deadletters_deadlettergroup", name): "OX"
        for name in (
            "replay_all",
            "acknowledge",
            "resolve",
            "ignore",
            "reopen",
            "assign",
            "snooze",
            "end_snooze",
            "annotate",
        )
    },
    ("reviews_apikey", "revoke"): "SX",
    ("reviews_agenttask", "expire"): "OX",
    ("reviews_agenttask", "offer_again"): "OX",
    ("notifications_delivery", "decide"): "OX",
    ("notifications_suppression", "lift"): "OX",
    ("notifications_recipientpreference", "unmute"): "OX",
    ("notifications_recipientpreference", "set_digest"): "OX",
    ("criticizer_circuit", "force_open"): "OX",
    ("criticizer_circuit", "force_closed"): "OX",
    ("criticizer_circuit", "release"): "OX",
    ("auth_user", "delete_selected"): "X",
    ("auth_group", "delete_selected"): "X",
}


LISTS = {
    f"{model._meta.app_label}_{model._meta.model_name}": desk for model, desk in admin.site._registry.items()
}
ADMIN_VIEWS = [(table, view) for table, views in TABLES.items() for view in views]
KNOWN = {f"admin:{table}_{view}" for table, view in ADMIN_VIEWS} | set(PAGES) | set(API) | OPEN | MESSAGES
EXISTING = {name for name, _ in addresses()}


@pytest.fixture(scope="module")
def world(module_db: None) -> World:
    return World()


@pytest.fixture(scope="module")
def people(world: World) -> People:
    return People()


@pytest.fixture(autouse=True)
def _no_log_lines() -> Iterator[None]:
    """Write no log lines: several for each of 7,000 requests cost a tenth of the time."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def with_scopes(who: str, table: str = "", *, is_row: bool = False) -> str:
    """Add the letters of the custom groups to `who`.

    These have every permission but the one to see all files.
    """
    scope = LISTS[table].scope if table else None
    if "X" not in who:
        return who
    if not is_row or scope is None or scope.condition is None:
        return f"{who}CD"
    return who if scope.why else f"{who}C"


def test_every_address_stands_in_the_table() -> None:
    assert {name for name in EXISTING if not name.endswith(":None")} - KNOWN == set()
    assert {str(p.pattern) for name, p in addresses() if name.endswith(":None")} == UNNAMED


def test_every_action_of_the_admin_stands_in_the_table(rf: Any, people: People) -> None:
    request = rf.get("/")
    request.user = people.clients["X"].get("/").wsgi_request.user
    found = {
        (f"{model._meta.app_label}_{model._meta.model_name}", action)
        for model, its_admin in admin.site._registry.items()
        for action in its_admin.get_actions(request)
    }
    expected = {pair for pair in ACTIONS if f"admin:{pair[0]}_changelist" in EXISTING}
    assert found - expected == set()
    assert expected - found == set()


def outcome(response: Any) -> str:
    """Return what a person met: `served`, `login`, `refused`, or a status such as 405.

    `refused` is 403, 404 or a redirect to the index.
    """
    if response.status_code == 302:
        target = response["Location"]
        if target.startswith(("/login/", "/admin/login/")):
            return "login"
        return "refused" if target == "/admin/" else "served"
    if response.status_code in {403, 404}:
        return "refused"
    return "served" if response.status_code < 400 else str(response.status_code)


def expected(letter: str, who: str) -> str:
    if letter in who:
        return "served"
    return "login" if letter == "?" else "refused"


def asking(people: People, who: str, name: str) -> list[tuple[str, Client]]:
    """Return who asks at a named address that serves `who`: everybody, in `make test` two.

    The two are one of those that it serves, and one other.
    """
    if skips.is_all():
        return list(people.clients.items())
    turn = sum(name.encode())
    served = [letter for letter in people.clients if letter in who]
    refused = [letter for letter in people.clients if letter not in who]
    found = {letters[turn % len(letters)] for letters in (served, refused) if letters}
    return [(letter, people.clients[letter]) for letter in sorted(found)]


def each(cases: Iterable[Any], check: Callable[..., None]) -> None:
    """Call `check` with each case in a savepoint of its own; fail with all that went wrong."""
    failures = []
    for case in cases:
        arguments = case if isinstance(case, tuple) else (case,)
        savepoint = transaction.savepoint()
        try:
            check(*arguments)
        except AssertionError as error:
            failures.append(f"{case}: {error}")
        finally:
            transaction.savepoint_rollback(savepoint)
    assert failures == []


def test_admin_views_serve_only_the_roles_of_the_table(world: World, people: People) -> None:
    existing = [(table, view) for table, view in ADMIN_VIEWS if f"admin:{table}_{view}" in EXISTING]
    assert len(existing) > 50
    each(existing, lambda table, view: check_admin_view(table, view, world, people))


def check_admin_view(table: str, view: str, world: World, people: People) -> None:
    args = [] if view in {"changelist", "add", "explain"} else [world.ids[table]]
    who = with_scopes(TABLES[table][view], table, is_row=bool(args))
    address = reverse(f"admin:{table}_{view}", args=args)
    for letter, client in asking(people, who, f"{table} {view}"):
        with as_seen_by(letter):
            response = client.get(address)
        if outcome(response) == "served" and response.status_code == 302 and letter in "CD":
            # Back to the row's page, which sends on whom it does not exist for.
            response = client.get(address, follow=True)
            if response.request["PATH_INFO"] == "/admin/":
                assert letter not in who, letter
                continue
        wanted = expected(letter, who)
        assert outcome(response) == wanted, (letter, response.status_code, response.headers.get("Location"))
        assert_hardened(response, address, is_read=letter in READ)


def test_admin_posts_need_the_same_permission(world: World, people: People) -> None:
    posted = [
        (table, view)
        for table, view in ADMIN_VIEWS
        if f"admin:{table}_{view}" in EXISTING and view in {"add", "change", "delete"}
    ]
    assert len(posted) > 30
    each(posted[::EVERY], lambda table, view: check_admin_post(table, view, world, people))


def check_admin_post(table: str, view: str, world: World, people: People) -> None:
    address = reverse(f"admin:{table}_{view}", args=[] if view == "add" else [world.ids[table]])
    may = {"change": {"reviews_allowlistentry": "SX", "reviews_viewerscope": "SX",
                      "reviews_subscription": "OX", "reviews_teamrule": "OX",
                      "reviews_skippedpath": "OX", "reviews_scantarget": "OX", "auth_user": "X",
                      "auth_group": "X"}.get(table, "")}.get(view, TABLES[table][view])  # fmt: skip
    may = with_scopes(may, table, is_row=view != "add")
    for letter, client in asking(people, may, f"{table} {view}"):
        # An empty form changes nothing even where it is allowed: it comes back with its errors.
        with as_seen_by(letter):
            response = client.post(address, {})
        assert outcome(response) == expected(letter, may), (letter, response.status_code, response.headers)
        assert_hardened(response, address, is_read=letter in READ)


def test_admin_actions_are_offered_only_to_the_roles_of_the_table(world: World, people: People) -> None:
    each(list(ACTIONS)[::EVERY], lambda table, action: check_admin_action(table, action, world, people))


def check_admin_action(table: str, action: str, world: World, people: People) -> None:
    address = reverse(f"admin:{table}_changelist")
    form = {"action": action, "_selected_action": [str(world.ids[table])]}
    if (table, action) == ("deadletters_deadlettergroup", "resolve"):
        DeadLetterGroup.objects.update(open_count=0)  # with open letters nobody is asked
    if (table, action) == ("deadletters_deadletter", "reopen"):
        workflow.discard(world.ids[table], actor="ann", reason="by mistake")  # of open ones nobody is asked
        address += "?by=all"
    if (table, action) == ("deadletters_deadlettergroup", "end_snooze"):
        until = timezone.now() + timedelta(hours=1)
        DeadLetterGroup.objects.update(snooze_until=until)  # of others nobody is asked
        address += "?by=all"
    who = with_scopes(ACTIONS[table, action], table, is_row=True)
    for letter, client in asking(people, who, f"{table} {action}"):
        ApiKey.objects.filter(pk=world.ids["reviews_apikey"]).update(revoked_at=None)
        with as_seen_by(letter):
            response = client.post(address, form)
        if action == "revoke":
            done = ApiKey.objects.get(pk=world.ids["reviews_apikey"]).revoked_at is not None
        else:
            # The page that asks before the action; a list without actions is shown as it is.
            done = any("confirm" in (template.name or "") for template in response.templates)
        assert done == (letter in who), (letter, response.status_code)
        assert_hardened(response, address, is_read=letter in READ)


def test_pages_serve_only_the_roles_of_the_table(world: World, people: People) -> None:
    each(PAGES, lambda name: check_page(name, world, people))


def arguments(name: str, world: World) -> list[object]:
    """Return what the address of a page of PAGES needs, which is made where the world lacks it."""
    args: list[object] = [world.job.pk] if name in {*OF_A_REVIEW, "job-message"} else []
    args = [world.ids["reviews_scantarget"]] if name in OF_A_TARGET else args
    if name == "reviews:configuration":
        args = [RepositoryConfiguration.objects.latest("pk").pk]
    if name in {"reviews:finding", "reviews:patch", "reviews:verdict", "reviews:comment"}:
        world.job.findings.update(
            line=2,
            end_line=2,
            edit=[1, ["a", "b = 1", "c", "d"], 1, 2, ["b = 2"]],
            excerpt=[[1, " ", "a"], [2, "+", "b = 1"], [3, " ", "c"], [4, " ", "d"]],
        )
        args = [world.job.pk, world.job.findings.get().pk]
    if name == "reviews:findings-file":
        args = [world.job.pk, "sarif"]
    if name == "reviews:file":
        store_diff(world.job, added("//okapi/app.py", "x\n"))
        args = [world.job.pk, 1]
    if name == "reviews:compare":
        version = factories.ReviewJobFactory(changelist_id=world.job.changelist_id, review_version=2)
        factories.CoverageRowFactory(job=version, file="//okapi/app.py")
    if name == "reviews:saved-view":
        args = ["findings"]
    if name == "delivery-message":
        args = [world.ids["notifications_delivery"]]
    if name == "provider-test":
        args = ["mail"]
    if name == "repository-test":
        args = ["gitea"]
    if name == "invite-again":
        args = [world.ids["auth_user"]]
    if name == "admin:app_list":
        args = ["reviews"]
    return args


def check_page(name: str, world: World, people: People) -> None:
    address = reverse(name, args=arguments(name, world))
    for method, named in PAGES[name].items():
        who = (
            named if named.isdigit() else f"{named}{PAGES_OF_SCOPES.get(name, 'CD' if 'X' in named else '')}"
        )
        for letter, client in asking(people, who, name):
            with as_seen_by(letter):
                response = getattr(client, method.lower())(address)
            wanted = who if who.isdigit() else expected(letter, who)
            if (
                name in {"login", "admin:login", "admin:logout"}
                and response.headers.get("Location") == "/admin/"
            ):
                continue  # who is logged in goes on, who is not is sent to log in from there
            assert outcome(response) == wanted, (letter, method, response.status_code)
            assert_hardened(response, address, is_read=letter in READ)


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_messages_are_for_those_who_see_deliveries_and_every_file(name: str, people: People) -> None:
    """Their HTML alone has a policy of its own: it may have a style, and nothing else."""
    job = factories.ReviewJobFactory(recipients=["mail:ann@example.com"])
    factories.StageRunFactory(job=job, stage="llm", status="succeeded")
    (message,) = messages_for(job, {job.recipients[0]: report_of(job)}).values()
    payload, digest = snapshot.freeze(message)
    delivery = factories.DeliveryFactory(
        job=job,
        recipient=job.recipients[0],
        subject=message.subject,
        token=message.token,
        payload=payload,
        payload_sha256=digest,
    )
    address = reverse(name, args=[delivery.pk if name == "delivery-message-html" else job.pk])
    for letter, client in people.clients.items():
        response = client.get(address)
        assert outcome(response) == expected(letter, TROUBLE), (letter, response.status_code)
        if letter in TROUBLE:
            assert response["Content-Security-Policy"] == preview.POLICY
            assert response["X-Frame-Options"] == "SAMEORIGIN"
        else:
            assert_hardened(response, address, is_read=letter in READ)


def test_without_staff_status_the_admin_stays_closed_to_every_role(world: World, people: People) -> None:
    User.objects.filter(username__endswith="-person").update(is_staff=False)
    for table in TABLES:
        if f"admin:{table}_changelist" in EXISTING:
            for letter, client in asking(people, "", table):
                assert outcome(client.get(reverse(f"admin:{table}_changelist"))) == "login", (table, letter)


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


def test_api_serves_only_the_roles_of_the_table(callers: dict[str, Client], world: World) -> None:
    each(API, lambda name: check_api(name, callers, world))


def check_api(name: str, callers: dict[str, Client], world: World) -> None:
    args = [world.job.pk] if name.startswith("api-review-") or name == "api-review" else []
    args = [world.ids["deadletters_deadletter"]] if name == "api-dead-letter" else args
    args = [world.job.pk, "csv"] if name == "api-review-findings-file" else args
    args = [world.job.findings.get().pk] if name == "api-verdict" else args
    args = [world.ids["reviews_agenttask"]] if name in OF_A_TASK else args
    args = [world.job.pk] if name in OF_A_SCAN else args
    address = reverse(name, args=args)
    for turn, method in enumerate(METHODS, sum(name.encode())):
        allowed = API[name].get("GET" if method == "HEAD" else method)
        # Who asks by a method that nobody may use: in `make test` every third of them, others at the next.
        asked = list(callers.items())
        if allowed is None and not skips.is_all():
            asked = asked[turn % 3 :: 3]
        for caller, client in asked:
            response = client.generic(method, address, b"{}", content_type="application/json")
            status = response.status_code
            if caller in {"none", "unknown", "revoked"}:
                assert status == 401, (caller, method, status)
            elif allowed is None:
                assert status == 405, (caller, method, status)
            elif caller not in allowed:
                assert status == 403, (caller, method, status)
            elif (name, caller) == ("api-review-cancel", "trigger"):
                assert status == 403  # not its own
            else:
                assert status in {200, 202, 204, 400, 409}, (caller, method, status)
            assert_hardened(response, address)


def test_a_key_with_another_scope_reaches_no_row(world: World) -> None:
    args = {
        "api-dead-letter": [world.ids["deadletters_deadletter"]],
        "api-review-findings-file": [world.job.pk, "csv"],
        "api-verdict": [world.job.findings.get().pk],
        **{name: [world.ids["reviews_agenttask"]] for name in OF_A_TASK},
        **{name: [world.job.pk] for name in OF_A_SCAN},
    }
    reached = []
    # What no row answers is 405 whatever the key's scope: `test_api_serves_only_the_roles_of_the_table`.
    methods = METHODS if skips.is_all() else ("GET", "POST")
    for role in sorted({role for methods in API.values() for roles in methods.values() for role in roles}):
        key = api_keys.create(f"scoped {role}", role, ["//zebra/..."])
        client = Client(raise_request_exception=False, headers={"Authorization": f"Bearer {key}"})
        for name in API:
            one = args.get(name, [world.job.pk] if name.startswith("api-review") else [])
            address = reverse(name, args=[] if name == "api-reviews" else one)
            for method in methods:
                response = client.generic(method, address, b"{}", content_type="application/json")
                is_served = response.status_code < 400 and bool(one) and name != "api-reviews"
                if is_served or response.status_code >= 500 or "okapi99" in response.content.decode():
                    reached.append((role, method, address, response.status_code))
    assert reached == []


def test_the_description_of_the_api_is_open_and_the_rest_is_nowhere(callers: dict[str, Client]) -> None:
    for client in callers.values():
        assert client.get("/api/schema/").status_code == 200
        assert client.get("/api/docs/").status_code == 200
        assert client.get("/api/v1/nothing/").status_code == 404
        assert_hardened(client.get("/api/docs/"), "docs")


def test_metrics_are_for_this_machine_and_for_operators(callers: dict[str, Client]) -> None:
    assert callers["none"].get("/metrics").status_code == 200  # loopback
    found = {
        caller: client.get("/metrics", REMOTE_ADDR="203.0.113.9").status_code
        for caller, client in callers.items()
    }
    assert found == {
        "none": 401,
        "unknown": 401,
        "revoked": 401,
        "trigger": 403,
        "reviewer": 403,
        "operator": 200,
        "approver": 403,
        "auditor": 403,
        "agent": 403,
    }
    proxied = callers["none"].get("/metrics", headers={"X-Forwarded-For": "203.0.113.9"})
    assert proxied.status_code == 401
