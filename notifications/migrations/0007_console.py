from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("notifications", "0006_suppressions"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(fields=["-created_at", "-id"], name="deliveries_newest"),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("status__in", ["sent", "pending", "sending"]), _negated=True),
                fields=["status", "-created_at", "-id"],
                name="deliveries_not_sent",
            ),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(fields=["recipient", "-created_at", "-id"], name="deliveries_of_recipient"),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("notification_id", ""), _negated=True),
                fields=["notification_id"],
                name="deliveries_by_message",
            ),
        ),
    ]
