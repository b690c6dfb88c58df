"""Judgement of a value as a secret, by the value alone, never by the path of its file.

`strength` is how strongly the name beside it suggests a secret: 3 a password, 2 a secret,
token or API key, 1 only a key, 0 no name at all.
"""

from __future__ import annotations

from typing import Final

from criticizer.redaction.patterns import Forms, compiled, remembered
from criticizer.redaction.rules.characters import (
    DIGITS,
    SPECIAL,
    digit_groups,
    has_special,
    holds,
    is_hex,
    kinds,
    looks_random,
    transitions,
)

_WORD: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
_HEAD_LENGTH: Final = 256

_DUMMY = (
    rb"(?i)(?:"
    rb"[x*.?#_=\-\s0]+|(?:x{4,}|\*{3,}|\.{3,}).*|.*(?:x{6,}|\*{4,})|.{0,7}(?:\.\.\.|\x{2026})|[^0-9]*(?:\.\.\.|\x{2026})"
    rb"|(?:my|your|the|user|db|some|a|an|new|old|test|app|client|api|access|admin|root|default|dummy|fake|example|sample)?"
    rb"[\s_-]?(?:pass(?:word|wd|phrase|code)?|pwd?|secret|token|key|api[\s_-]?key|access[\s_-]?(?:key|token)"
    rb"|secret[\s_-]?key|credentials?|auth|bearer|basic|login|hash|value|here)s?[\s_-]?(?:here|value)?[\d_!?:.]{0,4}"
    rb"|change[\s_-]?(?:me|it|this)\W{0,3}|to[\s_-]?be[\s_-]?(?:changed|set|filled).*|replace[\s_-]?(?:me|this|with).*"
    rb"|(?:put|insert|enter|add|set|use|type|fill)[\s_-](?:your|a|the|in|me|here|my).*|(?:your|my)[\s_-].*|your[a-z_]+|.*_here"
    rb"|none|null|nil|nan|undefined|void|true|false|yes|no|on|off|ok|required|optional|forbidden|allowed"
    rb"|str(?:ing)?|text|bytes?|int(?:eger)?|bool(?:ean)?|float|object|any|void|char|hidden|masked|redacted|removed|omitted|withheld"
    rb"|todo|tbd|fixme|n/?a|default|empty|blank|missing|invalid|valid|unknown|example|sample|dummy|fake|mock|placeholder|test(?:ing|er)?"
    rb"|demo|foo|bar|baz|quux?|foobar|foobaz|admin(?:istrator)?|root|guest|user(?:name)?|anonymous|nobody|postgres|mysql|django"
    rb"|(?:abc|123)+|sekret|sekrit|s3cr3t"
    rb"|<[^<>]*>|\[[^\[\]]*\]|\{[^{}]*\}|\(\w*\)|_+\w*_+"
    rb")"
)
_TEMPLATE = compiled(
    rb"\$\{[^}]*\}?|\$\([^)]*\)?|\{\{.*?\}\}|\{\{|<%.*?%>|#\{[^}]*\}|%\(\w+\)[sdr]|\$\{\{.*?\}\}"
    rb"|%[A-Za-z_]\w*%|\{[A-Za-z_][\w.\[\]!:]*\}|\{[0-9]*(?::[^{}]{0,12})?\}|\{%.*?%\}|<[A-Za-z_][\w .-]*>"
)
_VARIABLE = rb"[$%]{1,2}[A-Za-z_{(][\w:.\->\[\]'\"(){}]*|[!&@*][A-Za-z_][A-Za-z_:.-]*"
_FORMAT = rb"%[-+0#]*[0-9]*\.?[0-9]*[sdrxviq@]|:[a-z_]\w*|\?|&#[0-9A-Za-z]{1,6};?"
_CONSTANT = rb"[A-Z][A-Z0-9]*(?:[_-][A-Z][A-Z0-9]*)+|[A-Z]{2,20}"
_DOTTED = rb"[A-Za-z_]\w*(?:(?:\.|::|->|\?\.)[A-Za-z_]\w*)+[?!]?(?:[-+*/%&]+[A-Za-z_][\w.]*)*"
_PATHLIKE = rb"(?:~|\.{1,2}|[A-Za-z]:)?[/\\]?(?:[\w.@*-]+[/\\])+[\w.@*-]*"
_FILE = (
    rb"(?i)[\w./\\~ -]+\.(?:pem|key|crt|cer|der|p12|pfx|jks|keystore|json|ya?ml|toml|ini|cfg|conf|txt|md|rst"
    rb"|env|py|js|ts|go|rb|java|cs|c|h|cpp|hpp|html?|xml|png|jpe?g|gif|svg|ico|css|sh|bat|exe|dll|so|jar|zip|gz"
    rb"|tar|log|db|sql|lock|com|org|net|io)"
)
_URL = rb"[A-Za-z][A-Za-z0-9+.-]{1,20}://\S*|//\S+|www\.\S+|mailto:\S*"
_UUID = rb"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
_VERSION = (
    rb"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9:.+Z-]*)?|[vV]?[0-9]+(?:[.:,_/-][0-9]+)+\w{0,3}"
    rb"|[0-9]:[0-9]+[.][\w.+~:-]*|(?:rc|v)?[0-9]+\.[0-9]+\.[0-9]+[\w.+-]*|.*-SNAPSHOT"
)
_NUMBER = rb"[-+]?(?:0[xX][0-9a-fA-F]{1,10}|[0-9][0-9_,.]*)[a-zA-Z%]{0,4}"
_TERNARY = rb"[!\w.]+\?[\w.]+:[\w.]+"  # minified code
_CALL = compiled(rb"[A-Za-z_][A-Za-z_.]{2,}(?:->|::)?\w*[!?]?[ \t]?\((?:[\w\s.,'\"\[\]$=/-]*\)|$)")
_COMMAND = compiled(rb"[;|&>][ \t]|[ \t][;|&>]|[ \t]-[A-Za-z]")
_UNSPOKEN = compiled(rb"(?i)[bcdfghjklmnpqrstvwxz]{6}")
_KEYWORD = rb"[a-z_]\w*={1,2}(?:True|False|None|true|false|null|[0-9.]+)"
_CHOSEN = (
    rb"[A-Za-z]{3,14}[-_.+*@!]?(?:[A-Za-z]{2,14}[-_.+*@!]?)?[0-9]{3,6}[-_.!+*@]{0,3}"
    rb"|[A-Z][a-z]{2,13}[-_.][A-Z][a-z]{2,13}[-_.]?[0-9]{2,6}[-_.!+*@]{0,3}"
    rb"|[A-Z][a-z]{2,13}-[A-Z][a-z]{2,13}[0-9]"
    rb"|[A-Za-z]{4,14}[+*@!](?:[A-Za-z]{2,14}[-_.+*@!]?)?[0-9]{2}[-_.!+*@]{0,3}"
    rb"|[A-Za-z]{4,14}[0-9]{1,4}[!@*+]{1,3}|[A-Z]{3,5}[0-9]{2,4}[a-z]{3,5}[-_.!+*@]{0,2}"
)
_NO_CHOICE = compiled(
    rb"(?i)(?:windows|ubuntu|debian|python|version|port|line|issue|http|cve|rfc|iso|sha|utf|page|ssh-|ecdsa|aes-|rsa-|hmac-|chacha)"
)
# All forms of a whole value, matched in one pass over it.
_FORMS: Final = Forms(
    (
        _DUMMY, _VARIABLE, _FORMAT, _CONSTANT, _DOTTED, _PATHLIKE, _FILE, _URL, _UUID, _VERSION, _NUMBER,
        _TERNARY, _KEYWORD, _CHOSEN,
    )
)  # fmt: skip
(
    _IS_DUMMY, _IS_VARIABLE, _IS_FORMAT, _IS_CONSTANT, _IS_DOTTED, _IS_PATHLIKE, _IS_FILE, _IS_URL, _IS_UUID,
    _IS_VERSION, _IS_NUMBER, _IS_TERNARY, _IS_KEYWORD, _IS_CHOSEN,
) = (1 << bit for bit in range(14))  # fmt: skip
_IS_TEMPLATE: Final = _IS_VARIABLE | _IS_FORMAT
_PHRASE = compiled(rb"[A-Za-z]{3,12}(?: [A-Za-z]{3,12}){1,4} [0-9]{2,4}[!.?*]?")
_OF_SENTENCES: Final = frozenset(
    b"and the for from with than has have must least most minimum maximum length step page line level section"
    b" chapter table figure error days hours minutes seconds characters valid invalid server update after"
    b" before every about over under only last first next release since until".split()
)
_LEAST_CONSTANT, _LONGEST_CONSTANT = 2, 20  # of capital letters alone
_LONGEST_CHOSEN: Final = 44
_LONGEST_SUFFIX: Final = 9
# Bytes without which a pattern cannot match: the search for them is many times cheaper.
_VARIABLE_HEADS: Final = b"$%!&@*:?"
_TEMPLATE_MARKS: Final = b"${%<#"


