"""An item says which group its replay failed into: a failure that comes again stops its batch."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('deadletters', '0011_given_up_after_a_replay'),
    ]

    operations = [
        migrations.AddField(
            model_name='replayitem',
            name='failed_group_id',
            field=models.BigIntegerField(blank=True, null=True),
        ),
        migrations.AddIndex(
            model_name='replayitem',
            index=models.Index(condition=models.Q(('status__in', ['failed'])), fields=['batch', 'failed_group_id'], name='replay_items_failed'),
        ),
        migrations.AddConstraint(
            model_name='replayitem',
            constraint=models.CheckConstraint(condition=models.Q(('failed_group_id', None), ('status__in', ['failed']), _connector='OR'), name='replay_items_failed_into'),
        ),
    ]
