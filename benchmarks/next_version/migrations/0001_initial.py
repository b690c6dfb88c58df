"""Adds what a next version might add: a column that the version before neither reads nor writes."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("reviews", "0001_initial")]
    operations = [
        migrations.RunSQL(
            "ALTER TABLE jobs ADD COLUMN next_version text NOT NULL DEFAULT ''",
            "ALTER TABLE jobs DROP COLUMN next_version",
        )
    ]
