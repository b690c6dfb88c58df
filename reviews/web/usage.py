"""Labels and meanings of the model call counters on the review page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_MEANINGS = {
    "calls": ("Model calls", "requests that the language model was sent"),
    "input_tokens": ("Tokens sent", "as the model counted them"),
    "output_tokens": ("Tokens answered", "as the model counted them"),
    "repaired": ("Answers requested again", "the first answer did not have the required form"),
    "failed_chunks": ("Parts failed", "the coverage says which files this concerns"),
    "coerced": ("Values converted", "the model wrote them in another form than requested"),
    "dropped": ("Findings dropped", "they could not be used, for example because a field was missing"),
    "cut": ("Requests cut", "the model server shortened them, so it did not see all of the text"),
    "characters": ("Characters sent", "in requests whose tokens the model counted"),
    "verify_calls": ("Verification calls", "the part of the model calls that tried to refute findings"),
    "verify_input_tokens": ("Tokens sent to verify", "the part of the tokens sent that was for verification"),
    "carried": ("Functions and blocks taken over", "an earlier review has answered the same content"),
    "spared_tokens": ("Tokens saved", "what the functions and blocks taken over cost in the earlier review"),
    "cached_tokens": ("Tokens from the cache", "the part of the tokens sent that was in the cache"),
    "cache_write_tokens": ("Tokens put into the cache", "the part of the tokens sent that is kept for later"),
    "edits": ("Suggested edits", "suggestions that name the lines they replace"),
    "edits_refused": ("Edits shown as text", "suggested edits that are not certain to fit the file"),
    "unknown_rules": ("Unknown rules", "rules that findings cited and that do not exist"),
}  # fmt: skip
_OTHER = {"asked"}  # no counter


class Counter(NamedTuple):
    """A counter of a review's calls; `meaning` is "" for one that this version does not know."""

    label: str
    value: Any
    meaning: str


def counters(usage: Mapping[str, Any]) -> Iterator[Counter]:
    """Yield the counters of a review that counted something."""
    for name, value in usage.items():
        if value and name not in _OTHER:
            label, meaning = _MEANINGS.get(name, (name.replace("_", " ").capitalize(), ""))
            yield Counter(label, value, meaning)
