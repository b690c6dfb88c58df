"""The tables of deliveries, digests, preferences and suppressions."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    # A database that ran the migrations of earlier commits has nothing to run.
    replaces = [
        ('notifications', '0001_initial'),
    ]

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Delivery',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('changelist_id', models.CharField(max_length=128)),
                ('recipient', models.CharField(max_length=512)),
                ('review_version', models.IntegerField()),
                ('series', models.CharField(blank=True, db_default='', max_length=32)),
                ('status', models.CharField(choices=[('pending', 'Pending'), ('sending', 'Sending'), ('sent', 'Sent'), ('reconciling', 'Reconciling'), ('uncertain', 'Uncertain'), ('failed', 'Failed'), ('superseded', 'Superseded'), ('cancelled', 'Cancelled'), ('abandoned', 'Abandoned')], db_default='pending', max_length=12)),
                ('token', models.UUIDField(unique=True)),
                ('provider', models.CharField(max_length=32)),
                ('subject', models.CharField(blank=True, max_length=512)),
                ('payload', models.JSONField(db_default={})),
                ('payload_sha256', models.CharField(blank=True, max_length=64)),
                ('notification_id', models.CharField(blank=True, db_default='', max_length=512)),
                ('notified_at', models.DateTimeField(blank=True, null=True)),
                ('attempts', models.IntegerField(db_default=0)),
                ('error_class', models.CharField(blank=True, db_default='', max_length=32)),
                ('detail', models.CharField(blank=True, db_default='', max_length=1024)),
                ('repeat_notice', models.CharField(blank=True, db_default='', max_length=200)),
                ('delivery_state', models.CharField(blank=True, choices=[('deferred', 'Deferred'), ('delivered', 'Delivered'), ('bounced', 'Bounced'), ('complained', 'Reported as spam')], db_default='', max_length=10)),
                ('delivery_state_at', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('updated_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'verbose_name_plural': 'deliveries',
                'db_table': 'deliveries',
                'permissions': [('decide_delivery', 'Can decide about uncertain deliveries'), ('test_provider', 'Can send test messages')],
            },
        ),
        migrations.CreateModel(
            name='DeliveryAttempt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.IntegerField()),
                ('started_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('outcome', models.CharField(choices=[('started', 'Started'), ('accepted', 'Accepted'), ('not_sent', 'Not sent'), ('rejected', 'Rejected'), ('ambiguous', 'Ambiguous'), ('found', 'Found by look-up'), ('absent', 'Absent by look-up'), ('unknown', 'Look-up could not tell'), ('confirmed', 'Confirmed by an operator'), ('released', 'Released for resending by an operator'), ('abandoned', 'Abandoned by an operator')], db_default='started', max_length=10)),
                ('notification_id', models.CharField(blank=True, db_default='', max_length=512)),
                ('error_class', models.CharField(blank=True, db_default='', max_length=32)),
                ('detail', models.CharField(blank=True, db_default='', max_length=1024)),
            ],
            options={
                'db_table': 'delivery_attempts',
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='Digest',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('recipient', models.CharField(max_length=512)),
                ('due_at', models.DateTimeField()),
                ('closed_at', models.DateTimeField(blank=True, null=True)),
                ('token', models.UUIDField(blank=True, null=True, unique=True)),
                ('subject', models.CharField(blank=True, db_default='', max_length=512)),
                ('payload', models.JSONField(db_default={})),
                ('payload_sha256', models.CharField(blank=True, db_default='', max_length=64)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'digests',
            },
        ),
        migrations.CreateModel(
            name='RecipientPreference',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('recipient', models.CharField(max_length=512, unique=True)),
                ('threshold', models.CharField(blank=True, choices=[('', 'Every review'), ('low', 'Reviews with findings'), ('medium', 'Reviews with a medium finding or worse'), ('high', 'Reviews with a high finding or worse'), ('critical', 'Reviews with a critical finding')], db_default='', max_length=8)),
                ('muted_until', models.DateTimeField(blank=True, null=True)),
                ('digest_minutes', models.IntegerField(choices=[(0, 'No digest'), (5, '5 minutes'), (10, '10 minutes'), (15, '15 minutes'), (30, '30 minutes'), (60, 'An hour')], db_default=0, verbose_name='digest')),
                ('actor', models.CharField(db_default='', max_length=255)),
                ('reason', models.CharField(blank=True, db_default='', max_length=255)),
                ('updated_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'verbose_name': "recipient's preference",
                'db_table': 'recipient_preferences',
                'ordering': ['recipient'],
            },
        ),
        migrations.CreateModel(
            name='RecipientPreferenceEvent',
            fields=[
                ('pgh_id', models.AutoField(primary_key=True, serialize=False)),
                ('pgh_created_at', models.DateTimeField(auto_now_add=True)),
                ('pgh_label', models.TextField(help_text='The event label.')),
                ('id', models.BigIntegerField()),
                ('recipient', models.CharField(max_length=512)),
                ('threshold', models.CharField(blank=True, choices=[('', 'Every review'), ('low', 'Reviews with findings'), ('medium', 'Reviews with a medium finding or worse'), ('high', 'Reviews with a high finding or worse'), ('critical', 'Reviews with a critical finding')], db_default='', max_length=8)),
                ('muted_until', models.DateTimeField(blank=True, null=True)),
                ('digest_minutes', models.IntegerField(choices=[(0, 'No digest'), (5, '5 minutes'), (10, '10 minutes'), (15, '15 minutes'), (30, '30 minutes'), (60, 'An hour')], db_default=0, verbose_name='digest')),
                ('actor', models.CharField(db_default='', max_length=255)),
                ('reason', models.CharField(blank=True, db_default='', max_length=255)),
                ('updated_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'verbose_name': 'preference edit',
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='Suppression',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('address', models.CharField(max_length=254)),
                ('reason', models.CharField(choices=[('bounced', 'Mail to it bounced for good'), ('complained', 'Its reader reported mail as spam')], max_length=12)),
                ('provider', models.CharField(max_length=32)),
                ('event_id', models.CharField(max_length=255)),
                ('detail', models.CharField(blank=True, db_default='', max_length=500)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('lifted_at', models.DateTimeField(blank=True, null=True)),
                ('lifted_by', models.CharField(blank=True, db_default='', max_length=255)),
                ('lift_reason', models.CharField(blank=True, db_default='', max_length=500)),
            ],
            options={
                'verbose_name': 'suppressed address',
                'verbose_name_plural': 'suppressed addresses',
                'db_table': 'suppressions',
                'permissions': [('lift_suppression', 'Can lift suppressions of addresses')],
            },
        ),
        migrations.CreateModel(
            name='UnarchivedMail',
            fields=[
                ('token', models.UUIDField(primary_key=True, serialize=False)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'db_table': 'unarchived_mails',
            },
        ),
    ]
