"""The steps operators take with a dead letter; `ingest` has the callbacks of the jobs.

    triage -> remediate -> validate -> replay -> (the job runs) -> verify -> resolve
    discard, at any time before a replay; reopen_many, which makes discarded letters new again

Each step takes `actor`, is refused in the wrong state, and adds a line to the timeline whether it was taken
or refused. `row_version`, where given, is the version the operator looked at: a step on a letter that
changed since is refused. The `*_many` functions take sets and return a Tally. (guarantee G65)
"""

from deadletters.categories import checklist, suggested_category
from deadletters.workflow.close import discard, discard_many, resolve, resolve_many
from deadletters.workflow.remediate import remediate, remediate_many
from deadletters.workflow.reopen import open_groups_of, reopen_many, why_not_reopened
from deadletters.workflow.replay import VALID_FOR, replay, replay_from
from deadletters.workflow.triage import triage, triage_many
from deadletters.workflow.validate import validate, validate_many
from deadletters.workflow.verify import verify, verify_many
