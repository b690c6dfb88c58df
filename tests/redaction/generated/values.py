"""Values of secrets: chosen and generated passwords, tokens, keys, and issuers' formats."""

from __future__ import annotations

import base64
import random
import string
from collections.abc import Callable

LOWER, UPPER, DIGITS = string.ascii_lowercase, string.ascii_uppercase, string.digits
ALNUM = LOWER + UPPER + DIGITS
HEX = "0123456789abcdef"
_WORDS = [
    "anchor",
    "badger",
    "candle",
    "dolphin",
    "ember",
    "falcon",
    "garnet",
    "harbor",
    "indigo",
    "juniper",
    "kestrel",
    "lantern",
    "marble",
    "nectar",
    "orchid",
    "pepper",
    "quartz",
    "raven",
    "saffron",
    "thunder",
    "umbrella",
    "velvet",
    "walnut",
    "yellow",
    "zephyr",
    "winter",
    "spring",
    "autumn",
    "monday",
    "friday",
    "london",
    "berlin",
    "madrid",
    "lisbon",
    "oslo",
    "tiger",
    "panda",
    "rocket",
    "guitar",
    "coffee",
    "butter",
    "cheese",
    "dragon",
    "silver",
    "copper",
    "bonjour",
    "sommer",
    "hallo",
    "amigo",
    "sakura",
    "kiwi",
    "mango",
    "papaya",
    "blossom",
    "meadow",
    "canyon",
    "glacier",
]
_SAFE_SPECIALS = "!@%^*-_+~."
_SPECIALS = "!#$%&*+-/:;=?@^_~.,"


def drawn(source: random.Random, length: int, alphabet: str = ALNUM) -> str:
    return "".join(source.choice(alphabet) for _ in range(length))


def _mixed(source: random.Random, length: int, alphabet: str) -> str:
    """Return a drawn text with a digit and a letter in it."""
    while True:
        text = drawn(source, length, alphabet)
        if sum(c.isdigit() for c in text) >= 2 and sum(c.isalpha() for c in text) >= 3 and text[0].isalnum():
            return text


def chosen(source: random.Random) -> str:
    """Return a password as people choose them."""
    word, other = source.choice(_WORDS), source.choice(_WORDS)
    number = str(source.randint(1, 9999))
    sign = source.choice("!!!@_-*.+")
    shape = source.randrange(9)
    return (
        word.capitalize() + number + sign if shape == 0
        else word + sign + other.capitalize() + number if shape == 1
        else word.capitalize() + other.capitalize() + str(source.randint(10, 9999)) if shape == 2
        else _leet(word, source) + sign + number if shape == 3
        else _leet(word.capitalize(), source) + _leet(other, source) if shape == 4
        else word + str(source.randint(10, 9999)) + sign * source.randint(1, 2) if shape == 5
        else word.capitalize() + sign + str(source.randint(100, 9999)) if shape == 6
        else word[:4].upper() + number + other[:4] + sign if shape == 7
        else _mixed(source, source.randint(9, 16), ALNUM)
    )  # fmt: skip


def _leet(word: str, source: random.Random) -> str:
    table = {"a": "4", "e": "3", "i": "1", "o": "0", "s": "5"}
    out = "".join(table.get(c, c) for c in word)
    return out if out != word else word + str(source.randint(10, 99))


def generated(source: random.Random) -> str:
    """Return a password of a generator that stands safely in shells and configuration."""
    return _mixed(source, source.randint(10, 24), ALNUM * 4 + _SAFE_SPECIALS * 2)


def special(source: random.Random) -> str:
    """Return a generated password of letters, digits and special signs.

    Quotes, blanks, angle brackets and backslashes are not among them.
    """
    return _mixed(source, source.randint(12, 24), ALNUM * 3 + _SPECIALS)


def plain(source: random.Random) -> str:
    """Return a weak password: letters only, which a literal beside a strong name still is."""
    return source.choice(_WORDS) + source.choice(_WORDS)


def token(source: random.Random) -> str:
    """Return a token as services issue them, without a mark."""
    length = source.choice((20, 24, 32, 36, 40, 43, 48, 64))
    return source.choice(
        (
            lambda: _mixed(source, length, ALNUM),
            lambda: _mixed(source, length, ALNUM + "_-") + "x",
            lambda: _mixed(source, length, LOWER + DIGITS),
            lambda: drawn(source, source.choice((32, 40, 64)), HEX),
            lambda: _mixed(source, length, UPPER + DIGITS),
            lambda: base64.b64encode(source.randbytes(source.choice((24, 32, 48)))).decode(),
            lambda: uuid(source),
        )
    )()


