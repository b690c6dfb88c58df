"""What a replay of a job needs from outside, by the names that circuits have."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from urllib.parse import urlsplit

from django.conf import settings

from criticizer import mail
from criticizer.db import prepared
from criticizer.resilience.gate import name_of
from deadletters.types import Failed
from notifications import config as notification_config
from notifications.recipients import CHANNELS, without_provider
from notifications.states import GIVEN_UP_DELIVERY, DeliveryStatus
from reviews import config
from reviews.states import Stage

MAX_NAMES = 20  # of one job: it may have hundreds of recipients

_UNSENT = f"""
SELECT job_id, recipient FROM deliveries
 WHERE job_id = ANY(%(jobs)s) AND status NOT IN {prepared.sql_list((DeliveryStatus.SENT, *GIVEN_UP_DELIVERY))}
 ORDER BY job_id, id"""  # noqa: S608


# Of a whole run: also those who have no delivery yet.
_UNTOLD = f"""
SELECT j.id AS job_id, r.recipient
  FROM jobs j, jsonb_array_elements_text(j.recipients) WITH ORDINALITY AS r (recipient, place)
 WHERE j.id = ANY(%(jobs)s) AND NOT EXISTS (
         SELECT FROM deliveries d WHERE d.job_id = j.id AND d.recipient = r.recipient
            AND d.status IN {prepared.sql_list((DeliveryStatus.SENT, *GIVEN_UP_DELIVERY))})
 ORDER BY j.id, r.place"""  # noqa: S608


def dependencies_of(failed: Sequence[Failed], *, restarted: Collection[int] = ()) -> dict[int, list[str]]:
    """Return, by job, the dependencies of its failed stage, without repetition.

    Of the jobs in `restarted` those of all stages: they begin with the fetch.
    """
    names: dict[int, list[str]] = {one.job_id: [] for one in failed}
    fetching = [one.job_id for one in failed if one.stage == Stage.FETCH or one.job_id in restarted]
    reviewing = [one.job_id for one in failed if one.stage == Stage.LLM or one.job_id in restarted]
    if fetching:
        # git is local: nothing to protect, and nothing to ask.
        for row in prepared.rows(
            "SELECT id FROM jobs WHERE id = ANY(%(jobs)s) AND changelist_id NOT LIKE 'git:%%'",
            {"jobs": fetching},
        ):
            names[row["id"]].append(config.perforce_dependency())
    if settings.LLM_PROVIDER != "none":
        for job_id in reviewing:
            names[job_id].append(config.model_dependency())
    telling = [one.job_id for one in failed if one.stage == Stage.NOTIFY and one.job_id not in restarted]
    for query, jobs in ((_UNSENT, telling), (_UNTOLD, list(restarted))):
        for row in prepared.rows(query, {"jobs": jobs}) if jobs else ():
            name = of_recipient(row["recipient"])
            known = names[row["job_id"]]
            if name not in known and len(known) < MAX_NAMES:
                known.append(name)
    return names


def source_of(job_id: int, stage: str, changelist_id: str, delivery_id: object = None) -> str:
    """Return the one dependency that a stage's failure is about, as far as it is known; "" when not.

    `delivery_id`: of the delivery that failed, where one did.
    """
    if stage == Stage.FETCH:
        return (
            changelist_id.partition("@")[0]
            if changelist_id.startswith("git:")
            else config.perforce_dependency()
        )
    if stage == Stage.LLM:
        return config.model_dependency()
    if isinstance(delivery_id, int):
        recipient = prepared.value("SELECT recipient FROM deliveries WHERE id = %(id)s", {"id": delivery_id})
        return of_recipient(recipient) if recipient else ""
    return ""


def why_not_configured(name: str) -> str:
    """Return what to set, where a channel's dependency has no provider to be reached by; "" when it has."""
    kind, _, rest = name.partition(":")
    channel = {mail.MAILDIR: "mail"}.get(rest, rest.partition(":")[0])
    if kind != "provider" or channel not in CHANNELS or channel in notification_config.providers():
        return ""
    return without_provider(channel, notification_config.problems().get(channel, ""))


def of_recipient(recipient: str) -> str:
    """Return the dependency of a normalised recipient (`dependency_names`, without a provider)."""
    channel, _, address = recipient.partition(":")
    if channel == "webhook":
        return name_of("provider", channel, urlsplit(address).netloc)
    if channel == "mail" and mail.provider() == mail.MAILDIR:
        return name_of("provider", mail.MAILDIR)
    return name_of("provider", channel)
