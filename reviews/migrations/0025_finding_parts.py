import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.contrib.postgres.search
from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    # A table of a million findings is not locked while its index grows; the old one serves until then.
    atomic = False

    dependencies = [
        ('reviews', '0024_commit_index'),
    ]

    operations = [
        # What an attempt that was interrupted left.
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS "findings_by_words"', migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name='findingrow',
            index=django.contrib.postgres.indexes.GinIndex(django.contrib.postgres.search.SearchVector(models.Func(models.F('title'), models.Value('/._-<>&'), models.Value('       '), function='translate', output_field=models.TextField()), models.Func(models.F('message'), models.Value('/._-<>&'), models.Value('       '), function='translate', output_field=models.TextField()), models.Func(models.F('file'), models.Value('/._-<>&'), models.Value('       '), function='translate', output_field=models.TextField()), config='simple'), models.Func(models.Func(models.Value('severity '), models.F('severity'), arg_joiner=' || ', template='(%(expressions)s)'), models.Func(models.Value('category '), models.F('category'), arg_joiner=' || ', template='(%(expressions)s)'), models.Func(models.Value('source '), models.Func(models.F('source'), models.Value(':'), models.Value(1), function='split_part'), arg_joiner=' || ', template='(%(expressions)s)'), output_field=django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), size=None), template='ARRAY[%(expressions)s]'), name='findings_by_words'),
        ),
        RemoveIndexConcurrently(
            model_name='findingrow',
            name='findings_search',
        ),
    ]
