import django.db.models.deletion
import django.db.models.functions.datetime
import django.db.models.functions.text
import django.db.models.lookups
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('deadletters', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='DeadLetterGroup',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('fingerprint', models.CharField(max_length=80, unique=True)),
                ('stage', models.CharField(max_length=10)),
                ('error_class', models.CharField(max_length=32)),
                ('source', models.CharField(blank=True, max_length=128)),
                ('normalized_message', models.CharField(blank=True, max_length=500)),
                ('first_seen', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('last_seen', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('open_count', models.IntegerField(db_default=0)),
                ('total_count', models.IntegerField(db_default=0)),
                ('status', models.CharField(choices=[('open', 'Open'), ('acknowledged', 'Acknowledged'), ('resolved', 'Resolved'), ('ignored', 'Ignored')], db_default='open', max_length=12)),
                ('owner', models.CharField(blank=True, db_default='', max_length=255)),
                ('note', models.TextField(blank=True, db_default='')),
                ('runbook_url', models.CharField(blank=True, db_default='', max_length=500)),
                ('snooze_until', models.DateTimeField(blank=True, null=True)),
                ('row_version', models.IntegerField(db_default=0)),
            ],
            options={
                'verbose_name': 'failure group',
                'db_table': 'dead_letter_groups',
                'permissions': [('work_deadlettergroup', 'Can acknowledge, resolve, ignore and annotate groups')],
            },
        ),
        migrations.CreateModel(
            name='DeadLetterGroupDay',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('day', models.DateField()),
                ('count', models.IntegerField(db_default=0)),
            ],
            options={
                'db_table': 'dead_letter_group_days',
            },
        ),
        migrations.CreateModel(
            name='DeadLetterGroupEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('action', models.CharField(choices=[('acknowledged', 'Acknowledged'), ('resolved', 'Resolved'), ('ignored', 'Ignored'), ('reopened', 'Reopened'), ('snoozed', 'Snoozed'), ('assigned', 'Assigned'), ('annotated', 'Annotated')], max_length=16)),
                ('actor', models.CharField(max_length=255)),
                ('reason', models.TextField(blank=True)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'dead_letter_group_events',
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='DeadLetterPayload',
            fields=[
                ('letter', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='payload', serialize=False, to='deadletters.deadletter')),
                ('last_stack', models.TextField(blank=True, db_default='')),
                ('sanitized_context', models.JSONField(db_default={})),
            ],
            options={
                'db_table': 'dead_letter_payloads',
            },
        ),
        migrations.CreateModel(
            name='LetterArchive',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=255, unique=True)),
                ('sha256', models.CharField(max_length=64)),
                ('key_id', models.CharField(max_length=12)),
                ('letter_count', models.IntegerField()),
                ('first_letter', models.BigIntegerField()),
                ('last_letter', models.BigIntegerField()),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'letter_archives',
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='LetterEdit',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('status', models.CharField(choices=[('requested', 'Requested'), ('applied', 'Applied'), ('refused', 'Refused')], db_default='requested', max_length=12)),
                ('before', models.JSONField()),
                ('after', models.JSONField()),
                ('reason', models.TextField()),
                ('requested_by', models.CharField(max_length=255)),
                ('requested_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('decided_by', models.CharField(blank=True, db_default='', max_length=255)),
                ('decided_at', models.DateTimeField(blank=True, null=True)),
                ('decision_reason', models.TextField(blank=True, db_default='')),
            ],
            options={
                'db_table': 'letter_edits',
                'ordering': ['-id'],
                'permissions': [('approve_letteredit', 'Can approve edits of dead letters')],
            },
        ),
        migrations.CreateModel(
            name='OperatorAlert',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('dedup_key', models.CharField(max_length=255, unique=True)),
                ('kind', models.CharField(max_length=32)),
                ('title', models.CharField(max_length=200)),
                ('text', models.TextField(blank=True)),
                ('path', models.CharField(blank=True, max_length=255)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('attempts', models.IntegerField(db_default=0)),
                ('sent_to', models.JSONField(db_default=[])),
                ('sent_at', models.DateTimeField(blank=True, null=True)),
                ('detail', models.TextField(blank=True, db_default='')),
            ],
            options={
                'db_table': 'operator_alerts',
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='ReplayBatch',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('status', models.CharField(choices=[('draft', 'Draft'), ('awaiting', 'Waits for approval'), ('running', 'Running'), ('paused', 'Paused'), ('stopped', 'Stopped'), ('cancelled', 'Cancelled'), ('finished', 'Finished')], db_default='draft', max_length=12)),
                ('status_reason', models.TextField(blank=True, db_default='')),
                ('filter', models.JSONField(db_default={})),
                ('item_count', models.IntegerField(db_default=0)),
                ('report', models.JSONField(db_default={})),
                ('reason', models.TextField()),
                ('category', models.CharField(blank=True, choices=[('transient', 'Transient'), ('data', 'Data'), ('auth_config', 'Credentials or configuration'), ('code_defect', 'Code defect')], db_default='', max_length=12)),
                ('evidence_link', models.CharField(blank=True, db_default='', max_length=500)),
                ('evidence_note', models.TextField(blank=True, db_default='')),
                ('override_reason', models.TextField(blank=True, db_default='')),
                ('is_restart', models.BooleanField(db_default=False)),
                ('needs_approval', models.BooleanField(db_default=False)),
                ('canary_size', models.IntegerField(db_default=3)),
                ('rate_per_minute', models.IntegerField(db_default=60)),
                ('max_in_flight', models.IntegerField(db_default=20)),
                ('next_item_at', models.DateTimeField(blank=True, null=True)),
                ('requested_by', models.CharField(max_length=255)),
                ('requested_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('approved_by', models.CharField(blank=True, db_default='', max_length=255)),
                ('approved_at', models.DateTimeField(blank=True, null=True)),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('row_version', models.IntegerField(db_default=0)),
            ],
            options={
                'verbose_name_plural': 'replay batches',
                'db_table': 'replay_batches',
                'permissions': [('approve_replaybatch', 'Can approve replay batches')],
            },
        ),
        migrations.CreateModel(
            name='ReplayBatchEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('action', models.CharField(max_length=16)),
                ('actor', models.CharField(max_length=255)),
                ('reason', models.TextField(blank=True)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'replay_batch_events',
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='ReplayItem',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('job_id', models.BigIntegerField()),
                ('group_id', models.BigIntegerField()),
                ('lane', models.CharField(max_length=128)),
                ('status', models.CharField(choices=[('pending', 'Pending'), ('ready', 'Ready'), ('replaying', 'Replaying'), ('succeeded', 'Succeeded'), ('failed', 'Failed again'), ('ended', 'Ended otherwise'), ('skipped', 'Skipped'), ('cancelled', 'Not replayed')], db_default='pending', max_length=12)),
                ('verdict', models.CharField(blank=True, db_default='', max_length=32)),
                ('detail', models.TextField(blank=True, db_default='')),
                ('is_canary', models.BooleanField(db_default=False)),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'db_table': 'replay_items',
                'ordering': ['id'],
            },
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name='deadletter',
            name='status_fsm',
        ),
        migrations.RemoveConstraint(
            model_name='deadletter',
            name='dead_letters_one_open_per_stage',
        ),
        migrations.RemoveIndex(
            model_name='deadletter',
            name='dead_letters_open',
        ),
        migrations.AddField(
            model_name='deadletter',
            name='category',
            field=models.CharField(blank=True, choices=[('transient', 'Transient'), ('data', 'Data'), ('auth_config', 'Credentials or configuration'), ('code_defect', 'Code defect')], db_default='', max_length=12),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='checklist',
            field=models.JSONField(db_default=[]),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='evidence_link',
            field=models.CharField(blank=True, db_default='', max_length=500),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='evidence_note',
            field=models.TextField(blank=True, db_default=''),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='generation',
            field=models.IntegerField(db_default=1),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='kept_until',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='is_restart',
            field=models.BooleanField(db_default=False),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='override_reason',
            field=models.TextField(blank=True, db_default=''),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='parent',
            field=models.ForeignKey(blank=True, null=True, db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='generations', to='deadletters.deadletter'),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='remediated_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='remediated_by',
            field=models.CharField(blank=True, db_default='', max_length=255),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='replay_reason',
            field=models.TextField(blank=True, db_default=''),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='replayed_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='replayed_by',
            field=models.CharField(blank=True, db_default='', max_length=255),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='resolution',
            field=models.TextField(blank=True, db_default=''),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='resolved_by',
            field=models.CharField(blank=True, db_default='', max_length=255),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='retryable',
            field=models.BooleanField(db_default=False),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='row_version',
            field=models.IntegerField(db_default=0),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='triage_note',
            field=models.TextField(blank=True, db_default=''),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='triaged_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='triaged_by',
            field=models.CharField(blank=True, db_default='', max_length=255),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='validated_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='validated_by',
            field=models.CharField(blank=True, db_default='', max_length=255),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='validation',
            field=models.JSONField(db_default=[]),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='validation_ok',
            field=models.BooleanField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='verification',
            field=models.JSONField(db_default=[]),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='verified_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='verified_by',
            field=models.CharField(blank=True, db_default='', max_length=255),
        ),
        migrations.AlterField(
            model_name='deadletter',
            name='status',
            field=models.CharField(choices=[('new', 'New'), ('triaged', 'Triaged'), ('remediated', 'Remediated'), ('validated', 'Validated'), ('replay_pending', 'Waiting for its replay'), ('replaying', 'Replaying'), ('verifying', 'To be verified'), ('resolved', 'Resolved'), ('discarded', 'Discarded')], db_default='new', max_length=16),
        ),
        migrations.AlterField(
            model_name='deadletterevent',
            name='action',
            field=models.CharField(choices=[('created', 'Created'), ('triaged', 'Triaged'), ('remediated', 'Remediated'), ('validated', 'Validated'), ('not_validated', 'Validation failed'), ('overridden', 'Validation overridden'), ('stale', 'Validation went stale'), ('queued', 'Queued by a batch'), ('unqueued', 'Let go by a batch'), ('replayed', 'Replayed from the failed stage'), ('restarted', 'Restarted from the first stage'), ('succeeded', 'Replay succeeded'), ('failed_again', 'Failed again'), ('escalated', 'Escalated'), ('verified', 'Verified'), ('not_verified', 'Verification failed'), ('resolved', 'Resolved'), ('discarded', 'Discarded'), ('refused', 'Refused'), ('edited', 'Edited'), ('archived', 'Archived and removed'), ('restored', 'Restored from the archive')], max_length=16),
        ),
        migrations.AlterField(
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
        pgtrigger.migrations.AddTrigger(
            model_name='deadlettergroup',
            trigger=pgtrigger.compiler.Trigger(name='row_version', sql=pgtrigger.compiler.UpsertTriggerSql(func='IF (OLD.status, OLD.owner, OLD.note, OLD.runbook_url, OLD.snooze_until) IS DISTINCT FROM (NEW.status, NEW.owner, NEW.note, NEW.runbook_url, NEW.snooze_until) THEN NEW.row_version = OLD.row_version + 1; END IF; RETURN NEW;', hash='ea03d1f16105600889237019f5fc55aaf86f4a56', operation='UPDATE', pgid='pgtrigger_row_version_06b6f', table='dead_letter_groups', when='BEFORE')),
        ),
        migrations.AddField(
            model_name='deadletter',
            name='group',
            field=models.ForeignKey(null=True, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='letters', to='deadletters.deadlettergroup'),
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
            index=models.Index(condition=models.Q(('status__in', ['new', 'triaged', 'remediated', 'validated', 'replay_pending', 'replaying', 'verifying'])), fields=['group', '-last_failure_at', '-id'], name='dead_letters_open_in_group'),
        ),
        migrations.AddIndex(
            model_name='deadletter',
            index=models.Index(fields=['group', '-last_failure_at', '-id'], name='dead_letters_in_group'),
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
        migrations.AddField(
            model_name='letteredit',
            name='letter',
            field=models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='edits', to='deadletters.deadletter'),
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
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['draft', 'awaiting', 'cancelled']), ('needs_approval', False), models.Q(models.Q(('approved_by', ''), _negated=True), ('approved_at__isnull', False)), _connector='OR'), name='replay_batches_approved'),
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
            trigger=pgtrigger.compiler.Trigger(name='status_fsm', sql=pgtrigger.compiler.UpsertTriggerSql(declare='DECLARE _is_valid_transition BOOLEAN;', func='SELECT CONCAT(OLD."status", \':\', NEW."status") = ANY(\'{draft:awaiting,draft:running,awaiting:running,running:paused,paused:running,running:stopped,stopped:running,running:finished,draft:cancelled,awaiting:cancelled,running:cancelled,paused:cancelled,stopped:cancelled}\'::text[]) INTO _is_valid_transition; IF (_is_valid_transition IS FALSE AND OLD."status" IS DISTINCT FROM NEW."status") THEN RAISE EXCEPTION \'pgtrigger: Invalid transition of field "status" from "%" to "%" on table %\', OLD."status", NEW."status", TG_TABLE_NAME; ELSE RETURN NEW; END IF;', hash='9c8c7c3d53b83f99d9f8da0d6b4fed8da35b8c8e', operation='UPDATE', pgid='pgtrigger_status_fsm_4fe13', table='replay_batches', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='replaybatch',
            trigger=pgtrigger.compiler.Trigger(name='row_version', sql=pgtrigger.compiler.UpsertTriggerSql(func='IF (OLD.status, OLD.approved_by, OLD.rate_per_minute) IS DISTINCT FROM (NEW.status, NEW.approved_by, NEW.rate_per_minute) THEN NEW.row_version = OLD.row_version + 1; END IF; RETURN NEW;', hash='54838d19559a66b03ab1dbacc8bf67fbbc9ccf86', operation='UPDATE', pgid='pgtrigger_row_version_843b8', table='replay_batches', when='BEFORE')),
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
            trigger=pgtrigger.compiler.Trigger(name='status_fsm', sql=pgtrigger.compiler.UpsertTriggerSql(declare='DECLARE _is_valid_transition BOOLEAN;', func='SELECT CONCAT(OLD."status", \':\', NEW."status") = ANY(\'{requested:applied,requested:refused}\'::text[]) INTO _is_valid_transition; IF (_is_valid_transition IS FALSE AND OLD."status" IS DISTINCT FROM NEW."status") THEN RAISE EXCEPTION \'pgtrigger: Invalid transition of field "status" from "%" to "%" on table %\', OLD."status", NEW."status", TG_TABLE_NAME; ELSE RETURN NEW; END IF;', hash='6fecaa06704cb5818ff6441f5f12a031fd32bbde', operation='UPDATE', pgid='pgtrigger_status_fsm_28b1d', table='letter_edits', when='BEFORE')),
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
        pgtrigger.migrations.AddTrigger(
            model_name='replayitem',
            trigger=pgtrigger.compiler.Trigger(name='status_fsm', sql=pgtrigger.compiler.UpsertTriggerSql(declare='DECLARE _is_valid_transition BOOLEAN;', func='SELECT CONCAT(OLD."status", \':\', NEW."status") = ANY(\'{pending:ready,ready:pending,ready:replaying,replaying:succeeded,replaying:failed,replaying:ended,pending:skipped,ready:skipped,pending:cancelled,ready:cancelled}\'::text[]) INTO _is_valid_transition; IF (_is_valid_transition IS FALSE AND OLD."status" IS DISTINCT FROM NEW."status") THEN RAISE EXCEPTION \'pgtrigger: Invalid transition of field "status" from "%" to "%" on table %\', OLD."status", NEW."status", TG_TABLE_NAME; ELSE RETURN NEW; END IF;', hash='25ba9c1d8dd608617bd28563b45f2a6673fc1f33', operation='UPDATE', pgid='pgtrigger_status_fsm_fa126', table='replay_items', when='BEFORE')),
        ),
    ]
