"""Names of the dependencies that a job's stages need, as circuits have them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from django.db.models import Q

from criticizer import mail
from criticizer.models import Circuit
from criticizer.resilience.states import CircuitState
from deadletters.types import Failed
from notifications import config as notification_config
from notifications.config import dependency_of
from notifications.models import Delivery
from notifications.recipients import CHANNELS, missing_provider_reason
from notifications.states import WITHDRAWN_DELIVERY, DeliveryStatus
from reviews import config
from reviews.models import ReviewJob
from reviews.states import Stage

_AWAY = (CircuitState.OPEN, CircuitState.HALF_OPEN, CircuitState.FORCED_OPEN)
MAX_NAMES = 20  # of one job: it may have hundreds of recipients


def dependencies_of(failed: Sequence[Failed], *, restarted: Collection[int] = ()) -> dict[int, list[str]]:
    """Return, by job, the dependencies of its failed stage.

    Those of all stages, if it is in `restarted`.
    """
    names: dict[int, list[str]] = {one.job_id: [] for one in failed}
    fetching = [one.job_id for one in failed if one.stage == Stage.FETCH or one.job_id in restarted]
    reviewing = [one.job_id for one in failed if one.stage == Stage.LLM or one.job_id in restarted]
    changelists = ReviewJob.objects.filter(pk__in=fetching).values_list("pk", "changelist_id")
    for job_id, changelist_id in changelists:
        if source := config.source_dependency(changelist_id):
            names[job_id].append(source)
    models = _usable_models() if reviewing else []
    for job_id in reviewing:
        names[job_id] += models
    notifying = [one.job_id for one in failed if one.stage == Stage.NOTIFY and one.job_id not in restarted]
    settled = Q(status__in=(DeliveryStatus.SENT, *WITHDRAWN_DELIVERY))
    of_jobs = Delivery.objects.order_by("job_id", "id").values_list("job_id", "recipient")
    unsent = list(of_jobs.filter(~settled, job__in=notifying))
    if restarted:  # they notify also those who have no delivery yet
        done = set(of_jobs.filter(settled, job__in=restarted))
        recipients = ReviewJob.objects.filter(pk__in=restarted).order_by("pk").values_list("pk", "recipients")
        named = [(job_id, recipient) for job_id, everybody in recipients for recipient in everybody]
        unsent += [one for one in named if one not in done]
    for job_id, recipient in unsent:
        name = dependency_of(recipient)
        if name not in names[job_id] and len(names[job_id]) < MAX_NAMES:
            names[job_id].append(name)
    return names


def away(names: Collection[str]) -> set[str]:
    """Return the dependencies whose circuit is open, half-open or forced open."""
    return set(Circuit.objects.filter(name__in=names, state__in=_AWAY).values_list("name", flat=True))


def _usable_models() -> list[str]:
    """Return the model that a review needs: the first that is not away, each of them if all are."""
    names = list(config.models())
    gone = away(names) if len(names) > 1 else set()
    return [name for name in names if name not in gone][:1] or names


def source_of(job_id: int, stage: str, changelist_id: str, delivery_id: object = None) -> str:
    """Return the dependency of a stage's failure; "" when unknown.

    `delivery_id`: the delivery that failed, if one did.
    """
    if stage == Stage.FETCH:
        return config.source_dependency(changelist_id) or changelist_id.partition("@")[0]
    if stage == Stage.LLM:
        return config.model_dependency()
    if isinstance(delivery_id, int):
        recipient = Delivery.objects.filter(pk=delivery_id).values_list("recipient", flat=True).first()
        return dependency_of(recipient) if recipient else ""
    return ""


def why_not_configured(name: str) -> str:
    """Return what to set when the channel of a dependency has no provider; "" when it has."""
    kind, _, rest = name.partition(":")
    channel = {mail.MAILDIR: "mail"}.get(rest, rest.partition(":")[0]) if kind == "provider" else kind
    if channel not in CHANNELS or channel in notification_config.providers():
        return ""
    return missing_provider_reason(channel, notification_config.problems().get(channel, ""))
