"""Made-up tokens drawn from the rules' own patterns: each rule of the table is tested."""

from __future__ import annotations

import random
import re._parser as parser  # type: ignore[import-not-found]
from re import _constants as constants  # type: ignore[attr-defined]
from typing import Any

from criticizer.redaction.rules.issuer_tokens import TOKEN_RULES, TokenRule
from tests.redaction.fakes import ALNUM

_WORD = ALNUM + "_"
_TRIES = 400


def _draw(tree: Any, source: random.Random) -> str:
    """Return a text that a parsed pattern matches, with a few more than the least repetitions."""
    return "".join(_node(kind, value, source) for kind, value in tree)


def _node(kind: Any, value: Any, source: random.Random) -> str:
    if kind is constants.LITERAL:
        return chr(value)
    if kind is constants.ANY:
        return source.choice(ALNUM)
    if kind is constants.IN:
        return source.choice(_members(value))
    if kind in (constants.MAX_REPEAT, constants.MIN_REPEAT):
        least, most, inner = value
        count = least if most == least else min(least + (6 if least > 2 else 1), int(most))
        return "".join(_draw(inner, source) for _ in range(count))
    if kind is constants.SUBPATTERN:
        return _draw(value[3], source)
    if kind is constants.BRANCH:
        return _draw(source.choice(value[1]), source)
    raise AssertionError(f"the sampler does not know {kind}")


def _members(items: Any) -> str:
    out = ""
    for kind, value in items:
        if kind is constants.LITERAL:
            out += chr(value)
        elif kind is constants.RANGE:
            out += "".join(map(chr, range(value[0], value[1] + 1)))
        elif kind is constants.CATEGORY and value is constants.CATEGORY_WORD:
            out += _WORD
        elif kind is constants.CATEGORY and value is constants.CATEGORY_DIGIT:
            out += "0123456789"
        elif kind is constants.NEGATE:
            return ALNUM
    return out.translate({ord(c): None for c in "_-./+=~%@,"}) or out


def token_of(rule: TokenRule, accepts: Any) -> str:
    """Return a token that has the rule's mark and that `accepts` takes; the same in every run."""
    pattern = rule.pattern.pattern.decode()
    tree = parser.parse(pattern)
    source = random.Random(f"{rule.kind}/{rule.mark!r}")
    mark = rule.mark.decode()
    for _ in range(_TRIES):
        drawn = _draw(tree, source)
        # A pattern begins with its mark, written wider than the mark is: the mark goes in its place.
        heads = range(max(len(mark) - 12, 1), len(mark) + 8)
        tokens = [drawn] if rule.back or drawn.startswith(mark) else [mark + drawn[at:] for at in heads]
        for token in tokens:
            if mark in token and rule.pattern.fullmatch(token.encode()) and accepts(token):
                return token
    raise AssertionError(f"no token of {rule.kind} fits {mark!r}: the rule cannot match what it is for")


def names() -> list[str]:
    """Return a name for each rule, in the order of the table."""
    return [f"{rule.kind}:{rule.mark.decode()}" for rule in TOKEN_RULES]
