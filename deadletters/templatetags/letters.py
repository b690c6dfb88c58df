"""What every list of the dead-letter console shows."""

from __future__ import annotations

from django import template

from deadletters.models import LetterEdit
from deadletters.states import EditStatus

register = template.Library()


@register.simple_tag
def edits_waiting() -> int:
    """Return how many edits wait for somebody's approval."""
    return LetterEdit.objects.filter(status=EditStatus.REQUESTED).count()
