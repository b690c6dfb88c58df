"""The part of a review that each recipient may read: the files of their viewing scope.

A recipient is known when an account has their mail address; settings.UNKNOWN_RECIPIENTS decides for
all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from operator import and_
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db.models.functions import Lower

from notifications.rendering.report import SEVERITIES, Comparison, Report, ReportFinding
from reviews.models import RecipientOrigin
from reviews.recipients.viewing_scopes import EVERYTHING, Scope, scopes_of
from reviews.reviewers.coverage_texts import unread_banner
from reviews.sources import pull

NAMED, EVERYBODY, NOBODY = "named", "everything", "nothing"  # values of UNKNOWN_RECIPIENTS
NOTHING = Scope()


def reports_for(
    report: Report, recipients: Iterable[str], origins: Mapping[str, str], requester: Scope = EVERYTHING
) -> dict[str, Report]:
    """Return the part of the report that each recipient may read, in the recipients' order.

    `origins` has the origin of found recipients; the others were given with the request. No recipient is
    shown more than the `requester` may see.
    """
    recipients = list(recipients)
    known = scopes_of_addresses(recipients)
    made: dict[Scope, Report] = {}
    found = {}
    for recipient in recipients:
        own = known.get(recipient) or _of_unknown(recipient, origins.get(recipient, ""))
        scope = own & requester
        if scope not in made:
            made[scope] = part_of(report, scope)
        found[recipient] = made[scope]
    return found


def masked(recipient: str) -> str:
    """Mask a recipient for readers who may not see addresses: `mail:a…@example.com`.

    A webhook keeps its host only: the rest of its URL may be a secret.
    """
    channel, _, address = recipient.partition(":")
    scheme, slashes, rest = address.partition("://")
    if slashes:
        return f"{channel}:{scheme}://{rest.partition('/')[0].rpartition('@')[2]}/\u2026"
    name, at, domain = address.rpartition("@")
    if at:
        return f"{channel}:{name[:1]}\u2026@{domain}"
    return f"{channel}:\u2026"


def pull_request_prefix(recipient: str) -> str | None:
    """Return the depot directory of the pull request that a recipient is on.

    None for any other recipient.
    """
    return pull.depot_prefix(recipient.replace("-review:", ":", 1))


def _of_unknown(recipient: str, origin: str) -> Scope:
    if prefix := pull_request_prefix(recipient):
        return Scope(prefixes=(prefix,))  # what its readers have there
    if settings.UNKNOWN_RECIPIENTS == NAMED:
        # A request, an administrator or the configuration vouches for the recipients it names. Perforce, and
        # an account that had the address, name people who asked for it, not what they may read.
        return NOTHING if origin in (RecipientOrigin.PERFORCE, RecipientOrigin.OWN) else EVERYTHING
    return EVERYTHING if settings.UNKNOWN_RECIPIENTS == EVERYBODY else NOTHING


def scopes_of_addresses(recipients: Iterable[str]) -> dict[str, Scope]:
    """Return by recipient what all of the accounts with this mail address may see.

    Recipients without an account are left out.
    """
    accounts = accounts_of(recipients)
    if not accounts:
        return {}
    scopes = scopes_of({user for users in accounts.values() for user in users})
    return {
        recipient: reduce(and_, (scopes[user.pk] for user in users)) for recipient, users in accounts.items()
    }


def accounts_of(recipients: Iterable[str]) -> dict[str, list[Any]]:
    """Return the accounts with these mail addresses, by recipient; no others."""
    wanted: dict[str, list[str]] = {}
    for recipient in recipients:
        channel, _, address = recipient.partition(":")
        if channel == "mail":
            for spelling in {address.lower(), _decoded(address.lower())}:
                wanted.setdefault(spelling, []).append(recipient)
    if not wanted:
        return {}
    accounts = get_user_model().objects.annotate(address=Lower("email")).filter(address__in=wanted)
    found: dict[str, list[Any]] = {}
    for user in accounts.order_by("pk"):
        for recipient in wanted[user.address]:
            found.setdefault(recipient, []).append(user)
    return found


def _decoded(address: str) -> str:
    """Return the address with its domain as people write it: recipients carry the encoded form."""
    local_part, _, domain = address.rpartition("@")
    try:
        return f"{local_part}@{domain.encode().decode('idna')}"
    except UnicodeError:
        return address


def part_of(report: Report, scope: Scope) -> Report:
    """Return the visible part of a report, with a line about the hidden part.

    A finding about the description names no depot path and is shown when any file is. Where no file
    may be read, only the changelist's number is left.
    """
    if scope.everything:
        return report
    coverage = tuple(file for file in report.coverage if scope.allows(file.file))
    configuration = tuple(line for line in report.configuration if scope.allows(line.file))
    # What is said of documents counts the whole tree: it is for who may read all of a pull request's.
    root = pull.depot_prefix(report.changelist_id)
    documents = report.documents if root and scope.allows(root) else ""
    report = replace(report, configuration=configuration, documents=documents)

    def may_read(finding: ReportFinding) -> bool:
        if not all(map(scope.allows, finding.evidence)):
            return False
        return scope.allows(finding.file) or (bool(coverage) and not finding.file.startswith("//"))

    findings = tuple(finding for finding in report.findings if may_read(finding))
    since = report.since and Comparison(
        report.since.version,
        tuple(earlier for earlier in report.since.earlier if may_read(earlier.finding)),
    )
    hidden = len(report.findings) - len(findings)
    if not hidden and len(coverage) == len(report.coverage) and since == report.since:
        return report
    part = replace(
        report,
        banner=" ".join(filter(None, [report.part_banner, unread_banner(coverage)])),
        findings=findings,
        coverage=coverage,
        since=since,
        status_lines=(*report.status_lines, _not_shown(hidden)),
        footer="",  # as what the configuration hides, of the whole change
        suppressed=0,
        hidden_files=len(report.coverage) - len(coverage),
    )
    if coverage or findings:
        return part
    return replace(part, title="", author="", banner="", configuration=(), since=None)


def _not_shown(hidden: int) -> str:
    if not hidden:
        return "Files outside your viewing scope are not shown."
    counted = "1 finding" if hidden == 1 else f"{hidden} findings"
    return f"{counted} in files outside your viewing scope {'is' if hidden == 1 else 'are'} not shown."


def worst_severity(report: Report) -> str:
    """Return the severity of the worst finding that is not dismissed, "" without any."""
    found = {finding.severity for finding in report.findings if not finding.is_dismissed}
    return next((severity for severity in SEVERITIES if severity in found), next(iter(found), ""))
