"""Values named by a declaration: a typed variable, a function, an element, a form field.

No sign of an assignment follows the name directly: `char password[32] = "x"`.
"""

from __future__ import annotations

from typing import Final

from criticizer.redaction.patterns import compiled
from criticizer.redaction.rules import key_names
from criticizer.redaction.rules.named_values import Span, span_kind
from criticizer.redaction.rules.value_heuristics import judge

_WINDOW: Final = 240  # bytes after the name that are read
_NAME: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
# <Key>Password</Key><Value>x, <Password><Value>x: the element of the value follows, or is inside.
_ELEMENT = compiled(
    rb"[\w.-]*(?:</[\w.:-]+>|>)[ \t\r\n]*<"
    rb"(?i:[\w.-]*:?)(?i:value|string|plain|text|default)[^<>\n]*>([^<>\n]+)</"
)
_RETURNED = compiled(
    rb"\w*[ \t]*\([^\n()]*\)[^\n]{0,60}[{:=>][ \t\r]*\n[ \t]*(?:return[ \t]+)?[\"'`]([^\"'`\n]{4,128})[\"'`]"
)
# cy.get('#password').type('x'), By.name("passwd")).sendKeys("x"), fill_in 'Password', with: 'x'
_TYPED_IN = compiled(
    rb"[^\n]{0,60}?(?:(?i:send_?keys|fill|type|typetext|set_?value|equals|equalsignorecase|compareto)"
    rb"[ \t]*\([ \t]*"
    rb"|[\"'],?[ \t]+(?:with:?|as)[ \t]+)[\"'`]([^\"'`\n]{4,128})[\"'`]"
)
# char password[32] = "x", String password { get; set; } = "x", v_password VARCHAR2(30) := 'x'
_TYPED = compiled(
    rb"\w*(?:[ \t]*(?:\[[0-9]*\]|\([0-9, ]*\)|\{[^{}\"'\n]*\}|[\w:<>*&?.\[\]]+)){0,6}[ \t]*"
    rb"(?::=|=|(?i:default))[ \t]*"
    rb"(?:[\w:<>.\[\]]+[({][ \t]*(?:\|\|)?[ \t]*)?[bBrRuUN@$]{0,2}[\"']([^\"'\n]{4,128})[\"']"
)


def spans(text: bytes, end: int, rest: bytes, strength: int) -> list[Span]:
    """Return the spans of values that the name before `end` declares; `rest` is its line's rest."""
    patterns = []
    close = text[end : end + 40].lstrip(_NAME)
    if close[:1] in (b"<", b">") and b"<" in close and b">" in close:
        patterns.append(_ELEMENT)
    if strength >= key_names.PASSWORD:
        if close.lstrip(b" \t")[:1] == b"(":
            patterns.append(_RETURNED)
        is_quoted = b'"' in rest or b"'" in rest
        is_typed = is_quoted and not rest.startswith((b"=", b" =", b":"))
        if is_typed and (b"=" in rest or b"default" in rest.lower()):
            patterns.append(_TYPED)
        if (is_quoted or b"`" in rest) and (b"(" in rest or b"ith" in rest):
            patterns.append(_TYPED_IN)
    found = []
    for pattern in patterns:
        below = pattern.match(text, end, min(end + _WINDOW, len(text)))
        if below is not None and judge(below.group(1), strength, quoted=True):
            found.append((*below.span(1), span_kind(strength)))
    return found
