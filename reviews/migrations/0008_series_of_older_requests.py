"""Jobs and deliveries that keys with prefixes requested before there were series get the key's own.

Otherwise a repeated request of such a key would find no job, and its recipients would be notified twice.
"""

from django.db import migrations

_JOBS = """
WITH bound AS (
  SELECT 'key:' || k.name AS requester, 'key:' || k.id AS series,
         coalesce((SELECT jsonb_agg(left(p, -3) ORDER BY p COLLATE "C")
                     FROM jsonb_array_elements_text(k.prefixes) p
                    WHERE p LIKE '//%/...' AND length(p) > 6), '[]') AS prefixes
    FROM api_keys k WHERE k.prefixes <> '[]')
UPDATE jobs j SET series = bound.series, scope_prefixes = bound.prefixes
  FROM bound WHERE j.requested_by = bound.requester AND j.series = ''
   AND NOT EXISTS (SELECT FROM jobs n WHERE n.series = bound.series
                      AND (n.changelist_id = j.changelist_id OR n.idempotency_key = j.idempotency_key))"""
_DELIVERIES = """
UPDATE deliveries d SET series = j.series FROM jobs j
 WHERE j.id = d.job_id AND j.series <> '' AND d.series = ''"""


class Migration(migrations.Migration):

    dependencies = [
        ('reviews', '0007_findings_unsealed'),
        ('notifications', '0003_delivery_series'),
    ]

    operations = [migrations.RunSQL([_JOBS, _DELIVERIES], migrations.RunSQL.noop)]