def uuid(source: random.Random) -> str:
    return "-".join(drawn(source, n, HEX) for n in (8, 4, 4, 4, 12))


def vendor(source: random.Random) -> str:
    """Return a token in a format that its issuer documents."""
    form = source.choice(_FORMATS)
    return form(source)


def _of(shape: str) -> Callable[[random.Random], str]:
    """Return a function that draws values of a shape, whose parts are divided by `|`.

    `A20` is twenty letters and digits, `h` hex, `l` lower case and digits, `u` upper case and digits, `d`
    digits, `w` url-safe.
    """
    alphabets = {
        "A": ALNUM,
        "h": HEX,
        "l": LOWER + DIGITS,
        "u": UPPER + DIGITS,
        "d": DIGITS,
        "w": ALNUM + "_-",
    }

    def draw(source: random.Random) -> str:
        parts = [(part[:1], part[1:]) for part in shape.split("|")]
        return "".join(
            drawn(source, int(count), alphabets[kind])
            if kind in alphabets and count.isdigit()
            else kind + count
            for kind, count in parts
        )

    return draw


# Public documentation of the issuers, as read for this table; independent of the rules' own data.
_FORMATS = [
    _of(shape)
    for shape in [
        "ghp_|A36",
        "github_pat_|A22|_|A59",
        "glpat-|w20",
        "AKIA|u16",
        "ASIA|u16",
        "AIza|w35",
        "xoxb-|d12|-|d12|-|A24",
        "xoxp-|d12|-|d12|-|d12|-|h32",
        "sk_live_|A24",
        "rk_live_|A24",
        "sk_test_|A24",
        "whsec_|A32",
        "SG.|w22|.|w43",
        "npm_|A36",
        "pypi-AgEIcHlwaS5vcmc|w80",
        "dop_v1_|h64",
        "shpat_|h32",
        "hf_|A34",
        "sk-ant-api03-|w93|AA",
        "sk-proj-|w74",
        "gsk_|A52",
        "r8_|A37",
        "glsa_|A32|_|h8",
        "lin_api_|A40",
        "figd_|w40",
        "dckr_pat_|w27",
        "NRAK-|u27",
        "PMAK-|h24|-|h34",
        "hvs.|w90",
        "tskey-auth-|A11|CNTRL-|A32",
        "sgp_|h16|_|h40",
        "sgp_local_|h40",
        "ATATT3xFfGF0|w180|=|h8",
        "xkeysib-|h64|-|A16",
        "key-|h32",
        "sntrys_|A60",
        "EAACEdEose0cBA|A80",
        "sq0atp-|w22",
        "sq0csp-|w43",
        "rubygems_|h48",
        "CFPAT-|w43",
        "dp.st.prd.|A43",
        "nvapi-|w64",
        "r8_|A37",
        "tvly-|A32",
        "pplx-|A48",
        "xai-|A80",
        "lsv2_pt_|h32|_|h10",
        "rzp_live_|A14",
        "pscale_tkn_|w43",
        "sbp_|h40",
        "dapi|h32",
        "squ_|h40",
        "pat-na1-|h8|-|h4|-|h4|-|h4|-|h12",
        "1//0|w60",
        "ya29.|w80",
        "GOCSPX-|w28",
        "d10:AA|w33",
        "bkua_|h40",
        "CCIPAT_|A22|_|h40",
        "phx_|A43",
        "AGE-SECRET-KEY-1|u58",
        "RGAPI-|h8|-|h4|-|h4|-|h4|-|h12",
        "flb_live_|A24",
        "cog_|A40",
        "rootly_|h64",
        "VF.DM.|h24|.|A16",
        "live_|A40",
        "pub-c-|h8|-|h4|-|h4|-|h4|-|h12",
        "sub-c-|h8|-|h4|-|h4|-|h4|-|h12",
        "BBFF-|A32",
        "cosmo_|h32",
        "1000.|h32|.|h32",
        "h32|.|A16",
        "ABSK|A108",
        "fo1_|w43",
        "EZAK|A54",
    ]
]
