from django.db import migrations, models

from criticizer.db.indexes import AddIndexInService


class Migration(migrations.Migration):

    atomic = False  # indexes of a table in service
    dependencies = [
        ('reviews', '0003_scans'),
    ]

    operations = [
        AddIndexInService(
            model_name='reviewjob',
            index=models.Index(condition=models.Q(('status__in', ['queued', 'in_progress', 'retryable_failed'])), fields=['deadline_at', 'id'], include=('status',), name='jobs_active_by_deadline'),
        ),
    ]
