import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('reviews', '0008_ended_reviews_and_offered_stages'),
    ]

    operations = [
        migrations.AddField(
            model_name='reviewjob',
            name='ended_as',
            field=models.CharField(blank=True, choices=[('queued', 'Queued'), ('in_progress', 'In progress'), ('retryable_failed', 'Waiting to retry'), ('succeeded', 'Succeeded'), ('dead_lettered', 'Dead-lettered'), ('timed_out', 'Timed out'), ('cancelled', 'Cancelled'), ('superseded', 'Superseded')], db_default='', editable=False, max_length=20),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='reviewjob',
            trigger=pgtrigger.compiler.Trigger(name='keeps_how_it_ended', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (NEW.ended_as <> CASE WHEN NEW.status IN ('dead_lettered', 'timed_out', 'cancelled', 'superseded') THEN NEW.status ELSE '' END)", func="NEW.ended_as := CASE WHEN NEW.status IN ('dead_lettered', 'timed_out', 'cancelled', 'superseded') THEN NEW.status ELSE '' END; RETURN NEW;", hash='214c7cc06c4c92b27a24a13d325d3fe3f5397fa3', operation='INSERT OR UPDATE', pgid='pgtrigger_keeps_how_it_ended_31cbf', table='jobs', when='BEFORE')),
        ),
    ]
