"""Tags of the dead-letter pages: the badge of a state, and the approvals that wait."""

from __future__ import annotations

from typing import Any

from django import template

from criticizer.admin_site.viewing_scope import of_registered, visible_to
from criticizer.db import prepared
from deadletters.admin import letter_page
from deadletters.models import LetterEdit, ReplayBatch
from deadletters.states import BatchStatus, EditStatus

register = template.Library()
register.filter("letter_chip", letter_page.letter_chip)


_WAITING = """
SELECT (SELECT count(*) FROM replay_batches WHERE status = 'awaiting') AS batches,
       (SELECT count(*) FROM letter_edits WHERE status = 'requested') AS edits"""


@register.simple_tag(takes_context=True)
def approvals_waiting(context: dict[str, Any]) -> dict[str, int]:
    """Return how many batches and edits that the user may see wait for approval."""
    user = context["request"].user
    if visible_to(user) is None:
        return prepared.row(_WAITING) or {}
    return {
        "batches": of_registered(ReplayBatch, user).filter(status=BatchStatus.AWAITING).count(),
        "edits": of_registered(LetterEdit, user).filter(status=EditStatus.REQUESTED).count(),
    }
