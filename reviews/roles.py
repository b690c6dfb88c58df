"""Roles and their permissions: the table that docs/roles.md is generated from.

People have groups, which every `migrate` updates; programs have API keys with a role of their own.
Permissions are added to groups, never removed, so that an installation may widen a role. The admin
also needs `is_staff`, which these groups do not give; `reviews.recipients.viewing_scopes` limits the files.
"""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.apps import apps as installed_apps
from django.contrib.auth.management import create_permissions
from django.db import DEFAULT_DB_ALIAS

# Roles of API keys.
TRIGGER, REVIEWER, OPERATOR = "trigger", "reviewer", "operator"
APPROVER, AUDITOR, AGENT = "approver", "auditor", "agent"
_READERS = (TRIGGER, REVIEWER, OPERATOR, APPROVER, AUDITOR)
READS_ADDRESSES = (OPERATOR, APPROVER, AUDITOR)  # of recipients' webhooks; as staff on the pages

# URL name of the API -> method -> roles of keys. A method that is not listed is refused to every key.
API: dict[str, dict[str, tuple[str, ...]]] = {
    "api-reviews": {"GET": _READERS, "POST": (TRIGGER,)},
    "api-review": {"GET": _READERS},
    "api-review-findings": {"GET": _READERS},
    "api-review-findings-file": {"GET": _READERS},
    "api-review-coverage": {"GET": _READERS},
    "api-review-evidence": {"GET": _READERS, "POST": (TRIGGER, OPERATOR)},
    "api-review-cancel": {"POST": (TRIGGER, OPERATOR)},  # a trigger its own reviews only
    "api-findings": {"GET": _READERS},
    "api-verdict": {"POST": (REVIEWER, OPERATOR)},
    "api-perforce": {"POST": (TRIGGER,)},
    "api-config-validate": {"POST": _READERS},
    "api-agent-tasks": {"GET": (AGENT,)},
    "api-agent-claim-next": {"POST": (AGENT,)},
    "api-agent-claim": {"POST": (AGENT,)},
    "api-agent-heartbeat": {"POST": (AGENT,)},
    "api-agent-release": {"POST": (AGENT,)},
    "api-agent-result": {"POST": (AGENT,)},
    "api-scans": {"GET": _READERS, "POST": (TRIGGER, OPERATOR)},
    "api-scan": {"GET": _READERS},
    "api-scan-documents": {"GET": _READERS},
    "api-dead-letters": {"GET": (OPERATOR, APPROVER, AUDITOR)},
    "api-dead-letter": {"GET": (OPERATOR, APPROVER, AUDITOR)},
}

# The permissions of people for the same on the pages. They are Django's own; the admin's lists of
# reviews stay read-only for everyone.
REQUEST, CANCEL = "reviews.add_reviewjob", "reviews.change_reviewjob"
READ = "reviews.view_reviewjob"
JUDGE = "reviews.add_findingevent"  # verdicts on findings, and comments
DISMISS_WIDELY = "reviews.dismiss_widely"  # by path, rule and category
# The page of code hosts, which names every repository.
READS_REPOSITORIES = ("reviews.view_hostinstallation", "reviews.view_all_files")


def _edits(table: str) -> tuple[str, ...]:
    """Return the permissions to add, change and delete rows of a table such as `teamrule`."""
    return tuple(f"reviews.{verb}_{table}" for verb in ("add", "change", "delete"))


_READ_REVIEWS = (
    "reviews.view_reviewjob",
    "reviews.view_stagerun",
    "reviews.view_attempt",
    "reviews.view_findingrow",
    "reviews.view_coveragerow",
)
_READ_OPERATIONS = (
    "notifications.view_delivery",
    "notifications.view_deliveryattempt",
    "notifications.view_suppression",
    "deadletters.view_deadletter",
    "deadletters.view_deadletterevent",
    "deadletters.view_deadlettergroup",
    "deadletters.view_replaybatch",
    "deadletters.view_letteredit",
    "deadletters.view_letterarchive",
    "criticizer.view_circuit",
    "criticizer.view_workercluster",
    "criticizer.view_outboxmessage",
    "reviews.view_sourceevent",
    "reviews.view_sourceposition",
    "reviews.view_hostinstallation",
    "reviews.view_hostchange",
    "reviews.view_hostdelivery",
    "reviews.view_ledgerentry",
    "reviews.view_agenttask",
    "reviews.view_teamrule",
    "reviews.view_teamruleevent",
    "reviews.view_skippedpath",
    "reviews.view_skippedpathevent",
    "reviews.view_scantarget",
    "reviews.view_scantargetevent",
)
_READ_SECURITY = (
    "criticizer.view_securityevent",
    "reviews.view_allowlistentry",
    "reviews.view_allowlistentryevent",
    "reviews.view_viewerscope",
    "reviews.view_viewerscopeevent",
    "reviews.view_subscription",
    "reviews.view_subscriptionevent",
    "notifications.view_recipientpreference",
    "notifications.view_recipientpreferenceevent",
    "reviews.view_apikey",
    "reviews.view_artifact",
    "auth.view_user",
    "auth.view_group",
)

