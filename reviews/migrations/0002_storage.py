"""Storage parameters of hot tables, and history tables that refuse TRUNCATE."""

from django.db import migrations

_HOT = ("jobs", "stage_runs")
_HISTORIES = ("reviews_viewerscopeevent", "reviews_allowlistentryevent", "reviews_subscriptionevent")


class Migration(migrations.Migration):
    dependencies = [("reviews", "0001_initial")]

    operations = [
        *(
            migrations.RunSQL(
                f"ALTER TABLE {table} SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0,"
                " autovacuum_vacuum_threshold = 1000)",
                f"ALTER TABLE {table} RESET (fillfactor, autovacuum_vacuum_scale_factor,"
                " autovacuum_vacuum_threshold)",
            )
            for table in _HOT
        ),
        migrations.RunSQL(
            "CREATE FUNCTION refuse_truncate() RETURNS trigger LANGUAGE plpgsql AS $$\n"
            "            BEGIN RAISE EXCEPTION 'append-only: % cannot be truncated', TG_TABLE_NAME; END $$;",
            "DROP FUNCTION refuse_truncate();",
        ),
        # pghistory makes these tables: pgtrigger cannot be declared on them.
        *(
            migrations.RunSQL(
                f"CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON {table}"
                " FOR EACH STATEMENT EXECUTE FUNCTION refuse_truncate();",
                f"DROP TRIGGER refuse_truncate ON {table};",
            )
            for table in _HISTORIES
        ),
    ]
