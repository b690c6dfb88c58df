"""How letters come into their table and leave it: born new, gone to the archive, back from there."""

from __future__ import annotations

import pgtrigger

from criticizer.db import prepared
from deadletters.states import CLOSED_LETTER, LetterAction, LetterStatus


def doors() -> list[pgtrigger.Trigger]:
    """Return the triggers that keep the steps from being walked around by an INSERT or a DELETE.

    A letter is born new, goes only once it is archived, also with its job, and comes back closed only
    from there. What its timeline said last of the archive is where it is.
    """
    where = f"""
                SELECT e.action INTO place FROM public.dead_letter_events e
                 WHERE e.letter_id = {{row}}.id AND e.action IN {
        prepared.sql_list((LetterAction.ARCHIVED, LetterAction.RESTORED))
    }
                 ORDER BY e.id DESC LIMIT 1;"""  # noqa: S608
    not_archived = f"place IS DISTINCT FROM '{LetterAction.ARCHIVED.value}'"
    return [
        pgtrigger.Trigger(
            name="born_new",
            when=pgtrigger.Before,
            operation=pgtrigger.Insert,
            condition=~pgtrigger.Q(new__status=LetterStatus.NEW.value),
            declare=[("place", "text")],
            func=f"""{where.format(row="NEW")}
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
            func=f"""{where.format(row="OLD")}
                IF {not_archived} THEN
                  RAISE EXCEPTION 'dead letter % goes only once it is archived', OLD.id;
                END IF;
                RETURN OLD;""",
        ),
    ]
