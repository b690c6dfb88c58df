"""Tags of the dead-letter pages: the badge of a state, and the approvals that wait."""

from __future__ import annotations

from typing import Any

from django import template

from criticizer.db import prepared
from deadletters.admin import letter_page

register = template.Library()
register.filter("letter_chip", letter_page.letter_chip)

_WAITING = """
SELECT (SELECT count(*) FROM replay_batches WHERE status = 'awaiting') AS batches,
       (SELECT count(*) FROM letter_edits WHERE status = 'requested') AS edits"""


@register.simple_tag
def approvals_waiting() -> dict[str, Any] | None:
    """Return how many batches and edits wait for approval: `{"batches": 1, "edits": 0}`."""
    return prepared.row(_WAITING)
