"""Relations, constraints, indexes and triggers of those tables."""

import django.db.models.deletion
import django.db.models.functions.text
import django.db.models.lookups
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    # A database that ran the migrations of earlier commits has nothing to run.
    replaces = [
        ('deadletters', '0002_initial'),
        ('deadletters', '0003_alerts_sent_once'),
        ('deadletters', '0004_replay_resolves_verified'),
    ]

    initial = True

    dependencies = [
        ('deadletters', '0001_first_release'),
        ('reviews', '0001_first_release'),
    ]

    operations = [
        migrations.AddField(
            model_name='deadletter',
            name='job',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='dead_letters', to='reviews.reviewjob'),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='parent',
            field=models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='generations', to='deadletters.deadletter'),
        ),
        migrations.AddField(
            model_name='deadletterevent',
            name='letter',
            field=models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='events', to='deadletters.deadletter'),
        ),
        migrations.AddIndex(
            model_name='deadlettergroup',
            index=models.Index(condition=models.Q(('status__in', ['open', 'acknowledged'])), fields=['-last_seen', '-id'], name='letter_groups_open'),
        ),
        migrations.AddIndex(
            model_name='deadlettergroup',
            index=models.Index(fields=['-last_seen', '-id'], name='letter_groups_latest'),
        ),
        migrations.AddConstraint(
            model_name='deadlettergroup',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['open', 'acknowledged', 'resolved', 'ignored'])), name='letter_groups_known_status'),
        ),
        migrations.AddConstraint(
            model_name='deadlettergroup',
            constraint=models.CheckConstraint(condition=models.Q(('open_count__gte', 0), ('total_count__gte', 0)), name='letter_groups_count_up'),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='group',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='letters', to='deadletters.deadlettergroup'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deadlettergroup',
            trigger=pgtrigger.compiler.Trigger(name='status_fsm', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."status" IS DISTINCT FROM (NEW."status"))', declare='DECLARE _is_valid_transition BOOLEAN;', func='SELECT CONCAT(OLD."status", \':\', NEW."status") = ANY(\'{open:acknowledged,open:resolved,acknowledged:resolved,ignored:resolved,open:ignored,acknowledged:ignored,resolved:ignored,acknowledged:open,resolved:open,ignored:open}\'::text[]) INTO _is_valid_transition; IF (_is_valid_transition IS FALSE AND OLD."status" IS DISTINCT FROM NEW."status") THEN RAISE EXCEPTION \'pgtrigger: Invalid transition of field "status" from "%" to "%" on table %\', OLD."status", NEW."status", TG_TABLE_NAME; ELSE RETURN NEW; END IF;', hash='f419d056d57ec9af50010a9fb43629702d6c1ae2', operation='UPDATE', pgid='pgtrigger_status_fsm_79134', table='dead_letter_groups', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deadlettergroup',
            trigger=pgtrigger.compiler.Trigger(name='row_version', sql=pgtrigger.compiler.UpsertTriggerSql(func='IF (OLD.status, OLD.owner, OLD.note, OLD.runbook_url, OLD.snooze_until) IS DISTINCT FROM (NEW.status, NEW.owner, NEW.note, NEW.runbook_url, NEW.snooze_until) THEN NEW.row_version = OLD.row_version + 1; END IF; RETURN NEW;', hash='ea03d1f16105600889237019f5fc55aaf86f4a56', operation='UPDATE', pgid='pgtrigger_row_version_06b6f', table='dead_letter_groups', when='BEFORE')),
        ),
        migrations.AddField(
            model_name='deadlettergroupday',
            name='group',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='days', to='deadletters.deadlettergroup'),
        ),
        migrations.AddField(
            model_name='deadlettergroupevent',
            name='group',
            field=models.ForeignKey(on_delete=django.db.models.deletion.DO_NOTHING, related_name='events', to='deadletters.deadlettergroup'),
        ),
        migrations.AddIndex(
            model_name='letterarchive',
            index=models.Index(fields=['created_at'], name='letter_archives_today'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='letterarchive',
            trigger=pgtrigger.compiler.Trigger(name='as_written', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."sha256" IS DISTINCT FROM (NEW."sha256") OR OLD."letter_count" IS DISTINCT FROM (NEW."letter_count") OR OLD."first_letter" IS DISTINCT FROM (NEW."first_letter") OR OLD."last_letter" IS DISTINCT FROM (NEW."last_letter") OR OLD."created_at" IS DISTINCT FROM (NEW."created_at"))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='1a2817c77ee98a5be29bbd54c3f657be476c8f73', operation='UPDATE', pgid='pgtrigger_as_written_8fd86', table='letter_archives', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='letterarchive',
            trigger=pgtrigger.compiler.Trigger(name='stays', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot delete rows from % table', TG_TABLE_NAME;", hash='0914269622b665d8137dd527468bd00390b9062b', operation='DELETE', pgid='pgtrigger_stays_73ca9', table='letter_archives', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='letterarchive',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % cannot be truncated', TG_TABLE_NAME;", hash='ae044bc6803261f845e3d01069886576212746f1', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_c1c77', table='letter_archives', when='BEFORE')),
        ),
        migrations.AddField(
            model_name='letteredit',
            name='letter',
            field=models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='edits', to='deadletters.deadletter'),
        ),
        migrations.AddIndex(
            model_name='operatoralert',
            index=models.Index(condition=models.Q(('sent_at', None)), fields=['created_at'], name='alerts_unsent'),
        ),
        migrations.AddIndex(
            model_name='replaybatch',
            index=models.Index(condition=models.Q(('status__in', ['draft', 'awaiting', 'finished']), _negated=True), fields=['id'], name='replay_batches_live'),
        ),
        migrations.AddConstraint(
            model_name='replaybatch',
            constraint=models.CheckConstraint(condition=models.Q(('approved_by', ''), models.Q(('approved_by', models.F('requested_by')), _negated=True), _connector='OR'), name='replay_batches_four_eyes'),
        ),
        migrations.AddConstraint(
            model_name='replaybatch',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['draft', 'awaiting', 'cancelled']), models.Q(('is_restart', False), ('needs_approval', False), ('override_reason', '')), models.Q(models.Q(('approved_by', ''), _negated=True), ('approved_at__isnull', False)), _connector='OR'), name='replay_batches_approved'),
        ),
        migrations.AddConstraint(
            model_name='replaybatch',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('status__in', ['awaiting']), _negated=True), ('needs_approval', True), _connector='OR'), name='replay_batches_awaiting'),
        ),
        migrations.AddConstraint(
            model_name='replaybatch',
            constraint=models.CheckConstraint(condition=django.db.models.lookups.GreaterThanOrEqual(django.db.models.functions.text.Length(django.db.models.functions.text.Trim('reason')), 3), name='replay_batches_reason'),
        ),
        migrations.AddConstraint(
            model_name='replaybatch',
            constraint=models.CheckConstraint(condition=models.Q(('canary_size__gte', 0), ('max_in_flight__gte', 1), ('rate_per_minute__gte', 1)), name='replay_batches_pace'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='replaybatch',
            trigger=pgtrigger.compiler.Trigger(name='status_fsm', sql=pgtrigger.compiler.UpsertTriggerSql(declare='DECLARE _is_valid_transition BOOLEAN;', func='SELECT CONCAT(OLD."status", \':\', NEW."status") = ANY(\'{draft:awaiting,draft:running,awaiting:running,running:paused,paused:running,running:stopped,paused:stopped,stopped:running,running:finished,draft:cancelled,awaiting:cancelled,running:cancelled,paused:cancelled,stopped:cancelled}\'::text[]) INTO _is_valid_transition; IF (_is_valid_transition IS FALSE AND OLD."status" IS DISTINCT FROM NEW."status") THEN RAISE EXCEPTION \'pgtrigger: Invalid transition of field "status" from "%" to "%" on table %\', OLD."status", NEW."status", TG_TABLE_NAME; ELSE RETURN NEW; END IF;', hash='646cc043b0bb81341fa10da808aa6379bd5bc08f', operation='UPDATE', pgid='pgtrigger_status_fsm_4fe13', table='replay_batches', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='replaybatch',
            trigger=pgtrigger.compiler.Trigger(name='row_version', sql=pgtrigger.compiler.UpsertTriggerSql(func='IF (OLD.status, OLD.approved_by, OLD.rate_per_minute, OLD.max_in_flight, OLD.canary_size, OLD.category, OLD.evidence_link, OLD.evidence_note, OLD.override_reason, OLD.is_restart) IS DISTINCT FROM (NEW.status, NEW.approved_by, NEW.rate_per_minute, NEW.max_in_flight, NEW.canary_size, NEW.category, NEW.evidence_link, NEW.evidence_note, NEW.override_reason, NEW.is_restart) THEN NEW.row_version = OLD.row_version + 1; END IF; RETURN NEW;', hash='e491a18d70d8f94ef1a765295454f5a80a202b98', operation='UPDATE', pgid='pgtrigger_row_version_843b8', table='replay_batches', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='replaybatch',
            trigger=pgtrigger.compiler.Trigger(name='born_a_draft', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (NOT (NEW."status" = \'draft\') OR NOT (NEW."approved_by" = \'\'))', func="RAISE EXCEPTION 'pgtrigger: Cannot insert rows from % table', TG_TABLE_NAME;", hash='c3d79049bdc76d441c66df325ac583bacfdcda01', operation='INSERT', pgid='pgtrigger_born_a_draft_198f9', table='replay_batches', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='replaybatch',
            trigger=pgtrigger.compiler.Trigger(name='as_submitted', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (NOT (OLD."status" = \'draft\') AND (OLD."filter" IS DISTINCT FROM (NEW."filter") OR OLD."item_count" IS DISTINCT FROM (NEW."item_count") OR OLD."reason" IS DISTINCT FROM (NEW."reason") OR OLD."category" IS DISTINCT FROM (NEW."category") OR OLD."evidence_link" IS DISTINCT FROM (NEW."evidence_link") OR OLD."evidence_note" IS DISTINCT FROM (NEW."evidence_note") OR OLD."override_reason" IS DISTINCT FROM (NEW."override_reason") OR OLD."is_restart" IS DISTINCT FROM (NEW."is_restart") OR OLD."resolves_verified" IS DISTINCT FROM (NEW."resolves_verified") OR OLD."needs_approval" IS DISTINCT FROM (NEW."needs_approval") OR OLD."canary_size" IS DISTINCT FROM (NEW."canary_size") OR OLD."requested_by" IS DISTINCT FROM (NEW."requested_by") OR OLD."requested_at" IS DISTINCT FROM (NEW."requested_at")))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='12fb5a988bbc44abd6d5917ad66295c40ef26a95', operation='UPDATE', pgid='pgtrigger_as_submitted_151b0', table='replay_batches', when='BEFORE')),
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
        migrations.AddField(
            model_name='replaybatchevent',
            name='batch',
            field=models.ForeignKey(on_delete=django.db.models.deletion.DO_NOTHING, related_name='events', to='deadletters.replaybatch'),
        ),
        migrations.AddField(
            model_name='replayitem',
            name='batch',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='items', to='deadletters.replaybatch'),
        ),
        migrations.AddField(
            model_name='replayitem',
            name='letter',
            field=models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='replay_items', to='deadletters.deadletter'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deadletterpayload',
            trigger=pgtrigger.compiler.Trigger(name='of_its_letter', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."letter_id" IS DISTINCT FROM (NEW."letter_id"))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='b89b0addcccefe0ddd7aa3fb252ad016e830f877', operation='UPDATE', pgid='pgtrigger_of_its_letter_cf9da', table='dead_letter_payloads', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deadletterevent',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='0d8d19cdc88b990ce45bb5e835e10ee480706b19', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_b9cb8', table='dead_letter_events', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deadletterevent',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % cannot be truncated', TG_TABLE_NAME;", hash='7b1f59c30b2a9c1a03d798259e30da85d657dd75', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_47641', table='dead_letter_events', when='BEFORE')),
        ),
        migrations.AddIndex(
            model_name='deadletter',
            index=models.Index(condition=models.Q(('status__in', ['new', 'triaged', 'remediated', 'validated', 'replay_pending', 'replaying', 'verifying'])), fields=['-last_failure_at', '-id'], name='dead_letters_open'),
        ),
        migrations.AddIndex(
            model_name='deadletter',
            index=models.Index(fields=['-last_failure_at', '-id'], name='dead_letters_latest'),
        ),
        migrations.AddIndex(
            model_name='deadletter',
            index=models.Index(condition=models.Q(('status__in', ['resolved', 'discarded'])), fields=['closed_at', 'id'], name='dead_letters_closed'),
        ),
        migrations.AddIndex(
            model_name='deadletter',
            index=models.Index(condition=models.Q(('status__in', ['new', 'triaged', 'remediated', 'validated', 'replay_pending', 'replaying', 'verifying'])), fields=['group', '-last_failure_at', '-id'], name='dead_letters_open_in_group'),
        ),
        migrations.AddIndex(
            model_name='deadletter',
            index=models.Index(fields=['group', '-last_failure_at', '-id'], name='dead_letters_in_group'),
        ),
        migrations.AddConstraint(
            model_name='deadletter',
            constraint=models.UniqueConstraint(condition=models.Q(('status__in', ['new', 'triaged', 'remediated', 'validated', 'replay_pending', 'replaying', 'verifying'])), fields=('job', 'stage'), name='dead_letters_one_open_per_stage'),
        ),
        migrations.AddConstraint(
            model_name='deadletter',
            constraint=models.UniqueConstraint(condition=models.Q(('parent__isnull', False)), fields=('parent',), name='dead_letters_one_successor'),
        ),
        migrations.AddConstraint(
            model_name='deadletter',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('generation', 1), ('parent__isnull', True)), models.Q(('generation__gt', 1), ('parent__isnull', False)), _connector='OR'), name='dead_letters_generation'),
        ),
        migrations.AddConstraint(
            model_name='deadletter',
            constraint=models.CheckConstraint(condition=models.Q(('failed_replay_count__gte', 0)), name='dead_letters_replays_counted_up'),
        ),
        migrations.AddConstraint(
            model_name='deadletter',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['new', 'triaged', 'remediated', 'validated', 'replay_pending', 'replaying', 'verifying', 'resolved', 'discarded'])), name='dead_letters_known_status'),
        ),
        migrations.AddConstraint(
            model_name='deadletter',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('status__in', ['resolved', 'discarded']), ('closed_at__isnull', False)), models.Q(('status__in', ['new', 'triaged', 'remediated', 'validated', 'replay_pending', 'replaying', 'verifying']), ('closed_at__isnull', True)), _connector='OR'), name='dead_letters_closed_has_time'),
        ),
        migrations.AddConstraint(
            model_name='deadletter',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('status__in', ['triaged', 'remediated', 'validated', 'replay_pending', 'replaying', 'verifying', 'resolved']), _negated=True), models.Q(('category__in', ['transient', 'data', 'auth_config', 'code_defect']), ('triaged_at__isnull', False), models.Q(('triaged_by', ''), _negated=True)), _connector='OR'), name='dead_letters_triaged'),
        ),
        migrations.AddConstraint(
            model_name='deadletter',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('status__in', ['remediated', 'validated', 'replay_pending', 'replaying', 'verifying', 'resolved']), _negated=True), models.Q(('remediated_at__isnull', False), models.Q(('remediated_by', ''), _negated=True), models.Q(django.db.models.lookups.GreaterThanOrEqual(django.db.models.functions.text.Length(django.db.models.functions.text.Trim('evidence_link')), 3), django.db.models.lookups.GreaterThanOrEqual(django.db.models.functions.text.Length(django.db.models.functions.text.Trim('evidence_note')), 3), _connector='OR')), _connector='OR'), name='dead_letters_remediated'),
        ),
        migrations.AddConstraint(
            model_name='deadletter',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('status__in', ['validated', 'replay_pending', 'replaying', 'verifying', 'resolved']), _negated=True), models.Q(('validated_at__isnull', False), models.Q(('validated_by', ''), _negated=True), models.Q(models.Q(('validation_ok', True), ('validation_ok__isnull', False)), django.db.models.lookups.GreaterThanOrEqual(django.db.models.functions.text.Length(django.db.models.functions.text.Trim('override_reason')), 3), _connector='OR')), _connector='OR'), name='dead_letters_validated'),
        ),
        migrations.AddConstraint(
            model_name='deadletter',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('status__in', ['replaying', 'verifying', 'resolved']), _negated=True), models.Q(('replayed_at__isnull', False), models.Q(('replayed_by', ''), _negated=True), django.db.models.lookups.GreaterThanOrEqual(django.db.models.functions.text.Length(django.db.models.functions.text.Trim('replay_reason')), 3)), _connector='OR'), name='dead_letters_replayed'),
        ),
        migrations.AddConstraint(
            model_name='deadletter',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('status__in', ['resolved']), _negated=True), models.Q(('verified_at__isnull', False), models.Q(('verified_by', ''), _negated=True), models.Q(('resolved_by', ''), _negated=True), django.db.models.lookups.GreaterThanOrEqual(django.db.models.functions.text.Length(django.db.models.functions.text.Trim('resolution')), 3)), _connector='OR'), name='dead_letters_resolved'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deadletter',
            trigger=pgtrigger.compiler.Trigger(name='status_fsm', sql=pgtrigger.compiler.UpsertTriggerSql(declare='DECLARE _is_valid_transition BOOLEAN;', func='SELECT CONCAT(OLD."status", \':\', NEW."status") = ANY(\'{new:triaged,triaged:remediated,remediated:validated,validated:replaying,validated:replay_pending,replay_pending:replaying,replaying:verifying,verifying:resolved,remediated:triaged,validated:triaged,validated:remediated,replay_pending:validated,replaying:new,verifying:new,new:discarded,triaged:discarded,remediated:discarded,validated:discarded,verifying:discarded,replaying:discarded,discarded:new}\'::text[]) INTO _is_valid_transition; IF (_is_valid_transition IS FALSE AND OLD."status" IS DISTINCT FROM NEW."status") THEN RAISE EXCEPTION \'pgtrigger: Invalid transition of field "status" from "%" to "%" on table %\', OLD."status", NEW."status", TG_TABLE_NAME; ELSE RETURN NEW; END IF;', hash='384cfab4836071890bf28846d9669ab06cd36c13', operation='UPDATE', pgid='pgtrigger_status_fsm_64ccb', table='dead_letters', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deadletter',
            trigger=pgtrigger.compiler.Trigger(name='row_version', sql=pgtrigger.compiler.UpsertTriggerSql(func='NEW.row_version = OLD.row_version + 1; RETURN NEW;', hash='e9189c421ba6c1392535962a818bf03df1659ef5', operation='UPDATE', pgid='pgtrigger_row_version_beaab', table='dead_letters', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deadletter',
            trigger=pgtrigger.compiler.Trigger(name='open_count_insert', sql=pgtrigger.compiler.UpsertTriggerSql(func="\n        PERFORM 1 FROM dead_letter_groups WHERE id IN (\n          SELECT group_id FROM (SELECT group_id, count(*) AS n FROM new_rows WHERE status NOT IN ('resolved', 'discarded') GROUP BY 1) d GROUP BY 1 HAVING sum(n) <> 0) ORDER BY id FOR NO KEY UPDATE;\n        UPDATE dead_letter_groups g SET open_count = g.open_count + d.n\n          FROM (SELECT group_id, sum(n) AS n FROM (SELECT group_id, count(*) AS n FROM new_rows WHERE status NOT IN ('resolved', 'discarded') GROUP BY 1) s GROUP BY 1 HAVING sum(n) <> 0) d\n         WHERE g.id = d.group_id;\n        RETURN NULL;", hash='6ff271b240800b7b065b8c21bb03db113b1a592d', level='STATEMENT', operation='INSERT', pgid='pgtrigger_open_count_insert_64517', referencing='REFERENCING NEW TABLE AS new_rows ', table='dead_letters', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deadletter',
            trigger=pgtrigger.compiler.Trigger(name='open_count_update', sql=pgtrigger.compiler.UpsertTriggerSql(func="\n        PERFORM 1 FROM dead_letter_groups WHERE id IN (\n          SELECT group_id FROM (SELECT group_id, count(*) AS n FROM new_rows WHERE status NOT IN ('resolved', 'discarded') GROUP BY 1 UNION ALL SELECT group_id, -count(*) AS n FROM old_rows WHERE status NOT IN ('resolved', 'discarded') GROUP BY 1) d GROUP BY 1 HAVING sum(n) <> 0) ORDER BY id FOR NO KEY UPDATE;\n        UPDATE dead_letter_groups g SET open_count = g.open_count + d.n\n          FROM (SELECT group_id, sum(n) AS n FROM (SELECT group_id, count(*) AS n FROM new_rows WHERE status NOT IN ('resolved', 'discarded') GROUP BY 1 UNION ALL SELECT group_id, -count(*) AS n FROM old_rows WHERE status NOT IN ('resolved', 'discarded') GROUP BY 1) s GROUP BY 1 HAVING sum(n) <> 0) d\n         WHERE g.id = d.group_id;\n        RETURN NULL;", hash='b5103689c98fac7c409868b948f7ec16abc458af', level='STATEMENT', operation='UPDATE', pgid='pgtrigger_open_count_update_6cbff', referencing='REFERENCING OLD TABLE AS old_rows  NEW TABLE AS new_rows ', table='dead_letters', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deadletter',
            trigger=pgtrigger.compiler.Trigger(name='open_count_delete', sql=pgtrigger.compiler.UpsertTriggerSql(func="\n        PERFORM 1 FROM dead_letter_groups WHERE id IN (\n          SELECT group_id FROM (SELECT group_id, -count(*) AS n FROM old_rows WHERE status NOT IN ('resolved', 'discarded') GROUP BY 1) d GROUP BY 1 HAVING sum(n) <> 0) ORDER BY id FOR NO KEY UPDATE;\n        UPDATE dead_letter_groups g SET open_count = g.open_count + d.n\n          FROM (SELECT group_id, sum(n) AS n FROM (SELECT group_id, -count(*) AS n FROM old_rows WHERE status NOT IN ('resolved', 'discarded') GROUP BY 1) s GROUP BY 1 HAVING sum(n) <> 0) d\n         WHERE g.id = d.group_id;\n        RETURN NULL;", hash='de5610db6921b705c40618d61ef8cc37e3f6a243', level='STATEMENT', operation='DELETE', pgid='pgtrigger_open_count_delete_efe05', referencing='REFERENCING OLD TABLE AS old_rows ', table='dead_letters', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deadletter',
            trigger=pgtrigger.compiler.Trigger(name='born_new', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (NOT (NEW."status" = \'new\'))', declare='DECLARE place text;', func="\n                SELECT e.action INTO place FROM public.dead_letter_events e\n                 WHERE e.letter_id = NEW.id AND e.action IN ('archived', 'restored')\n                 ORDER BY e.id DESC LIMIT 1;\n                IF NEW.status NOT IN ('resolved', 'discarded') OR place IS DISTINCT FROM 'archived' THEN\n                  RAISE EXCEPTION 'a dead letter is born new, not %', NEW.status;\n                END IF;\n                RETURN NEW;", hash='31e63e465abdcbf9d349813a0a7f250564dbb594', operation='INSERT', pgid='pgtrigger_born_new_c9113', table='dead_letters', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deadletter',
            trigger=pgtrigger.compiler.Trigger(name='archived_first', sql=pgtrigger.compiler.UpsertTriggerSql(declare='DECLARE place text;', func="\n                SELECT e.action INTO place FROM public.dead_letter_events e\n                 WHERE e.letter_id = OLD.id AND e.action IN ('archived', 'restored')\n                 ORDER BY e.id DESC LIMIT 1;\n                IF place IS DISTINCT FROM 'archived' THEN\n                  RAISE EXCEPTION 'dead letter % goes only once it is archived', OLD.id;\n                END IF;\n                RETURN OLD;", hash='b4a9019498152db53809ecb2fe118ceef995126d', operation='DELETE', pgid='pgtrigger_archived_first_a1ce6', table='dead_letters', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deadletter',
            trigger=pgtrigger.compiler.Trigger(name='as_it_began', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."job_id" IS DISTINCT FROM (NEW."job_id") OR OLD."parent_id" IS DISTINCT FROM (NEW."parent_id") OR OLD."generation" IS DISTINCT FROM (NEW."generation") OR OLD."created_at" IS DISTINCT FROM (NEW."created_at"))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='7b1f03dd5a196220eaab690b9761038df192b316', operation='UPDATE', pgid='pgtrigger_as_it_began_407b8', table='dead_letters', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deadletter',
            trigger=pgtrigger.compiler.Trigger(name='work_stays', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."status" IN (\'triaged\', \'remediated\', \'validated\', \'replay_pending\', \'replaying\', \'verifying\'))', func="RAISE EXCEPTION 'pgtrigger: Cannot delete rows from % table', TG_TABLE_NAME;", hash='eca66110cdb06d9e3a9ce76883ec3244b10466b5', operation='DELETE', pgid='pgtrigger_work_stays_011dc', table='dead_letters', when='BEFORE')),
        ),
        migrations.AddConstraint(
            model_name='deadlettergroupday',
            constraint=models.UniqueConstraint(fields=('group', 'day'), name='letter_group_days_one'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deadlettergroupevent',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='1f3f442c59c864146c0de2aed9d49daf1cf985f8', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_62311', table='dead_letter_group_events', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deadlettergroupevent',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % cannot be truncated', TG_TABLE_NAME;", hash='a2c5f18eca9b4e0f83aea4a0908b72286c762f2b', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_30d9e', table='dead_letter_group_events', when='BEFORE')),
        ),
        migrations.AddConstraint(
            model_name='letteredit',
            constraint=models.UniqueConstraint(condition=models.Q(('status', 'requested')), fields=('letter',), name='letter_edits_one_open'),
        ),
        migrations.AddConstraint(
            model_name='letteredit',
            constraint=models.CheckConstraint(condition=django.db.models.lookups.GreaterThanOrEqual(django.db.models.functions.text.Length(django.db.models.functions.text.Trim('reason')), 3), name='letter_edits_reason'),
        ),
        migrations.AddConstraint(
            model_name='letteredit',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('status', 'applied'), _negated=True), models.Q(models.Q(('decided_by', ''), _negated=True), models.Q(('decided_by', models.F('requested_by')), _negated=True), ('decided_at__isnull', False)), _connector='OR'), name='letter_edits_four_eyes'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='letteredit',
            trigger=pgtrigger.compiler.Trigger(name='status_fsm', sql=pgtrigger.compiler.UpsertTriggerSql(declare='DECLARE _is_valid_transition BOOLEAN;', func='SELECT CONCAT(OLD."status", \':\', NEW."status") = ANY(\'{requested:applied,requested:refused,requested:withdrawn}\'::text[]) INTO _is_valid_transition; IF (_is_valid_transition IS FALSE AND OLD."status" IS DISTINCT FROM NEW."status") THEN RAISE EXCEPTION \'pgtrigger: Invalid transition of field "status" from "%" to "%" on table %\', OLD."status", NEW."status", TG_TABLE_NAME; ELSE RETURN NEW; END IF;', hash='62db8a0687123aaa14a497ca51b7e7db50c0593a', operation='UPDATE', pgid='pgtrigger_status_fsm_28b1d', table='letter_edits', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='letteredit',
            trigger=pgtrigger.compiler.Trigger(name='as_asked', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."letter_id" IS DISTINCT FROM (NEW."letter_id") OR OLD."before" IS DISTINCT FROM (NEW."before") OR OLD."after" IS DISTINCT FROM (NEW."after") OR OLD."reason" IS DISTINCT FROM (NEW."reason") OR OLD."requested_by" IS DISTINCT FROM (NEW."requested_by") OR OLD."requested_at" IS DISTINCT FROM (NEW."requested_at"))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='c695bb19d53b3ab7d4161df1526c0ee559f3740b', operation='UPDATE', pgid='pgtrigger_as_asked_13ade', table='letter_edits', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='replaybatchevent',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='88d23c63ced6253021177db46cd98573c4e77f68', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_4ccf1', table='replay_batch_events', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='replaybatchevent',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % cannot be truncated', TG_TABLE_NAME;", hash='20064fc04cc506cb6d2668fb06d0b6699908f923', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_4259c', table='replay_batch_events', when='BEFORE')),
        ),
        migrations.AddIndex(
            model_name='replayitem',
            index=models.Index(fields=['batch', 'status', 'id'], name='replay_items_next'),
        ),
        migrations.AddIndex(
            model_name='replayitem',
            index=models.Index(condition=models.Q(('status__in', ['failed'])), fields=['batch', 'failed_group_id'], name='replay_items_failed'),
        ),
        migrations.AddConstraint(
            model_name='replayitem',
            constraint=models.UniqueConstraint(fields=('batch', 'letter'), name='replay_items_once'),
        ),
        migrations.AddConstraint(
            model_name='replayitem',
            constraint=models.UniqueConstraint(condition=models.Q(('status__in', ['ready', 'replaying'])), fields=('letter',), name='replay_items_one_batch'),
        ),
        migrations.AddConstraint(
            model_name='replayitem',
            constraint=models.CheckConstraint(condition=models.Q(('started_at__isnull', False), models.Q(('status__in', ['replaying', 'succeeded', 'failed', 'ended']), _negated=True), _connector='OR'), name='replay_items_started'),
        ),
        migrations.AddConstraint(
            model_name='replayitem',
            constraint=models.CheckConstraint(condition=models.Q(('failed_group_id', None), ('status__in', ['failed']), _connector='OR'), name='replay_items_failed_into'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='replayitem',
            trigger=pgtrigger.compiler.Trigger(name='status_fsm', sql=pgtrigger.compiler.UpsertTriggerSql(declare='DECLARE _is_valid_transition BOOLEAN;', func='SELECT CONCAT(OLD."status", \':\', NEW."status") = ANY(\'{pending:ready,ready:pending,ready:replaying,replaying:succeeded,replaying:failed,replaying:ended,pending:skipped,ready:skipped,pending:cancelled,ready:cancelled}\'::text[]) INTO _is_valid_transition; IF (_is_valid_transition IS FALSE AND OLD."status" IS DISTINCT FROM NEW."status") THEN RAISE EXCEPTION \'pgtrigger: Invalid transition of field "status" from "%" to "%" on table %\', OLD."status", NEW."status", TG_TABLE_NAME; ELSE RETURN NEW; END IF;', hash='25ba9c1d8dd608617bd28563b45f2a6673fc1f33', operation='UPDATE', pgid='pgtrigger_status_fsm_fa126', table='replay_items', when='BEFORE')),
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
    ]