_forms = remembered(_FORMS.of)


@remembered
def is_dummy(value: bytes) -> bool:
    """Return whether the whole value is a placeholder, an empty word or a mask of stars."""
    return not value.strip(value[:1]) or bool(_forms(value) & _IS_DUMMY)


@remembered
def is_template(value: bytes) -> bool:
    """Return whether only its template fields could be secret."""
    if value[:1] in _VARIABLE_HEADS and _forms(value) & _IS_TEMPLATE:
        return True
    if not holds(value, _TEMPLATE_MARKS):
        return False
    rest, fields = _TEMPLATE.subn(b"", value)
    return fields > 0 and (len(rest) < 8 or not kinds(rest)[2])


@remembered
def is_slug(value: bytes) -> bool:
    """Return whether it is words and numbers with separators: bert-base-v2, us-east-1."""
    for part in value.translate(bytes.maketrans(b"_.:/ ", b"-----")).split(b"-"):
        letters = part.translate(None, DIGITS)
        if not letters or len(letters) == len(part):
            if part.isupper() or part.islower() or part.istitle() or not letters or _camel(part):
                continue
            return False
        # A word with a number at its end: v2, cmp2, x64, Vector5.
        if (
            letters.isalpha()
            and part.startswith(letters)
            and len(part) - len(letters) <= 4
            and _camel(letters)
        ):
            continue
        return False
    return True


