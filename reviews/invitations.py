"""Invitations: a person, their groups and what they may read, then a mail with a link.

The first are one commit. The person sets the password, by Django's own token: it works once, for
PASSWORD_RESET_TIMEOUT seconds, and never for an account that has a password. No password and no link is
stored or logged. (guarantee G273)
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from uuid import uuid4

import structlog
from django.conf import settings
from django.contrib.auth.models import AnonymousUser, Group, User
from django.contrib.auth.tokens import default_token_generator
from django.db import transaction
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode

from criticizer.models import SecurityEvent
from criticizer.redaction import clean
from criticizer.resilience.classification import classify
from criticizer.resilience.exchange import one_call
from criticizer.resilience.failures import UncertainFailure
from notifications import config
from notifications.providers.base import Message
from reviews.models import ViewerScope

log = structlog.get_logger(__name__)

SUBJECT = "Your account at Criticizer"
CHANNEL = "mail"


def why_no_mail() -> str:
    """Return why no invitation can be mailed, one sentence, or an empty string."""
    if reason := config.problems().get(CHANNEL):
        return reason
    return "" if CHANNEL in config.providers() else "no mail server is configured"


def create_person(
    *,
    username: str,
    mail: str,
    is_staff: bool,
    roles: Sequence[Group],
    team: str,
    trees: Sequence[str],
    actor: str,
    origin: Mapping[str, str],
) -> User:
    """Create an account without a password, with its groups, its team and the team's trees.

    One commit with its line among the security events. The caller has checked the values, and records the
    edits of the viewing scopes (`pghistory.context`).
    """
    with transaction.atomic():
        user = User(username=username, email=mail, is_staff=is_staff)
        user.set_unusable_password()
        user.save()
        groups = list(roles)
        if team:
            group, _ = Group.objects.get_or_create(name=team)
            groups.append(group)
            for tree in trees:
                ViewerScope.objects.get_or_create(
                    group=group, prefix=tree, defaults={"reason": f"invitation of {username}"[:255]}
                )
        user.groups.set(groups)
        SecurityEvent.objects.create(
            kind=SecurityEvent.Kind.PERSON_INVITED,
            actor=actor[:255],
            reason=clean(f"{username} invited", 512),
            context={
                "username": username,
                "groups": [group.name for group in groups],
                "trees": list(trees),
                "staff": is_staff,
                "address": origin.get("address", "")[:64],
            },
        )
    log.info("person_invited", user=user.pk, actor=actor)
    return user


def send_link(user: User) -> str:
    """Mail the link, to an active account without a password; return why it could not be, or "".

    Call it in no transaction.
    """
    if not may_be_invited(user):
        return "the account is not active, has no address, or has a password already"
    if problem := why_no_mail():
        return problem
    try:
        with one_call():
            config.providers()[CHANNEL].send(_message(user))
    except Exception as error:  # noqa: BLE001  whatever a mail server does, the account stays
        failure = classify(error)
        log.warning("invitation_not_sent", user=user.pk, **failure.facts)
        doubt = "; it may have arrived anyway" if isinstance(failure, UncertainFailure) else ""
        return f"{clean(failure.detail, 300) or failure.kind.message}{doubt}"
    log.info("invitation_sent", user=user.pk)
    return ""


def may_invite(user: User | AnonymousUser) -> bool:
    """Return whether a user may make accounts, with their roles and what their team may read."""
    return user.has_perms(("auth.add_user", "auth.change_user", "auth.add_group", "reviews.add_viewerscope"))


def may_be_invited(user: User) -> bool:
    """Return whether a link may be sent to an account, and may set its password."""
    return user.is_active and bool(user.email) and not user.has_usable_password()


def _message(user: User) -> Message:
    query = {
        "person": urlsafe_base64_encode(force_bytes(user.pk)),
        # In the query, which no log of ours has.
        "key": default_token_generator.make_token(user),
    }
    link = f"{settings.BASE_URL.rstrip('/')}{reverse('welcome', query=query)}"
    days = max(1, settings.PASSWORD_RESET_TIMEOUT // 86_400)
    lines = (
        f"An account was made for you at {settings.BASE_URL.rstrip('/')}/: {user.username}.",
        f"Choose your password with this link. It works once, for {days} days:",
    )
    token, now = uuid4(), int(time.time())
    context = {"subject": SUBJECT, "lines": lines, "link": link}
    return Message(
        token=token,
        address=user.email,
        subject=SUBJECT,
        text="\n\n".join((*lines, link)) + "\n",
        html=render_to_string("notifications/invitation.html", context),
        payload={},
        thread=f"invitation:{token}",
        created_at_epoch=now,
    )
