"""The tables of dead letters."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    # A database that ran the migrations of earlier commits has nothing to run.
    replaces = [
        ('deadletters', '0001_initial'),
    ]

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='DeadLetter',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('stage', models.CharField(max_length=10)),
                ('status', models.CharField(choices=[('new', 'New'), ('triaged', 'Triaged'), ('remediated', 'Remediated'), ('validated', 'Validated'), ('replay_pending', 'Waiting for its replay'), ('replaying', 'Replaying'), ('verifying', 'To be verified'), ('resolved', 'Resolved'), ('discarded', 'Discarded')], db_default='new', max_length=16)),
                ('error_class', models.CharField(max_length=32)),
                ('code', models.CharField(max_length=20)),
                ('severity', models.CharField(max_length=8)),
                ('retryable', models.BooleanField(db_default=False)),
                ('detail', models.TextField(blank=True)),
                ('payload_reference', models.CharField(blank=True, max_length=255)),
                ('attempts', models.IntegerField()),
                ('first_failure_at', models.DateTimeField()),
                ('last_failure_at', models.DateTimeField()),
                ('failed_replay_count', models.IntegerField(db_default=0)),
                ('is_escalated', models.BooleanField(db_default=False)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('closed_at', models.DateTimeField(blank=True, null=True)),
                ('kept_until', models.DateTimeField(blank=True, null=True)),
                ('row_version', models.IntegerField(db_default=0)),
                ('generation', models.IntegerField(db_default=1)),
                ('category', models.CharField(blank=True, choices=[('transient', 'Transient'), ('data', 'Data'), ('auth_config', 'Credentials or configuration'), ('code_defect', 'Code defect')], db_default='', max_length=12)),
                ('triage_note', models.TextField(blank=True, db_default='')),
                ('triaged_by', models.CharField(blank=True, db_default='', max_length=255)),
                ('triaged_at', models.DateTimeField(blank=True, null=True)),
                ('evidence_link', models.CharField(blank=True, db_default='', max_length=500)),
                ('evidence_note', models.TextField(blank=True, db_default='')),
                ('checklist', models.JSONField(db_default=[])),
                ('remediated_by', models.CharField(blank=True, db_default='', max_length=255)),
                ('remediated_at', models.DateTimeField(blank=True, null=True)),
                ('validation', models.JSONField(db_default=[])),
                ('validation_ok', models.BooleanField(blank=True, null=True)),
                ('override_reason', models.TextField(blank=True, db_default='')),
                ('validated_by', models.CharField(blank=True, db_default='', max_length=255)),
                ('validated_at', models.DateTimeField(blank=True, null=True)),
                ('replay_reason', models.TextField(blank=True, db_default='')),
                ('replayed_by', models.CharField(blank=True, db_default='', max_length=255)),
                ('replayed_at', models.DateTimeField(blank=True, null=True)),
                ('is_restart', models.BooleanField(db_default=False)),
                ('verification', models.JSONField(db_default=[])),
                ('verified_by', models.CharField(blank=True, db_default='', max_length=255)),
                ('verified_at', models.DateTimeField(blank=True, null=True)),
                ('resolution', models.TextField(blank=True, db_default='')),
                ('resolved_by', models.CharField(blank=True, db_default='', max_length=255)),
            ],
            options={
                'db_table': 'dead_letters',
                'permissions': [('replay_deadletter', 'Can replay dead letters')],
            },
        ),
        migrations.CreateModel(
            name='DeadLetterEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('action', models.CharField(choices=[('created', 'Created'), ('triaged', 'Triaged'), ('remediated', 'Remediated'), ('validated', 'Validated'), ('not_validated', 'Validation failed'), ('overridden', 'Validation overridden'), ('stale', 'Validation went stale'), ('queued', 'Queued by a batch'), ('unqueued', 'Let go by a batch'), ('replayed', 'Replayed from the failed stage'), ('restarted', 'Restarted from the first stage'), ('succeeded', 'Replay succeeded'), ('failed_again', 'Failed again'), ('escalated', 'Escalated'), ('verified', 'Verified'), ('not_verified', 'Verification failed'), ('resolved', 'Resolved'), ('discarded', 'Discarded'), ('reopened', 'Reopened'), ('refused', 'Refused'), ('edit_requested', 'Edit requested'), ('edit_refused', 'Edit refused'), ('edit_withdrawn', 'Edit withdrawn'), ('edited', 'Edited'), ('archived', 'Archived and removed'), ('restored', 'Restored from the archive')], max_length=16)),
                ('actor', models.CharField(max_length=255)),
                ('source', models.CharField(choices=[('operator', 'Operator'), ('system', 'Criticizer'), ('delivery_resolution', 'Delivery resolution')], db_default='operator', max_length=20)),
                ('reason', models.TextField(blank=True)),
                ('context', models.JSONField(db_default={})),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'dead_letter_events',
                'ordering': ['id'],
            },
        ),
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
                ('source', models.CharField(choices=[('operator', 'Operator'), ('system', 'Criticizer'), ('delivery_resolution', 'Delivery resolution')], db_default='operator', max_length=20)),
                ('reason', models.TextField(blank=True)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'dead_letter_group_events',
                'ordering': ['id'],
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
                ('untouched_count', models.IntegerField(null=True)),
                ('restored_count', models.IntegerField(db_default=0)),
                ('first_letter', models.BigIntegerField()),
                ('last_letter', models.BigIntegerField()),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'verbose_name': 'archived file',
                'db_table': 'letter_archives',
                'ordering': ['-id'],
                'permissions': [('restore_letterarchive', 'Can restore dead letters from the archive')],
            },
        ),
        migrations.CreateModel(
            name='LetterEdit',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('status', models.CharField(choices=[('requested', 'Requested'), ('applied', 'Applied'), ('refused', 'Refused'), ('withdrawn', 'Withdrawn')], db_default='requested', max_length=12)),
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
                ('sending_to', models.CharField(blank=True, db_default='', max_length=512)),
                ('sending_since', models.DateTimeField(blank=True, null=True)),
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
                ('resolves_verified', models.BooleanField(db_default=False)),
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
                ('source', models.CharField(choices=[('operator', 'Operator'), ('system', 'Criticizer'), ('delivery_resolution', 'Delivery resolution')], db_default='operator', max_length=20)),
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
                ('failed_group_id', models.BigIntegerField(blank=True, null=True)),
                ('is_canary', models.BooleanField(db_default=False)),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'db_table': 'replay_items',
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
    ]
