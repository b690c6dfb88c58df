"""`RedactedText`: text that only the redactor can make, sealed so that a change is detected.

The seal is a keyed hash over text, rule set and policy. Its key is generated when the process
starts and never leaves it, so a sealed text cannot be stored, unpickled or built by hand.
"""

from __future__ import annotations

import hmac
import secrets
import string
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import Final, NoReturn

import re2

_KEY: Final = secrets.token_bytes(32)
_MAKER: Final = object()
_KIND: Final = re2.compile(r"<REDACTED:([a-z][a-z0-9-]{0,30}):[1-9][0-9]{0,5}>")


class RedactionBlocked(Exception):
    """The redaction of a text is in doubt, so nothing may be sent.

    `reason_code` is a stable identifier such as `undecodable`; the error never carries the text.
    """

    def __init__(self, reason_code: str) -> None:
        super().__init__(reason_code)
        self.reason_code = reason_code


def _seal(text: str, ruleset: str, policy: str) -> bytes:
    mac = blake2b(key=_KEY, digest_size=32)
    for part in (ruleset, policy, text):
        raw = part.encode("utf-8", "surrogatepass")
        mac.update(len(raw).to_bytes(8, "big"))
        mac.update(raw)
    return mac.digest()


class RedactedText:
    """A redacted text. Immutable; made only by `redact` and `Redactor`.

    `text` is the redacted text, `counts` maps a kind of secret to the number of removals,
    `ruleset` and `policy` identify the rules and the policy (a digest) that were applied.
    """

    __slots__ = ("_mac", "counts", "policy", "ruleset", "text")

    text: str
    counts: Mapping[str, int]
    ruleset: str
    policy: str
    _mac: bytes

    def __init__(
        self, maker: object, text: str, counts: Mapping[str, int], ruleset: str, policy: str
    ) -> None:
        if maker is not _MAKER:
            raise TypeError("RedactedText is made by criticizer.redaction.redact only")
        for name, value in (
            ("text", text),
            ("counts", MappingProxyType(dict(counts))),
            ("ruleset", ruleset),
            ("policy", policy),
            ("_mac", _seal(text, ruleset, policy)),
        ):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("RedactedText is immutable")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("RedactedText is immutable")

    def __reduce__(self) -> NoReturn:
        raise TypeError("RedactedText does not leave the process: redact again on the other side")

    def __repr__(self) -> str:
        return f"<RedactedText {len(self.text)} characters, {sum(self.counts.values())} redactions>"

    def __len__(self) -> int:
        return len(self.text)

    def __bool__(self) -> bool:
        return bool(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RedactedText) and (self.text, self.policy) == (other.text, other.policy)

    def __hash__(self) -> int:
        return hash((self.text, self.policy))

    def intact(self) -> bool:
        """Return whether text, rule set and policy are what the redactor sealed."""
        if not all(type(part) is str for part in (self.text, self.ruleset, self.policy)):
            return False  # a subclass of str may show one text to the seal and another to the sender
        return hmac.compare_digest(self._mac, _seal(self.text, self.ruleset, self.policy))

    def lines(self, first: int, last: int) -> RedactedText:
        """Return lines `first` to `last` (from 1, both included, split at line feeds).

        `counts` of the part are those of its placeholders. Raises RedactionBlocked (`seal_broken`)
        when this text was changed, ValueError when `last` is below `first`.
        """
        if first < 1 or last < first:
            raise ValueError(f"lines count from 1 and do not run backwards: {first}-{last}")
        return self._part("\n".join(self.text.split("\n")[first - 1 : last]))

    def truncated(self, limit: int) -> RedactedText:
        return self._part(self.text[: max(limit, 0)])

    def _part(self, text: str) -> RedactedText:
        if not self.intact():
            raise RedactionBlocked("seal_broken")
        return restored(text, self.ruleset, self.policy)

    @staticmethod
    def joined(parts: Iterable[RedactedText], sep: str = "\n") -> RedactedText:
        """Return the parts with the trusted literal `sep` between them.

        Raises RedactionBlocked when a part is not an intact RedactedText (`not_redacted`,
        `seal_broken`), there is none, or they differ in policy or rules (`mixed_policy`).
        """
        checked = list(parts)
        ruleset, policy = _common(checked)
        counts: Counter[str] = Counter()
        for part in checked:
            counts.update(part.counts)
        return RedactedText(_MAKER, sep.join(part.text for part in checked), counts, ruleset, policy)

    @staticmethod
    def template(trusted_format: str, /, **parts: RedactedText | int) -> RedactedText:
        """Fill `{name}` fields of a literal of ours with redacted texts or whole numbers.

        Only plain fields: no attributes, indexes, conversions or format specifications.
        `{{` and `}}` are braces. Raises RedactionBlocked as `joined` does, and with `bad_template`
        when the format and the parts do not fit each other.
        """
        ruleset, policy = _common([part for part in parts.values() if not isinstance(part, int)])
        out: list[str] = []
        used: set[str] = set()
        counts: Counter[str] = Counter()
        try:
            fields = list(string.Formatter().parse(trusted_format))
        except ValueError:
            raise RedactionBlocked("bad_template") from None
        for literal, name, spec, conversion in fields:
            out.append(literal)
            if name is None:
                continue
            if spec or conversion or name not in parts:
                raise RedactionBlocked("bad_template")
            part = parts[name]
            if isinstance(part, int):
                out.append(str(int(part)))
            else:
                out.append(part.text)
                counts.update(part.counts if name not in used else {})
            used.add(name)
        if used != set(parts):
            raise RedactionBlocked("bad_template")
        return RedactedText(_MAKER, "".join(out), counts, ruleset, policy)


def _common(parts: list[RedactedText]) -> tuple[str, str]:
    found: set[tuple[str, str]] = set()
    for part in parts:
        if type(part) is not RedactedText:
            raise RedactionBlocked("not_redacted")
        if not part.intact():
            raise RedactionBlocked("seal_broken")
        found.add((part.ruleset, part.policy))
    if len(found) != 1:
        raise RedactionBlocked("mixed_policy")
    return found.pop()


def restored(text: str, ruleset: str, policy: str) -> RedactedText:
    """Return the RedactedText of a stored text, with its rules and policy (a digest).

    Only for the codec of redacted artifacts (guarantee G160): these are encrypted, compared with their
    digest, and made under the present rules and policy.
    """
    counts = Counter(_KIND.findall(text)) if "<REDACTED:" in text else {}
    return RedactedText(_MAKER, text, counts, ruleset, policy)


def seal(text: str, counts: Mapping[str, int], ruleset: str, policy: str) -> RedactedText:
    """Make a RedactedText. Only for the engine of this package."""
    return RedactedText(_MAKER, text, counts, ruleset, policy)
