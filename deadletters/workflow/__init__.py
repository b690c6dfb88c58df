"""The operators' steps with a dead letter (specification 000, 8.5): the only door to its states.

    triage ─► remediate ─► validate ─► replay ─► (the job works) ─► verify ─► resolve
    discard, at any time before a replay
    reopen, which takes a discard back

Each step takes `actor`, is refused when it is not the letter's turn, and leaves a line in the
timeline whether it was taken or refused. `row_version`, where given, is the version of the letter
that the operator looked at: a step on a letter that changed meanwhile is refused.

    triage(id, *, actor, category, note="")                          -> Result
    remediate(id, *, actor, evidence_link, evidence_note, checklist) -> Result
    validate(id, *, actor, override_reason="")                       -> Validation
    replay(id, *, actor, reason, restart=False)                      -> Result
    verify(id, *, actor)                                             -> Validation
    resolve(id, *, actor, resolution)                                -> Result
    discard(id, *, actor, reason)                                    -> Result
    reopen(id, *, actor, reason)                                     -> Result
    triage_many, remediate_many, validate_many, verify_many, resolve_many, discard_many, reopen_many -> Tally
    why_not_reopened(ids)                                            -> {id: reason}

A letter's job and how it goes back to work, this room does not know: it asks the port
`settings.DEADLETTER_RECOVERY` (`results.Recovery`). What jobs tell is in `failing`.
"""

from deadletters.categories import checklist, suggested_category
from deadletters.ports import Recovery, recovery
from deadletters.types import SYSTEM, Check, LetterDraft, Result, Tally, Validation
from deadletters.workflow.close import discard, discard_many, resolve, resolve_many
from deadletters.workflow.remediate import remediate, remediate_many
from deadletters.workflow.reopen import reopen, reopen_many, why_not_reopened
from deadletters.workflow.replay import VALID_FOR, replay, replay_from
from deadletters.workflow.triage import triage, triage_many
from deadletters.workflow.validate import validate, validate_many
from deadletters.workflow.verify import verify, verify_many

__all__ = [
    "SYSTEM",
    "VALID_FOR",
    "Check",
    "LetterDraft",
    "Recovery",
    "Result",
    "Tally",
    "Validation",
    "checklist",
    "discard",
    "discard_many",
    "recovery",
    "remediate",
    "remediate_many",
    "reopen",
    "reopen_many",
    "replay",
    "replay_from",
    "resolve",
    "resolve_many",
    "suggested_category",
    "triage",
    "triage_many",
    "validate",
    "validate_many",
    "verify",
    "verify_many",
    "why_not_reopened",
]