def _camel(word: bytes) -> bool:
    return word.isalpha() and transitions(word) < 0.42


def is_generated(value: bytes) -> bool:
    """Return whether a value is a UUID, hexadecimal with a digit, or looks random."""
    if value.count(b"-") == 4 and _forms(value) & _IS_UUID:
        return True
    if is_hex(value):
        return not value.isalpha()
    return looks_random(value, rate=0.3)


def is_numbered_word(value: bytes) -> bool:
    """Return whether it is a word and a number: dragonfly8, or zebra99 with five letters."""
    word = value.rstrip(DIGITS)
    digits = len(value) - len(word)
    is_long = len(word) >= 6 if digits == 1 else len(word) >= 5
    return is_long and 1 <= digits <= 4 and word.isalpha() and not _named(value)


def is_phrase(value: bytes) -> bool:
    """Return whether it is words and a number, such as a passphrase: Saffron Lane 83."""
    return (
        _PHRASE.fullmatch(value) is not None
        and is_choice(value)
        and _OF_SENTENCES.isdisjoint(value.lower().split())
    )


def is_choice(value: bytes) -> bool:
    """Return whether it is not the name of an algorithm, a product or a version."""
    return _NO_CHOICE.match(value) is None and not _named(value)


@remembered
def is_chosen(value: bytes) -> bool:
    """Return whether it is one or two words and a number, such as a password: velvet-Butter5649."""
    if not value[:1].isalpha() or len(value) > _LONGEST_CHOSEN or not holds(value, DIGITS):
        return False
    return bool(_forms(value) & _IS_CHOSEN) and is_choice(value)


def _is_identifier(value: bytes) -> bool:
    return not value[:1].isdigit() and not value.translate(None, _WORD)


@remembered
def is_code(value: bytes) -> bool:
    """Return whether an unquoted value is an expression rather than a literal."""
    if b"(" in value or b"[" in value or b"{" in value or b"->" in value or b"::" in value or b"!." in value:
        return True
    if b"?" in value and _forms(value) & _IS_TERNARY:
        return True
    if b"." in value and _forms(value) & _IS_DOTTED and not is_chosen(value):
        parts = value.replace(b"->", b".").replace(b"::", b".").split(b".")
        return not any(
            len(part) >= 4 and kinds(part)[2] and (transitions(part) >= 0.4 or digit_groups(part) >= 2)
            for part in parts
        )
    return False


def is_expression(value: bytes) -> bool:
    """Return whether an argument of a command is code; dotted words with a digit are not."""
    if not is_code(value):
        return False
    return holds(value, b"([{") or b"->" in value or b"::" in value or not kinds(value)[2]


def is_run(value: bytes) -> bool:
    """Return whether a literal is a call or a command, which may be evaluated elsewhere."""
    if b"(" in value and _CALL.search(value) is not None:
        return True
    if value.startswith(b"=") and holds(value, b"(|"):
        return True  # of a spreadsheet
    if value.startswith((b"!!python", b"!!ruby", b"!!java", b"!!php")):
        return True
    return b" " in value and _COMMAND.search(value) is not None


