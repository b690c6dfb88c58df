"""Logs the sequences of unlogged tables.

A standby that is promoted empties unlogged tables. An unlogged sequence may be broken then ("bad magic number
in sequence", PostgreSQL 18), and with it every rate limit or circuit.
"""

from django.db import migrations

# A sequence has a persistence of its own since PostgreSQL 15; before, every one is logged.
_LOG = """
DO $$ BEGIN
  IF current_setting('server_version_num')::int >= 150000 THEN
    EXECUTE 'ALTER SEQUENCE ' || pg_get_serial_sequence('pace_slots', 'id') || ' SET LOGGED';
    EXECUTE 'ALTER SEQUENCE ' || pg_get_serial_sequence('circuit_buckets', 'id') || ' SET LOGGED';
  END IF;
END $$"""


class Migration(migrations.Migration):
    dependencies = [("criticizer", "0008_cluster_version")]
    operations = [migrations.RunSQL(_LOG, migrations.RunSQL.noop)]
