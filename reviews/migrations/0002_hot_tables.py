"""Room for in-row updates and vacuum by count, not by share, for the tables every stage writes."""

from django.db import migrations

_HOT = ("jobs", "stage_runs")


class Migration(migrations.Migration):
    dependencies = [("reviews", "0001_initial")]

    operations = [
        migrations.RunSQL(
            f"ALTER TABLE {table} SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0,"
            " autovacuum_vacuum_threshold = 1000)",
            f"ALTER TABLE {table} RESET (fillfactor, autovacuum_vacuum_scale_factor,"
            " autovacuum_vacuum_threshold)",
        )
        for table in _HOT
    ]
