import django.contrib.postgres.indexes
import django.contrib.postgres.search
from django.contrib.postgres.operations import RemoveIndexConcurrently
from django.db import migrations, models

from criticizer.db.indexes import AddIndexInService


class Migration(migrations.Migration):

    atomic = False  # indexes of a table in service
    dependencies = [
        ('reviews', '0004_active_jobs_by_state'),
    ]

    operations = [
        AddIndexInService(
            model_name='reviewjob',
            index=django.contrib.postgres.indexes.GinIndex(django.contrib.postgres.search.SearchVector('title', 'author', config='simple'), condition=models.Q(('status__in', ['queued', 'in_progress', 'retryable_failed']), models.Q(('author', ''), ('title', ''), _negated=True)), name='jobs_words_active'),
        ),
        RemoveIndexConcurrently(
            model_name='reviewjob',
            name='jobs_active',
        ),
    ]
