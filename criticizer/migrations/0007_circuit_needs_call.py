from django.db import migrations, models

_SUFFIX = "; only a real call closes it"  # where this stood before it had a column
_FORWARD = f"""
UPDATE circuits SET needs_call = true, reason = replace(reason, '{_SUFFIX}', '')
 WHERE strpos(reason, '{_SUFFIX}') > 0"""  # noqa: S608
_CLASSES = """
UPDATE circuits SET error_class = coalesce(substring(reason FROM '[A-Z]+_[A-Z_]+'), '')
 WHERE state IN ('open', 'half_open')"""
_BACK = f"UPDATE circuits SET reason = left(reason, 480) || '{_SUFFIX}' WHERE needs_call"  # noqa: S608


class Migration(migrations.Migration):
    dependencies = [("criticizer", "0006_saved_views")]

    operations = [
        migrations.AddField(
            model_name="circuit", name="needs_call", field=models.BooleanField(db_default=False)
        ),
        migrations.AddField(
            model_name="circuit",
            name="error_class",
            field=models.CharField(blank=True, db_default="", max_length=32),
        ),
        migrations.RunSQL(_FORWARD, _BACK),
        migrations.RunSQL(_CLASSES, migrations.RunSQL.noop),
    ]
