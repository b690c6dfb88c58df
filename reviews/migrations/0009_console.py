import django.contrib.postgres.indexes
import django.contrib.postgres.search
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("reviews", "0008_recipients"),
    ]

    operations = [
        migrations.CreateModel(
            name="Rollup",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "seconds",
                        "started_at",
                        "kind",
                        "label",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("seconds", models.SmallIntegerField()),
                ("started_at", models.DateTimeField()),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("jobs", "Jobs that ended"),
                            ("attempts", "Attempts"),
                            ("latency", "Times"),
                            ("deliveries", "Deliveries"),
                            ("mark", "How far it is done"),
                        ],
                        max_length=12,
                    ),
                ),
                ("label", models.CharField(max_length=80)),
                ("number", models.BigIntegerField()),
            ],
            options={
                "db_table": "rollups",
            },
        ),
        migrations.AddIndex(
            model_name="attempt",
            index=models.Index(fields=["-started_at", "-id"], name="attempts_newest"),
        ),
        migrations.AddIndex(
            model_name="attempt",
            index=models.Index(
                condition=models.Q(("error_class", ""), _negated=True),
                fields=["error_class", "-started_at", "-id"],
                name="attempts_failed",
            ),
        ),
        migrations.AddIndex(
            model_name="reviewjob",
            index=models.Index(
                condition=models.Q(("finished_at__isnull", False)),
                fields=["-finished_at", "-id"],
                name="jobs_finished",
            ),
        ),
        migrations.AddIndex(
            model_name="reviewjob",
            index=models.Index(
                condition=models.Q(
                    ("status__in", ["succeeded", "queued", "in_progress", "retryable_failed"]), _negated=True
                ),
                fields=["status", "-created_at", "-id"],
                name="jobs_not_succeeded",
            ),
        ),
        migrations.AddIndex(
            model_name="reviewjob",
            index=models.Index(
                condition=models.Q(("is_late", True)), fields=["-created_at", "-id"], name="jobs_late"
            ),
        ),
        migrations.AddIndex(
            model_name="reviewjob",
            index=django.contrib.postgres.indexes.GinIndex(
                django.contrib.postgres.search.SearchVector("title", "author", config="simple"),
                condition=models.Q(("finished_at__isnull", False)),
                name="jobs_words",
            ),
        ),
        migrations.AddIndex(
            model_name="stagerun",
            index=models.Index(
                condition=models.Q(("error_class", ""), _negated=True),
                fields=["error_class", "job"],
                name="stage_runs_failed",
            ),
        ),
    ]
