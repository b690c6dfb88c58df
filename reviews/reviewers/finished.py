"""Answers that a review has paid for, as its progress holds them.

The next attempt starts from them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping
from dataclasses import asdict, dataclass
from typing import Any

from reviews.reviewers.base import Usage


@dataclass(frozen=True, slots=True)
class Finished:
    """A parsed answer and its cost.

    `answer` is None where the halves of its part are asked about.
    """

    answer: Mapping[str, Any] | None
    usage: Usage
    model: str = ""
    by_fallback: bool = False

    @classmethod
    def of(cls, progress: Mapping[str, str], key: str) -> Finished | None:
        if key not in progress:
            return None
        fields = json.loads(progress[key])
        return cls(**{**fields, "usage": Usage(**fields["usage"])})

    def keep(self, progress: MutableMapping[str, str], key: str) -> None:
        progress[key] = json.dumps(asdict(self))
