"""A discard can be taken back; the files of the archive say how many letters nobody had touched, and came back."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

# A file keeps its name up to the key that seals it, which `letter_archive` appends behind `~`.
_CAME_BACK = """
UPDATE letter_archives a SET restored_count = back.letters
  FROM (SELECT split_part(regexp_replace(context ->> 'archive', '[.]sealed$', ''), '~', 1) AS stem,
               count(DISTINCT letter_id) AS letters
          FROM dead_letter_events WHERE action = 'restored' GROUP BY 1) back
 WHERE back.stem = split_part(regexp_replace(a.name, '[.]sealed$', ''), '~', 1)"""


class Migration(migrations.Migration):

    dependencies = [
        ('deadletters', '0007_guards'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='letterarchive',
            options={'ordering': ['-id'], 'permissions': [('restore_letterarchive', 'Can restore dead letters from the archive')], 'verbose_name': 'archived file'},
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name='deadletter',
            name='status_fsm',
        ),
        migrations.AddField(
            model_name='letterarchive',
            name='restored_count',
            field=models.IntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name='letterarchive',
            name='untouched_count',
            field=models.IntegerField(null=True),
        ),
        migrations.AlterField(
            model_name='deadletterevent',
            name='action',
            field=models.CharField(choices=[('created', 'Created'), ('triaged', 'Triaged'), ('remediated', 'Remediated'), ('validated', 'Validated'), ('not_validated', 'Validation failed'), ('overridden', 'Validation overridden'), ('stale', 'Validation went stale'), ('queued', 'Queued by a batch'), ('unqueued', 'Let go by a batch'), ('replayed', 'Replayed from the failed stage'), ('restarted', 'Restarted from the first stage'), ('succeeded', 'Replay succeeded'), ('failed_again', 'Failed again'), ('escalated', 'Escalated'), ('verified', 'Verified'), ('not_verified', 'Verification failed'), ('resolved', 'Resolved'), ('discarded', 'Discarded'), ('reopened', 'Reopened'), ('refused', 'Refused'), ('edit_requested', 'Edit requested'), ('edit_refused', 'Edit refused'), ('edit_withdrawn', 'Edit withdrawn'), ('edited', 'Edited'), ('archived', 'Archived and removed'), ('restored', 'Restored from the archive')], max_length=16),
        ),
        migrations.AddIndex(
            model_name='deadletter',
            index=models.Index(condition=models.Q(('status__in', ['resolved', 'discarded'])), fields=['closed_at', 'id'], name='dead_letters_closed'),
        ),
        migrations.AddIndex(
            model_name='letterarchive',
            index=models.Index(fields=['created_at'], name='letter_archives_today'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deadletter',
            trigger=pgtrigger.compiler.Trigger(name='status_fsm', sql=pgtrigger.compiler.UpsertTriggerSql(declare='DECLARE _is_valid_transition BOOLEAN;', func='SELECT CONCAT(OLD."status", \':\', NEW."status") = ANY(\'{new:triaged,triaged:remediated,remediated:validated,validated:replaying,validated:replay_pending,replay_pending:replaying,replaying:verifying,verifying:resolved,remediated:triaged,validated:triaged,validated:remediated,replay_pending:validated,replaying:new,verifying:new,new:discarded,triaged:discarded,remediated:discarded,validated:discarded,replaying:discarded,discarded:new}\'::text[]) INTO _is_valid_transition; IF (_is_valid_transition IS FALSE AND OLD."status" IS DISTINCT FROM NEW."status") THEN RAISE EXCEPTION \'pgtrigger: Invalid transition of field "status" from "%" to "%" on table %\', OLD."status", NEW."status", TG_TABLE_NAME; ELSE RETURN NEW; END IF;', hash='17b6074a0c42f9c8443022f35077a133c5008ede', operation='UPDATE', pgid='pgtrigger_status_fsm_64ccb', table='dead_letters', when='BEFORE')),
        ),
        migrations.RunSQL(_CAME_BACK, migrations.RunSQL.noop, elidable=True),
    ]
