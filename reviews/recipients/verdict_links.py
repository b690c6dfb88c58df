"""Links in messages for verdicts on a finding without a login (guarantee G263).

A link is bound to a finding, to the delivery it was sent in and so to its recipient, and to a time. It names
no person and cannot be forged. It works only while its recipient's account may see and judge the finding;
recipients without an account get none. The right is in the query, which no log of ours has.
"""

from __future__ import annotations

import base64
import struct
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.signing import BadSignature, Signer
from django.urls import reverse

from notifications.models import Delivery
from reviews.models import FindingRow
from reviews.recipients.recipient_reports import accounts_of, scopes_of_addresses
from reviews.recipients.viewing_scopes import PERMISSIONS, Scope, scope_of, scope_of_job
from reviews.roles import JUDGE, READ

DAYS = 30
_FORM = struct.Struct(">16sQQ")  # delivery token, finding, expiry in seconds


@dataclass(frozen=True, slots=True)
class Opened:
    """Right that a valid link gives.

    `actor` is the username of the account that it acts for, `seen` its scope.
    """

    finding: FindingRow
    recipient: str
    actor: str
    seen: Scope


def link(finding_id: int, token: UUID, since: datetime) -> str:
    """Return the address by which a delivery's recipient judges a finding, for DAYS.

    `token` is that of the delivery.
    """
    packed = _FORM.pack(token.bytes, finding_id, int(since.timestamp()) + DAYS * 86_400)
    signed = _signer().sign(base64.urlsafe_b64encode(packed).rstrip(b"=").decode())
    return settings.BASE_URL.rstrip("/") + reverse("reviews:verdict-link", query={"key": signed})


def opened(signed: str) -> Opened | None:
    """Return the right that a link gives now.

    None for a link that is forged, too old, or whose right has ended.
    """
    try:
        text = _signer().unsign(signed)
        token, finding_id, expires = _FORM.unpack(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (BadSignature, ValueError, struct.error):
        return None
    delivery = Delivery.objects.filter(token=UUID(bytes=token)).only("recipient", "job").first()
    if delivery is None or expires <= time.time():
        return None
    finding = FindingRow.objects.filter(pk=finding_id, job=delivery.job_id).select_related("job").first()
    judge = judges([delivery.recipient]).get(delivery.recipient)
    if finding is None or judge is None:
        return None
    # As messages and pages, for every account with this address and the key that requested the review.
    scope = scopes_of_addresses([delivery.recipient])[delivery.recipient] & scope_of_job(finding.job)
    row = FindingRow.objects.filter(scope.findings(), pk=finding.pk)
    if not row.exists() or not scope.jobs().filter(pk=finding.job_id).exists():
        return None
    return Opened(finding, delivery.recipient, judge.get_username(), scope_of(judge))


def judges(recipients: Iterable[str]) -> Mapping[str, Any]:
    """Return the account of each recipient that has one which may judge findings."""
    by_recipient = accounts_of(recipients)
    if not by_recipient:
        return {}
    accounts = get_user_model().objects.filter(
        pk__in={user.pk for users in by_recipient.values() for user in users}
    )
    for permission in (READ, JUDGE):
        with_it = get_user_model().objects.with_perm(permission, backend=PERMISSIONS)  # active ones only
        accounts = accounts.filter(pk__in=with_it.values("pk"))
    may = set(accounts.values_list("pk", flat=True))
    first = {
        recipient: next((user for user in users if user.pk in may), None)
        for recipient, users in by_recipient.items()
    }
    return {recipient: user for recipient, user in first.items() if user is not None}


def _signer() -> Signer:
    # Programs that make links of plain text may end an address at a colon, but not at a dot.
    return Signer(salt="reviews.recipients.verdict_links", sep=".")
