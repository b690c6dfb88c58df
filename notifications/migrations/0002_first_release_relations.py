"""Relations, constraints, indexes and triggers of those tables."""

import django.db.models.deletion
import django.db.models.functions.text
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    # A database that ran the migrations of earlier commits has nothing to run.
    replaces = [
        ('notifications', '0002_initial'),
        ('notifications', '0003_delivery_series'),
        ('notifications', '0004_copies_have_a_lifetime'),
        ('notifications', '0005_give_up_refused_recipients'),
    ]

    initial = True

    dependencies = [
        ('notifications', '0001_first_release'),
        ('pghistory', '0007_auto_20250421_0444'),
        ('reviews', '0001_first_release'),
    ]

    operations = [
        migrations.AddField(
            model_name='delivery',
            name='job',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='reviews.reviewjob'),
        ),
        migrations.AddField(
            model_name='deliveryattempt',
            name='delivery',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='attempt_rows', to='notifications.delivery'),
        ),
        migrations.AddField(
            model_name='digest',
            name='carrier',
            field=models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='carries', to='notifications.delivery'),
        ),
        migrations.AddField(
            model_name='delivery',
            name='digest',
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='deliveries', to='notifications.digest'),
        ),
        migrations.AddConstraint(
            model_name='recipientpreference',
            constraint=models.CheckConstraint(condition=models.Q(('threshold__in', ['', 'low', 'medium', 'high', 'critical'])), name='recipient_preferences_threshold'),
        ),
        migrations.AddConstraint(
            model_name='recipientpreference',
            constraint=models.CheckConstraint(condition=models.Q(('digest_minutes', 0), models.Q(('digest_minutes__in', [5, 10, 15, 30, 60]), ('recipient__startswith', 'mail:')), _connector='OR'), name='recipient_preferences_digest'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='recipientpreference',
            trigger=pgtrigger.compiler.Trigger(name='insert_insert', sql=pgtrigger.compiler.UpsertTriggerSql(func='INSERT INTO "notifications_recipientpreferenceevent" ("actor", "digest_minutes", "id", "muted_until", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reason", "recipient", "threshold", "updated_at") VALUES (NEW."actor", NEW."digest_minutes", NEW."id", NEW."muted_until", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."reason", NEW."recipient", NEW."threshold", NEW."updated_at"); RETURN NULL;', hash='105ea5ce700eb291fca48c9920d747e2d70e69c4', operation='INSERT', pgid='pgtrigger_insert_insert_915d8', table='recipient_preferences', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='recipientpreference',
            trigger=pgtrigger.compiler.Trigger(name='update_update', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD.* IS DISTINCT FROM NEW.*)', func='INSERT INTO "notifications_recipientpreferenceevent" ("actor", "digest_minutes", "id", "muted_until", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reason", "recipient", "threshold", "updated_at") VALUES (NEW."actor", NEW."digest_minutes", NEW."id", NEW."muted_until", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."reason", NEW."recipient", NEW."threshold", NEW."updated_at"); RETURN NULL;', hash='a7ac0e31697e98f52e0fe3f9c148abba1a1f87f3', operation='UPDATE', pgid='pgtrigger_update_update_802ab', table='recipient_preferences', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='recipientpreference',
            trigger=pgtrigger.compiler.Trigger(name='delete_delete', sql=pgtrigger.compiler.UpsertTriggerSql(func='INSERT INTO "notifications_recipientpreferenceevent" ("actor", "digest_minutes", "id", "muted_until", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reason", "recipient", "threshold", "updated_at") VALUES (OLD."actor", OLD."digest_minutes", OLD."id", OLD."muted_until", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."reason", OLD."recipient", OLD."threshold", OLD."updated_at"); RETURN NULL;', hash='381256a0f0ea54bcdbcbec02156eebc03c6fe644', operation='DELETE', pgid='pgtrigger_delete_delete_a442f', table='recipient_preferences', when='AFTER')),
        ),
        migrations.AddField(
            model_name='recipientpreferenceevent',
            name='pgh_context',
            field=models.ForeignKey(db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='pghistory.context'),
        ),
        migrations.AddField(
            model_name='recipientpreferenceevent',
            name='pgh_obj',
            field=models.ForeignKey(db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, to='notifications.recipientpreference'),
        ),
        migrations.AddConstraint(
            model_name='suppression',
            constraint=models.UniqueConstraint(condition=models.Q(('lifted_at__isnull', True)), fields=('address',), name='suppressions_one_in_force'),
        ),
        migrations.AddConstraint(
            model_name='suppression',
            constraint=models.UniqueConstraint(fields=('provider', 'event_id'), name='suppressions_one_per_event'),
        ),
        migrations.AddConstraint(
            model_name='suppression',
            constraint=models.CheckConstraint(condition=models.Q(('address', django.db.models.functions.text.Lower(models.F('address')))), name='suppressions_lower_case'),
        ),
        migrations.AddConstraint(
            model_name='suppression',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('lift_reason', ''), ('lifted_at__isnull', True), ('lifted_by', '')), models.Q(('lifted_at__isnull', False), models.Q(('lifted_by', ''), _negated=True), models.Q(('lift_reason', ''), _negated=True)), _connector='OR'), name='suppressions_lifted_by_somebody'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='suppression',
            trigger=pgtrigger.compiler.Trigger(name='stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot delete rows from % table', TG_TABLE_NAME;", hash='ecfb60ebd2ec70c0113434b28d2f4d2d12b815cd', operation='DELETE', pgid='pgtrigger_stays_0c356', table='suppressions', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='suppression',
            trigger=pgtrigger.compiler.Trigger(name='facts_stay', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."address" IS DISTINCT FROM (NEW."address") OR OLD."reason" IS DISTINCT FROM (NEW."reason") OR OLD."provider" IS DISTINCT FROM (NEW."provider") OR OLD."event_id" IS DISTINCT FROM (NEW."event_id") OR OLD."detail" IS DISTINCT FROM (NEW."detail") OR OLD."created_at" IS DISTINCT FROM (NEW."created_at"))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='a6ea2e4dd1813616673e22bf6577a451ee82d05b', operation='UPDATE', pgid='pgtrigger_facts_stay_649de', table='suppressions', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='suppression',
            trigger=pgtrigger.compiler.Trigger(name='lifted_once', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."lifted_at" IS NOT NULL)', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='560b7e64de5534a5f15bebf664570a764cb0e730', operation='UPDATE', pgid='pgtrigger_lifted_once_7bda7', table='suppressions', when='BEFORE')),
        ),
        migrations.AddIndex(
            model_name='digest',
            index=models.Index(condition=models.Q(('closed_at__isnull', True)), fields=['recipient'], name='digests_open'),
        ),
        migrations.AddConstraint(
            model_name='digest',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('carrier__isnull', True), ('closed_at__isnull', True), ('payload_sha256', ''), ('token__isnull', True)), models.Q(('closed_at__isnull', False), ('token__isnull', False), models.Q(('payload_sha256', ''), _negated=True)), _connector='OR'), name='digests_closed_with_a_message'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(condition=models.Q(('status__in', ['sent', 'failed', 'superseded', 'cancelled', 'abandoned']), _negated=True), fields=['updated_at'], name='deliveries_open'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(condition=models.Q(('digest__isnull', False)), fields=['digest'], name='deliveries_of_digest'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(condition=models.Q(('payload', {}), _negated=True), fields=['created_at'], name='deliveries_with_message'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(fields=['-created_at', '-id'], name='deliveries_newest'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(condition=models.Q(('status__in', ['sent', 'pending', 'sending']), _negated=True), fields=['status', '-created_at', '-id'], name='deliveries_not_sent'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(fields=['recipient', '-created_at', '-id'], name='deliveries_of_recipient'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(condition=models.Q(('notification_id', ''), _negated=True), fields=['notification_id'], name='deliveries_by_message'),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.UniqueConstraint(fields=('changelist_id', 'recipient', 'review_version', 'series'), name='deliveries_one_per_intent'),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('notified_at__isnull', False), ('status', 'sent'), models.Q(('notification_id', ''), _negated=True)), models.Q(models.Q(('status', 'sent'), _negated=True), models.Q(('notified_at__isnull', True), ('notification_id', ''), _connector='OR')), _connector='OR'), name='deliveries_send_then_mark'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='delivery',
            trigger=pgtrigger.compiler.Trigger(name='status_fsm', sql=pgtrigger.compiler.UpsertTriggerSql(declare='DECLARE _is_valid_transition BOOLEAN;', func='SELECT CONCAT(OLD."status", \':\', NEW."status") = ANY(\'{pending:sending,sending:sent,sending:pending,sending:failed,sending:reconciling,sending:uncertain,reconciling:sent,reconciling:sending,reconciling:pending,reconciling:uncertain,sent:reconciling,uncertain:sent,uncertain:pending,uncertain:abandoned,abandoned:sent,failed:pending,failed:abandoned,cancelled:pending,pending:failed,pending:reconciling,pending:superseded,pending:cancelled,failed:superseded,failed:cancelled}\'::text[]) INTO _is_valid_transition; IF (_is_valid_transition IS FALSE AND OLD."status" IS DISTINCT FROM NEW."status") THEN RAISE EXCEPTION \'pgtrigger: Invalid transition of field "status" from "%" to "%" on table %\', OLD."status", NEW."status", TG_TABLE_NAME; ELSE RETURN NEW; END IF;', hash='e5782538ad99c65365e5974dc63ac08e9a940647', operation='UPDATE', pgid='pgtrigger_status_fsm_fa561', table='deliveries', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='recipientpreferenceevent',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='55c6ddd081933c8b9658da88e9cb7af25b06125e', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_1156f', table='notifications_recipientpreferenceevent', when='BEFORE')),
        ),
        migrations.RunSQL(
            "CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON notifications_recipientpreferenceevent"
            " FOR EACH STATEMENT EXECUTE FUNCTION refuse_truncate();",
            "DROP TRIGGER refuse_truncate ON notifications_recipientpreferenceevent;",
        ),
    ]
