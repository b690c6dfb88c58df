"""GitHub App from a manifest: the form's signed state, and its credentials (guarantee G380).

The credentials are shown once.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.core.signing import BadSignature, TimestampSigner
from django.http import HttpRequest
from django.urls import reverse

from criticizer.codehosts.github.host import EVENTS, GitHubHost
from criticizer.codehosts.github.tokens import PERMISSIONS, AppCredentials
from criticizer.models import SecurityEvent
from criticizer.redaction import clean
from criticizer.resilience.classification import classify
from criticizer.resilience.failures import Failure
from criticizer.security.client_ip import client_ip
from notifications.config import host as host_of
from reviews.admin.connection_test import named_owners

# Granted to no role: those who hold the App's key read every repository that it is installed on.
MAKES_APPS = "reviews.change_hostinstallation"
_MAX_ORGANIZATIONS = 5
_HOUR = 3600  # as long as GitHub keeps the code
_CODE = re.compile(r"[0-9A-Za-z_-]{10,100}")
_STALE = "No form that you sent in the last hour led here. Delete that App on GitHub, then make it again."


@dataclass(frozen=True, slots=True)
class NewApp:
    """Result of GitHub's form; with neither field set, the credentials can be asked for."""

    problem: str = ""
    credentials: AppCredentials | None = None


@dataclass(frozen=True, slots=True)
class AppForm:
    """GitHub's form for a new App of an organisation; "" stands for the account of who sends it.

    An App that is not public is installed on its owner alone.
    """

    organization: str
    address: str
    state: str

    @property
    def url(self) -> str:
        return f"{self.address}?{urlencode({'state': self.state})}"


def forms(user: Any) -> list[AppForm]:
    """Return the forms for the person's own account and for the owners that the settings name.

    GitHub sends their state back: this person's, for an hour.
    """
    github, state = _github(), _signer().sign(str(user.pk))
    owners = ["", *named_owners(github.name)[:_MAX_ORGANIZATIONS]]
    ways = {owner: f"/organizations/{quote(owner, safe='')}" if owner else "" for owner in owners}
    return [AppForm(owner, f"{github.site}{way}/settings/apps/new", state) for owner, way in ways.items()]


def manifest() -> str:
    """Return the description of an App for this installation, which GitHub fills its form from."""
    base = settings.BASE_URL.rstrip("/")
    return json.dumps({
        "name": "Criticizer",
        "url": settings.BASE_URL,
        "hook_attributes": {"url": base + reverse("api-host-webhook", args=["github"]), "active": True},
        "redirect_url": base + reverse("repositories"),
        "public": False,
        "default_permissions": PERMISSIONS,
        "default_events": EVENTS,
    })  # fmt: skip


def returned_app(request: HttpRequest) -> NewApp | None:
    """Return the result of GitHub's form; None where there is none.

    POST exchanges the code, which works once. The event is recorded first: no credentials are shown without
    one. They are neither stored nor logged. Raises PermissionDenied for a POST of those who may not make
    Apps.
    """
    may = request.user.has_perm(MAKES_APPS)
    if request.method == "POST" and not may:
        raise PermissionDenied
    code = request.GET.get("code", "")
    if not code or not may:
        return None
    if not _CODE.fullmatch(code) or not _is_own(request.GET.get("state", ""), request.user):
        return NewApp(_STALE)
    if request.method != "POST":
        return NewApp()
    SecurityEvent.objects.create(
        kind=SecurityEvent.Kind.APP_CREDENTIALS,
        actor=request.user.get_username()[:255],
        reason="credentials of a new GitHub App",
        context={"address": client_ip(request)[:64]},
    )
    try:
        return NewApp(credentials=_github().client.new_app(code))
    except Exception as error:  # noqa: BLE001 - whatever the other side or its address does
        failure = error if isinstance(error, Failure) else classify(error)
        return NewApp(f"{clean(failure.detail, 300)}.")


def _is_own(state: str, user: Any) -> bool:
    try:
        return _signer().unsign(state, max_age=_HOUR) == str(user.pk)
    except BadSignature:
        return False


def _signer() -> TimestampSigner:
    return TimestampSigner(salt="reviews.admin.github_app", sep=".")


def _github() -> GitHubHost:
    host = host_of("github")
    assert isinstance(host, GitHubHost)
    return host
