"""The tables of reviews, with storage parameters, triggers and functions that models cannot declare."""

import criticizer.security.sealed_field
import django.contrib.postgres.fields
import django.contrib.postgres.functions
import django.contrib.postgres.indexes
import django.contrib.postgres.search
import django.core.validators
import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.comparison
import django.db.models.functions.datetime
import django.db.models.functions.text
import pgtrigger.compiler
import pgtrigger.migrations
import reviews.models.rules
import uuid
from django.conf import settings
from django.db import migrations, models


_HISTORIES = ("reviews_viewerscopeevent", "reviews_allowlistentryevent", "reviews_subscriptionevent")
# However an account changes, by a form, a command or a statement.
_FEED_LINKS_END = """
CREATE FUNCTION public.feed_links_end() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.feed_keys (user_id, resets) VALUES (NEW.id, 1)
        ON CONFLICT (user_id) DO UPDATE SET resets = feed_keys.resets + 1;
    RETURN NULL;
END $$;
CREATE TRIGGER feed_links_end AFTER UPDATE OF password, is_active ON auth_user FOR EACH ROW
    WHEN (OLD.password <> NEW.password OR (OLD.is_active AND NOT NEW.is_active))
    EXECUTE FUNCTION public.feed_links_end();
"""


class Migration(migrations.Migration):

    # A database that ran the migrations of earlier commits has nothing to run.
    replaces = [
        ('reviews', '0001_initial'),
        ('reviews', '0002_storage'),
        ('reviews', '0003_requester_scope'),
        ('reviews', '0004_redacted_artifacts'),
        ('reviews', '0005_copies_have_a_lifetime'),
        ('reviews', '0006_job_request_id'),
        ('reviews', '0007_findings_unsealed'),
        ('reviews', '0008_series_of_older_requests'),
        ('reviews', '0009_finding_versions'),
        ('reviews', '0010_artifact_recipe'),
        ('reviews', '0011_evidence_of_findings'),
        ('reviews', '0012_finding_fates'),
        ('reviews', '0013_ended_findings_index'),
        ('reviews', '0014_code_hosts'),
        ('reviews', '0015_finding_events'),
        ('reviews', '0016_host_checks'),
        ('reviews', '0017_finding_search'),
        ('reviews', '0018_finding_facets'),
        ('reviews', '0019_more_hosts'),
        ('reviews', '0020_feed_keys'),
        ('reviews', '0021_mergeable'),
        ('reviews', '0022_review_units'),
        ('reviews', '0023_verbatim_findings'),
        ('reviews', '0024_commit_index'),
        ('reviews', '0025_finding_parts'),
        ('reviews', '0026_partial_reviews'),
        ('reviews', '0027_feed_links_end'),
        ('reviews', '0028_token_ledger'),
        ('reviews', '0029_proven_edits'),
        ('reviews', '0030_team_rules'),
        ('reviews', '0031_dismissal_scopes'),
        ('reviews', '0032_repository_configurations'),
        ('reviews', '0033_kind_of_a_change'),
        ('reviews', '0034_revision_of_a_configuration'),
        ('reviews', '0035_tokens_of_a_day'),
        ('reviews', '0036_documents_of_jobs'),
        ('reviews', '0037_agent_tasks'),
        ('reviews', '0038_linter_results'),
        ('reviews', '0039_skipped_paths'),
        ('reviews', '0040_coverage_names'),
        ('reviews', '0002_code_host_names_and_refusals'),
        ('reviews', '0003_scans'),
        ('reviews', '0004_active_jobs_by_state'),
        ('reviews', '0005_words_of_active_jobs'),
        ('reviews', '0006_agent_tasks_below_directories'),
        ('reviews', '0007_scanned_path_stays'),
        ('reviews', '0008_ended_reviews_and_offered_stages'),
        ('reviews', '0009_how_reviews_ended'),
        ('reviews', '0010_indexes_without_the_state'),
    ]

    initial = True

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        ('pghistory', '0007_auto_20250421_0444'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='AgentTask',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('type', models.CharField(choices=[('review_chunk', 'Review of a part of a change'), ('claim_extraction', 'Claims of a document'), ('verification', 'Verification of a claim'), ('fix_generation', 'Fix of a document')], max_length=16)),
                ('ordinal', models.IntegerField()),
                ('digest', models.CharField(max_length=64)),
                ('directories', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), size=None)),
                ('payload', criticizer.security.sealed_field.SealedListField()),
                ('status', models.CharField(choices=[('pending', 'Pending'), ('in_progress', 'In progress'), ('completed', 'Completed'), ('failed', 'Failed'), ('expired', 'Expired'), ('cancelled', 'Cancelled')], db_default='pending', max_length=11)),
                ('claim_sha256', models.CharField(blank=True, db_default='', max_length=64)),
                ('claimed_by', models.CharField(blank=True, db_default='', max_length=200)),
                ('claimed_key', models.CharField(blank=True, db_default='', max_length=64)),
                ('claims', models.IntegerField(db_default=0)),
                ('lease_expires_at', models.DateTimeField(blank=True, null=True)),
                ('expires_at', models.DateTimeField()),
                ('progress', models.CharField(blank=True, db_default='', max_length=200)),
                ('parse_failures', models.IntegerField(db_default=0)),
                ('failures', models.IntegerField(db_default=0)),
                ('result', criticizer.security.sealed_field.SealedListField()),
                ('metadata', models.JSONField(db_default={})),
                ('error_class', models.CharField(blank=True, db_default='', max_length=32)),
                ('detail', models.CharField(blank=True, db_default='', max_length=512)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'verbose_name': 'agent task',
                'db_table': 'agent_tasks',
                'ordering': ['created_at', 'ordinal'],
                'permissions': [('decide_agenttask', 'Can expire agent tasks and offer them again')],
            },
        ),
        migrations.CreateModel(
            name='AllowListEntryEvent',
            fields=[
                ('pgh_id', models.AutoField(primary_key=True, serialize=False)),
                ('pgh_created_at', models.DateTimeField(auto_now_add=True)),
                ('pgh_label', models.TextField(help_text='The event label.')),
                ('id', models.BigIntegerField()),
                ('kind', models.CharField(choices=[('include', 'Include'), ('exclude', 'Exclude')], default='include', max_length=7)),
                ('pattern', models.CharField(help_text='Such as //depot/project/...', max_length=1024)),
                ('position', models.IntegerField(default=0, help_text='The last matching line decides.')),
                ('reason', models.CharField(help_text='Why this line exists: a ticket or a sentence.', max_length=255)),
            ],
            options={
                'verbose_name': 'allow-list edit',
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='ApiKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=64, unique=True)),
                ('role', models.CharField(choices=[('trigger', 'Trigger: posts changelists and reads reviews'), ('reviewer', 'Reviewer: reads reviews'), ('operator', 'Operator: reads reviews, dead letters and metrics, cancels'), ('approver', 'Approver: reads reviews and dead letters'), ('auditor', 'Auditor: reads reviews and dead letters'), ('agent', 'Agent: takes tasks of its prefixes, with the redacted code, and submits results')], max_length=10)),
                ('key_sha256', models.CharField(max_length=64, unique=True)),
                ('prefix', models.CharField(max_length=12)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('last_used_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('prefixes', models.JSONField(blank=True, db_default=[], default=list)),
            ],
            options={
                'verbose_name': 'API key',
                'db_table': 'api_keys',
            },
        ),
        migrations.CreateModel(
            name='Artifact',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('change', 'Change as fetched'), ('redacted', 'Redacted change'), ('prompt', 'Prompt'), ('answer', 'Model answer'), ('mail', 'Mail metadata')], max_length=10)),
                ('is_raw', models.BooleanField()),
                ('name', models.CharField(max_length=255)),
                ('sha256', models.CharField(max_length=64)),
                ('size_bytes', models.BigIntegerField()),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('expires_at', models.DateTimeField()),
                ('deleted_at', models.DateTimeField(blank=True, null=True)),
                ('key_id', models.CharField(blank=True, db_default='', max_length=12)),
                ('recipe', models.CharField(blank=True, db_default='', max_length=64)),
                ('checked_at', models.DateTimeField(blank=True, null=True)),
                ('fault', models.CharField(blank=True, choices=[('overdue', 'Kept beyond its expiry'), ('missing', 'The file is gone'), ('unreadable', 'No key opens it'), ('changed', 'Differs from the bytes that were stored')], db_default='', max_length=12)),
            ],
            options={
                'db_table': 'artifacts',
                'permissions': [('read_artifact', 'Can read redacted artifacts'), ('read_raw_artifact', 'Can read raw artifacts')],
            },
        ),
        migrations.CreateModel(
            name='Attempt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.IntegerField()),
                ('worker', models.CharField(blank=True, max_length=255)),
                ('started_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('outcome', models.CharField(choices=[('started', 'Started'), ('succeeded', 'Succeeded'), ('failed', 'Failed'), ('given_back', 'Given back'), ('lost', 'Lost')], db_default='started', max_length=12)),
                ('error_class', models.CharField(blank=True, db_default='', max_length=32)),
                ('code', models.CharField(blank=True, db_default='', max_length=20)),
                ('detail', models.TextField(blank=True, db_default='')),
                ('context', models.JSONField(db_default={})),
                ('retry_delay_seconds', models.FloatField(blank=True, null=True)),
            ],
            options={
                'db_table': 'attempts',
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='AuditSeal',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('table', models.CharField(db_column='table_name', max_length=64)),
                ('from_id', models.BigIntegerField()),
                ('to_id', models.BigIntegerField()),
                ('row_count', models.IntegerField()),
                ('rows_sha256', models.CharField(max_length=64)),
                ('chain', models.CharField(max_length=64)),
                ('mac', models.CharField(max_length=64)),
                ('key_id', models.CharField(max_length=12)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'audit_seals',
            },
        ),
        migrations.CreateModel(
            name='CoverageRow',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('file', models.CharField(max_length=1024)),
                ('status', models.CharField(choices=[('reviewed', 'reviewed'), ('checked', 'checked'), ('partial', 'partial'), ('skipped', 'skipped')], max_length=10)),
                ('reason', models.CharField(blank=True, db_default='', max_length=255)),
            ],
            options={
                'verbose_name': 'covered file',
                'db_table': 'coverage',
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='FeedKey',
            fields=[
                ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, serialize=False, to=settings.AUTH_USER_MODEL)),
                ('resets', models.IntegerField(db_default=0)),
            ],
            options={
                'db_table': 'feed_keys',
            },
        ),
        migrations.CreateModel(
            name='FindingEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('identity', models.UUIDField()),
                ('file', models.CharField(max_length=1024)),
                ('evidence', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), blank=True, db_default=[], default=list, size=None)),
                ('kind', models.CharField(choices=[('useful', 'Useful'), ('wrong', 'Wrong'), ('intended', 'Intended'), ('wont_fix', "Won't fix"), ('undone', 'Verdict taken back'), ('comment', 'Comment')], max_length=8)),
                ('text', models.CharField(blank=True, db_default='', max_length=2000)),
                ('actor', models.CharField(max_length=255)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('is_proposal', models.BooleanField(db_default=False, default=False)),
                ('scope', models.CharField(choices=[('finding', 'This finding'), ('file', 'The same, anywhere in this file'), ('path', 'The same, in files of a path'), ('rule', 'Everything of this rule or check'), ('category', 'Everything of this category')], db_default='finding', default='finding', max_length=8)),
                ('paths', models.CharField(blank=True, db_default='', max_length=1024)),
                ('until', models.DateField(blank=True, null=True)),
                ('within', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), blank=True, db_default=[], default=list, size=None)),
                ('severity', models.CharField(blank=True, choices=[('critical', 'critical'), ('high', 'high'), ('medium', 'medium'), ('low', 'low')], db_default='', max_length=8)),
                ('category', models.CharField(blank=True, db_default='', max_length=32)),
                ('rule', models.CharField(blank=True, db_default='', max_length=1024)),
                ('line', models.IntegerField(blank=True, null=True)),
                ('fingerprint', models.CharField(blank=True, db_default='', max_length=64)),
                ('words', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), blank=True, db_default=[], default=list, size=None)),
            ],
            options={
                'verbose_name': 'verdict or comment',
                'verbose_name_plural': 'verdicts and comments',
                'db_table': 'finding_events',
                'ordering': ['id'],
                'permissions': [('dismiss_widely', 'Can dismiss findings by path, rule and category')],
            },
        ),
        migrations.CreateModel(
            name='FindingFate',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('part', models.IntegerField()),
                ('turn', models.IntegerField()),
                ('place', models.IntegerField()),
                ('fate', models.CharField(choices=[('shown', 'shown'), ('folded', 'folded'), ('demoted', 'demoted'), ('merged', 'merged'), ('refuted', 'refuted'), ('dropped', 'dropped'), ('dismissed', 'dismissed'), ('suppressed', 'suppressed'), ('carried', 'carried')], max_length=10)),
                ('reason', models.CharField(blank=True, db_default='', max_length=255)),
                ('file', models.CharField(blank=True, db_default='', max_length=1024)),
                ('line', models.IntegerField(null=True)),
                ('severity', models.CharField(blank=True, db_default='', max_length=8)),
                ('title', models.CharField(blank=True, db_default='', max_length=160)),
            ],
            options={
                'verbose_name': 'outcome of a finding',
                'db_table': 'finding_fates',
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='FindingRow',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('file', models.CharField(max_length=1024)),
                ('line', models.IntegerField(blank=True, null=True)),
                ('end_line', models.IntegerField(blank=True, null=True)),
                ('side', models.CharField(choices=[('new', 'new'), ('old', 'old')], db_default='new', max_length=3)),
                ('severity', models.CharField(choices=[('critical', 'critical'), ('high', 'high'), ('medium', 'medium'), ('low', 'low')], max_length=8)),
                ('category', models.CharField(max_length=32)),
                ('title', models.CharField(max_length=160)),
                ('message', models.TextField()),
                ('suggestion', models.TextField(blank=True, db_default='')),
                ('source', models.CharField(max_length=64)),
                ('excerpt', criticizer.security.sealed_field.SealedListField()),
                ('edit', criticizer.security.sealed_field.SealedListField()),
                ('confidence', models.IntegerField(blank=True, null=True)),
                ('demoted', models.BooleanField(db_default=False)),
                ('evidence', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), blank=True, db_default=[], default=list, size=None)),
                ('rule', models.CharField(blank=True, db_default='', max_length=1024)),
                ('verification', models.CharField(blank=True, choices=[('confirmed', 'CONFIRMED'), ('unverified', 'UNVERIFIED')], db_default='', max_length=10)),
                ('folded', models.CharField(blank=True, db_default='', max_length=32)),
                ('identity', models.UUIDField(db_default=django.contrib.postgres.functions.RandomUUID(), default=uuid.uuid4, editable=False)),
                ('is_new', models.BooleanField(blank=True, null=True)),
                ('ending', models.CharField(blank=True, choices=[('fixed', 'fixed'), ('not_reported_again', 'not_reported_again'), ('gone', 'gone'), ('not_read', 'not_read')], db_default='', max_length=18)),
                ('status', models.GeneratedField(db_persist=True, expression=models.Case(models.When(ending='fixed', then=models.Value('fixed')), models.When(models.Q(('ending', ''), _negated=True), then=models.Value('not_reported_again')), models.When(is_new=False, then=models.Value('still_there')), default=models.Value('new')), output_field=models.CharField(choices=[('new', 'New'), ('still_there', 'Still there'), ('not_reported_again', 'Not reported again'), ('fixed', 'Fixed')], max_length=18))),
            ],
            options={
                'verbose_name': 'finding',
                'db_table': 'findings',
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='HostChange',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('host', models.CharField(max_length=16)),
                ('repository_id', models.BigIntegerField()),
                ('number', models.IntegerField()),
                ('full_name', models.CharField(max_length=255)),
                ('changelist_id', models.CharField(max_length=128)),
                ('installation_id', models.BigIntegerField(blank=True, null=True)),
                ('state', models.CharField(choices=[('open', 'Open'), ('draft', 'Draft'), ('closed', 'Closed'), ('merged', 'Merged'), ('removed', 'No longer ours')], db_default='open', max_length=8)),
                ('head_sha', models.CharField(max_length=64)),
                ('base_sha', models.CharField(max_length=64)),
                ('base_ref', models.CharField(max_length=255)),
                ('reported_at', models.DateTimeField()),
                ('is_mergeable', models.BooleanField(blank=True, null=True)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'verbose_name': 'pull request',
                'db_table': 'host_changes',
            },
        ),
        migrations.CreateModel(
            name='HostCheck',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('token', models.UUIDField(default=uuid.uuid4, editable=False)),
                ('check_id', models.BigIntegerField(blank=True, null=True)),
                ('told', models.CharField(blank=True, db_default='', max_length=16)),
                ('attempts', models.IntegerField(db_default=0)),
                ('failures', models.IntegerField(db_default=0)),
                ('due_at', models.DateTimeField(blank=True, null=True)),
                ('error_class', models.CharField(blank=True, db_default='', max_length=32)),
                ('detail', models.CharField(blank=True, db_default='', max_length=255)),
            ],
            options={
                'verbose_name': 'check run',
                'db_table': 'host_checks',
            },
        ),
        migrations.CreateModel(
            name='HostDelivery',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('host', models.CharField(max_length=16)),
                ('delivery_id', models.CharField(max_length=128)),
                ('event', models.CharField(max_length=64)),
                ('repository_id', models.BigIntegerField(blank=True, null=True)),
                ('full_name', models.CharField(blank=True, db_default='', max_length=255)),
                ('installation_id', models.BigIntegerField(blank=True, null=True)),
                ('ignored', models.CharField(blank=True, db_default='', max_length=255)),
                ('is_duplicate', models.BooleanField(db_default=False)),
                ('received_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('repeats', models.IntegerField(db_default=0)),
                ('repeated_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'verbose_name': 'webhook delivery',
                'verbose_name_plural': 'webhook deliveries',
                'db_table': 'host_deliveries',
            },
        ),
        migrations.CreateModel(
            name='HostInstallation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('host', models.CharField(max_length=16)),
                ('installation_id', models.BigIntegerField()),
                ('account', models.CharField(blank=True, db_default='', max_length=255)),
                ('status', models.CharField(choices=[('active', 'Active'), ('suspended', 'Suspended'), ('deleted', 'Uninstalled')], db_default='active', max_length=9)),
                ('changed_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'verbose_name': 'installation',
                'db_table': 'host_installations',
            },
        ),
        migrations.CreateModel(
            name='HostRefusal',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('host', models.CharField(max_length=16)),
                ('reason', models.CharField(choices=[('none_set', 'No secret is set here'), ('unsigned', 'It was not signed'), ('wrong', 'Its signature fits no secret'), ('late', 'Its time is not near ours'), ('content_type', 'It is not JSON'), ('unreadable', 'It lacks a field')], max_length=16)),
                ('delivery_id', models.CharField(blank=True, db_default='', max_length=128)),
                ('remote_address', models.CharField(blank=True, db_default='', max_length=64)),
                ('refused_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'verbose_name': 'refused webhook',
                'db_table': 'host_refusals',
            },
        ),
        migrations.CreateModel(
            name='HostVersion',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('head_sha', models.CharField(max_length=64)),
                ('base_sha', models.CharField(max_length=64)),
                ('base_ref', models.CharField(max_length=255)),
                ('is_automatic', models.BooleanField()),
                ('is_retired', models.BooleanField(db_default=False)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'verbose_name': 'reviewed head',
                'db_table': 'host_versions',
            },
        ),
        migrations.CreateModel(
            name='JobEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('timed_out', 'Timed out'), ('cancelled', 'Cancelled'), ('superseded', 'Superseded'), ('late_stored', 'Late result stored'), ('late_accepted', 'Late result accepted'), ('not_told', 'Not notified'), ('decided', 'Delivery decided'), ('data_edited', 'Data edited'), ('task_decided', 'Agent task decided'), ('alert', 'Alert')], max_length=16)),
                ('actor', models.CharField(blank=True, db_default='', max_length=255)),
                ('reason', models.CharField(blank=True, db_default='', max_length=1024)),
                ('context', models.JSONField(db_default={})),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'job_events',
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='LedgerEntry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('call', models.CharField(max_length=64)),
                ('dependency', models.CharField(max_length=128)),
                ('model', models.CharField(max_length=128)),
                ('source', models.CharField(max_length=128)),
                ('state', models.CharField(choices=[('reserved', 'Reserved'), ('settled', 'Settled'), ('unknown', 'Unknown')], db_default='reserved', max_length=8)),
                ('reserved_tokens', models.IntegerField()),
                ('input_tokens', models.IntegerField(blank=True, null=True)),
                ('output_tokens', models.IntegerField(blank=True, null=True)),
                ('cached_tokens', models.IntegerField(blank=True, null=True)),
                ('cache_write_tokens', models.IntegerField(blank=True, null=True)),
                ('tokens', models.GeneratedField(db_persist=True, expression=django.db.models.functions.comparison.Coalesce(django.db.models.expressions.CombinedExpression(models.F('input_tokens'), '+', models.F('output_tokens')), models.F('reserved_tokens')), output_field=models.IntegerField())),
                ('started_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'verbose_name': 'token ledger entry',
                'verbose_name_plural': 'token ledger',
                'db_table': 'token_ledger',
            },
        ),
        migrations.CreateModel(
            name='LinterResultRow',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('digest', models.CharField(max_length=64)),
                ('tool', models.CharField(max_length=64)),
                ('rule', models.CharField(blank=True, db_default='', max_length=128)),
                ('level', models.CharField(choices=[('error', 'error'), ('warning', 'warning'), ('note', 'note'), ('none', 'none')], max_length=7)),
                ('path', models.CharField(max_length=1024)),
                ('line', models.IntegerField()),
                ('end_line', models.IntegerField()),
                ('message', models.TextField()),
                ('place', models.CharField(choices=[('waiting', 'The change is not known yet'), ('changed', 'On changed lines'), ('elsewhere', 'Not on changed lines')], db_default='waiting', max_length=9)),
                ('file', models.CharField(blank=True, db_default='', max_length=1024)),
                ('is_given', models.BooleanField(db_default=False)),
                ('scope_prefixes', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), blank=True, db_default=[], default=list, size=None)),
                ('received_by', models.CharField(max_length=255)),
                ('received_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'verbose_name': 'linter result',
                'db_table': 'linter_results',
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='RepositoryConfiguration',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('root', models.CharField(max_length=1024)),
                ('branch', models.CharField(blank=True, db_default='', max_length=255)),
                ('protecting', models.JSONField(blank=True, null=True)),
                ('configuration', models.JSONField(db_default={})),
                ('text', models.TextField(blank=True, db_default='')),
                ('revision', models.BigIntegerField(db_default=0)),
                ('seen_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'verbose_name': 'configuration of a repository',
                'verbose_name_plural': 'configurations of repositories',
                'db_table': 'repository_configurations',
            },
        ),
        migrations.CreateModel(
            name='ReviewJob',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('idempotency_key', models.CharField(max_length=255)),
                ('request_sha256', models.CharField(max_length=64)),
                ('request_id', models.CharField(blank=True, db_default='', max_length=64)),
                ('changelist_id', models.CharField(max_length=128)),
                ('review_version', models.IntegerField(db_default=1)),
                ('recipients', models.JSONField(db_default=[])),
                ('recipients_are', models.CharField(choices=[('given', 'Given with the request'), ('to_find', 'Found when its files are known'), ('found', 'Found')], db_default='given', max_length=8)),
                ('recipient_origins', models.JSONField(db_default={})),
                ('requested_by', models.CharField(blank=True, max_length=255)),
                ('from_scratch', models.BooleanField(db_default=False)),
                ('series', models.CharField(blank=True, db_default='', max_length=32)),
                ('scope_prefixes', models.JSONField(db_default=[])),
                ('kind', models.CharField(blank=True, choices=[('submitted', 'submitted'), ('shelved', 'shelved'), ('scan', 'scan')], db_default='', max_length=9)),
                ('status', models.CharField(choices=[('queued', 'Queued'), ('in_progress', 'In progress'), ('retryable_failed', 'Waiting to retry'), ('succeeded', 'Succeeded'), ('dead_lettered', 'Dead-lettered'), ('timed_out', 'Timed out'), ('cancelled', 'Cancelled'), ('superseded', 'Superseded')], db_default='queued', max_length=20)),
                ('status_reason', models.CharField(blank=True, db_default='', max_length=512)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('deadline_at', models.DateTimeField()),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('is_late', models.BooleanField(db_default=False)),
                ('author', models.CharField(blank=True, db_default='', max_length=255)),
                ('title', models.CharField(blank=True, db_default='', max_length=255)),
                ('banner', models.CharField(blank=True, db_default='', max_length=512)),
                ('footer', models.CharField(blank=True, db_default='', max_length=255)),
                ('stopped', models.CharField(blank=True, choices=[('ended', 'ended'), ('timed_out', 'timed_out'), ('over_limit', 'over_limit'), ('unanswered', 'unanswered')], db_default='', max_length=10)),
                ('model_name', models.CharField(blank=True, db_default='', max_length=128)),
                ('usage', models.JSONField(db_default={})),
                ('compared_with', models.IntegerField(blank=True, null=True)),
                ('version_key', models.CharField(blank=True, db_default='', max_length=255)),
                ('configuration', models.JSONField(db_default=[], default=list)),
                ('documents', models.JSONField(db_default={}, default=dict)),
                ('context_files', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), blank=True, db_default=[], default=list, size=None)),
                ('ended_as', models.CharField(blank=True, choices=[('queued', 'Queued'), ('in_progress', 'In progress'), ('retryable_failed', 'Waiting to retry'), ('succeeded', 'Succeeded'), ('dead_lettered', 'Dead-lettered'), ('timed_out', 'Timed out'), ('cancelled', 'Cancelled'), ('superseded', 'Superseded')], db_default='', editable=False, max_length=20)),
            ],
            options={
                'verbose_name': 'review',
                'db_table': 'jobs',
                'permissions': [('accept_late', 'Can accept a late result')],
            },
        ),
        migrations.CreateModel(
            name='ReviewUnit',
            fields=[
                ('key', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('answer', criticizer.security.sealed_field.SealedListField()),
                ('input_tokens', models.IntegerField()),
                ('made_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'verbose_name': 'review unit',
                'db_table': 'review_units',
            },
        ),
        migrations.CreateModel(
            name='Rollup',
            fields=[
                ('pk', models.CompositePrimaryKey('seconds', 'started_at', 'kind', 'label', blank=True, editable=False, primary_key=True, serialize=False)),
                ('seconds', models.SmallIntegerField()),
                ('started_at', models.DateTimeField()),
                ('kind', models.CharField(choices=[('jobs', 'Jobs that ended'), ('attempts', 'Attempts'), ('latency', 'Times'), ('deliveries', 'Deliveries'), ('mark', 'Progress')], max_length=12)),
                ('label', models.CharField(max_length=80)),
                ('number', models.BigIntegerField()),
            ],
            options={
                'db_table': 'rollups',
            },
        ),
        migrations.CreateModel(
            name='RuleUse',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=1024)),
                ('text', models.CharField(blank=True, db_default='', max_length=600)),
                ('parts', django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), size=None)),
                ('cited', models.IntegerField(db_default=0)),
            ],
            options={
                'verbose_name': 'rule of a review',
                'db_table': 'rule_uses',
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='SkippedPath',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('pattern', models.CharField(help_text='Such as //depot/project/docs/..., //depot/project/*.svg or one file.', max_length=1024, unique=True)),
                ('reason', models.CharField(help_text='Why the model need not read them: a ticket or a sentence.', max_length=255)),
            ],
            options={
                'verbose_name': 'skipped path',
                'db_table': 'skipped_paths',
                'ordering': ['pattern'],
            },
        ),
        migrations.CreateModel(
            name='SkippedPathEvent',
            fields=[
                ('pgh_id', models.AutoField(primary_key=True, serialize=False)),
                ('pgh_created_at', models.DateTimeField(auto_now_add=True)),
                ('pgh_label', models.TextField(help_text='The event label.')),
                ('id', models.BigIntegerField()),
                ('pattern', models.CharField(help_text='Such as //depot/project/docs/..., //depot/project/*.svg or one file.', max_length=1024)),
                ('reason', models.CharField(help_text='Why the model need not read them: a ticket or a sentence.', max_length=255)),
            ],
            options={
                'verbose_name': 'skipped-path edit',
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='SourceEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('server', models.CharField(max_length=64)),
                ('event', models.CharField(choices=[('change-commit', 'Submitted'), ('shelve-commit', 'Shelved'), ('git-commit', 'Committed')], max_length=16)),
                ('changelist_id', models.CharField(max_length=128)),
                ('version_key', models.CharField(blank=True, db_default='', max_length=255)),
                ('origin', models.CharField(choices=[('trigger', 'Trigger'), ('poll', 'Poll')], max_length=8)),
                ('outcome', models.CharField(choices=[('created', 'Made a job'), ('joined', 'Joined a job that had not read the shelf yet'), ('seen_before', 'Had its job already'), ('found_by_poll', 'Found by the poll, without a trigger'), ('refused', 'Refused: the trigger posts it again')], max_length=16)),
                ('received_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('repeats', models.IntegerField(db_default=0)),
                ('repeated_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'db_table': 'source_events',
            },
        ),
        migrations.CreateModel(
            name='SourcePosition',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('stream', models.CharField(max_length=192, unique=True)),
                ('place', models.CharField(blank=True, db_default='', max_length=128)),
                ('state', models.JSONField(db_default={})),
                ('missing', models.BigIntegerField(db_default=0)),
                ('last_missing_at', models.DateTimeField(blank=True, null=True)),
                ('polled_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('problem', models.CharField(blank=True, db_default='', max_length=512)),
            ],
            options={
                'verbose_name': 'polled source',
                'db_table': 'source_positions',
            },
        ),
        migrations.CreateModel(
            name='StageRun',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('stage', models.CharField(choices=[('fetch', 'Fetch'), ('llm', 'Review'), ('notify', 'Notify')], max_length=10)),
                ('status', models.CharField(choices=[('pending', 'Pending'), ('running', 'Running'), ('retry_wait', 'Waiting to retry'), ('succeeded', 'Succeeded'), ('failed', 'Failed'), ('cancelled', 'Cancelled')], db_default='pending', max_length=12)),
                ('attempts', models.IntegerField(db_default=0)),
                ('max_attempts', models.IntegerField(db_default=5)),
                ('lease_token', models.UUIDField(blank=True, null=True)),
                ('lease_expires_at', models.DateTimeField(blank=True, null=True)),
                ('next_attempt_at', models.DateTimeField(blank=True, null=True)),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('first_failure_at', models.DateTimeField(blank=True, null=True)),
                ('last_failure_at', models.DateTimeField(blank=True, null=True)),
                ('error_class', models.CharField(blank=True, db_default='', max_length=32)),
                ('progress', models.JSONField(db_default={})),
                ('ended_token', models.UUIDField(blank=True, null=True)),
            ],
            options={
                'db_table': 'stage_runs',
            },
        ),
        migrations.CreateModel(
            name='Subscription',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('recipient', models.CharField(blank=True, db_default='', default='', help_text='Such as mail:ann@example.com; empty for a subscription of an owner.', max_length=512)),
                ('pattern', models.CharField(help_text='Such as //depot/project/... or //depot/lib/*.c', max_length=1024)),
                ('author', models.CharField(blank=True, db_default='', default='', help_text='Only changes of this author, as named by the version control; empty: of any author.', max_length=255)),
                ('reason', models.CharField(blank=True, db_default='', default='', help_text='Why: a ticket or a sentence.', max_length=255)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'subscriptions',
                'ordering': ['pattern', 'id'],
            },
        ),
        migrations.CreateModel(
            name='SubscriptionEvent',
            fields=[
                ('pgh_id', models.AutoField(primary_key=True, serialize=False)),
                ('pgh_created_at', models.DateTimeField(auto_now_add=True)),
                ('pgh_label', models.TextField(help_text='The event label.')),
                ('id', models.BigIntegerField()),
                ('recipient', models.CharField(blank=True, db_default='', default='', help_text='Such as mail:ann@example.com; empty for a subscription of an owner.', max_length=512)),
                ('pattern', models.CharField(help_text='Such as //depot/project/... or //depot/lib/*.c', max_length=1024)),
                ('author', models.CharField(blank=True, db_default='', default='', help_text='Only changes of this author, as named by the version control; empty: of any author.', max_length=255)),
                ('reason', models.CharField(blank=True, db_default='', default='', help_text='Why: a ticket or a sentence.', max_length=255)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'verbose_name': 'subscription edit',
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='TeamRule',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(help_text='What findings cite it by, such as no-raw-sql.', max_length=40, unique=True, validators=[django.core.validators.RegexValidator('^[a-z][a-z0-9-]*$', 'Use small letters, digits and hyphens.')])),
                ('pattern', models.CharField(help_text='Such as //depot/project/... or //depot/a/*.sql', max_length=1024)),
                ('severity', models.CharField(choices=[('critical', 'critical'), ('high', 'high'), ('medium', 'medium'), ('low', 'low')], default='medium', help_text='The least that a finding counts which cites the rule.', max_length=8)),
                ('text', models.CharField(help_text='What code must or must not do, and when.', max_length=600)),
                ('good', models.CharField(blank=True, db_default='', max_length=300, verbose_name='good example')),
                ('bad', models.CharField(blank=True, db_default='', max_length=300, verbose_name='bad example')),
                ('owner', models.CharField(help_text='The person or team to ask about it.', max_length=150)),
                ('since', models.DateField(default=reviews.models.rules.today, help_text='Changes fetched from this day on are reviewed by it.')),
                ('reason', models.CharField(help_text='Why this rule exists: a ticket or a sentence.', max_length=255)),
            ],
            options={
                'verbose_name': 'team rule',
                'verbose_name_plural': 'team rules',
                'db_table': 'team_rules',
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='TeamRuleEvent',
            fields=[
                ('pgh_id', models.AutoField(primary_key=True, serialize=False)),
                ('pgh_created_at', models.DateTimeField(auto_now_add=True)),
                ('pgh_label', models.TextField(help_text='The event label.')),
                ('id', models.BigIntegerField()),
                ('name', models.CharField(help_text='What findings cite it by, such as no-raw-sql.', max_length=40, validators=[django.core.validators.RegexValidator('^[a-z][a-z0-9-]*$', 'Use small letters, digits and hyphens.')])),
                ('pattern', models.CharField(help_text='Such as //depot/project/... or //depot/a/*.sql', max_length=1024)),
                ('severity', models.CharField(choices=[('critical', 'critical'), ('high', 'high'), ('medium', 'medium'), ('low', 'low')], default='medium', help_text='The least that a finding counts which cites the rule.', max_length=8)),
                ('text', models.CharField(help_text='What code must or must not do, and when.', max_length=600)),
                ('good', models.CharField(blank=True, db_default='', max_length=300, verbose_name='good example')),
                ('bad', models.CharField(blank=True, db_default='', max_length=300, verbose_name='bad example')),
                ('owner', models.CharField(help_text='The person or team to ask about it.', max_length=150)),
                ('since', models.DateField(default=reviews.models.rules.today, help_text='Changes fetched from this day on are reviewed by it.')),
                ('reason', models.CharField(help_text='Why this rule exists: a ticket or a sentence.', max_length=255)),
            ],
            options={
                'verbose_name': 'rule edit',
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='TokenUse',
            fields=[
                ('pk', models.CompositePrimaryKey('day', 'source', 'shard', blank=True, editable=False, primary_key=True, serialize=False)),
                ('day', models.DateField()),
                ('source', models.CharField(max_length=128)),
                ('shard', models.SmallIntegerField()),
                ('tokens', models.BigIntegerField()),
            ],
            options={
                'db_table': 'token_uses',
            },
        ),
        migrations.CreateModel(
            name='ViewerScope',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('prefix', models.CharField(help_text='Such as //depot/project/...', max_length=1024)),
                ('reason', models.CharField(help_text='Why: a ticket or a sentence.', max_length=255)),
            ],
            options={
                'verbose_name': 'viewing scope',
                'db_table': 'viewer_scopes',
                'ordering': ['group', 'prefix'],
                'permissions': [('view_all_files', 'Can see the files of every review')],
            },
        ),
        migrations.CreateModel(
            name='ViewerScopeEvent',
            fields=[
                ('pgh_id', models.AutoField(primary_key=True, serialize=False)),
                ('pgh_created_at', models.DateTimeField(auto_now_add=True)),
                ('pgh_label', models.TextField(help_text='The event label.')),
                ('id', models.BigIntegerField()),
                ('prefix', models.CharField(help_text='Such as //depot/project/...', max_length=1024)),
                ('reason', models.CharField(help_text='Why: a ticket or a sentence.', max_length=255)),
            ],
            options={
                'verbose_name': 'viewing-scope edit',
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='AgentSubmission',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('verdict', models.CharField(choices=[('accepted', 'Accepted'), ('accepted_as_failed', 'Accepted as a failure: the second that could not be used'), ('duplicate', 'Repeats an accepted one'), ('not_json', 'Refused: no JSON'), ('invalid', 'Refused: does not follow the schema'), ('claim_lost', "Refused: the claim is another one's"), ('done', 'Refused: the task was completed'), ('expired', 'Refused: the task has expired')], max_length=18)),
                ('sha256', models.CharField(max_length=64)),
                ('size_bytes', models.IntegerField()),
                ('key', models.CharField(max_length=64)),
                ('client', models.CharField(blank=True, db_default='', max_length=64)),
                ('late_by_ms', models.BigIntegerField(blank=True, null=True)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('task', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='submissions', to='reviews.agenttask')),
            ],
            options={
                'verbose_name': 'submission of an agent',
                'verbose_name_plural': 'submissions of agents',
                'db_table': 'agent_submissions',
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='AllowListEntry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('include', 'Include'), ('exclude', 'Exclude')], default='include', max_length=7)),
                ('pattern', models.CharField(help_text='Such as //depot/project/...', max_length=1024)),
                ('position', models.IntegerField(default=0, help_text='The last matching line decides.')),
                ('reason', models.CharField(help_text='Why this line exists: a ticket or a sentence.', max_length=255)),
            ],
            options={
                'verbose_name': 'allow-list entry',
                'verbose_name_plural': 'allow-list entries',
                'db_table': 'allow_list_entries',
                'ordering': ['position', 'id'],
                'constraints': [models.UniqueConstraint(fields=('kind', 'pattern'), name='allow_list_once')],
            },
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='allowlistentry',
            trigger=pgtrigger.compiler.Trigger(name='insert_insert', sql=pgtrigger.compiler.UpsertTriggerSql(func='INSERT INTO "reviews_allowlistentryevent" ("id", "kind", "pattern", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "position", "reason") VALUES (NEW."id", NEW."kind", NEW."pattern", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."position", NEW."reason"); RETURN NULL;', hash='d7bd84c63c99f389c80fefd974bc48f9b8baa7ad', operation='INSERT', pgid='pgtrigger_insert_insert_2fd40', table='allow_list_entries', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='allowlistentry',
            trigger=pgtrigger.compiler.Trigger(name='update_update', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD.* IS DISTINCT FROM NEW.*)', func='INSERT INTO "reviews_allowlistentryevent" ("id", "kind", "pattern", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "position", "reason") VALUES (NEW."id", NEW."kind", NEW."pattern", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."position", NEW."reason"); RETURN NULL;', hash='e3e9f5284dae58d644e9a787350a2f48651d2583', operation='UPDATE', pgid='pgtrigger_update_update_dcd4a', table='allow_list_entries', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='allowlistentry',
            trigger=pgtrigger.compiler.Trigger(name='delete_delete', sql=pgtrigger.compiler.UpsertTriggerSql(func='INSERT INTO "reviews_allowlistentryevent" ("id", "kind", "pattern", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "position", "reason") VALUES (OLD."id", OLD."kind", OLD."pattern", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."position", OLD."reason"); RETURN NULL;', hash='7fc986885cbb0a3aad9276f0d3fb2a06034ca356', operation='DELETE', pgid='pgtrigger_delete_delete_c6f46', table='allow_list_entries', when='AFTER')),
        ),
        migrations.AddField(
            model_name='allowlistentryevent',
            name='pgh_context',
            field=models.ForeignKey(db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='pghistory.context'),
        ),
        migrations.AddField(
            model_name='allowlistentryevent',
            name='pgh_obj',
            field=models.ForeignKey(db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, to='reviews.allowlistentry'),
        ),
        migrations.AddConstraint(
            model_name='apikey',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('role', 'agent'), _negated=True), models.Q(('prefixes', []), _negated=True), _connector='OR'), name='api_keys_agents_have_prefixes'),
        ),
        migrations.AddConstraint(
            model_name='auditseal',
            constraint=models.UniqueConstraint(fields=('table', 'from_id'), name='audit_seals_one_chain'),
        ),
        migrations.AddConstraint(
            model_name='auditseal',
            constraint=models.CheckConstraint(condition=models.Q(('to_id__gt', models.F('from_id'))), name='audit_seals_forward'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='auditseal',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='e46c8f064b8f7fb1857a404694597bc16c486033', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_f0247', table='audit_seals', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='auditseal',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % cannot be truncated', TG_TABLE_NAME;", hash='76e4e9cf5b6202c03568fac98f107bd8bcd5f341', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_7ddaa', table='audit_seals', when='BEFORE')),
        ),
        migrations.AddField(
            model_name='findingevent',
            name='matches',
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='matched', to='reviews.findingevent'),
        ),
        migrations.AddField(
            model_name='findingfate',
            name='attempt',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='reviews.attempt'),
        ),
        migrations.AddField(
            model_name='findingfate',
            name='merged_into',
            field=models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='reviews.findingfate'),
        ),
        migrations.AddField(
            model_name='findingrow',
            name='fate',
            field=models.OneToOneField(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='finding', to='reviews.findingfate'),
        ),
        migrations.AddIndex(
            model_name='hostchange',
            index=models.Index(fields=['changelist_id'], name='host_changes_changelist'),
        ),
        migrations.AddIndex(
            model_name='hostchange',
            index=models.Index(fields=['host', 'installation_id'], name='host_changes_installation'),
        ),
        migrations.AddConstraint(
            model_name='hostchange',
            constraint=models.UniqueConstraint(fields=('host', 'repository_id', 'number'), name='host_changes_once'),
        ),
        migrations.AddConstraint(
            model_name='hostinstallation',
            constraint=models.UniqueConstraint(fields=('host', 'installation_id'), name='host_installations_once'),
        ),
        migrations.AddConstraint(
            model_name='hostrefusal',
            constraint=models.UniqueConstraint(fields=('host', 'reason'), name='host_refusals_once'),
        ),
        migrations.AddField(
            model_name='hostversion',
            name='change',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='reviews.hostchange'),
        ),
        migrations.AddField(
            model_name='hostcheck',
            name='version',
            field=models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='check_run', to='reviews.hostversion'),
        ),
        migrations.AddField(
            model_name='ledgerentry',
            name='attempt',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='reviews.attempt'),
        ),
        migrations.AddIndex(
            model_name='reviewjob',
            index=models.Index(fields=['-created_at', '-id'], name='jobs_newest'),
        ),
        migrations.AddIndex(
            model_name='reviewjob',
            index=models.Index(condition=models.Q(('finished_at__isnull', False)), fields=['-finished_at', '-id'], name='jobs_finished'),
        ),
        migrations.AddIndex(
            model_name='reviewjob',
            index=models.Index(condition=models.Q(('is_late', True)), fields=['-created_at', '-id'], name='jobs_late'),
        ),
        migrations.AddIndex(
            model_name='reviewjob',
            index=models.Index(condition=models.Q(('author', ''), _negated=True), fields=['author', '-created_at'], name='jobs_of_author'),
        ),
        migrations.AddIndex(
            model_name='reviewjob',
            index=django.contrib.postgres.indexes.GinIndex(django.contrib.postgres.search.SearchVector('title', 'author', config='simple'), condition=models.Q(('finished_at__isnull', False)), name='jobs_words'),
        ),
        migrations.AddConstraint(
            model_name='reviewjob',
            constraint=models.UniqueConstraint(fields=('idempotency_key', 'series'), name='jobs_one_per_key'),
        ),
        migrations.AddConstraint(
            model_name='reviewjob',
            constraint=models.UniqueConstraint(fields=('changelist_id', 'review_version', 'series'), name='jobs_one_per_version'),
        ),
        migrations.AddConstraint(
            model_name='reviewjob',
            constraint=models.CheckConstraint(condition=models.Q(('review_version__gt', 0)), name='jobs_version_positive'),
        ),
        migrations.AddConstraint(
            model_name='reviewjob',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('finished_at__isnull', True), ('status__in', ['queued', 'in_progress', 'retryable_failed'])), models.Q(models.Q(('status__in', ['queued', 'in_progress', 'retryable_failed']), _negated=True), ('finished_at__isnull', False)), _connector='OR'), name='jobs_final_is_finished'),
        ),
        migrations.AddIndex(
            model_name='reviewjob',
            index=models.Index(condition=models.Q(('finished_at__isnull', False)), fields=['-created_at', '-id'], name='jobs_ended_newest'),
        ),
        migrations.AddConstraint(
            model_name='reviewjob',
            constraint=models.UniqueConstraint(condition=models.Q(('finished_at__isnull', True)), fields=('changelist_id', 'series'), name='jobs_one_unfinished_version'),
        ),
        migrations.AddIndex(
            model_name='reviewjob',
            index=models.Index(condition=models.Q(('finished_at__isnull', True)), fields=['deadline_at', 'id'], name='jobs_unfinished_by_deadline'),
        ),
        migrations.AddIndex(
            model_name='reviewjob',
            index=models.Index(condition=models.Q(('ended_as', ''), _negated=True), fields=['ended_as', '-created_at', '-id'], name='jobs_ended_otherwise'),
        ),
        migrations.AddIndex(
            model_name='reviewjob',
            index=django.contrib.postgres.indexes.GinIndex(django.contrib.postgres.search.SearchVector('title', 'author', config='simple'), condition=models.Q(('finished_at__isnull', True), models.Q(('author', ''), ('title', ''), _negated=True)), name='jobs_words_unfinished'),
        ),
        migrations.AddField(
            model_name='repositoryconfiguration',
            name='job',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='reviews.reviewjob'),
        ),
        migrations.AddField(
            model_name='linterresultrow',
            name='job',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='linter_results', to='reviews.reviewjob'),
        ),
        migrations.AddField(
            model_name='ledgerentry',
            name='job',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='token_ledger', to='reviews.reviewjob'),
        ),
        migrations.AddField(
            model_name='jobevent',
            name='job',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='events', to='reviews.reviewjob'),
        ),
        migrations.AddField(
            model_name='hostversion',
            name='job',
            field=models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='host_version', to='reviews.reviewjob'),
        ),
        migrations.AddField(
            model_name='hostdelivery',
            name='job',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='host_deliveries', to='reviews.reviewjob'),
        ),
        migrations.AddField(
            model_name='hostdelivery',
            name='comment',
            field=models.BigIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='findingrow',
            name='ended_in',
            field=models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='ended_findings', to='reviews.reviewjob'),
        ),
        migrations.AddField(
            model_name='findingrow',
            name='job',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='findings', to='reviews.reviewjob'),
        ),
        migrations.AddField(
            model_name='findingfate',
            name='job',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='fates', to='reviews.reviewjob'),
        ),
        migrations.AddField(
            model_name='findingevent',
            name='job',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='finding_events', to='reviews.reviewjob'),
        ),
        migrations.AddField(
            model_name='coveragerow',
            name='job',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='coverage', to='reviews.reviewjob'),
        ),
        migrations.AddField(
            model_name='artifact',
            name='job',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='artifacts', to='reviews.reviewjob'),
        ),
        migrations.AddField(
            model_name='agenttask',
            name='job',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='agent_tasks', to='reviews.reviewjob'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='reviewjob',
            trigger=pgtrigger.compiler.Trigger(name='status_fsm', sql=pgtrigger.compiler.UpsertTriggerSql(declare='DECLARE _is_valid_transition BOOLEAN;', func='SELECT CONCAT(OLD."status", \':\', NEW."status") = ANY(\'{queued:in_progress,in_progress:retryable_failed,retryable_failed:in_progress,in_progress:succeeded,dead_lettered:queued,timed_out:queued,queued:dead_lettered,queued:timed_out,queued:cancelled,queued:superseded,in_progress:dead_lettered,in_progress:timed_out,in_progress:cancelled,in_progress:superseded,retryable_failed:dead_lettered,retryable_failed:timed_out,retryable_failed:cancelled,retryable_failed:superseded}\'::text[]) INTO _is_valid_transition; IF (_is_valid_transition IS FALSE AND OLD."status" IS DISTINCT FROM NEW."status") THEN RAISE EXCEPTION \'pgtrigger: Invalid transition of field "status" from "%" to "%" on table %\', OLD."status", NEW."status", TG_TABLE_NAME; ELSE RETURN NEW; END IF;', hash='22f7ea5854b211f717d6571f8f23e0c17d9152a0', operation='UPDATE', pgid='pgtrigger_status_fsm_6e989', table='jobs', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='reviewjob',
            trigger=pgtrigger.compiler.Trigger(name='replayed_with_its_letter', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (NEW."status" = \'queued\' AND OLD."status" = \'dead_lettered\')', func="\n            IF NOT EXISTS (SELECT FROM public.dead_letters l\n                            WHERE l.job_id = NEW.id AND l.status = 'replaying') THEN\n              RAISE EXCEPTION 'job %: no letter of it is being replayed', NEW.id;\n            END IF;\n            RETURN NEW;", hash='33ef836a7aca2713a330146eeef0c4e5e0d75f4b', operation='UPDATE', pgid='pgtrigger_replayed_with_its_letter_bd665', table='jobs', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='reviewjob',
            trigger=pgtrigger.compiler.Trigger(name='keeps_how_it_ended', sql=pgtrigger.compiler.UpsertTriggerSql(condition="WHEN (NEW.ended_as <> CASE WHEN NEW.status IN ('dead_lettered', 'timed_out', 'cancelled', 'superseded') THEN NEW.status ELSE '' END)", func="NEW.ended_as := CASE WHEN NEW.status IN ('dead_lettered', 'timed_out', 'cancelled', 'superseded') THEN NEW.status ELSE '' END; RETURN NEW;", hash='214c7cc06c4c92b27a24a13d325d3fe3f5397fa3', operation='INSERT OR UPDATE', pgid='pgtrigger_keeps_how_it_ended_31cbf', table='jobs', when='BEFORE')),
        ),
        migrations.AddField(
            model_name='reviewunit',
            name='made_by',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='units', to='reviews.reviewjob'),
        ),
        migrations.AddField(
            model_name='ruleuse',
            name='job',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='rule_uses', to='reviews.reviewjob'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='skippedpath',
            trigger=pgtrigger.compiler.Trigger(name='insert_insert', sql=pgtrigger.compiler.UpsertTriggerSql(func='INSERT INTO "reviews_skippedpathevent" ("id", "pattern", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reason") VALUES (NEW."id", NEW."pattern", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."reason"); RETURN NULL;', hash='a27db641d58d7c86e004c0c72fdde347083dc5e1', operation='INSERT', pgid='pgtrigger_insert_insert_bb294', table='skipped_paths', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='skippedpath',
            trigger=pgtrigger.compiler.Trigger(name='update_update', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD.* IS DISTINCT FROM NEW.*)', func='INSERT INTO "reviews_skippedpathevent" ("id", "pattern", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reason") VALUES (NEW."id", NEW."pattern", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."reason"); RETURN NULL;', hash='848b5d16efa9c365c3f71ef8650ea5e8c40ac9b4', operation='UPDATE', pgid='pgtrigger_update_update_fc71a', table='skipped_paths', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='skippedpath',
            trigger=pgtrigger.compiler.Trigger(name='delete_delete', sql=pgtrigger.compiler.UpsertTriggerSql(func='INSERT INTO "reviews_skippedpathevent" ("id", "pattern", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reason") VALUES (OLD."id", OLD."pattern", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."reason"); RETURN NULL;', hash='c2244f031c8bb80124ab370fe93d4d59260022b9', operation='DELETE', pgid='pgtrigger_delete_delete_ffac7', table='skipped_paths', when='AFTER')),
        ),
        migrations.AddField(
            model_name='skippedpathevent',
            name='pgh_context',
            field=models.ForeignKey(db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='pghistory.context'),
        ),
        migrations.AddField(
            model_name='skippedpathevent',
            name='pgh_obj',
            field=models.ForeignKey(db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, to='reviews.skippedpath'),
        ),
        migrations.AddField(
            model_name='sourceevent',
            name='job',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='source_events', to='reviews.reviewjob'),
        ),
        migrations.AddField(
            model_name='stagerun',
            name='job',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='stages', to='reviews.reviewjob'),
        ),
        migrations.AddField(
            model_name='attempt',
            name='stage_run',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='attempt_rows', to='reviews.stagerun'),
        ),
        migrations.AddField(
            model_name='agenttask',
            name='stage_run',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='reviews.stagerun'),
        ),
        migrations.AddField(
            model_name='subscription',
            name='owner',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='subscriptions', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='subscriptionevent',
            name='owner',
            field=models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', related_query_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='subscriptionevent',
            name='pgh_context',
            field=models.ForeignKey(db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='pghistory.context'),
        ),
        migrations.AddField(
            model_name='subscriptionevent',
            name='pgh_obj',
            field=models.ForeignKey(db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, to='reviews.subscription'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='teamrule',
            trigger=pgtrigger.compiler.Trigger(name='insert_insert', sql=pgtrigger.compiler.UpsertTriggerSql(func='INSERT INTO "reviews_teamruleevent" ("bad", "good", "id", "name", "owner", "pattern", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reason", "severity", "since", "text") VALUES (NEW."bad", NEW."good", NEW."id", NEW."name", NEW."owner", NEW."pattern", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."reason", NEW."severity", NEW."since", NEW."text"); RETURN NULL;', hash='c689c6fb334513e24fc73783c1c60a33207e94e0', operation='INSERT', pgid='pgtrigger_insert_insert_cf693', table='team_rules', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='teamrule',
            trigger=pgtrigger.compiler.Trigger(name='update_update', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD.* IS DISTINCT FROM NEW.*)', func='INSERT INTO "reviews_teamruleevent" ("bad", "good", "id", "name", "owner", "pattern", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reason", "severity", "since", "text") VALUES (NEW."bad", NEW."good", NEW."id", NEW."name", NEW."owner", NEW."pattern", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."reason", NEW."severity", NEW."since", NEW."text"); RETURN NULL;', hash='8fef2ec56af24a2f0f2d5981c35b0d939c81c23f', operation='UPDATE', pgid='pgtrigger_update_update_2f4b2', table='team_rules', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='teamrule',
            trigger=pgtrigger.compiler.Trigger(name='delete_delete', sql=pgtrigger.compiler.UpsertTriggerSql(func='INSERT INTO "reviews_teamruleevent" ("bad", "good", "id", "name", "owner", "pattern", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reason", "severity", "since", "text") VALUES (OLD."bad", OLD."good", OLD."id", OLD."name", OLD."owner", OLD."pattern", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."reason", OLD."severity", OLD."since", OLD."text"); RETURN NULL;', hash='ad52af9c39baf897a7ebd705410bb787db8528e7', operation='DELETE', pgid='pgtrigger_delete_delete_51f5b', table='team_rules', when='AFTER')),
        ),
        migrations.AddField(
            model_name='teamruleevent',
            name='pgh_context',
            field=models.ForeignKey(db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='pghistory.context'),
        ),
        migrations.AddField(
            model_name='teamruleevent',
            name='pgh_obj',
            field=models.ForeignKey(db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, to='reviews.teamrule'),
        ),
        migrations.AddField(
            model_name='viewerscope',
            name='group',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='viewer_scopes', to='auth.group'),
        ),
        migrations.AddField(
            model_name='viewerscopeevent',
            name='group',
            field=models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', related_query_name='+', to='auth.group'),
        ),
        migrations.AddField(
            model_name='viewerscopeevent',
            name='pgh_context',
            field=models.ForeignKey(db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='pghistory.context'),
        ),
        migrations.AddField(
            model_name='viewerscopeevent',
            name='pgh_obj',
            field=models.ForeignKey(db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, to='reviews.viewerscope'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='agentsubmission',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='912df012f4c5e74ff3756d93e15e204b9c5043ec', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_4ca75', table='agent_submissions', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='agentsubmission',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % cannot be truncated', TG_TABLE_NAME;", hash='3390d94cad27b8f8d635a02cc0c681b4b6c34590', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_32104', table='agent_submissions', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='allowlistentryevent',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='85d507c9fb51863d04898d3f20beb32f7e0f954b', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_1f676', table='reviews_allowlistentryevent', when='BEFORE')),
        ),
        migrations.AddConstraint(
            model_name='repositoryconfiguration',
            constraint=models.UniqueConstraint(fields=('root', 'branch'), name='repository_configurations_once'),
        ),
        migrations.AddConstraint(
            model_name='linterresultrow',
            constraint=models.UniqueConstraint(fields=('job', 'digest'), name='linter_results_one_each'),
        ),
        migrations.AddConstraint(
            model_name='linterresultrow',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('file__gt', ''), ('place', 'changed')), models.Q(models.Q(('place', 'changed'), _negated=True), ('file', '')), _connector='OR'), name='linter_results_file_is_known'),
        ),
        migrations.AddIndex(
            model_name='ledgerentry',
            index=models.Index(fields=['-started_at', '-id'], name='token_ledger_newest'),
        ),
        migrations.AddIndex(
            model_name='ledgerentry',
            index=models.Index(condition=models.Q(('state', 'reserved')), fields=['attempt'], name='token_ledger_reserved'),
        ),
        migrations.AddConstraint(
            model_name='ledgerentry',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('input_tokens__isnull', False), ('state', 'settled')), models.Q(models.Q(('state', 'settled'), _negated=True), ('input_tokens__isnull', True)), _connector='OR'), name='token_ledger_settled_is_reported'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='jobevent',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='815cef19cfb2ac3d4c45908be1c6b74ba68758f0', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_550a0', table='job_events', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='jobevent',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % cannot be truncated', TG_TABLE_NAME;", hash='276c96a4ea5708bc30f15ee2ea607d2794785855', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_d9f88', table='job_events', when='BEFORE')),
        ),
        migrations.AddIndex(
            model_name='hostversion',
            index=models.Index(fields=['change', 'head_sha'], name='host_versions_head'),
        ),
        migrations.AddIndex(
            model_name='hostversion',
            index=models.Index(fields=['head_sha'], name='host_versions_commit'),
        ),
        migrations.AddConstraint(
            model_name='hostversion',
            constraint=models.UniqueConstraint(condition=models.Q(('is_automatic', True), ('is_retired', False)), fields=('change', 'head_sha', 'base_ref'), name='host_versions_once'),
        ),
        migrations.AddIndex(
            model_name='hostdelivery',
            index=models.Index(fields=['-received_at', '-id'], name='host_deliveries_newest'),
        ),
        migrations.AddConstraint(
            model_name='hostdelivery',
            constraint=models.UniqueConstraint(fields=('host', 'delivery_id'), name='host_deliveries_once'),
        ),
        migrations.AddConstraint(
            model_name='hostdelivery',
            constraint=models.UniqueConstraint(condition=models.Q(('comment__isnull', False)), fields=('host', 'repository_id', 'comment'), name='host_deliveries_comment'),
        ),
        migrations.AddIndex(
            model_name='findingrow',
            index=models.Index(condition=models.Q(('excerpt__startswith', '[')), fields=['id'], name='findings_unsealed'),
        ),
        migrations.AddIndex(
            model_name='findingrow',
            index=models.Index(fields=['identity'], name='findings_identity'),
        ),
        migrations.AddIndex(
            model_name='findingrow',
            index=django.contrib.postgres.indexes.GinIndex(django.contrib.postgres.search.SearchVector(models.Func(models.F('title'), models.Value('/._-<>&'), models.Value('       '), function='translate', output_field=models.TextField()), models.Func(models.F('message'), models.Value('/._-<>&'), models.Value('       '), function='translate', output_field=models.TextField()), models.Func(models.F('file'), models.Value('/._-<>&'), models.Value('       '), function='translate', output_field=models.TextField()), config='simple'), models.Func(models.Func(models.Value('severity '), models.F('severity'), arg_joiner=' || ', template='(%(expressions)s)'), models.Func(models.Value('category '), models.F('category'), arg_joiner=' || ', template='(%(expressions)s)'), models.Func(models.Value('source '), models.Func(models.F('source'), models.Value(':'), models.Value(1), function='split_part'), arg_joiner=' || ', template='(%(expressions)s)'), output_field=django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), size=None), template='ARRAY[%(expressions)s]'), name='findings_by_words'),
        ),
        migrations.AddIndex(
            model_name='findingrow',
            index=models.Index(fields=['file'], name='findings_of_file', opclasses=['varchar_pattern_ops']),
        ),
        migrations.AddIndex(
            model_name='findingrow',
            index=models.Index(condition=models.Q(('ended_in__isnull', False)), fields=['ended_in'], name='findings_ended_in'),
        ),
        migrations.AddConstraint(
            model_name='findingfate',
            constraint=models.UniqueConstraint(fields=('attempt', 'part', 'turn', 'place'), name='finding_fates_one_each'),
        ),
        migrations.AddConstraint(
            model_name='findingfate',
            constraint=models.CheckConstraint(condition=models.Q(('fate', 'merged'), ('merged_into', None), _connector='XOR'), name='finding_fates_merged_into'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='findingfate',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='b4a41d82001fb6d92d5596a4276f02d81672309d', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_974c9', table='finding_fates', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='findingfate',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % cannot be truncated', TG_TABLE_NAME;", hash='586efc2991cda72d36c2607234b019512fe97a17', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_7db21', table='finding_fates', when='BEFORE')),
        ),
        migrations.AddIndex(
            model_name='findingevent',
            index=models.Index(fields=['identity', 'id'], name='finding_events_of_finding'),
        ),
        migrations.AddIndex(
            model_name='findingevent',
            index=models.Index(fields=['kind', 'identity'], name='finding_events_of_kind'),
        ),
        migrations.AddIndex(
            model_name='findingevent',
            index=models.Index(condition=models.Q(('is_proposal', False), ('kind__in', ('wrong', 'intended', 'wont_fix')), ('matches', None)), fields=['file', 'category'], name='finding_events_of_file'),
        ),
        migrations.AddIndex(
            model_name='findingevent',
            index=models.Index(condition=models.Q(('is_proposal', False), ('kind__in', ('wrong', 'intended', 'wont_fix')), ('matches', None), ('scope__in', ('path', 'rule', 'category'))), fields=['category'], name='finding_events_wide'),
        ),
        migrations.AddIndex(
            model_name='findingevent',
            index=models.Index(condition=models.Q(('matches__isnull', False)), fields=['matches'], name='finding_events_matched'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='findingevent',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='a97ce21be19661dccbe3e3a5377975ef932f90a2', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_0f80e', table='finding_events', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='findingevent',
            trigger=pgtrigger.compiler.Trigger(name='no_truncate', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'append-only: % cannot be truncated', TG_TABLE_NAME;", hash='ed77492fefc6552f73d32f32aee8005ced836e80', level='STATEMENT', operation='TRUNCATE', pgid='pgtrigger_no_truncate_b1980', table='finding_events', when='BEFORE')),
        ),
        migrations.AddIndex(
            model_name='coveragerow',
            index=models.Index(django.db.models.functions.comparison.Collate(django.db.models.functions.text.Lower(models.Func(models.F('file'), models.Value('[^/]*$'), function='substring', output_field=models.TextField())), 'C'), name='coverage_of_name'),
        ),
        migrations.AddIndex(
            model_name='artifact',
            index=models.Index(condition=models.Q(('deleted_at__isnull', True)), fields=['expires_at'], name='artifacts_due'),
        ),
        migrations.AddIndex(
            model_name='artifact',
            index=models.Index(models.OrderBy(models.F('checked_at'), nulls_first=True), condition=models.Q(('deleted_at__isnull', True)), name='artifacts_to_check'),
        ),
        migrations.AddIndex(
            model_name='reviewunit',
            index=models.Index(fields=['made_at'], name='review_units_made_at'),
        ),
        migrations.AddIndex(
            model_name='ruleuse',
            index=models.Index(condition=models.Q(('name__startswith', '//'), _negated=True), fields=['name'], name='rule_uses_of_team'),
        ),
        migrations.AddConstraint(
            model_name='ruleuse',
            constraint=models.UniqueConstraint(fields=('job', 'name'), name='rule_uses_once'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='skippedpathevent',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='54e848de389d5af7288e94c33519b7d727eaa03d', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_5992e', table='reviews_skippedpathevent', when='BEFORE')),
        ),
        migrations.AddIndex(
            model_name='sourceevent',
            index=models.Index(fields=['-received_at', '-id'], name='source_events_newest'),
        ),
        migrations.AddIndex(
            model_name='sourceevent',
            index=models.Index(fields=['changelist_id', 'event', '-id'], name='source_events_of'),
        ),
        migrations.AddConstraint(
            model_name='sourceevent',
            constraint=models.UniqueConstraint(condition=models.Q(models.Q(('event', 'shelve-commit'), _negated=True), models.Q(('outcome', 'refused'), _negated=True), ('origin', 'trigger')), fields=('server', 'event', 'changelist_id'), name='source_events_submit_once'),
        ),
        migrations.AddIndex(
            model_name='stagerun',
            index=models.Index(condition=models.Q(('error_class', ''), _negated=True), fields=['error_class', 'job'], name='stage_runs_failed'),
        ),
        migrations.AddConstraint(
            model_name='stagerun',
            constraint=models.UniqueConstraint(fields=('job', 'stage'), name='stage_runs_one_per_stage'),
        ),
        migrations.AddConstraint(
            model_name='stagerun',
            constraint=models.CheckConstraint(condition=models.Q(('attempts__lte', models.F('max_attempts'))), name='stage_runs_budget'),
        ),
        migrations.AddConstraint(
            model_name='stagerun',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['pending', 'running', 'retry_wait']), ('progress', {}), _connector='OR'), name='stage_runs_ended_without_progress'),
        ),
        migrations.AddConstraint(
            model_name='stagerun',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('lease_expires_at__isnull', False), ('lease_token__isnull', False), ('status', 'running')), models.Q(models.Q(('status', 'running'), _negated=True), ('lease_token__isnull', True)), _connector='OR'), name='stage_runs_running_is_leased'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='stagerun',
            trigger=pgtrigger.compiler.Trigger(name='status_fsm', sql=pgtrigger.compiler.UpsertTriggerSql(declare='DECLARE _is_valid_transition BOOLEAN;', func='SELECT CONCAT(OLD."status", \':\', NEW."status") = ANY(\'{pending:running,retry_wait:running,running:succeeded,running:retry_wait,running:failed,pending:failed,retry_wait:failed,running:pending,failed:pending,succeeded:pending,cancelled:pending,cancelled:succeeded,pending:cancelled,running:cancelled,retry_wait:cancelled}\'::text[]) INTO _is_valid_transition; IF (_is_valid_transition IS FALSE AND OLD."status" IS DISTINCT FROM NEW."status") THEN RAISE EXCEPTION \'pgtrigger: Invalid transition of field "status" from "%" to "%" on table %\', OLD."status", NEW."status", TG_TABLE_NAME; ELSE RETURN NEW; END IF;', hash='e415a41b54504a35130841bbe2746a17e729814c', operation='UPDATE', pgid='pgtrigger_status_fsm_ae792', table='stage_runs', when='BEFORE')),
        ),
        migrations.AddIndex(
            model_name='attempt',
            index=models.Index(fields=['-started_at', '-id'], name='attempts_newest'),
        ),
        migrations.AddIndex(
            model_name='attempt',
            index=models.Index(condition=models.Q(('error_class', ''), _negated=True), fields=['error_class', '-started_at', '-id'], name='attempts_failed'),
        ),
        migrations.AddIndex(
            model_name='agenttask',
            index=models.Index(condition=models.Q(('status__in', ['pending', 'in_progress'])), fields=['created_at', 'ordinal', 'id'], name='agent_tasks_open'),
        ),
        migrations.AddIndex(
            model_name='agenttask',
            index=models.Index(fields=['-created_at', '-id'], name='agent_tasks_newest'),
        ),
        migrations.AddConstraint(
            model_name='agenttask',
            constraint=models.UniqueConstraint(fields=('stage_run', 'type', 'ordinal'), name='agent_tasks_once'),
        ),
        migrations.AddConstraint(
            model_name='agenttask',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('lease_expires_at__isnull', False), ('status', 'in_progress'), models.Q(('claim_sha256', ''), _negated=True)), models.Q(models.Q(('status', 'in_progress'), _negated=True), ('lease_expires_at__isnull', True)), _connector='OR'), name='agent_tasks_claimed_are_leased'),
        ),
        migrations.AddIndex(
            model_name='agenttask',
            index=models.Index(models.Func(models.F('directories'), output_field=models.TextField(), template="(split_part((%(expressions)s)[1], '/', 3))"), models.F('created_at'), models.F('ordinal'), models.F('id'), condition=models.Q(('status__in', ['pending', 'in_progress'])), name='agent_tasks_open_below_1'),
        ),
        migrations.AddIndex(
            model_name='agenttask',
            index=models.Index(models.Func(models.F('directories'), output_field=models.TextField(), template="(split_part((%(expressions)s)[1], '/', 3) || '/' || split_part((%(expressions)s)[1], '/', 4))"), models.F('created_at'), models.F('ordinal'), models.F('id'), condition=models.Q(('status__in', ['pending', 'in_progress'])), name='agent_tasks_open_below_2'),
        ),
        migrations.AddIndex(
            model_name='agenttask',
            index=models.Index(models.Func(models.F('directories'), output_field=models.TextField(), template="(split_part((%(expressions)s)[1], '/', 3) || '/' || split_part((%(expressions)s)[1], '/', 4) || '/' || split_part((%(expressions)s)[1], '/', 5))"), models.F('created_at'), models.F('ordinal'), models.F('id'), condition=models.Q(('status__in', ['pending', 'in_progress'])), name='agent_tasks_open_below_3'),
        ),
        migrations.AddIndex(
            model_name='agenttask',
            index=models.Index(fields=['expires_at'], name='agent_tasks_by_expiry'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='agenttask',
            trigger=pgtrigger.compiler.Trigger(name='status_fsm', sql=pgtrigger.compiler.UpsertTriggerSql(declare='DECLARE _is_valid_transition BOOLEAN;', func='SELECT CONCAT(OLD."status", \':\', NEW."status") = ANY(\'{pending:in_progress,in_progress:pending,in_progress:completed,in_progress:failed,pending:expired,pending:cancelled,in_progress:expired,in_progress:cancelled,completed:pending,failed:pending,expired:pending,cancelled:pending}\'::text[]) INTO _is_valid_transition; IF (_is_valid_transition IS FALSE AND OLD."status" IS DISTINCT FROM NEW."status") THEN RAISE EXCEPTION \'pgtrigger: Invalid transition of field "status" from "%" to "%" on table %\', OLD."status", NEW."status", TG_TABLE_NAME; ELSE RETURN NEW; END IF;', hash='a29122ecb7ec3ee635fa4899b15e7ae2f7d9cc79', operation='UPDATE', pgid='pgtrigger_status_fsm_57443', table='agent_tasks', when='BEFORE')),
        ),
        migrations.AddConstraint(
            model_name='subscription',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('owner__isnull', True), models.Q(('recipient', ''), _negated=True)), models.Q(('owner__isnull', False), ('recipient', '')), _connector='OR'), name='subscriptions_one_reader'),
        ),
        migrations.AddConstraint(
            model_name='subscription',
            constraint=models.CheckConstraint(condition=models.Q(('pattern__startswith', '//')), name='subscriptions_depot_path'),
        ),
        migrations.AddConstraint(
            model_name='subscription',
            constraint=models.UniqueConstraint(condition=models.Q(('owner__isnull', True)), fields=('recipient', 'pattern', 'author'), name='subscriptions_once'),
        ),
        migrations.AddConstraint(
            model_name='subscription',
            constraint=models.UniqueConstraint(condition=models.Q(('owner__isnull', False)), fields=('owner', 'pattern', 'author'), name='subscriptions_once_an_owner'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='subscription',
            trigger=pgtrigger.compiler.Trigger(name='insert_insert', sql=pgtrigger.compiler.UpsertTriggerSql(func='INSERT INTO "reviews_subscriptionevent" ("author", "created_at", "id", "owner_id", "pattern", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reason", "recipient") VALUES (NEW."author", NEW."created_at", NEW."id", NEW."owner_id", NEW."pattern", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."reason", NEW."recipient"); RETURN NULL;', hash='87498fba8f527ea7599740b51736a1d5dee92d26', operation='INSERT', pgid='pgtrigger_insert_insert_71b00', table='subscriptions', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='subscription',
            trigger=pgtrigger.compiler.Trigger(name='update_update', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD.* IS DISTINCT FROM NEW.*)', func='INSERT INTO "reviews_subscriptionevent" ("author", "created_at", "id", "owner_id", "pattern", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reason", "recipient") VALUES (NEW."author", NEW."created_at", NEW."id", NEW."owner_id", NEW."pattern", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."reason", NEW."recipient"); RETURN NULL;', hash='88007253a1f58f4c464291e21f2970bfbb309c96', operation='UPDATE', pgid='pgtrigger_update_update_f24cc', table='subscriptions', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='subscription',
            trigger=pgtrigger.compiler.Trigger(name='delete_delete', sql=pgtrigger.compiler.UpsertTriggerSql(func='INSERT INTO "reviews_subscriptionevent" ("author", "created_at", "id", "owner_id", "pattern", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reason", "recipient") VALUES (OLD."author", OLD."created_at", OLD."id", OLD."owner_id", OLD."pattern", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."reason", OLD."recipient"); RETURN NULL;', hash='e5a2f544a3737083148713a4e7b5f11e72348a7d', operation='DELETE', pgid='pgtrigger_delete_delete_351b5', table='subscriptions', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='subscriptionevent',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='acf6a2b215d6f58ca1b88616c3cfea5d13f38cff', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_02e60', table='reviews_subscriptionevent', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='teamruleevent',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='32f5a5fcb205470385a2fc60740cc380293e7456', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_9725f', table='reviews_teamruleevent', when='BEFORE')),
        ),
        migrations.AddConstraint(
            model_name='viewerscope',
            constraint=models.UniqueConstraint(fields=('group', 'prefix'), name='viewer_scopes_once'),
        ),
        migrations.AddConstraint(
            model_name='viewerscope',
            constraint=models.CheckConstraint(condition=models.Q(('prefix__startswith', '//'), ('prefix__endswith', '/...')), name='viewer_scopes_trees'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='viewerscope',
            trigger=pgtrigger.compiler.Trigger(name='insert_insert', sql=pgtrigger.compiler.UpsertTriggerSql(func='INSERT INTO "reviews_viewerscopeevent" ("group_id", "id", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "prefix", "reason") VALUES (NEW."group_id", NEW."id", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."prefix", NEW."reason"); RETURN NULL;', hash='1385c5563d1bc9d70196e1fc35180b856dea0a75', operation='INSERT', pgid='pgtrigger_insert_insert_ce1de', table='viewer_scopes', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='viewerscope',
            trigger=pgtrigger.compiler.Trigger(name='update_update', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD.* IS DISTINCT FROM NEW.*)', func='INSERT INTO "reviews_viewerscopeevent" ("group_id", "id", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "prefix", "reason") VALUES (NEW."group_id", NEW."id", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."prefix", NEW."reason"); RETURN NULL;', hash='a5916f01f3b57075e435e4f138fadfbf6a431216', operation='UPDATE', pgid='pgtrigger_update_update_f18ed', table='viewer_scopes', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='viewerscope',
            trigger=pgtrigger.compiler.Trigger(name='delete_delete', sql=pgtrigger.compiler.UpsertTriggerSql(func='INSERT INTO "reviews_viewerscopeevent" ("group_id", "id", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "prefix", "reason") VALUES (OLD."group_id", OLD."id", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."prefix", OLD."reason"); RETURN NULL;', hash='3114a5ec84e60bbea9ffb2fb1ee741de24ad3b59', operation='DELETE', pgid='pgtrigger_delete_delete_8d112', table='viewer_scopes', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='viewerscopeevent',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='a5523ee5fd88abc8b315056aa5620b5c1553bf90', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_4edb6', table='reviews_viewerscopeevent', when='BEFORE')),
        ),
        migrations.CreateModel(
            name='Scan',
            fields=[
                ('job', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='scan', serialize=False, to='reviews.reviewjob')),
            ],
            options={
                'db_table': 'scans',
            },
        ),
        migrations.CreateModel(
            name='ScanTargetEvent',
            fields=[
                ('pgh_id', models.AutoField(primary_key=True, serialize=False)),
                ('pgh_created_at', models.DateTimeField(auto_now_add=True)),
                ('pgh_label', models.TextField(help_text='The event label.')),
                ('id', models.BigIntegerField()),
                ('path', models.CharField(help_text='Such as //app/... for the git repository app, or //app/docs/... for a folder of it.', max_length=1024)),
                ('every_hours', models.PositiveIntegerField(default=0, help_text='How often it is scanned; 0: only when it is asked for.', validators=[django.core.validators.MaxValueValidator(8760)], verbose_name='every (hours)')),
                ('recipients', models.TextField(blank=True, db_default='', help_text='Who is notified of each scan, one a line, such as mail:ann@example.com. Empty: no one.')),
                ('reason', models.CharField(help_text='Why it is scanned: a ticket or a sentence.', max_length=255)),
            ],
            options={
                'verbose_name': 'scanned-path edit',
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='ScanDocument',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('digest', models.CharField(max_length=64)),
                ('path', models.CharField(max_length=1024)),
                ('total', models.IntegerField(db_default=0)),
                ('verified_at', models.DateTimeField(blank=True, null=True)),
                ('unread', models.CharField(blank=True, db_default='', max_length=64)),
                ('holds', models.IntegerField(db_default=0)),
                ('refuted', models.IntegerField(db_default=0)),
                ('ambiguous', models.IntegerField(db_default=0)),
                ('uncheckable', models.IntegerField(db_default=0)),
                ('claims', models.JSONField(db_default=[], default=list)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('scan', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='documents', to='reviews.scan')),
            ],
            options={
                'db_table': 'scan_documents',
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='ScanTarget',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('path', models.CharField(help_text='Such as //app/... for the git repository app, or //app/docs/... for a folder of it.', max_length=1024, unique=True)),
                ('every_hours', models.PositiveIntegerField(default=0, help_text='How often it is scanned; 0: only when it is asked for.', validators=[django.core.validators.MaxValueValidator(8760)], verbose_name='every (hours)')),
                ('recipients', models.TextField(blank=True, db_default='', help_text='Who is notified of each scan, one a line, such as mail:ann@example.com. Empty: no one.')),
                ('reason', models.CharField(help_text='Why it is scanned: a ticket or a sentence.', max_length=255)),
                ('next_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('problem', models.CharField(blank=True, db_default='', editable=False, max_length=512)),
            ],
            options={
                'verbose_name': 'scanned path',
                'db_table': 'scan_targets',
                'ordering': ['path'],
                'indexes': [models.Index(condition=models.Q(('every_hours__gt', 0)), fields=['next_at'], name='scan_targets_scheduled')],
            },
        ),
        migrations.AddField(
            model_name='scan',
            name='target',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='scans', to='reviews.scantarget'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='scantarget',
            trigger=pgtrigger.compiler.Trigger(name='insert_insert', sql=pgtrigger.compiler.UpsertTriggerSql(func='INSERT INTO "reviews_scantargetevent" ("every_hours", "id", "path", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reason", "recipients") VALUES (NEW."every_hours", NEW."id", NEW."path", _pgh_attach_context(), NOW(), \'insert\', NEW."id", NEW."reason", NEW."recipients"); RETURN NULL;', hash='d8c7d0b96e0ec512732356cec590a1e385b4f483', operation='INSERT', pgid='pgtrigger_insert_insert_16a31', table='scan_targets', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='scantarget',
            trigger=pgtrigger.compiler.Trigger(name='update_update', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."every_hours" IS DISTINCT FROM (NEW."every_hours") OR OLD."id" IS DISTINCT FROM (NEW."id") OR OLD."path" IS DISTINCT FROM (NEW."path") OR OLD."reason" IS DISTINCT FROM (NEW."reason") OR OLD."recipients" IS DISTINCT FROM (NEW."recipients"))', func='INSERT INTO "reviews_scantargetevent" ("every_hours", "id", "path", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reason", "recipients") VALUES (NEW."every_hours", NEW."id", NEW."path", _pgh_attach_context(), NOW(), \'update\', NEW."id", NEW."reason", NEW."recipients"); RETURN NULL;', hash='763ee8194747bc50b18c1e1a70f21505283e6065', operation='UPDATE', pgid='pgtrigger_update_update_4bcaf', table='scan_targets', when='AFTER')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='scantarget',
            trigger=pgtrigger.compiler.Trigger(name='delete_delete', sql=pgtrigger.compiler.UpsertTriggerSql(func='INSERT INTO "reviews_scantargetevent" ("every_hours", "id", "path", "pgh_context_id", "pgh_created_at", "pgh_label", "pgh_obj_id", "reason", "recipients") VALUES (OLD."every_hours", OLD."id", OLD."path", _pgh_attach_context(), NOW(), \'delete\', OLD."id", OLD."reason", OLD."recipients"); RETURN NULL;', hash='1e16ba6ef9bbf8dcf65bc33590e79e8655c49400', operation='DELETE', pgid='pgtrigger_delete_delete_32e45', table='scan_targets', when='AFTER')),
        ),
        migrations.AddField(
            model_name='scantargetevent',
            name='pgh_context',
            field=models.ForeignKey(db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='pghistory.context'),
        ),
        migrations.AddField(
            model_name='scantargetevent',
            name='pgh_obj',
            field=models.ForeignKey(db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, to='reviews.scantarget'),
        ),
        migrations.AddConstraint(
            model_name='scandocument',
            constraint=models.UniqueConstraint(fields=('scan', 'digest'), name='scan_documents_once'),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='scantargetevent',
            trigger=pgtrigger.compiler.Trigger(name='append_only', sql=pgtrigger.compiler.UpsertTriggerSql(func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;", hash='836d8baaff882fa78bc1e798c41e4227617cd18b', operation='UPDATE OR DELETE', pgid='pgtrigger_append_only_8b13c', table='reviews_scantargetevent', when='BEFORE')),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='scantarget',
            trigger=pgtrigger.compiler.Trigger(name='path_stays', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."path" IS DISTINCT FROM (NEW."path"))', func="RAISE EXCEPTION 'pgtrigger: Cannot update rows from % table', TG_TABLE_NAME;", hash='d6b1f56f9258c1323f357e1cf4f2869c1dd5b586', operation='UPDATE', pgid='pgtrigger_path_stays_62e62', table='scan_targets', when='BEFORE')),
        ),
        # Room on each page for updates in place, which write to no index, and early vacuum.
        *(
            migrations.RunSQL(
                f"ALTER TABLE {table} SET (fillfactor = {fillfactor}, autovacuum_vacuum_scale_factor = 0,"
                " autovacuum_vacuum_threshold = 1000)",
                migrations.RunSQL.noop,
            )
            for table, fillfactor in (("jobs", 90), ("stage_runs", 80))
        ),
        migrations.RunSQL(
            "CREATE FUNCTION refuse_truncate() RETURNS trigger LANGUAGE plpgsql AS $$\n"
            "            BEGIN RAISE EXCEPTION 'append-only: % cannot be truncated', TG_TABLE_NAME; END $$;",
            "DROP FUNCTION refuse_truncate();",
        ),
        # pghistory makes these tables: pgtrigger cannot be declared on them.
        *(
            migrations.RunSQL(
                f"CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON {table}"
                " FOR EACH STATEMENT EXECUTE FUNCTION refuse_truncate();",
                f"DROP TRIGGER refuse_truncate ON {table};",
            )
            for table in _HISTORIES
        ),
        migrations.RunSQL(
            _FEED_LINKS_END, "DROP TRIGGER feed_links_end ON auth_user; DROP FUNCTION public.feed_links_end()"
        ),
    ]
