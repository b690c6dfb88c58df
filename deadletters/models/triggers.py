"""Triggers on inserts and deletes of letters: created new, deleted once archived, restored closed."""

from __future__ import annotations

import pgtrigger

from criticizer.db import prepared
from deadletters.states import CLOSED_LETTER, LetterAction, LetterStatus

# The last `archived` or `restored` line of a timeline says where the letter is.
_PLACE = """
                SELECT e.action INTO place FROM public.dead_letter_events e
                 WHERE e.letter_id = {row}.id AND e.action IN ('archived', 'restored')
                 ORDER BY e.id DESC LIMIT 1;"""


def insert_and_delete_triggers() -> list[pgtrigger.Trigger]:
    """Return the triggers that keep inserts and deletes from bypassing the steps."""
    not_archived = f"place IS DISTINCT FROM '{LetterAction.ARCHIVED.value}'"
    return [
        pgtrigger.Trigger(
            name="born_new",
            when=pgtrigger.Before,
            operation=pgtrigger.Insert,
            condition=~pgtrigger.Q(new__status=LetterStatus.NEW.value),
            declare=[("place", "text")],
            func=f"""{_PLACE.format(row="NEW")}
                IF NEW.status NOT IN {prepared.sql_list(CLOSED_LETTER)} OR {not_archived} THEN
                  RAISE EXCEPTION 'a dead letter is born new, not %', NEW.status;
                END IF;
                RETURN NEW;""",
        ),
        pgtrigger.Trigger(
            name="archived_first",
            when=pgtrigger.Before,
            operation=pgtrigger.Delete,
            declare=[("place", "text")],
            func=f"""{_PLACE.format(row="OLD")}
                IF {not_archived} THEN
                  RAISE EXCEPTION 'dead letter % goes only once it is archived', OLD.id;
                END IF;
                RETURN OLD;""",
        ),
    ]
