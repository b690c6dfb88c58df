"""Migration operations that create an index while the product reads and writes its table."""

from __future__ import annotations

from typing import Any

from django.contrib.postgres.operations import AddIndexConcurrently, NotInTransactionMixin
from django.db.migrations import AddConstraint


class AddIndexRetryably(AddIndexConcurrently):
    """Create an index without blocking writers; the migration needs `atomic = False`.

    A build that was interrupted leaves an invalid index: it is dropped first, so that the migration can be
    run again.
    """

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        name = schema_editor.quote_name(self.index.name)
        schema_editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}", params=None)
        super().database_forwards(app_label, schema_editor, from_state, to_state)


class AddUniqueRetryably(NotInTransactionMixin, AddConstraint):
    """Create a conditional unique constraint (a partial unique index) in the same way."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self._ensure_not_in_transaction(schema_editor)
        model = to_state.apps.get_model(app_label, self.model_name)
        if not self.allow_migrate_model(schema_editor.connection.alias, model):
            return
        name = schema_editor.quote_name(self.constraint.name)
        schema_editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}", params=None)
        made = str(self.constraint.create_sql(model, schema_editor))
        schema_editor.execute(made.replace("UNIQUE INDEX", "UNIQUE INDEX CONCURRENTLY", 1), params=None)
