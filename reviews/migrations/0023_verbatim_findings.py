from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('reviews', '0022_review_units'),
    ]

    operations = [
        migrations.AddField(
            model_name='findingrow',
            name='is_verbatim',
            field=models.BooleanField(db_default=False),
        ),
    ]
