"""A letter whose replay is over can be given up."""

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('deadletters', '0010_doors_of_letters'),
    ]

    operations = [
        pgtrigger.migrations.RemoveTrigger(
            model_name='deadletter',
            name='status_fsm',
        ),
        pgtrigger.migrations.AddTrigger(
            model_name='deadletter',
            trigger=pgtrigger.compiler.Trigger(name='status_fsm', sql=pgtrigger.compiler.UpsertTriggerSql(declare='DECLARE _is_valid_transition BOOLEAN;', func='SELECT CONCAT(OLD."status", \':\', NEW."status") = ANY(\'{new:triaged,triaged:remediated,remediated:validated,validated:replaying,validated:replay_pending,replay_pending:replaying,replaying:verifying,verifying:resolved,remediated:triaged,validated:triaged,validated:remediated,replay_pending:validated,replaying:new,verifying:new,new:discarded,triaged:discarded,remediated:discarded,validated:discarded,verifying:discarded,replaying:discarded,discarded:new}\'::text[]) INTO _is_valid_transition; IF (_is_valid_transition IS FALSE AND OLD."status" IS DISTINCT FROM NEW."status") THEN RAISE EXCEPTION \'pgtrigger: Invalid transition of field "status" from "%" to "%" on table %\', OLD."status", NEW."status", TG_TABLE_NAME; ELSE RETURN NEW; END IF;', hash='384cfab4836071890bf28846d9669ab06cd36c13', operation='UPDATE', pgid='pgtrigger_status_fsm_64ccb', table='dead_letters', when='BEFORE')),
        ),
    ]
