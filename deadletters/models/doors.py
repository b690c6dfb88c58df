"""How letters leave their table: for the archive, and in no other way."""

from __future__ import annotations

import pgtrigger

from criticizer import sql
from deadletters.states import LetterAction

_A = LetterAction


def doors() -> list[pgtrigger.Trigger]:
    """Return the triggers that let a letter go only once it is archived, also with its job.

    What its timeline said last of the archive is where it is.
    """
    where = f"""
                SELECT e.action INTO place FROM public.dead_letter_events e
                 WHERE e.letter_id = {{row}}.id AND e.action IN {sql.one_of((_A.ARCHIVED, _A.RESTORED))}
                 ORDER BY e.id DESC LIMIT 1;"""  # noqa: S608
    return [
        pgtrigger.Trigger(
            name="archived_first",
            when=pgtrigger.Before,
            operation=pgtrigger.Delete,
            declare=[("place", "text")],
            func=f"""{where.format(row="OLD")}
                IF place IS DISTINCT FROM '{_A.ARCHIVED.value}' THEN
                  RAISE EXCEPTION 'dead letter % goes only once it is archived', OLD.id;
                END IF;
                RETURN OLD;""",
        ),
    ]
