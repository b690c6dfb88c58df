"""Reads and writes the review units of a change (guarantees G360 and G361).

Reading takes one query, writing one statement.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from criticizer.db import prepared as sql
from criticizer.security import sealed_field
from reviews.models import ReviewUnit
from reviews.pipeline import StageClaim
from reviews.reviewers.coverage_texts import same_content
from reviews.reviewers.units import AnsweredUnit, KnownUnit

# Key in a stage's progress: the units that the first answered attempt took over from earlier reviews.
CARRIED = "units"
# A submitted change does not reuse answers about its own earlier shelves, which were reviewed in parts; it
# reuses answers about other changes. Pull requests are never submitted, so this does not apply to them.
_FIND = """
SELECT u.key, u.answer, u.input_tokens, j.changelist_id, j.review_version
  FROM review_units u JOIN jobs j ON j.id = u.made_by_id, jobs own
 WHERE u.key = ANY(%(keys)s) AND u.made_at > %(after)s AND own.id = %(job)s AND NOT own.from_scratch
   AND NOT (%(submitted)s AND j.changelist_id = own.changelist_id)"""


def known_units(
    claim: StageClaim, keys: Sequence[str], progress: MutableMapping[str, str], *, is_submitted: bool
) -> Mapping[str, KnownUnit]:
    """Return the answers of earlier reviews about units with these keys, by key.

    After the first answer, later attempts of the stage take over the same units, which `progress` lists.
    Otherwise they would pack different parts and pay for them again.
    """
    if progress and CARRIED not in progress:
        return {}
    wanted = json.loads(progress[CARRIED]) if progress else list(keys)
    after = timezone.now() - timedelta(days=settings.ARTIFACT_REDACTED_TTL_DAYS)
    found = (
        sql.rows(_FIND, {"keys": wanted, "after": after, "job": claim.job_id, "submitted": is_submitted})
        if wanted
        else []
    )
    known = {}
    for row in found:
        if not (opened := sealed_field.opened(row["answer"])):
            continue  # no key opens it
        (answer,) = opened
        is_own = row["changelist_id"] == claim.changelist_id
        known[row["key"]] = KnownUnit(
            answer["findings"],
            answer["model"],
            row["input_tokens"],
            same_content(row["review_version"] if is_own else None),
        )
    if known:
        progress[CARRIED] = json.dumps(sorted(known))
    return known


def known_answers(claim: StageClaim, keys: Sequence[str]) -> dict[str, tuple[Mapping[str, Any], int]]:
    """Return earlier answers about document sections, by key, each with its input tokens.

    Each question is independent, so answers about any change can be reused.
    """
    after = timezone.now() - timedelta(days=settings.ARTIFACT_REDACTED_TTL_DAYS)
    values = {"keys": list(keys), "after": after, "job": claim.job_id, "submitted": False}
    rows = sql.rows(_FIND, values) if keys else []
    opened = ((row, sealed_field.opened(row["answer"])) for row in rows)
    return {row["key"]: (found[0]["findings"][0], row["input_tokens"]) for row, found in opened if found}


def kept_answers(claim: StageClaim) -> dict[str, str]:
    """Return the progress of this job's partial review: its replay asks for the rest (G386)."""
    rows = ReviewUnit.objects.filter(key=_answers_key(claim), made_by__stopped__gt="")
    found = rows.values_list("answer", flat=True).first()
    return dict(found[0]) if found else {}


def keep_answers(claim: StageClaim, progress: Mapping[str, str]) -> None:
    """Store the progress of a partial review, in its commit: sealed, and expiring like units."""
    kept = {"answer": [dict(progress)], "input_tokens": 0, "made_at": timezone.now()}
    ReviewUnit.objects.update_or_create(key=_answers_key(claim), made_by_id=claim.job_id, defaults=kept)


def _answers_key(claim: StageClaim) -> str:
    return hashlib.sha256(f"answers of job {claim.job_id}".encode()).hexdigest()


def save_units(claim: StageClaim, units: Iterable[AnsweredUnit]) -> None:
    """Store the answers of a review about its units, in its commit.

    The newest answer about equal content replaces others.
    """
    rows = {
        unit.key: ReviewUnit(
            key=unit.key,
            answer=[{"model": unit.model, "findings": unit.findings}],
            input_tokens=unit.input_tokens,
            made_by_id=claim.job_id,
            made_at=timezone.now(),
        )
        for unit in units
    }
    if rows:
        ReviewUnit.objects.bulk_create(
            # In one order: reviews of equal content that end at once must not wait for each other.
            [rows[key] for key in sorted(rows)],
            update_conflicts=True,
            unique_fields=["key"],
            update_fields=["answer", "input_tokens", "made_by", "made_at"],
        )
