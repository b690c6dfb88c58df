"""The environment variables that connect a GitHub App."""

from __future__ import annotations

import re
from hashlib import sha256

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from criticizer.environment import parsers
from criticizer.environment.parsers import HTTP, TEXTS, Invalid, Parser, matching
from criticizer.environment.variable import Variable, secret_variable

_sound_keys: set[bytes] = set()  # digests of the keys that this process has checked: a check takes 50 ms


def _rsa_key(text: str) -> str:
    pem = text.replace("\\n", "\n")
    digest = sha256(pem.encode()).digest()
    if digest in _sound_keys:
        return pem
    try:
        key = load_pem_private_key(pem.encode(), None)
    except (TypeError, ValueError, UnsupportedAlgorithm):  # TypeError: it has a passphrase
        key = None
    if not isinstance(key, RSAPrivateKey):
        raise Invalid("is not an RSA key in PEM without a passphrase")
    _sound_keys.add(digest)
    return pem


APP_ID = Parser(matching(re.compile(r"[1-9][0-9]{0,17}").fullmatch, "a number"), "the App's number")
SLUG = Parser(
    matching(re.compile(r"[a-z0-9][a-z0-9-]{0,99}").fullmatch, "such a name"), "a name such as criticizer"
)
RSA_KEY = Parser(_rsa_key, "the file that GitHub made, as GITHUB_PRIVATE_KEY_FILE, or its text with \\n")

# fmt: off
VARIABLES = (
    Variable("GITHUB_APP_ID", APP_ID, "The App ID of the GitHub App: docs/github-app.md.",
             example="123456"),
    Variable("GITHUB_APP_SLUG", SLUG,
             "The App's name in the address of its public page, github.com/apps/<name>. "
             "Unset: GitHub is asked.",
             example="criticizer"),
    secret_variable("GITHUB_PRIVATE_KEY", RSA_KEY, "The App's private key."),
    secret_variable("GITHUB_PRIVATE_KEY_NEXT", RSA_KEY, "Tried when GITHUB_PRIVATE_KEY is refused."),
    secret_variable("GITHUB_WEBHOOK_SECRETS", TEXTS,
                    "The secrets of the App's webhook, newest first: docs/github-app.md."),
    Variable("GITHUB_API_URL", HTTP, "GitHub's API; for an Enterprise Server https://HOST/api/v3.",
             "https://api.github.com"),
    Variable("GITHUB_REPOSITORIES", parsers.REPOSITORY_GLOBS,
             "Repositories whose pull requests are reviewed. Unset: all below //github/ in the allow-list.",
             example="acme/*,octo/website"),
)
# fmt: on
