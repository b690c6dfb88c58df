"""Made-up secrets, drawn from a fixed seed so that no test has a text that looks issued."""

from __future__ import annotations

import base64
import random
import string

ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"


def draw(length: int, alphabet: str = ALNUM, seed: int = 7) -> str:
    """Return `length` characters; the seed decides which, the same in every run."""
    source = random.Random(f"{seed}/{length}/{alphabet}")
    text = "".join(source.choice(alphabet) for _ in range(length))
    return (
        text if any(c.isdigit() for c in text) or not any(c.isdigit() for c in alphabet) else text[:-1] + "7"
    )


def password(seed: int = 7) -> str:
    """Return a password as people choose them: both cases, a digit, a special character."""
    return (
        draw(5, string.ascii_lowercase, seed) + draw(3, string.ascii_uppercase, seed) + str(10 + seed) + "!"
    )


def pem_lines(count: int = 6, seed: int = 7) -> list[str]:
    """Return body lines as of a key: base64, 64 characters each, the last one short."""
    data = random.Random(seed).randbytes(48 * (count - 1) + 20)
    text = base64.b64encode(data).decode()
    return [text[i : i + 64] for i in range(0, len(text), 64)]


def begin(label: str = "RSA PRIVATE KEY") -> str:
    return "-----" + "BEGIN " + label + "-----"


def end(label: str = "RSA PRIVATE KEY") -> str:
    return "-----" + "END " + label + "-----"


def diff(*body: str, path: str = "app/settings.py") -> str:
    """Return a unified diff of one hunk with these lines, prefixes included."""
    old = sum(line[:1] in (" ", "-") for line in body)
    new = sum(line[:1] in (" ", "+") for line in body)
    head = [
        f"diff --git a/{path} b/{path}",
        "index 1111111..2222222 100644",
        f"--- a/{path}",
        f"+++ b/{path}",
    ]
    return "\n".join([*head, f"@@ -1,{old} +1,{new} @@", *body]) + "\n"