_EDIT_SUBSCRIPTIONS = (
    "reviews.view_subscription",
    "reviews.view_subscriptionevent",
    *_edits("subscription"),
    "notifications.view_recipientpreference",
    "notifications.view_recipientpreferenceevent",
    "notifications.change_recipientpreference",
)

# Group -> permissions. "Trigger" is a role of API keys only.
ROLES: dict[str, tuple[str, ...]] = {
    "reviewer": (*_READ_REVIEWS, JUDGE, REQUEST),
    "operator": (
        *_READ_REVIEWS,
        *_READ_OPERATIONS,
        "reviews.view_all_files",
        "deadletters.replay_deadletter",
        "deadletters.work_deadlettergroup",
        "deadletters.restore_letterarchive",
        "notifications.decide_delivery",
        "notifications.test_provider",
        *_edits("teamrule"),
        *_edits("skippedpath"),
        *_edits("scantarget"),
        "notifications.lift_suppression",
        "reviews.accept_late",
        "reviews.decide_agenttask",
        JUDGE,
        DISMISS_WIDELY,
        REQUEST,
        CANCEL,
        *_EDIT_SUBSCRIPTIONS,
        "criticizer.force_circuit",
        "reviews.view_artifact",
        "reviews.read_artifact",
    ),
    "approver": (
        *_READ_REVIEWS,
        *_READ_OPERATIONS,
        "reviews.view_all_files",
        "reviews.accept_late",
        "deadletters.approve_replaybatch",
        "deadletters.approve_letteredit",
    ),
    "auditor": (*_READ_REVIEWS, *_READ_OPERATIONS, *_READ_SECURITY, "reviews.view_all_files"),
    "security admin": (
        "reviews.view_reviewjob",
        *_READ_SECURITY,
        *_edits("allowlistentry"),
        *_edits("viewerscope"),
        "reviews.add_apikey",
        "reviews.change_apikey",
        "reviews.read_artifact",
        "reviews.read_raw_artifact",
    ),
}
# The purpose of each group, in one sentence.
PURPOSE = {
    "reviewer": "Reads and judges reviews and requests them again, as far as the viewing scopes of their"
    " groups reach.",
    "operator": "Keeps reviews going: requests them again, cancels them; dead letters, replays, late results,"
    " circuits, subscriptions, team rules, skipped paths.",
    "approver": "Approves large replays and edits of dead letters, decides what is delivered late; reads what"
    " operators read.",
    "auditor": "Reads everything that is recorded, artifacts' contents excepted; changes nothing.",
    "security admin": "Allow-list, viewing scopes, API keys, security events; artifacts' contents as far as"
    " the viewing scopes of their groups reach.",
}
_APPS = ("auth", "criticizer", "reviews", "notifications", "deadletters")


def ensure_roles(apps: Any = installed_apps, using: str = DEFAULT_DB_ALIAS) -> None:
    """Create the groups and add to each what `ROLES` grants it. Repeating it changes nothing.

    Raises LookupError for a permission that no model declares.
    """
    for app in _APPS:
        # Django makes permissions after migrating too, but possibly after us.
        create_permissions(installed_apps.get_app_config(app), verbosity=0, using=using, apps=apps)
    groups, permissions = apps.get_model("auth", "Group"), apps.get_model("auth", "Permission")
    declared = _by_label(permissions.objects.using(using))
    for name, granted in ROLES.items():
        if missing := sorted(set(granted) - declared.keys()):
            raise LookupError(f"role {name}: no model declares the permission {missing[0]}")
        group, _ = groups.objects.using(using).get_or_create(name=name)
        group.permissions.add(*(pk for label in granted for pk in declared[label]))


def _by_label(permissions: Any) -> dict[str, list[int]]:
    """Return the ids of permissions by `app.codename`."""
    rows = permissions.filter(content_type__app_label__in=_APPS)
    declared: dict[str, list[int]] = {}
    for app, codename, pk in rows.values_list("content_type__app_label", "codename", "pk"):
        declared.setdefault(f"{app}.{codename}", []).append(pk)
    return declared


def after_migrate(
    sender: AppConfig, apps: Any = installed_apps, using: str = DEFAULT_DB_ALIAS, **_: Any
) -> None:
    """Update the roles after `migrate`, once the tables of all apps exist."""
    try:
        apps.get_model("auth", "Group")
        for app in _APPS:
            apps.get_app_config(app)
        apps.get_model("deadletters", "DeadLetterEvent")
    except LookupError:
        return  # a partial migrate: the next full one creates them
    ensure_roles(apps, using)
