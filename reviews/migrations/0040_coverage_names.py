import django.db.models.functions.comparison
import django.db.models.functions.text
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    # A table of millions of files is not locked while its index grows.
    atomic = False

    dependencies = [
        ('reviews', '0039_skipped_paths'),
    ]

    operations = [
        # What an attempt that was interrupted left.
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS "coverage_of_name"', migrations.RunSQL.noop),
        AddIndexConcurrently(
            model_name='coveragerow',
            index=models.Index(django.db.models.functions.comparison.Collate(django.db.models.functions.text.Lower(models.Func(models.F('file'), models.Value('[^/]*$'), function='substring', output_field=models.TextField())), 'C'), name='coverage_of_name'),
        ),
    ]