@remembered
def is_reference(value: bytes) -> bool:
    """Return whether it names a file, address, version, constant or regular expression."""
    if b"(?" in value or (b"=" in value and _forms(value) & _IS_KEYWORD):
        return True
    if (b":" in value or value[:2] == b"//" or value[:1] == b"w") and _forms(value) & _IS_URL:
        return True
    if b"." in value and len(value) - value.rfind(b".") <= _LONGEST_SUFFIX and _forms(value) & _IS_FILE:
        return True
    if (value[:1] in b"0123456789vVr" or value.endswith(b"-SNAPSHOT")) and _forms(value) & _IS_VERSION:
        return True
    if value.isupper() and _forms(value) & _IS_CONSTANT and digit_groups(value) <= 2:
        return True
    is_path = holds(value, b"/\\") and bool(_forms(value) & _IS_PATHLIKE)
    return is_path and is_slug(value.replace(b"\\", b"/").strip(b"~./*@"))


@remembered
def judge(value: bytes, strength: int, *, quoted: bool) -> bool:
    """Return whether `value`, beside a name of this strength, is removed."""
    # The head of a long value is enough, and keeps the work on hostile text small.
    value = value[:_HEAD_LENGTH].replace(b"\x01", b"").replace(b"<>", b"").strip()
    if len(value) < (4 if strength >= 3 else 8):
        return False
    if is_dummy(value):
        return False
    if value.isalnum():  # no template, no code, and of references only a constant
        if _LEAST_CONSTANT <= len(value) <= _LONGEST_CONSTANT and value.isalpha() and value.isupper():
            return False
    elif is_template(value) or (not quoted and is_code(value)) or is_reference(value) or is_run(value):
        return False
    if strength >= 3:
        return _judge_password(value, quoted=quoted)
    return _judge_secret(value, strength, quoted=quoted)


def _judge_password(value: bytes, *, quoted: bool) -> bool:
    if is_chosen(value):
        return True
    if not quoted and not any(kinds(value)):
        return False  # a sentence in another script
    words = value.split()
    if len(words) > 1:
        # Prose, unless a word has a digit and is no slug: "Enter a valid password."
        if quoted and is_phrase(value):
            return True
        return any(_judge_password(word, quoted=quoted) for word in words if kinds(word)[2])
    if value[:1] in b"-+0123456789" and _forms(value) & _IS_NUMBER:
        return quoted and len(value) >= 6
    if has_special(value) or kinds(value)[2]:
        if quoted:
            return b"|" not in value and not (value[-1:] in b":?" and value[:-1].isalpha())
        if _is_identifier(value):
            return not is_slug(value) or (len(value) >= 6 and value.isalnum() and not value.islower())
        return not is_slug(value) or has_special(value[1:])
    if quoted:
        # Letters only: a weak password, but no hyphenated phrase unless a part of it is generated.
        if not value.isalpha():
            return any(_is_generated_word(part) for part in value.replace(b"_", b"-").split(b"-"))
        return len(value) >= 6 and not _named(value)
    lower, upper, _ = kinds(value)
    drawn = transitions(value) >= 0.42 or _UNSPOKEN.search(value) is not None
    return value.isalpha() and lower and upper and len(value) >= 8 and drawn


def _is_generated_word(part: bytes) -> bool:
    lower, upper, _ = kinds(part)
    return part.isalpha() and lower and upper and len(part) >= 6 and transitions(part) >= 0.6


def _named(value: bytes) -> bool:
    lower = value.lower()
    return any(word in lower for word in _NAMES)


_NAMES_TEXT: Final = """
pass secret token key user name auth login admin test field value text string type input code basic
digest plain reset change credential account email grant service client config env file hash encrypt required
"""
_NAMES: Final = tuple(word.encode() for word in _NAMES_TEXT.split())


def _judge_secret(value: bytes, strength: int, *, quoted: bool) -> bool:
    if b" " in value:
        return any(_judge_secret(word, strength, quoted=quoted) for word in value.split() if len(word) >= 16)
    if b'"' in value:
        return False  # an expression in quotes
    if value[:1] in b"-+0123456789" and _forms(value) & _IS_NUMBER:
        return strength == 2 and quoted and len(value) >= 16
    if value.count(b"-") == 4 and _forms(value) & _IS_UUID:
        return strength >= 2
    if is_hex(value):
        return strength >= 2 or len(value) >= 20
    lower, upper, digit = kinds(value)
    if strength >= 2:
        if is_chosen(value) and holds(value[-5:], DIGITS):
            return True
        if digit:
            return not is_slug(value) and (len(value) >= 10 or has_special(value) or lower or upper)
        return (lower and upper and len(value) >= 16 and transitions(value) >= 0.42) or (
            quoted and len(value) >= 12 and len(value) - len(value.translate(None, SPECIAL)) >= 3
        )
    if not digit or is_slug(value):
        return False
    if len(value) >= 16:
        return looks_random(value, rate=0.35)
    return len(value) >= 10 and transitions(value) >= 0.5
