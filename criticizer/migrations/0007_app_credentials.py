from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('criticizer', '0006_person_invited'),
    ]

    operations = [
        migrations.AlterField(
            model_name='securityevent',
            name='kind',
            field=models.CharField(choices=[('path_denied', 'Path outside the allow-list'), ('redaction_blocked', 'Redaction blocked a model call'), ('auth_failed', 'API key refused'), ('role_denied', 'Role does not allow the request'), ('artifact_read', 'Artifact read'), ('artifact_refused', 'Artifact read refused'), ('artifact_fault', 'Artifact overdue, lost, orphaned or unreadable'), ('audit_fault', 'Audit rows differ from what was sealed'), ('login_locked', 'Logins refused for a while after failures'), ('ceiling_changed', 'DEPOT_ALLOW_LIST changed'), ('person_invited', 'Person invited'), ('app_credentials', 'Credentials of a new App asked for'), ('password_refused', 'Password refused before a dangerous action')], max_length=32),
        ),
    ]
