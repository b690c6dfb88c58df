"""Every setting of a batch counts as a change of it, for who looked at it before."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('deadletters', '0012_a_failure_that_comes_again'),
    ]

    operations = [
        pgtrigger.migrations.RemoveTrigger(
            model_name='replaybatch',
            name='row_version',
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='replaybatch',
            trigger=pgtrigger.compiler.Trigger(name='row_version', sql=pgtrigger.compiler.UpsertTriggerSql(func='IF (OLD.status, OLD.approved_by, OLD.rate_per_minute, OLD.max_in_flight, OLD.canary_size, OLD.category, OLD.evidence_link, OLD.evidence_note, OLD.override_reason, OLD.is_restart) IS DISTINCT FROM (NEW.status, NEW.approved_by, NEW.rate_per_minute, NEW.max_in_flight, NEW.canary_size, NEW.category, NEW.evidence_link, NEW.evidence_note, NEW.override_reason, NEW.is_restart) THEN NEW.row_version = OLD.row_version + 1; END IF; RETURN NEW;', hash='e491a18d70d8f94ef1a765295454f5a80a202b98', operation='UPDATE', pgid='pgtrigger_row_version_843b8', table='replay_batches', when='BEFORE')),
        ),
    ]
