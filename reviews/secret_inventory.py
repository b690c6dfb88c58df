"""Inventory of the deployment's secrets: source, age and use, never a value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from django.conf import settings
from django.utils import timezone

from criticizer.codehosts.registry import HOSTS, secrets_variable
from criticizer.db import prepared
from criticizer.environment.variables import VARIABLES
from criticizer.resilience.failures import ErrorClass, Failure
from criticizer.security.encryption import key_id
from reviews import config
from reviews.models import ApiKey
from reviews.reviewers.health_checks import check_health

MAX_AGE_DAYS = 90
# All that ARTIFACT_KEYS seal, by the id of the key: artifacts, archived dead letters, fields of rows.
_SEALED = """
SELECT key, sum(found)::bigint AS stored FROM (
  SELECT key_id AS key, count(*) AS found FROM artifacts WHERE deleted_at IS NULL GROUP BY 1
  UNION ALL SELECT key_id, count(*) FROM letter_archives GROUP BY 1
  UNION ALL SELECT split_part(excerpt, ':', 1), count(*) FROM findings
             WHERE excerpt <> '' AND NOT starts_with(excerpt, '[') GROUP BY 1
  UNION ALL SELECT split_part(edit, ':', 1), count(*) FROM findings WHERE edit <> '' GROUP BY 1
  UNION ALL SELECT split_part(answer, ':', 1), count(*) FROM review_units GROUP BY 1
  UNION ALL SELECT split_part(payload, ':', 1), count(*) FROM agent_tasks WHERE payload <> '' GROUP BY 1
  UNION ALL SELECT split_part(result, ':', 1), count(*) FROM agent_tasks WHERE result <> '' GROUP BY 1) each
 GROUP BY key"""


@dataclass(frozen=True, slots=True)
class SecretStatus:
    """One credential. `age_days` is None when unknown; `use` describes its current use."""

    name: str
    source: str
    age_days: int | None
    use: str

    @property
    def is_old(self) -> bool:
        return self.age_days is not None and self.age_days > MAX_AGE_DAYS

    @property
    def is_set(self) -> bool:
        return self.source != "unset"


def statuses(now: datetime | None = None, *, ask: bool = False) -> list[SecretStatus]:
    """Return every credential of this installation: the configured ones, then the API keys.

    With `ask`, each key is tried at the model server with a request that changes nothing: a rotation
    is complete when the server accepts the new key.
    """
    now = now or timezone.now()
    uses = _uses()
    for name, answer in (_answers() if ask else {}).items():
        uses[name] = f"{answer}; {uses[name]}"
    configured = [
        SecretStatus(source.name, source.source, _days(source.set_at, now), uses.get(source.name, ""))
        for source in settings.SECRET_SOURCES
    ]
    return [*configured, *_api_keys(now)]


def _days(since: datetime | None, now: datetime) -> int | None:
    return None if since is None else max((now - since).days, 0)


def _uses() -> dict[str, str]:
    """Return the current use of each configured secret.

    For example, which of two keys is tried first.
    """
    keys = settings.ARTIFACT_KEYS
    sealed = {row["key"]: row["stored"] for row in prepared.rows(_SEALED)}
    parts = []
    for position, key in enumerate(keys):
        count = sealed.pop(key_id(key), 0)
        role = "in use, seals new artifacts" if position == 0 else "opens older artifacts"
        parts.append(f"{key_id(key)} {role}, {count} stored")
        if position and not count:
            parts[-1] += ", may be removed"
    if lost := sum(sealed.values()):
        parts.append(f"{lost} stored under keys that are not configured or not recorded")
    hooks = len(settings.WEBHOOK_SECRETS)
    rotated = [name.removesuffix("_NEXT") for name in VARIABLES if name.endswith("_NEXT")]
    return {
        "SECRET_KEY": "in use, signs sessions and audit seals",
        "SECRET_KEY_FALLBACKS": f"{len(settings.SECRET_KEY_FALLBACKS)} older, accepted only",
        "ARTIFACT_KEYS": "; ".join(parts),
        **dict.fromkeys(rotated, "in use, tried first"),
        **{f"{name}_NEXT": f"tried when {name} is refused" for name in rotated},
        "EMBEDDINGS_API_KEY": "in use",
        "LLM_FALLBACK_API_KEY": "in use while the first model cannot answer",
        "WEBHOOK_SECRETS": f"{hooks} in use, each signs every webhook",
        **{
            name: f"{len(getattr(settings, name))} in use, each is accepted"
            for name in map(secrets_variable, HOSTS)
        },
        "IMAP_ARCHIVE_PASSWORD_NEXT": "tried when the password of IMAP_ARCHIVE_URL is refused",
        "DATABASE_URL": "in use",
        "ARTIFACT_S3_SECRET_KEY": "in use",
    }


def _answers() -> dict[str, str]:
    """Return whether the model servers accept each key now."""
    llm, backup = config.model(), config.fallback_model()
    keys = [*zip(("LLM_API_KEY", "LLM_API_KEY_NEXT"), llm.api_keys if llm else (), strict=False)]
    keys += [("LLM_FALLBACK_API_KEY", key) for key in (backup.api_keys if backup else ())]
    answers = {}
    for name, key in keys:
        server = backup if "FALLBACK" in name else llm
        assert server is not None
        try:
            check_health(replace(server, api_keys=(key,)))
            answers[name] = "accepted now"
        except Failure as failure:
            refused = failure.error_class is ErrorClass.AUTH_DENIED
            answers[name] = "refused now" if refused else f"not answered now ({failure.error_class})"
    return answers


def _api_keys(now: datetime) -> Iterator[SecretStatus]:
    for key in ApiKey.objects.filter(revoked_at=None).order_by("name"):
        used = f"last used {key.last_used_at:%Y-%m-%d}" if key.last_used_at else "never used"
        yield SecretStatus(f"API key {key.name}", "database (hash)", _days(key.created_at, now), used)
