"""Characters per token of a model, as its server reported lately (guarantee G187)."""

from __future__ import annotations

import time

from criticizer.db import prepared
from reviews.reviewers.chunks import CHARS_PER_TOKEN

LEAST, MOST = 1.8, 5.0
MIN_CALLS = 20  # before that, the count is assumed
MARGIN = 0.95  # a part may hold text with more tokens than usual
_KNOWN_SECONDS = 60.0

# By model, the newest reviews first and each older one a tenth less. Cut requests and those of a
# second model count for none. Only reviews that ended: a backlog has no counts, however new it is.
MEASURED = f"""
SELECT model,
       greatest({LEAST}, least({MOST}, sum(weight * characters) / sum(weight * tokens)))::float8 AS ratio
  FROM (SELECT usage ->> 'asked' AS model, (usage ->> 'characters')::float8 AS characters,
               (usage ->> 'input_tokens')::float8 AS tokens, (usage ->> 'calls')::int AS calls,
               power(0.9, row_number() OVER (PARTITION BY usage ->> 'asked' ORDER BY id DESC)) AS weight
          FROM (SELECT id, usage FROM jobs WHERE finished_at IS NOT NULL
                 ORDER BY finished_at DESC, id DESC LIMIT 500) newest
         WHERE usage ->> 'asked' <> '' AND usage ->> 'cut' = '0'
           AND (usage ->> 'characters')::int > 0 AND (usage ->> 'input_tokens')::int > 0) reviews
 GROUP BY model HAVING sum(calls) >= {MIN_CALLS}"""  # noqa: S608

_known: tuple[float, dict[str, float]] | None = None


def measured() -> dict[str, float]:
    """Return the characters of a token by the model's configured name, a minute old at most."""
    global _known
    if _known is None or _known[0] < time.monotonic():
        found = {row["model"]: row["ratio"] for row in prepared.rows(MEASURED, {})}
        _known = time.monotonic() + _KNOWN_SECONDS, found
    return _known[1]


def chars_per_token(model: str) -> float:
    """Return the characters of a token to pack by."""
    ratio = measured().get(model)
    return CHARS_PER_TOKEN if ratio is None else max(ratio * MARGIN, LEAST)


def forget() -> None:
    """Forget what this process remembers."""
    global _known
    _known = None
