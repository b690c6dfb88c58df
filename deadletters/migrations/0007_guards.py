"""Guards in the database: what a batch, its items and a letter may never become."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('deadletters', '0006_paused_batch_stops'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='replaybatch',
            name='replay_batches_approved',
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deadletter',
            trigger=pgtrigger.compiler.Trigger(name='as_it_began', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."job_id" IS DISTINCT FROM (NEW."job_id") OR OLD."parent_id" IS DISTINCT FROM (NEW."parent_id") OR OLD."generation" IS DISTINCT FROM (NEW."generation") OR OLD."created_at" IS DISTINCT FROM (NEW."created_at"))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='7b1f03dd5a196220eaab690b9761038df192b316', operation='UPDATE', pgid='pgtrigger_as_it_began_407b8', table='dead_letters', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deadlettergroup',
            trigger=pgtrigger.compiler.Trigger(name='status_fsm', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."status" IS DISTINCT FROM (NEW."status"))', declare='DECLARE _is_valid_transition BOOLEAN;', func='SELECT CONCAT(OLD."status", \':\', NEW."status") = ANY(\'{open:acknowledged,open:resolved,acknowledged:resolved,ignored:resolved,open:ignored,acknowledged:ignored,resolved:ignored,acknowledged:open,resolved:open,ignored:open}\'::text[]) INTO _is_valid_transition; IF (_is_valid_transition IS FALSE AND OLD."status" IS DISTINCT FROM NEW."status") THEN RAISE EXCEPTION \'pgtrigger: Invalid transition of field "status" from "%" to "%" on table %\', OLD."status", NEW."status", TG_TABLE_NAME; ELSE RETURN NEW; END IF;', hash='f419d056d57ec9af50010a9fb43629702d6c1ae2', operation='UPDATE', pgid='pgtrigger_status_fsm_79134', table='dead_letter_groups', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deadletterpayload',
            trigger=pgtrigger.compiler.Trigger(name='of_its_letter', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."letter_id" IS DISTINCT FROM (NEW."letter_id"))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='b89b0addcccefe0ddd7aa3fb252ad016e830f877', operation='UPDATE', pgid='pgtrigger_of_its_letter_cf9da', table='dead_letter_payloads', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='letterarchive',
            trigger=pgtrigger.compiler.Trigger(name='as_written', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."sha256" IS DISTINCT FROM (NEW."sha256") OR OLD."letter_count" IS DISTINCT FROM (NEW."letter_count") OR OLD."first_letter" IS DISTINCT FROM (NEW."first_letter") OR OLD."last_letter" IS DISTINCT FROM (NEW."last_letter") OR OLD."created_at" IS DISTINCT FROM (NEW."created_at"))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='1a2817c77ee98a5be29bbd54c3f657be476c8f73', operation='UPDATE', pgid='pgtrigger_as_written_8fd86', table='letter_archives', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='replaybatch',
            trigger=pgtrigger.compiler.Trigger(name='born_a_draft', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (NOT (NEW."status" = \'draft\') OR NOT (NEW."approved_by" = \'\'))', func="RAISE EXCEPTION 'pgtrigger: Cannot insert rows from % table', TG_TABLE_NAME;", hash='c3d79049bdc76d441c66df325ac583bacfdcda01', operation='INSERT', pgid='pgtrigger_born_a_draft_198f9', table='replay_batches', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='replaybatch',
            trigger=pgtrigger.compiler.Trigger(name='as_submitted', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (NOT (OLD."status" = \'draft\') AND (OLD."filter" IS DISTINCT FROM (NEW."filter") OR OLD."item_count" IS DISTINCT FROM (NEW."item_count") OR OLD."reason" IS DISTINCT FROM (NEW."reason") OR OLD."category" IS DISTINCT FROM (NEW."category") OR OLD."evidence_link" IS DISTINCT FROM (NEW."evidence_link") OR OLD."evidence_note" IS DISTINCT FROM (NEW."evidence_note") OR OLD."override_reason" IS DISTINCT FROM (NEW."override_reason") OR OLD."is_restart" IS DISTINCT FROM (NEW."is_restart") OR OLD."needs_approval" IS DISTINCT FROM (NEW."needs_approval") OR OLD."canary_size" IS DISTINCT FROM (NEW."canary_size") OR OLD."requested_by" IS DISTINCT FROM (NEW."requested_by") OR OLD."requested_at" IS DISTINCT FROM (NEW."requested_at")))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='b02ea3c72cc71fb4b90840f34a33ac20db6cf7e4', operation='UPDATE', pgid='pgtrigger_as_submitted_151b0', table='replay_batches', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='replaybatch',
            trigger=pgtrigger.compiler.Trigger(name='approval_stays_needed', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (NOT NEW."needs_approval" AND OLD."needs_approval")', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='cef1bc8558107e1cda8d515565414a0adf4e87ea', operation='UPDATE', pgid='pgtrigger_approval_stays_needed_ab435', table='replay_batches', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='replaybatch',
            trigger=pgtrigger.compiler.Trigger(name='approved_once', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (NOT (NEW."status" = \'running\' AND OLD."status" = \'awaiting\') AND (OLD."approved_by" IS DISTINCT FROM (NEW."approved_by") OR OLD."approved_at" IS DISTINCT FROM (NEW."approved_at")))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='a93b3dd27d0a17f3291dda577322d8e86a9cdf9e', operation='UPDATE', pgid='pgtrigger_approved_once_070dc', table='replay_batches', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='replaybatch',
            trigger=pgtrigger.compiler.Trigger(name='other_eyes', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."approved_by" IS DISTINCT FROM (NEW."approved_by"))', func="\n                IF EXISTS (SELECT FROM public.replay_batch_events e WHERE e.batch_id = NEW.id\n                              AND e.actor = NEW.approved_by AND e.action IN ('drafted', 'configured', 'awaiting')) THEN\n                  RAISE EXCEPTION 'replay batch %: who made it cannot approve it', NEW.id;\n                END IF;\n                RETURN NEW;", hash='0e8cc832fe84600a0f637ea80fd391c501fbf3c7', operation='UPDATE', pgid='pgtrigger_other_eyes_7626b', table='replay_batches', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='replaybatch',
            trigger=pgtrigger.compiler.Trigger(name='stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot delete rows from % table', TG_TABLE_NAME;", hash='0161c80e49b349553b41a2d49fca6c0c46733fbb', operation='DELETE', pgid='pgtrigger_stays_c7be3', table='replay_batches', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='replayitem',
            trigger=pgtrigger.compiler.Trigger(name='as_frozen', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."batch_id" IS DISTINCT FROM (NEW."batch_id") OR OLD."letter_id" IS DISTINCT FROM (NEW."letter_id") OR OLD."job_id" IS DISTINCT FROM (NEW."job_id") OR OLD."group_id" IS DISTINCT FROM (NEW."group_id") OR OLD."lane" IS DISTINCT FROM (NEW."lane"))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='b5bfedaa60ad2b14c1476acad1fcbabbda9c78ee', operation='UPDATE', pgid='pgtrigger_as_frozen_4d053', table='replay_items', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='replayitem',
            trigger=pgtrigger.compiler.Trigger(name='of_a_draft', sql=pgtrigger.compiler.UpsertTriggerSql(func="\n    PERFORM 1 FROM public.replay_batches WHERE id IN (SELECT batch_id FROM new_rows) ORDER BY id FOR SHARE;\n    IF EXISTS (SELECT FROM public.replay_batches b\n                JOIN new_rows n ON n.batch_id = b.id WHERE b.status <> 'draft') THEN\n      RAISE EXCEPTION 'letters join a replay batch only while it is a draft';\n    END IF;\n    RETURN NULL;", hash='1529b9bbc9aaf2b9a036ae54637f10a84d96889d', level='STATEMENT', operation='INSERT', pgid='pgtrigger_of_a_draft_a8b45', referencing='REFERENCING NEW TABLE AS new_rows ', table='replay_items', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='replayitem',
            trigger=pgtrigger.compiler.Trigger(name='stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot delete rows from % table', TG_TABLE_NAME;", hash='e72981bee03e3ab5c2a0b193135fbea5d3b22227', operation='DELETE', pgid='pgtrigger_stays_01450', table='replay_items', when='BEFORE')),
        ),
        migrations.AddConstraint(
            model_name='deadletter',
            constraint=models.CheckConstraint(condition=models.Q(('failed_replay_count__gte', 0)), name='dead_letters_replays_counted_up'),
        ),
        migrations.AddConstraint(
            model_name='replaybatch',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['draft', 'awaiting', 'cancelled']), models.Q(('is_restart', False), ('needs_approval', False), ('override_reason', '')), models.Q(models.Q(('approved_by', ''), _negated=True), ('approved_at__isnull', False)), _connector='OR'), name='replay_batches_approved'),
        ),
        migrations.AddConstraint(
            model_name='replaybatch',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('status__in', ['awaiting']), _negated=True), ('needs_approval', True), _connector='OR'), name='replay_batches_awaiting'),
        ),
    ]
