"""The recipe of a redacted change: what it depends on besides the raw one."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from django.conf import settings
from django.db.models import Q
from django.utils.crypto import salted_hmac

from criticizer.redaction.rules.issuer_tokens import RULESET
from criticizer.security.configured_secrets import configured_secrets
from reviews import token_counts
from reviews.models import Artifact
from reviews.reviewers import prepared_change_codec
from reviews.reviewers.prepare import ReviewLimits

COMPACT_BELOW = 16_000  # tokens of a request


def limits() -> ReviewLimits:
    is_compact = settings.LLM_MAX_INPUT_TOKENS < COMPACT_BELOW
    return ReviewLimits(
        max_input_tokens=settings.LLM_MAX_INPUT_TOKENS,
        skip_paths=tuple(settings.LLM_SKIP_PATHS),
        context_share=0 if is_compact else settings.LLM_CONTEXT_PERCENT / 100,
        is_compact=is_compact,
        finding_budget=settings.FINDING_BUDGET,
    )


def limits_for_packing() -> ReviewLimits:
    """Return `limits()` with the tokens that the model counts today.

    No part of the recipe: a change that was packed by an older count is as good.
    """
    return replace(limits(), chars_per_token=token_counts.chars_per_token(settings.LLM_MODEL))


def current() -> str:
    """Return today's recipe, in which no secret shows.

    Without the Perforce tickets: they are renewed while the change waits, and workers that know another
    one would redact it again each time. The guard looks for them before each call.
    """
    parts = [
        prepared_change_codec.FORMAT,
        RULESET,
        settings.REDACTION_POLICY,
        asdict(limits()),
        sorted(set(configured_secrets())),
    ]
    return salted_hmac("reviews.artifacts.redactor", json.dumps(parts), algorithm="sha256").hexdigest()


def enough_for_a_review() -> Q:
    """Return the condition on artifacts of which one is enough for a review (guarantee G198).

    The raw change, or a redacted one that can stand for it today.
    """
    return Q(deleted_at=None) & (
        Q(kind=Artifact.Kind.CHANGE) | Q(kind=Artifact.Kind.REDACTED, recipe=current())
    )
