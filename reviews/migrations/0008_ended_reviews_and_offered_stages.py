from django.db import migrations, models

from criticizer.db.indexes import AddIndexInService


class Migration(migrations.Migration):

    atomic = False  # indexes of a table in service
    dependencies = [
        ('reviews', '0007_scanned_path_stays'),
    ]

    operations = [
        AddIndexInService(
            model_name='reviewjob',
            index=models.Index(condition=models.Q(('finished_at__isnull', False)), fields=['-created_at', '-id'], name='jobs_ended_newest'),
        ),
        AddIndexInService(
            model_name='agenttask',
            index=models.Index(fields=['expires_at'], name='agent_tasks_by_expiry'),
        ),
    ]
