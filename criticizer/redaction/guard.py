"""The last check before text goes to a model: a second engine searches for secrets again.

It shares only the list of own secrets with the first one. It has no regular expressions and no
prefilter, but plain searches for prefixes, key blocks, addresses, bearer headers and passwords
beside their name. What the first engine misses of these is not sent.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final

from criticizer.redaction import known_secrets, policy
from criticizer.redaction.redacted_text import RedactedText, RedactionBlocked
from criticizer.redaction.rules import issuer_tokens

MAX_SECONDS: Final = 10.0  # of this thread's processor time
MAX_CHARACTERS: Final = 4 << 20  # far above any prompt: a longer one is a defect of the caller
_ALNUM: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_TOKEN: Final = _ALNUM + "_-"
_BASE64: Final = _ALNUM + "+/="
_HOST_END: Final = " \t\r\n\"'`<>\\"

# Prefixes, characters of the body, and the length from which it certainly is a token.
_PREFIX_ROWS: Final[tuple[tuple[str, str, int], ...]] = (
    ("ghp_ gho_ ghu_ ghs_ ghr_ npm_ lin_api_ dop_v1_", _ALNUM, 30),
    ("AKIA ASIA sk_live_ rk_live_ shpat_ sq0csp- whsec_", _ALNUM, 16),
    ("github_pat_ glpat- sk-ant- sk-proj- sk-svcacct- GOCSPX- xoxb- xoxp- xoxa- xoxs- xapp-", _TOKEN, 20),
    ("AIza pypi-Ag hvs. ya29. dckr_pat_ glsa_", _TOKEN, 30),
    ("AGE-SECRET-KEY-1", _ALNUM, 40),
    ("eyJhbGciOi", _TOKEN + ".", 40),
)
_PREFIXES: Final = tuple(
    (prefix, allowed, least) for words, allowed, least in _PREFIX_ROWS for prefix in words.split()
)
_required: policy.Policy | None = None


def require_policy(wanted: Mapping[str, object] | None) -> None:
    """Make the guard refuse texts that were redacted under another policy; None allows all.

    Called once at start with the deployment's policy. Raises RedactionBlocked(`bad_policy`).
    """
    global _required
    _required = None if wanted is None else policy.parse(wanted)


def guard(text: RedactedText) -> str:
    """Return the text that may be sent.

    Raises RedactionBlocked: `not_redacted` for anything but a RedactedText, `seal_broken`,
    `stale_ruleset`, `stale_policy`, `too_large`, `guard_found` when the second engine finds a
    secret, `too_slow` when it takes too long, `guard_failed` when it cannot finish.
    """
    if type(text) is not RedactedText:
        raise RedactionBlocked("not_redacted")
    try:
        if not text.intact():
            raise RedactionBlocked("seal_broken")
        if text.ruleset != issuer_tokens.RULESET:
            raise RedactionBlocked("stale_ruleset")
        if _required is not None and text.policy != _required.digest:
            raise RedactionBlocked("stale_policy")
        if len(text.text) > MAX_CHARACTERS:
            raise RedactionBlocked("too_large")
        deadline = time.thread_time() + MAX_SECONDS
        for finds in (_finds_prefix, _finds_pem, _finds_userinfo, _finds_bearer, _finds_password, _finds_own):
            if finds(text.text):
                raise RedactionBlocked("guard_found")
            if time.thread_time() > deadline:
                raise RedactionBlocked("too_slow")
    except RedactionBlocked:
        raise
    except Exception:  # noqa: BLE001 - in doubt nothing is sent, and the error may quote the text
        raise RedactionBlocked("guard_failed") from None
    return text.text


def _places(text: str, word: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + len(word))


def _run(text: str, at: int, allowed: str, limit: int) -> str:
    piece = text[at : at + limit]
    return piece[: len(piece) - len(piece.lstrip(allowed))]


def _finds_prefix(text: str) -> bool:
    for prefix, allowed, least in _PREFIXES:
        for at in _places(text, prefix):
            body = _run(text, at + len(prefix), allowed, 200)
            whole = at == 0 or not _in_word(text, at)
            drawn = any(c.isdigit() for c in body) and len(set(body)) > 4
            if whole and drawn and len(body) >= least:
                return True
    return False


def _in_word(text: str, at: int) -> bool:
    """Return whether the prefix is part of a word, or of base64 after a plus."""
    before = text[at - 1]
    return before in _ALNUM + "_" or (before == "+" and at > 1 and text[at - 2] in _ALNUM)


def _finds_pem(text: str) -> bool:
    """Return whether key material follows the header of a private key."""
    for at in _places(text, "PRIVATE KEY"):
        begin = text.rfind("BEGIN", max(at - 40, 0), at)
        if begin >= 0 and "-----" in text[at + 11 : at + 24]:
            for line in text[at + 11 : at + 1200].replace("\\n", "\n").split("\n")[1:6]:
                body = line.strip(" \t\r+-\"'`,;\\#*>|")
                if len(body) >= 40 and not body.strip(_BASE64):
                    return True
    return False


def _finds_userinfo(text: str) -> bool:
    """Return whether there is a `scheme://user:password@host` with a literal password."""
    for at in _places(text, "://"):
        piece = text[at + 3 : at + 300]
        stop = min((i for i in map(piece.find, _HOST_END + "/?#") if i >= 0), default=len(piece))
        info, sign, host = piece[:stop].rpartition("@")
        user, colon, password = info.partition(":")
        if sign and colon and host[:1].isalnum() and "@" not in user and _is_literal(password):
            return True
    return False


def _is_literal(password: str) -> bool:
    plain = len(password) >= 8 and not any(c in password for c in "{}$<>()[]%*")
    return plain and any(c.isdigit() for c in password) and any(c.isalpha() for c in password)


def _finds_bearer(text: str) -> bool:
    lowered = text.lower()
    for at in _places(lowered, "bearer ") if len(lowered) == len(text) else ():
        token = _run(text, at + 7, _TOKEN + ".~+/=", 400)
        if len(token) >= 24 and sum(c.isdigit() for c in token) >= 4 and _is_mixed(token):
            return True
    return False


def _finds_password(text: str) -> bool:
    """Return whether there is a `password = "literal"` that can be nothing but a password."""
    for word in ("password", "passwd", "PASSWORD", "Password"):
        for at in _places(text, word):
            rest = text[at + len(word) : at + len(word) + 90].lstrip("\"'")
            value = rest.lstrip(" \t").removeprefix(":").removeprefix("=").lstrip(" \t")
            sign = rest.lstrip(" \t")[:1]
            if sign in (":", "=") and value[:1] in ("'", '"') and _is_chosen(value[1:].partition(value[0])):
                return True
    return False


def _is_chosen(cut: tuple[str, str, str]) -> bool:
    """Return whether a closed literal is a password such as people choose, not an example."""
    literal, quote, _ = cut
    if not quote or not 10 <= len(literal) <= 64 or any(c in literal for c in " {}$<>()[]%|\\.,;:/"):
        return False
    lowered = literal.lower()
    if any(word in lowered for word in ("pass", "your", "example", "change", "secret", "insert", "...")):
        return False
    is_special = any(c in "!#^&*~@+?" for c in literal[1:])
    return is_special and _is_mixed(literal) and literal.isascii()


def _is_mixed(value: str) -> bool:
    return all(any(test(c) for c in value) for test in (str.islower, str.isupper, str.isdigit))


def _finds_own(text: str) -> bool:
    data = text.encode("utf-8", "surrogatepass")
    return known_secrets.registered().are_in(data)
