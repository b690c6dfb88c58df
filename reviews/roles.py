"""Who may do what in the console: groups and their permissions, kept by every `migrate`.

Permissions are added, never taken away, so that an installation may widen a role. Pages
need a login only; the admin needs `is_staff` as well, which these groups do not give.
"""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.apps import apps as installed_apps
from django.contrib.auth.management import create_permissions
from django.db import DEFAULT_DB_ALIAS

_READ_REVIEWS = (
    "reviews.view_reviewjob",
    "reviews.view_stagerun",
    "reviews.view_attempt",
    "reviews.view_findingrow",
    "reviews.view_coveragerow",
)

# Group -> permissions. "Trigger" is a role of API keys only.
ROLES: dict[str, tuple[str, ...]] = {
    "reviewer": _READ_REVIEWS,
    "operator": (
        *_READ_REVIEWS,
        "notifications.view_delivery",
        "notifications.view_deliveryattempt",
        "deadletters.view_deadletter",
        "deadletters.view_deadletterevent",
        "deadletters.replay_deadletter",
        "criticizer.view_workercluster",
    ),
    "security admin": (
        "reviews.view_allowlistentry",
        "reviews.add_allowlistentry",
        "reviews.change_allowlistentry",
        "reviews.delete_allowlistentry",
        "reviews.view_allowlistentryevent",
        "reviews.view_apikey",
        "reviews.add_apikey",
        "reviews.change_apikey",
        "criticizer.view_securityevent",
    ),
}
_ROOMS = ("criticizer", "reviews", "notifications", "deadletters")


def ensure_roles(apps: Any = installed_apps, using: str = DEFAULT_DB_ALIAS) -> None:
    """Create the groups and add to each what `ROLES` grants it. Repeating it changes nothing.

    Raises LookupError for a permission that no model declares.
    """
    for room in _ROOMS:
        # Django makes permissions after migrating too, but possibly after us.
        create_permissions(installed_apps.get_app_config(room), verbosity=0, using=using, apps=apps)
    groups, permissions = apps.get_model("auth", "Group"), apps.get_model("auth", "Permission")
    for name, granted in ROLES.items():
        group, _ = groups.objects.using(using).get_or_create(name=name)
        for label in granted:
            room, codename = label.split(".")
            found = permissions.objects.using(using).filter(content_type__app_label=room, codename=codename)
            if not found:
                raise LookupError(f"role {name}: no model declares the permission {label}")
            group.permissions.add(*found)


def after_migrate(
    sender: AppConfig, apps: Any = installed_apps, using: str = DEFAULT_DB_ALIAS, **_: Any
) -> None:
    """Keep the roles after `migrate`, once all rooms and the auth tables are there."""
    try:
        apps.get_model("auth", "Group")
        for room in _ROOMS:
            apps.get_app_config(room)
        apps.get_model("deadletters", "DeadLetterEvent")
    except LookupError:
        return  # a partial migrate: the next full one makes them
    ensure_roles(apps, using)
