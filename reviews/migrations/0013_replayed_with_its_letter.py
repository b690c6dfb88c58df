"""A dead-lettered job goes back to work only while a letter of it is being replayed."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('deadletters', '0001_initial'),  # makes the table that the trigger asks
        ('reviews', '0012_deadline_of_a_replay'),
    ]

    operations = [
        pgtrigger.migrations.AddTrigger(
            model_name='reviewjob',
            trigger=pgtrigger.compiler.Trigger(name='replayed_with_its_letter', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (NEW."status" = \'queued\' AND OLD."status" = \'dead_lettered\')', func="\n            IF NOT EXISTS (SELECT FROM public.dead_letters l\n                            WHERE l.job_id = NEW.id AND l.status = 'replaying') THEN\n              RAISE EXCEPTION 'job %: no letter of it is being replayed', NEW.id;\n            END IF;\n            RETURN NEW;", hash='33ef836a7aca2713a330146eeef0c4e5e0d75f4b', operation='UPDATE', pgid='pgtrigger_replayed_with_its_letter_bd665', table='jobs', when='BEFORE')),
        ),
    ]
