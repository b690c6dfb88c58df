import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.contrib.postgres.search
from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    # A table of a million findings is not locked while its index grows; the old one serves until then.
    atomic = False

    dependencies = [
        ('reviews', '0017_finding_search'),
    ]

    operations = [
        # What an attempt that was interrupted left.
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS "findings_search"', migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name='findingrow',
            index=django.contrib.postgres.indexes.GinIndex(django.contrib.postgres.search.SearchVector('title', 'message', models.Func(models.F('file'), models.Value('/._-'), models.Value('    '), function='translate'), config='simple'), models.Func(models.Func(models.Value('severity '), models.F('severity'), arg_joiner=' || ', template='(%(expressions)s)'), models.Func(models.Value('category '), models.F('category'), arg_joiner=' || ', template='(%(expressions)s)'), models.Func(models.Value('source '), models.Func(models.F('source'), models.Value(':'), models.Value(1), function='split_part'), arg_joiner=' || ', template='(%(expressions)s)'), output_field=django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), size=None), template='ARRAY[%(expressions)s]'), name='findings_search'),
        ),
        RemoveIndexConcurrently(
            model_name='findingrow',
            name='findings_words',
        ),
        RemoveIndexConcurrently(
            model_name='findingrow',
            name='findings_of_category',
        ),
    ]
