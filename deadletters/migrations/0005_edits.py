import django.db.models.deletion
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('deadletters', '0004_workflow_rules'),
        ('reviews', '0010_delivery_decided'),
    ]

    operations = [
        pgtrigger.migrations.RemoveTrigger(
            model_name='letteredit',
            name='status_fsm',
        ),
        migrations.AlterField(
            model_name='deadletter',
            name='parent',
            field=models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='generations', to='deadletters.deadletter'),
        ),
        migrations.AlterField(
            model_name='deadletterevent',
            name='action',
            field=models.CharField(choices=[('created', 'Created'), ('triaged', 'Triaged'), ('remediated', 'Remediated'), ('validated', 'Validated'), ('not_validated', 'Validation failed'), ('overridden', 'Validation overridden'), ('stale', 'Validation went stale'), ('queued', 'Queued by a batch'), ('unqueued', 'Let go by a batch'), ('replayed', 'Replayed from the failed stage'), ('restarted', 'Restarted from the first stage'), ('succeeded', 'Replay succeeded'), ('failed_again', 'Failed again'), ('escalated', 'Escalated'), ('verified', 'Verified'), ('not_verified', 'Verification failed'), ('resolved', 'Resolved'), ('discarded', 'Discarded'), ('refused', 'Refused'), ('edit_requested', 'Edit requested'), ('edit_refused', 'Edit refused'), ('edit_withdrawn', 'Edit withdrawn'), ('edited', 'Edited'), ('archived', 'Archived and removed'), ('restored', 'Restored from the archive')], max_length=16),
        ),
        migrations.AlterField(
            model_name='letteredit',
            name='status',
            field=models.CharField(choices=[('requested', 'Requested'), ('applied', 'Applied'), ('refused', 'Refused'), ('withdrawn', 'Withdrawn')], db_default='requested', max_length=12),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='letteredit',
            trigger=pgtrigger.compiler.Trigger(name='status_fsm', sql=pgtrigger.compiler.UpsertTriggerSql(declare='DECLARE _is_valid_transition BOOLEAN;', func='SELECT CONCAT(OLD."status", \':\', NEW."status") = ANY(\'{requested:applied,requested:refused,requested:withdrawn}\'::text[]) INTO _is_valid_transition; IF (_is_valid_transition IS FALSE AND OLD."status" IS DISTINCT FROM NEW."status") THEN RAISE EXCEPTION \'pgtrigger: Invalid transition of field "status" from "%" to "%" on table %\', OLD."status", NEW."status", TG_TABLE_NAME; ELSE RETURN NEW; END IF;', hash='62db8a0687123aaa14a497ca51b7e7db50c0593a', operation='UPDATE', pgid='pgtrigger_status_fsm_28b1d', table='letter_edits', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='letteredit',
            trigger=pgtrigger.compiler.Trigger(name='as_asked', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."letter_id" IS DISTINCT FROM (NEW."letter_id") OR OLD."before" IS DISTINCT FROM (NEW."before") OR OLD."after" IS DISTINCT FROM (NEW."after") OR OLD."reason" IS DISTINCT FROM (NEW."reason") OR OLD."requested_by" IS DISTINCT FROM (NEW."requested_by") OR OLD."requested_at" IS DISTINCT FROM (NEW."requested_at"))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='c695bb19d53b3ab7d4161df1526c0ee559f3740b', operation='UPDATE', pgid='pgtrigger_as_asked_13ade', table='letter_edits', when='BEFORE')),
        ),
        migrations.AddConstraint(
            model_name='deadletter',
            constraint=models.UniqueConstraint(condition=models.Q(('parent__isnull', False)), fields=('parent',), name='dead_letters_one_successor'),
        ),
        migrations.AddConstraint(
            model_name='deadletter',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('generation', 1), ('parent__isnull', True)), models.Q(('generation__gt', 1), ('parent__isnull', False)), _connector='OR'), name='dead_letters_generation'),
        ),
    ]
