from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('reviews', '0033_kind_of_a_change'),
    ]

    operations = [
        migrations.AddField(
            model_name='repositoryconfiguration',
            name='revision',
            field=models.BigIntegerField(db_default=0),
        ),
    ]
