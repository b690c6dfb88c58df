"""The tables of the queue, the circuits and the limits, with their storage parameters."""

import django.db.models.deletion
import django.db.models.functions.datetime
import pgtrigger.compiler
import pgtrigger.migrations
import uuid
from django.conf import settings
from django.db import migrations, models


# A standby that is promoted empties unlogged tables. An unlogged sequence may be broken then ("bad magic number in
# sequence", PostgreSQL 18). A sequence has a persistence of its own since PostgreSQL 15; before, each is logged.
_LOG_SEQUENCES = """
DO $$ BEGIN
  IF current_setting('server_version_num')::int >= 150000 THEN
    EXECUTE 'ALTER SEQUENCE ' || pg_get_serial_sequence('pace_slots', 'id') || ' SET LOGGED';
    EXECUTE 'ALTER SEQUENCE ' || pg_get_serial_sequence('circuit_buckets', 'id') || ' SET LOGGED';
  END IF;
END $$"""


class Migration(migrations.Migration):

    # A database that ran the migrations of earlier commits has nothing to run.
    replaces = [
        ('criticizer', '0001_initial'),
        ('criticizer', '0002_storage'),
        ('criticizer', '0003_flows'),
        ('criticizer', '0004_ceiling_changed'),
        ('criticizer', '0005_slow_receivers'),
        ('criticizer', '0006_person_invited'),
        ('criticizer', '0007_app_credentials'),
        ('criticizer', '0008_cluster_version'),
        ('criticizer', '0009_sequences_logged'),
    ]

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Circuit',
            fields=[
                ('name', models.CharField(max_length=128, primary_key=True, serialize=False)),
                ('state', models.CharField(choices=[('closed', 'Closed'), ('open', 'Open'), ('half_open', 'Half-open'), ('forced_open', 'Forced open'), ('forced_closed', 'Forced closed')], db_default='closed', max_length=14)),
                ('generation', models.BigIntegerField(db_default=0)),
                ('changed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('retry_at', models.DateTimeField(blank=True, null=True)),
                ('reason', models.CharField(blank=True, db_default='', max_length=512)),
                ('error_class', models.CharField(blank=True, db_default='', max_length=32)),
                ('actor', models.CharField(blank=True, db_default='', max_length=255)),
                ('auth_failures', models.IntegerField(db_default=0)),
                ('timeouts', models.IntegerField(db_default=0)),
                ('probe_token', models.UUIDField(blank=True, null=True)),
                ('probe_expires_at', models.DateTimeField(blank=True, null=True)),
                ('probe_successes', models.IntegerField(db_default=0)),
                ('probe_detail', models.CharField(blank=True, db_default='', max_length=512)),
                ('needs_call', models.BooleanField(db_default=False)),
            ],
            options={
                'db_table': 'circuits',
                'permissions': [('force_circuit', 'Can force circuits open or closed')],
            },
        ),
        migrations.CreateModel(
            name='CircuitBucket',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=128)),
                ('generation', models.BigIntegerField()),
                ('started_at', models.DateTimeField()),
                ('calls', models.IntegerField()),
                ('failures', models.IntegerField()),
                ('seconds_lost', models.FloatField(db_default=0.0)),
            ],
            options={
                'db_table': 'circuit_buckets',
            },
        ),
        migrations.CreateModel(
            name='CircuitEvent',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=128)),
                ('change', models.CharField(choices=[('opened', 'Opened'), ('half_opened', 'Half-opened'), ('closed', 'Closed'), ('forced_open', 'Forced open'), ('forced_closed', 'Forced closed'), ('released', 'Released')], max_length=14)),
                ('generation', models.BigIntegerField()),
                ('actor', models.CharField(blank=True, db_default='', max_length=255)),
                ('reason', models.CharField(blank=True, db_default='', max_length=512)),
                ('until', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'circuit_events',
            },
        ),
        migrations.CreateModel(
            name='LoginTry',
            fields=[
                ('subject', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('failures', models.IntegerField()),
                ('window_ends_at', models.DateTimeField()),
                ('locked_until', models.DateTimeField(blank=True, null=True)),
                ('succeeded_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'db_table': 'login_tries',
            },
        ),
        migrations.CreateModel(
            name='OutboxMessage',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('aggregate_type', models.CharField(max_length=64)),
                ('aggregate_id', models.BigIntegerField()),
                ('message_type', models.CharField(max_length=64)),
                ('payload', models.JSONField(db_default={})),
                ('queue', models.CharField(max_length=32)),
                ('flow', models.CharField(db_default='system', max_length=255)),
                ('available_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('lease_token', models.UUIDField(blank=True, null=True)),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('retry_count', models.IntegerField(db_default=0)),
                ('error_message', models.TextField(blank=True, db_default='')),
                ('waiting_for', models.CharField(blank=True, db_default='', max_length=128)),
            ],
            options={
                'db_table': 'outbox_messages',
            },
        ),
        migrations.CreateModel(
            name='Pace',
            fields=[
                ('name', models.CharField(max_length=128, primary_key=True, serialize=False)),
                ('tokens', models.FloatField(db_default=1.0)),
                ('refilled_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('paused_until', models.DateTimeField(blank=True, null=True)),
                ('generation', models.BigIntegerField(db_default=0)),
                ('refusals', models.IntegerField(db_default=0)),
                ('slow_rate', models.FloatField(blank=True, null=True)),
                ('base_rate', models.FloatField(blank=True, null=True)),
                ('slow_since', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'db_table': 'paces',
            },
        ),
        migrations.CreateModel(
            name='PaceSlot',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=128)),
                ('number', models.IntegerField()),
                ('token', models.UUIDField(blank=True, null=True)),
                ('expires_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'pace_slots',
            },
        ),
        migrations.CreateModel(
            name='SavedView',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('page', models.CharField(max_length=100)),
                ('name', models.CharField(max_length=60)),
                ('query', models.CharField(blank=True, max_length=1000)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'saved_views',
            },
        ),
        migrations.CreateModel(
            name='SecurityEvent',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('path_denied', 'Path outside the allow-list'), ('redaction_blocked', 'Redaction blocked a model call'), ('auth_failed', 'API key refused'), ('role_denied', 'Role does not allow the request'), ('artifact_read', 'Artifact read'), ('artifact_refused', 'Artifact read refused'), ('artifact_fault', 'Artifact overdue, lost, orphaned or unreadable'), ('audit_fault', 'Audit rows differ from what was sealed'), ('login_locked', 'Logins refused for a while after failures'), ('ceiling_changed', 'DEPOT_ALLOW_LIST changed'), ('person_invited', 'Person invited'), ('app_credentials', 'Credentials of a new App asked for'), ('password_refused', 'Password refused before a dangerous action')], max_length=32)),
                ('changelist_id', models.CharField(blank=True, max_length=128)),
                ('path', models.CharField(blank=True, max_length=2048)),
                ('reason', models.CharField(blank=True, max_length=512)),
                ('actor', models.CharField(blank=True, max_length=255)),
                ('context', models.JSONField(db_default={})),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'security_events',
            },
        ),
        migrations.CreateModel(
            name='WorkerCluster',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                ('queue', models.CharField(max_length=32)),
                ('host', models.CharField(max_length=255)),
                ('version', models.CharField(blank=True, db_default='', max_length=64)),
                ('pid', models.IntegerField()),
                ('workers', models.IntegerField()),
                ('started_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('beat_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('draining', models.BooleanField(db_default=False)),
                ('hanging', models.JSONField(blank=True, db_default=[])),
            ],
            options={
                'db_table': 'worker_clusters',
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='circuit',
            trigger=pgtrigger.compiler.Trigger(name='state_fsm', sql=pgtrigger.compiler.UpsertTriggerSql(declare='DECLARE _is_valid_transition BOOLEAN;', func='SELECT CONCAT(OLD."state", \':\', NEW."state") = ANY(\'{closed:open,open:half_open,half_open:open,half_open:closed,forced_open:half_open,forced_closed:closed,closed:forced_open,closed:forced_closed,open:forced_open,open:forced_closed,half_open:forced_open,half_open:forced_closed,forced_open:forced_closed,forced_closed:forced_open}\'::text[]) INTO _is_valid_transition; IF (_is_valid_transition IS FALSE AND OLD."state" IS DISTINCT FROM NEW."state") THEN RAISE EXCEPTION \'pgtrigger: Invalid transition of field "state" from "%" to "%" on table %\', OLD."state", NEW."state", TG_TABLE_NAME; ELSE RETURN NEW; END IF;', hash='62a62776ba9ce0ab9a52eb86bba079930adb322e', operation='UPDATE', pgid='pgtrigger_state_fsm_83477', table='circuits', when='BEFORE')),
        ),
        migrations.AddConstraint(
            model_name='circuitbucket',
            constraint=models.UniqueConstraint(fields=('name', 'generation', 'started_at'), name='circuit_buckets_one_per_ten_seconds'),
        ),
        migrations.AddIndex(
            model_name='circuitevent',
            index=models.Index(fields=['name', '-id'], name='circuit_events_newest'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='circuitevent',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='09e463a362b4af523d786a7a6ebe435b49d9eed9', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_1c82b', table='circuit_events', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='circuitevent',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % cannot be truncated', TG_TABLE_NAME;", hash='3c92873dafc9abad5e5773ac54a2c6b27276aa79', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_03f63', table='circuit_events', when='BEFORE')),
        ),
        migrations.AddIndex(
            model_name='logintry',
            index=models.Index(fields=['window_ends_at'], name='login_tries_oldest'),
        ),
        migrations.AddIndex(
            model_name='outboxmessage',
            index=models.Index(fields=['queue', 'available_at'], name='outbox_due'),
        ),
        migrations.AddIndex(
            model_name='outboxmessage',
            index=models.Index(fields=['queue', 'flow', 'available_at', 'id'], name='outbox_fair'),
        ),
        migrations.AddIndex(
            model_name='outboxmessage',
            index=models.Index(condition=models.Q(('lease_token__isnull', False)), fields=['queue', 'flow'], name='outbox_working'),
        ),
        migrations.AddIndex(
            model_name='outboxmessage',
            index=models.Index(condition=models.Q(('waiting_for', ''), _negated=True), fields=['waiting_for'], name='outbox_waiting'),
        ),
        migrations.AddConstraint(
            model_name='outboxmessage',
            constraint=models.UniqueConstraint(fields=('aggregate_type', 'aggregate_id', 'message_type'), name='outbox_one_per_work'),
        ),
        migrations.AddConstraint(
            model_name='outboxmessage',
            constraint=models.CheckConstraint(condition=models.Q(('flow', ''), _negated=True), name='outbox_has_flow'),
        ),
        migrations.AddConstraint(
            model_name='paceslot',
            constraint=models.UniqueConstraint(fields=('name', 'number'), name='pace_slots_numbered'),
        ),
        migrations.AddField(
            model_name='savedview',
            name='user',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddIndex(
            model_name='securityevent',
            index=models.Index(fields=['-created_at', '-id'], name='security_newest'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='securityevent',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='6bb65cd8a273a45eda4b0607a1d73219b7e2d32b', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_c0304', table='security_events', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='securityevent',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % cannot be truncated', TG_TABLE_NAME;", hash='cf882b12ec19309177634cd46863c314d58d75ef', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_42294', table='security_events', when='BEFORE')),
        ),
        migrations.AddConstraint(
            model_name='savedview',
            constraint=models.UniqueConstraint(fields=('user', 'page', 'name'), name='saved_views_one_per_name'),
        ),
        # Room for updates in place, and early vacuum.
        migrations.RunSQL(
            "ALTER TABLE outbox_messages SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0,"
            " autovacuum_vacuum_threshold = 1000);"
            "ALTER TABLE circuits SET (fillfactor = 50); ALTER TABLE circuit_buckets SET (fillfactor = 50);"
            "ALTER TABLE paces SET (fillfactor = 50); ALTER TABLE pace_slots SET (fillfactor = 50)",
            migrations.RunSQL.noop,
        ),
        # Counters that start again from zero after a crash of the server.
        migrations.RunSQL(
            "ALTER TABLE circuit_buckets SET UNLOGGED; ALTER TABLE paces SET UNLOGGED;"
            " ALTER TABLE pace_slots SET UNLOGGED",
            migrations.RunSQL.noop,
        ),
        migrations.RunSQL(_LOG_SEQUENCES, migrations.RunSQL.noop),
    ]
