"""Letters of the version before: each gets its group and its payload row, and truthful steps.

What was `open` is new. What is being replayed, or was resolved, was so without the steps: their
fields say that they were not recorded.
"""

from __future__ import annotations

import json
from typing import Any

from django.db import migrations

from deadletters.categories import suggested_category
from deadletters.fingerprint import fingerprint

_BEFORE = "before this version: the step was not recorded"
_FIND = """
SELECT l.id, l.stage, l.error_class, l.code, l.detail, l.last_stack, l.sanitized_context::text,
       l.first_failure_at, l.last_failure_at, j.changelist_id
  FROM dead_letters l JOIN jobs j ON j.id = l.job_id WHERE l.id > %s ORDER BY l.id LIMIT 1000"""
_GROUP = """
INSERT INTO dead_letter_groups AS g
       (fingerprint, stage, error_class, source, normalized_message, first_seen, last_seen, total_count)
VALUES (%s, %s, %s, %s, %s, %s, %s, 1)
ON CONFLICT (fingerprint) DO UPDATE
   SET first_seen = least(g.first_seen, excluded.first_seen),
       last_seen = greatest(g.last_seen, excluded.last_seen), total_count = g.total_count + 1
RETURNING id"""
_STEPS = """
UPDATE dead_letters
   SET triaged_by = 'criticizer', triaged_at = now(), category = c.category,
       remediated_by = 'criticizer', remediated_at = now(), evidence_note = %(before)s,
       validated_by = 'criticizer', validated_at = now(), override_reason = %(before)s,
       replayed_by = 'criticizer', replayed_at = now(), replay_reason = %(before)s,
       verified_by = CASE WHEN status = 'resolved' THEN 'criticizer' ELSE '' END,
       verified_at = CASE WHEN status = 'resolved' THEN coalesce(closed_at, now()) END,
       resolved_by = CASE WHEN status = 'resolved' THEN 'criticizer' ELSE '' END,
       resolution = CASE WHEN status = 'resolved' THEN 'resolved before this version' ELSE '' END
  FROM (SELECT * FROM unnest(%(classes)s::text[], %(categories)s::text[])) AS c (error_class, category)
 WHERE dead_letters.status IN ('replaying', 'resolved') AND c.error_class = dead_letters.error_class"""


def _convert(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("UPDATE dead_letters SET status = 'new' WHERE status = 'open'")
        cursor.execute(
            "INSERT INTO dead_letter_payloads (letter_id, last_stack, sanitized_context)"
            " SELECT id, last_stack, sanitized_context FROM dead_letters"
        )
        cursor.execute("UPDATE dead_letters SET closed_at = now() WHERE closed_at IS NULL"
                       " AND status IN ('resolved', 'discarded')")  # fmt: skip
        last = 0
        while True:
            cursor.execute(_FIND, [last])
            found = cursor.fetchall()
            if not found:
                break
            for row in found:
                _join_group(cursor, row)
            last = found[-1][0]
        cursor.execute(
            "INSERT INTO dead_letter_group_days (group_id, day, count)"
            " SELECT group_id, (last_failure_at AT TIME ZONE 'UTC')::date, count(*)"
            " FROM dead_letters GROUP BY 1, 2"
        )
        cursor.execute(
            "UPDATE dead_letter_groups g SET open_count = (SELECT count(*) FROM dead_letters l"
            " WHERE l.group_id = g.id AND NOT (l.status IN ('resolved', 'discarded')))"
        )
        cursor.execute("SELECT DISTINCT error_class FROM dead_letters")
        classes = [row[0] for row in cursor.fetchall()]
        categories = [suggested_category(name).value for name in classes]
        cursor.execute(_STEPS, {"before": _BEFORE, "classes": classes, "categories": categories})


def _join_group(cursor: Any, row: tuple[Any, ...]) -> None:
    pk, stage, error_class, code, detail, stack, context, first, last, changelist = row
    source = changelist.partition("@")[0] if changelist.startswith("git:") and stage == "fetch" else ""
    made = fingerprint(
        stage=stage,
        source=source,
        error_class=error_class,
        code=code,
        status=json.loads(context).get("status"),
        detail=detail,
        stack=stack,
    )
    cursor.execute(_GROUP, [made.id, stage, error_class, source, made.message, first, last])
    cursor.execute("UPDATE dead_letters SET group_id = %s WHERE id = %s", [cursor.fetchone()[0], pk])


class Migration(migrations.Migration):

    dependencies = [
        ("deadletters", "0002_workflow"),
    ]

    operations = [
        migrations.RunPython(_convert, elidable=True),
    ]
