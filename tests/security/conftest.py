"""One client per kind of person and per kind of key, and a world of rows to point at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client

from criticizer.models import Circuit
from criticizer.security import reauthentication
from deadletters.models import LetterArchive, LetterEdit, ReplayBatch
from notifications.models import RecipientPreference
from notifications.preferences import policy
from reviews.api.auth import ApiKeyThrottle
from reviews.api.auth_failures import REFUSALS
from reviews.intake import api_keys
from reviews.models import Subscription, ViewerScope
from reviews.roles import ROLES
from tests import factories


@pytest.fixture(autouse=True)
def _fresh_process() -> Iterator[None]:
    """What a process remembers about keys does not pass from test to test."""
    ApiKeyThrottle.reset()
    REFUSALS.reset()
    yield
    ApiKeyThrottle.reset()
    REFUSALS.reset()


class People:
    """Clients of people, by the letter of their role in the tables of these tests.

    `?` anonymous, `N` logged in without any role, `R` reviewer, `O` operator, `A` approver, `U`
    auditor, `S` security admin, `X` superuser. All but `?` are staff, so that the admin asks for
    permissions.
    """

    LETTERS = {"R": "reviewer", "O": "operator", "A": "approver", "U": "auditor", "S": "security admin"}

    def __init__(self, is_staff: bool = True) -> None:
        self.clients = {"?": Client(raise_request_exception=False)}
        for letter in "NROAUSX":
            user = factories.UserFactory(
                username=f"{letter}-person", is_staff=is_staff, is_superuser=letter == "X", reads=False
            )
            if letter in self.LETTERS:
                user.groups.add(Group.objects.get(name=self.LETTERS[letter]))
            self.clients[letter] = Client(raise_request_exception=False)
            self.clients[letter].force_login(user)


@dataclass
class World:
    """One row of everything the admin shows."""

    job: Any = field(init=False)
    ids: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.job = factories.job_with_stages()
        factories.FindingRowFactory(job=self.job)
        factories.CoverageRowFactory(job=self.job)
        entry = factories.AllowListEntryFactory()
        ViewerScope.objects.create(
            group=Group.objects.get(name="reviewer"), prefix="//depot/main/...", reason="their project"
        )
        letter = factories.DeadLetterFactory()
        self.ids = {
            "reviews_reviewjob": self.job.pk,
            "reviews_allowlistentry": entry.pk,
            "reviews_artifact": factories.ArtifactFactory(job=self.job).pk,
            "reviews_apikey": factories.ApiKeyFactory().pk,
            "reviews_viewerscope": ViewerScope.objects.get().pk,
            "reviews_subscription": Subscription.objects.create(
                recipient="mail:ann@example.com", pattern="//depot/main/...", reason="OPS-1"
            ).pk,
            "notifications_recipientpreference": RecipientPreference.objects.create(
                recipient="mail:ann@example.com", muted_until=policy.NO_END
            ).pk,
            "notifications_delivery": factories.DeliveryFactory(job=self.job, status="uncertain").pk,
            "notifications_suppression": factories.SuppressionFactory().pk,
            "deadletters_deadletter": letter.pk,
            "deadletters_deadlettergroup": letter.group_id,
            "deadletters_replaybatch": ReplayBatch.objects.create(
                reason="the server is back", requested_by="ann"
            ).pk,
            "deadletters_letterarchive": LetterArchive.objects.create(
                name="lost", sha256="0" * 64, letter_count=1, first_letter=1, last_letter=1
            ).pk,
            "deadletters_letteredit": LetterEdit.objects.create(
                letter=letter, before={}, after={}, reason="the address is wrong", requested_by="ann"
            ).pk,
            "criticizer_securityevent": factories.SecurityEventFactory().pk,
            "criticizer_workercluster": factories.WorkerClusterFactory().pk,
            "criticizer_circuit": Circuit.objects.create(name="llm:openai").pk,
            "auth_user": factories.UserFactory(username="somebody").pk,
            "auth_group": Group.objects.get(name="auditor").pk,
        }


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
    found["revoked"] = bearing(api_keys.create("revoked", "operator"))
    api_keys.revoke("revoked")
    return found


assert set(People.LETTERS.values()) == set(ROLES), "a role without a letter is not tested"
