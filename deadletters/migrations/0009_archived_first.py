"""A letter leaves its table only once it is archived."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('deadletters', '0008_reopening_and_archive'),
    ]

    operations = [
        pgtrigger.migrations.AddTrigger(
            model_name='deadletter',
            trigger=pgtrigger.compiler.Trigger(name='archived_first', sql=pgtrigger.compiler.UpsertTriggerSql(declare='DECLARE place text;', func="\n                SELECT e.action INTO place FROM public.dead_letter_events e\n                 WHERE e.letter_id = OLD.id AND e.action IN ('archived', 'restored')\n                 ORDER BY e.id DESC LIMIT 1;\n                IF place IS DISTINCT FROM 'archived' THEN\n                  RAISE EXCEPTION 'dead letter % goes only once it is archived', OLD.id;\n                END IF;\n                RETURN OLD;", hash='b4a9019498152db53809ecb2fe118ceef995126d', operation='DELETE', pgid='pgtrigger_archived_first_a1ce6', table='dead_letters', when='BEFORE')),
        ),
    ]
