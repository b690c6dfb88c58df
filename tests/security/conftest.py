"""One client per kind of person and per kind of key, and a world of rows to point at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission
from django.test import Client

from criticizer.models import Circuit
from criticizer.security import reauthentication
from notifications.models import RecipientPreference
from notifications.preferences import policy
from reviews.audit.history import events_of
from reviews.intake import api_keys
from reviews.models import (
    AllowListEntry,
    ReviewJob,
    Scan,
    ScanTarget,
    SkippedPath,
    SourcePosition,
    Subscription,
    TeamRule,
    ViewerScope,
)
from reviews.roles import ROLES
from tests import factories, skips
from tests.security.remembered import remembered
from tests.security.world import review_rows


@pytest.fixture
def _remembered_people() -> Iterator[None]:
    """Let `make test` read each person once a test; `make test-all` does it at every request."""
    with nullcontext() if skips.is_all() else remembered():
        yield


class People:
    """Clients of people, by the letter of their role in the tables of these tests.

    `?` anonymous, `N` logged in without any role, `R` reviewer, `O` operator, `A` approver, `U`
    auditor, `S` security admin, `X` superuser. `C` and `D` have a custom group with every permission
    but the one to see all files: the world's review is in C's viewing scope and outside D's. All but
    `?` are staff, so that the admin asks for permissions.
    """

    LETTERS = {"R": "reviewer", "O": "operator", "A": "approver", "U": "auditor", "S": "security admin"}
    SCOPES = {"C": "//okapi/...", "D": "//zebra/..."}

    def __init__(self) -> None:
        self.clients = {"?": Client(raise_request_exception=False)}
        for letter in "NROAUSXCD":
            user = factories.UserFactory(
                username=f"{letter}-person", is_staff=True, is_superuser=letter == "X", reads=False
            )
            if letter in self.LETTERS:
                user.groups.add(Group.objects.get(name=self.LETTERS[letter]))
            if letter in self.SCOPES:
                group = Group.objects.create(name=f"group of {letter}")
                group.permissions.set(Permission.objects.exclude(codename="view_all_files"))
                ViewerScope.objects.create(group=group, prefix=self.SCOPES[letter], reason="their project")
                user.groups.add(group)
            self.clients[letter] = Client(raise_request_exception=False)
            self.clients[letter].force_login(user)


@dataclass
class World:
    """One row of everything the admin shows."""

    job: Any = field(init=False)
    ids: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        scope = ViewerScope.objects.create(
            group=Group.objects.get(name="reviewer"), prefix="//okapi/...", reason="their project"
        )
        recipient = "mail:ann@example.com"
        self.ids = {
            **review_rows("okapi99", "//okapi/app.py"),
            "reviews_allowlistentry": factories.AllowListEntryFactory().pk,
            "reviews_apikey": factories.ApiKeyFactory().pk,
            "reviews_viewerscope": scope.pk,
            "reviews_teamrule": factories.TeamRuleFactory().pk,
            "reviews_skippedpath": factories.SkippedPathFactory().pk,
            "reviews_scantarget": factories.ScanTargetFactory(path="//okapi/...").pk,
            "reviews_subscription": Subscription.objects.create(
                recipient=recipient, pattern="//depot/main/...", reason="OPS-1"
            ).pk,
            "reviews_sourceposition": SourcePosition.objects.create(stream="git").pk,
            "notifications_recipientpreference": RecipientPreference.objects.create(
                recipient=recipient, muted_until=policy.NO_END
            ).pk,
            "notifications_suppression": factories.SuppressionFactory().pk,
            "criticizer_workercluster": factories.WorkerClusterFactory().pk,
            "criticizer_circuit": Circuit.objects.create(name="llm:openai").pk,
            "auth_user": factories.UserFactory(username="somebody").pk,
            "auth_group": Group.objects.get(name="auditor").pk,
            **{
                f"{model._meta.app_label}_{model._meta.model_name}": model.objects.latest("pgh_id").pk
                for model in map(
                    events_of,
                    (
                        AllowListEntry,
                        ViewerScope,
                        TeamRule,
                        SkippedPath,
                        ScanTarget,
                        Subscription,
                        RecipientPreference,
                    ),
                )
            },
        }
        self.job = ReviewJob.objects.get(pk=self.ids["reviews_reviewjob"])
        Scan.objects.create(job=self.job, target_id=self.ids["reviews_scantarget"])


@pytest.fixture
def world(db: None) -> World:
    return World()


@pytest.fixture
def people(world: World) -> People:
    return People()


@pytest.fixture
def sam(db: None) -> Client:
    """Somebody who is security admin and operator in one, and has just given the password."""
    user = factories.UserFactory(username="sam", is_staff=True)
    user.groups.set(Group.objects.filter(name__in=["security admin", "operator"]))
    client = Client()
    client.force_login(user)
    return client


def grow_old(client: Client) -> None:
    """Let it be long ago that the password was given."""
    session = client.session
    session["password_at"] -= reauthentication.MAX_AGE_SECONDS + 1
    session.save()


@pytest.fixture
def callers(db: None) -> dict[str, Client]:
    """Clients of the API: without a key, with one per role, with a revoked and an unknown one."""

    def bearing(key: str) -> Client:
        return Client(raise_request_exception=False, headers={"Authorization": f"Bearer {key}"})

    found = {"none": Client(raise_request_exception=False), "unknown": bearing("crz_" + "x" * 43)}
    for role in ("trigger", "reviewer", "operator", "approver", "auditor"):
        found[role] = bearing(api_keys.create(role, role))
    found["agent"] = bearing(api_keys.create("agent", "agent", ["//okapi/..."]))
    found["revoked"] = bearing(api_keys.create("revoked", "operator"))
    api_keys.revoke("revoked")
    return found


assert set(People.LETTERS.values()) == set(ROLES), "a role without a letter is not tested"
