"""A letter is born new, leaves its table only for the archive, and comes back closed only from there."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('deadletters', '0009_archive_rows_stay'),
    ]

    operations = [
        pgtrigger.migrations.AddTrigger(
            model_name='deadletter',
            trigger=pgtrigger.compiler.Trigger(name='born_new', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (NOT (NEW."status" = \'new\'))', declare='DECLARE place text;', func="\n                SELECT e.action INTO place FROM public.dead_letter_events e\n                 WHERE e.letter_id = NEW.id AND e.action IN ('archived', 'restored')\n                 ORDER BY e.id DESC LIMIT 1;\n                IF NEW.status NOT IN ('resolved', 'discarded') OR place IS DISTINCT FROM 'archived' THEN\n                  RAISE EXCEPTION 'a dead letter is born new, not %', NEW.status;\n                END IF;\n                RETURN NEW;", hash='31e63e465abdcbf9d349813a0a7f250564dbb594', operation='INSERT', pgid='pgtrigger_born_new_c9113', table='dead_letters', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deadletter',
            trigger=pgtrigger.compiler.Trigger(name='archived_first', sql=pgtrigger.compiler.UpsertTriggerSql(declare='DECLARE place text;', func="\n                SELECT e.action INTO place FROM public.dead_letter_events e\n                 WHERE e.letter_id = OLD.id AND e.action IN ('archived', 'restored')\n                 ORDER BY e.id DESC LIMIT 1;\n                IF place IS DISTINCT FROM 'archived' THEN\n                  RAISE EXCEPTION 'dead letter % goes only once it is archived', OLD.id;\n                END IF;\n                RETURN OLD;", hash='b4a9019498152db53809ecb2fe118ceef995126d', operation='DELETE', pgid='pgtrigger_archived_first_a1ce6', table='dead_letters', when='BEFORE')),
        ),
    ]
