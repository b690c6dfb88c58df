"""Storage parameters of hot tables: room for HOT updates, early vacuum, no WAL for counters."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("criticizer", "0001_initial")]

    operations = [
        migrations.RunSQL(
            "ALTER TABLE outbox_messages SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0,"
            " autovacuum_vacuum_threshold = 1000)",
            "ALTER TABLE outbox_messages RESET (fillfactor, autovacuum_vacuum_scale_factor,"
            " autovacuum_vacuum_threshold)",
        ),
        # Counters that start again from zero after a crash of the server.
        migrations.RunSQL(
            "ALTER TABLE circuit_buckets SET UNLOGGED; ALTER TABLE paces SET UNLOGGED;"
            " ALTER TABLE pace_slots SET UNLOGGED",
            "ALTER TABLE circuit_buckets SET LOGGED; ALTER TABLE paces SET LOGGED;"
            " ALTER TABLE pace_slots SET LOGGED",
        ),
        migrations.RunSQL(
            "ALTER TABLE circuits SET (fillfactor = 50); ALTER TABLE circuit_buckets SET (fillfactor = 50);"
            " ALTER TABLE paces SET (fillfactor = 50); ALTER TABLE pace_slots SET (fillfactor = 50)",
            "ALTER TABLE circuits RESET (fillfactor); ALTER TABLE circuit_buckets RESET (fillfactor);"
            " ALTER TABLE paces RESET (fillfactor); ALTER TABLE pace_slots RESET (fillfactor)",
        ),
    ]
