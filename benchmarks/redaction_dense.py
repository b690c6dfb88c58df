"""Documents that are dense in secrets, names or digests, as whole files and drawn by seed.

Most of their lines are judged, where of ordinary source hardly one in a hundred is: what they take
is the redactor's price for each judged value.
"""

from __future__ import annotations

import base64
import random
import string
from collections.abc import Callable

SIZE = 100_000  # bytes of a document
_ALNUM = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"
_WORDS = (
    "db",
    "mail",
    "cache",
    "queue",
    "user",
    "order",
    "cart",
    "price",
    "build",
    "report",
    "stock",
    "invoice",
)
_NAMES = ("DB_PASSWORD", "API_KEY", "SMTP_PASSWORD", "JWT_SECRET", "ACCESS_TOKEN", "CLIENT_SECRET")


def _drawn(source: random.Random, length: int, alphabet: str = _ALNUM) -> str:
    return "".join(source.choices(alphabet, k=length))


def _password(source: random.Random) -> str:
    return source.choice(_WORDS).capitalize() + _drawn(source, 8) + source.choice("!_-.7")


def _base64(source: random.Random, size: int) -> str:
    return base64.b64encode(source.randbytes(size)).decode()


def _sql(source: random.Random, row: int) -> str:
    name, key = source.choice(_WORDS), _drawn(source, 40)
    return (
        f"INSERT INTO users (id, name, password, api_token) VALUES ({row}, '{name}{row}', "
        f"'{_password(source)}', '{key}');\n"
    )


def _manifest(source: random.Random, row: int) -> str:
    data = "".join(f"  {name}: {_base64(source, 18)}\n" for name in source.sample(_NAMES, 3))
    return (
        f"apiVersion: v1\nkind: Secret\nmetadata:\n  name: {source.choice(_WORDS)}-{row}\ndata:\n{data}---\n"
    )


def _go_test(source: random.Random, row: int) -> str:
    word = source.choice(_WORDS)
    return (
        f'\t\t{{name: "{word} {row}", token: "{_drawn(source, 32)}", password: "{_password(source)}", '
        f"wantErr: {source.choice(('true', 'false'))}}},\n"
    )


def _env(source: random.Random, row: int) -> str:
    word = source.choice(_WORDS).upper()
    value = _drawn(source, 32) if row % 2 else _password(source)
    return f"{word}_{row}_{source.choice(_NAMES)}={value}\n"


def _prose(source: random.Random, row: int) -> str:
    word = source.choice(_WORDS)
    return source.choice(
        (
            f"The password of the {word} server was changed to {_password(source)} on Monday.\n",
            f"Please never commit a password for {word}: ask the team of the {source.choice(_WORDS)}.\n",
            f"Log in to the {word} host as admin, the password is {_password(source)} until Friday.\n",
            f"A token of the {word} service expires; a new secret has to be set by its owner then.\n",
        )
    )


def _minified(source: random.Random, row: int) -> str:
    a, b, c = (source.choice(string.ascii_lowercase) for _ in range(3))
    word = source.choice(_WORDS)
    return (
        f"function {word}{a}({b},{c}){{return {b}.token?{c}.key({b}.password,{a}.auth):{{key:{c},"
        f'token:"{word}",secret:{b}.secret||{a}(),url:"https://{word}.example.com/"+{b}.id}}}}'
    ) + ("\n" if row % 40 == 39 else "")


def _addresses(source: random.Random, row: int) -> str:
    word, scheme = source.choice(_WORDS), source.choice(("postgres", "https", "amqp", "redis"))
    return f"{word}_{row}_url: {scheme}://{word}:{_drawn(source, 14)}@{word}{row}.example.com:5432/{word}\n"


def _pem(source: random.Random, row: int) -> str:
    body = _base64(source, 1_200)
    lines = "\n".join(body[at : at + 64] for at in range(0, len(body), 64))
    return f"-----BEGIN RSA PRIVATE KEY-----\n{lines}\n-----END RSA PRIVATE KEY-----\n"


def _access_log(source: random.Random, row: int) -> str:
    word = source.choice(_WORDS)
    return (
        f"10.0.{row % 256}.{source.randrange(256)} - - [21/Nov/2026:10:{row % 60:02}:07 +0000] "
        f'"GET /{word}?page={row}&token={_drawn(source, 32)} HTTP/1.1" 200 {source.randrange(90_000)} '
        f'"https://{word}.example.com/" "Mozilla/5.0 (X11; Linux x86_64)"\n'
    )


def _csv(source: random.Random, row: int) -> str:
    head = "id,name,token,created\n" if not row else ""
    return f"{head}{row},{source.choice(_WORDS)}{row},{_drawn(source, 40)},2026-11-{1 + row % 28:02}\n"


def _npm_lock(source: random.Random, row: int) -> str:
    name, version = f"{source.choice(_WORDS)}-{row}", f"{row % 9}.{row % 7}.{row % 5}"
    return (
        f'    "node_modules/{name}": {{\n      "version": "{version}",\n'
        f'      "resolved": "https://registry.example.com/{name}/-/{name}-{version}.tgz",\n'
        f'      "integrity": "sha512-{_base64(source, 64)}",\n      "engines": {{"node": ">=12"}}\n    }},\n'
    )


def _requirements(source: random.Random, row: int) -> str:
    hashes = " \\\n".join(f"    --hash=sha256:{_drawn(source, 64, _HEX)}" for _ in range(3))
    return f"{source.choice(_WORDS)}-{row}=={row % 9}.{row % 7} \\\n{hashes}\n"


def _go_sum(source: random.Random, row: int) -> str:
    module = f"github.com/{source.choice(_WORDS)}/{source.choice(_WORDS)}-{row} v0.{row % 50}.{row % 9}"
    return f"{module} h1:{_base64(source, 32)}\n{module}/go.mod h1:{_base64(source, 32)}\n"


_ROWS: dict[str, Callable[[random.Random, int], str]] = {
    "SQL inserts with passwords and tokens": _sql,
    "manifests of kind Secret": _manifest,
    "table of a Go test with tokens": _go_test,
    ".env": _env,
    "prose about passwords": _prose,
    "minified code with keys and tokens": _minified,
    "addresses with passwords": _addresses,
    "private keys": _pem,
    "access log with tokens": _access_log,
    "csv of tokens": _csv,
    "package-lock.json": _npm_lock,
    "requirements.txt with digests": _requirements,
    "go.sum": _go_sum,
}


def documents(seed: int) -> dict[str, str]:
    """Return one document of each class, of about `SIZE` bytes."""
    found: dict[str, str] = {}
    for name, made in _ROWS.items():
        source = random.Random(f"{seed} {name}")
        text, row = [], 0
        left = SIZE
        while left > 0:
            text.append(made(source, row))
            left -= len(text[-1])
            row += 1
        found[name] = "".join(text)
    return found
