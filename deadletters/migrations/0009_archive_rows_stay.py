"""The rows of the archive stay: without its row a file is found no more."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('deadletters', '0008_reopening_and_archive'),
    ]

    operations = [
        pgtrigger.migrations.AddTrigger(
            model_name='letterarchive',
            trigger=pgtrigger.compiler.Trigger(name='stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot delete rows from % table', TG_TABLE_NAME;", hash='0914269622b665d8137dd527468bd00390b9062b', operation='DELETE', pgid='pgtrigger_stays_73ca9', table='letter_archives', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='letterarchive',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % cannot be truncated', TG_TABLE_NAME;", hash='ae044bc6803261f845e3d01069886576212746f1', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_c1c77', table='letter_archives', when='BEFORE')),
        ),
    ]
