"""Indexes that are made on a table while the product reads and writes it."""

from __future__ import annotations

from typing import Any

from django.contrib.postgres.operations import AddIndexConcurrently


class AddIndexInService(AddIndexConcurrently):
    """Make an index without keeping writers waiting; the migration needs `atomic = False`.

    A build that was cut off leaves an index that serves nothing: it is dropped first, so that the migration
    can be run again.
    """

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        name = schema_editor.quote_name(self.index.name)
        schema_editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}", params=None)
        super().database_forwards(app_label, schema_editor, from_state, to_state)
