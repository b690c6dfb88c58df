"""Removal of secrets from text before it is sent or stored (guarantees G90 to G95).

Only `redact` and `Redactor` make a `RedactedText`, only `guard` turns it into a string that may be
sent, and `clean*` are for logs, stacks and error contexts.

    text in ─► views (diff sides, decoded lines, joined lines) ─► rules ─► spans ─► placeholders
            ─► second pass finds nothing ─► RedactedText (sealed) ─► guard ─► str to send

The number of lines never changes, placeholders are `<REDACTED:kind:n>`, and any doubt raises
`RedactionBlocked`, which never carries text.
"""

from criticizer.redaction.engine import Redactor, SecretSpan, find_secrets, redact
from criticizer.redaction.guard import guard, require_policy
from criticizer.redaction.known_secrets import register_own_secrets
from criticizer.redaction.log_scrubbing import SecretsFilter, clean, clean_context, clean_stack, redact_event
from criticizer.redaction.redacted_text import RedactedText, RedactionBlocked
