"""Indexes of jobs that a claim does not write to, as it changes nothing but the state.

An older version works with them, but looks for active jobs without an index: see docs/operations/machines.md.
"""

import django.contrib.postgres.indexes
import django.contrib.postgres.search
from django.contrib.postgres.operations import RemoveIndexConcurrently
from django.db import migrations, models

from criticizer.db.indexes import AddIndexInService, AddUniqueInService

_AT_ONCE = 20_000  # ids of jobs of one statement, which locks the rows that it writes


def fill(apps, schema_editor):
    """Write how jobs ended that ended before the trigger was there."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute('SELECT coalesce(min(id), 1), coalesce(max(id), 0) FROM jobs')
        first, last = cursor.fetchone()
        for start in range(first, last + 1, _AT_ONCE):
            cursor.execute(
                'UPDATE jobs SET ended_as = status WHERE id >= %s AND id < %s AND ended_as = \'\''
                " AND status IN ('dead_lettered', 'timed_out', 'cancelled', 'superseded')",
                [start, start + _AT_ONCE],
            )


class Migration(migrations.Migration):

    atomic = False  # indexes of a table in service
    dependencies = [
        ('reviews', '0009_how_reviews_ended'),
    ]

    operations = [
        # Room on each new page for the row that an update writes, which would go to another page and all indexes.
        migrations.RunSQL('ALTER TABLE jobs SET (fillfactor = 90)', 'ALTER TABLE jobs RESET (fillfactor)'),
        migrations.RunPython(fill, migrations.RunPython.noop, elidable=True),
        AddUniqueInService(
            model_name='reviewjob',
            constraint=models.UniqueConstraint(condition=models.Q(('finished_at__isnull', True)), fields=('changelist_id', 'series'), name='jobs_one_unfinished_version'),
        ),
        AddIndexInService(
            model_name='reviewjob',
            index=models.Index(condition=models.Q(('finished_at__isnull', True)), fields=['deadline_at', 'id'], name='jobs_unfinished_by_deadline'),
        ),
        AddIndexInService(
            model_name='reviewjob',
            index=models.Index(condition=models.Q(('ended_as', ''), _negated=True), fields=['ended_as', '-created_at', '-id'], name='jobs_ended_otherwise'),
        ),
        AddIndexInService(
            model_name='reviewjob',
            index=django.contrib.postgres.indexes.GinIndex(django.contrib.postgres.search.SearchVector('title', 'author', config='simple'), condition=models.Q(('finished_at__isnull', True), models.Q(('author', ''), ('title', ''), _negated=True)), name='jobs_words_unfinished'),
        ),
        migrations.RemoveConstraint(
            model_name='reviewjob',
            name='jobs_one_active_version',
        ),
        RemoveIndexConcurrently(
            model_name='reviewjob',
            name='jobs_active_by_deadline',
        ),
        RemoveIndexConcurrently(
            model_name='reviewjob',
            name='jobs_not_succeeded',
        ),
        RemoveIndexConcurrently(
            model_name='reviewjob',
            name='jobs_words_active',
        ),
    ]
