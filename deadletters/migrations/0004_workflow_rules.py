import django.db.models.deletion
import django.db.models.functions.datetime
import django.db.models.functions.text
import django.db.models.lookups
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('deadletters', '0003_letters_that_exist'),
    ]

    operations = [
        migrations.RemoveField(
            model_name='deadletter',
            name='last_stack',
        ),
        migrations.RemoveField(
            model_name='deadletter',
            name='sanitized_context',
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deadletter',
            trigger=pgtrigger.compiler.Trigger(name='status_fsm', sql=pgtrigger.compiler.UpsertTriggerSql(declare='DECLARE _is_valid_transition BOOLEAN;', func='SELECT CONCAT(OLD."status", \':\', NEW."status") = ANY(\'{new:triaged,triaged:remediated,remediated:validated,validated:replaying,validated:replay_pending,replay_pending:replaying,replaying:verifying,verifying:resolved,remediated:triaged,validated:triaged,validated:remediated,replay_pending:validated,replaying:new,verifying:new,new:discarded,triaged:discarded,remediated:discarded,validated:discarded,replaying:discarded}\'::text[]) INTO _is_valid_transition; IF (_is_valid_transition IS FALSE AND OLD."status" IS DISTINCT FROM NEW."status") THEN RAISE EXCEPTION \'pgtrigger: Invalid transition of field "status" from "%" to "%" on table %\', OLD."status", NEW."status", TG_TABLE_NAME; ELSE RETURN NEW; END IF;', hash='18390d795615634c6c0a9fe3f31d20b152cac02e', operation='UPDATE', pgid='pgtrigger_status_fsm_64ccb', table='dead_letters', when='BEFORE')),
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
            trigger=pgtrigger.compiler.Trigger(name='work_stays', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."status" IN (\'triaged\', \'remediated\', \'validated\', \'replay_pending\', \'replaying\', \'verifying\'))', func="RAISE EXCEPTION 'pgtrigger: Cannot delete rows from % table', TG_TABLE_NAME;", hash='eca66110cdb06d9e3a9ce76883ec3244b10466b5', operation='DELETE', pgid='pgtrigger_work_stays_011dc', table='dead_letters', when='BEFORE')),
        ),
        migrations.AlterField(
            model_name='deadletter',
            name='group',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='letters', to='deadletters.deadlettergroup'),
        ),
        migrations.AddConstraint(
            model_name='deadletter',
            constraint=models.UniqueConstraint(condition=models.Q(('status__in', ['new', 'triaged', 'remediated', 'validated', 'replay_pending', 'replaying', 'verifying'])), fields=('job', 'stage'), name='dead_letters_one_open_per_stage'),
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
    ]
