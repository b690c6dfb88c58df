"""Characters of a token: their kinds, their transitions, their randomness."""

from __future__ import annotations

from typing import Final

from criticizer.redaction.patterns import compiled, remembered

# Lower case, upper case, digits and the rest become l, u, d, s, between which transitions are counted.
_CLASSES: Final = bytes(
    ord("l") if 97 <= c <= 122 else ord("u") if 65 <= c <= 90 else ord("d") if 48 <= c <= 57 else ord("s")
    for c in range(256)
)
DIGITS: Final = b"0123456789"
SPECIAL: Final = b"!#$%^&*~@+?="
UNSPEAKABLE = compiled(rb"(?i)[bcdfghjklmnpqrstvwxz]{5}")


@remembered
def transitions(token: bytes) -> float:
    """Return the share of neighbouring bytes that differ in class; random text is above .42."""
    size = len(token)
    if size < 2:
        return 0.0
    number = int.from_bytes(token.translate(_CLASSES), "big")
    # All bytes at once, each XOR the one before it; zero where they are equal.
    same = (number ^ (number >> 8)).to_bytes(size, "big").count(0, 1)
    return (size - 1 - same) / (size - 1)


@remembered
def digit_groups(token: bytes) -> int:
    """Return how many runs of digits the token has."""
    classes = token.translate(_CLASSES)
    return classes.count(b"ld") + classes.count(b"ud") + classes.count(b"sd") + classes.startswith(b"d")


@remembered
def kinds(token: bytes) -> tuple[bool, bool, bool]:
    """Return whether the token has lower case, upper case, and digits."""
    classes = token.translate(_CLASSES)
    return b"l" in classes, b"u" in classes, b"d" in classes


def holds(value: bytes, marks: bytes) -> bool:
    """Return whether one of the bytes `marks` occurs."""
    return len(value.translate(None, marks)) != len(value)


def has_special(value: bytes) -> bool:
    """Return whether a character occurs that words and identifiers do not have."""
    return not value.isascii() or holds(value, SPECIAL)


def looks_random(token: bytes, *, rate: float = 0.42) -> bool:
    """Return whether a token of at least 16 bytes looks generated, not written by a person."""
    lower, upper, digit = kinds(token)
    if not digit or not (lower or upper):
        return False
    if lower and upper:
        return transitions(token) >= rate or (digit_groups(token) >= 4 and transitions(token) >= rate - 0.1)
    groups = digit_groups(token)
    return (groups >= 4 and transitions(token) >= 0.2) or (
        groups >= 2 and UNSPEAKABLE.search(token) is not None
    )


def is_hex(value: bytes) -> bool:
    """Return whether it is hexadecimal of at least sixteen digits, in one case."""
    digits = value.removeprefix(b"0x")
    return len(digits) >= 16 and (
        not digits.translate(None, b"0123456789abcdef") or not digits.translate(None, b"0123456789ABCDEF")
    )
