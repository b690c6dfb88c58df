"""Room for in-row updates and vacuum by count, not by share: the queue stays fast as it churns."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("criticizer", "0001_initial")]

    operations = [
        migrations.RunSQL(
            "ALTER TABLE outbox_messages SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0,"
            " autovacuum_vacuum_threshold = 1000)",
            "ALTER TABLE outbox_messages RESET (fillfactor, autovacuum_vacuum_scale_factor,"
            " autovacuum_vacuum_threshold)",
        )
    ]
