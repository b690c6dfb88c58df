"""Configuration files that are made to take long or much memory, by name."""

from __future__ import annotations

BOMBS = {
    "secrets": "suppress:\n" + f"- {{check: llm, reason: 'password={'x1Y' * 40}'}}\n" * 200,
    "reasons": "suppress:\n" + f"- {{check: llm, reason: '{'key: a. ' * 25}'}}\n" * 200,
    "60,000 brackets": "[" * 60_000,
    "60,000 braces": "{" * 60_000,
    "2,000 brackets": "[" * 2_000,
    "aliases": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(
        f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    ),
    "anchors": "a: &a [x]\n" * 5000,
    "one line": "a: " + "x" * 65_000,
    "sexagesimal": "a: 1" + ":1" * 32_000,
    "keys": "".join(f"k{i}: 1\n" for i in range(7000)),
    "twice": "a: 1\n" * 12_000,
    "dashes": "- " * 32_000,
    "near keys": "checks:\n" + "".join(f" line_ends{i}: 1\n" for i in range(1900)),
    "questions": "? " * 32_000,
    "long keys": "".join(f"{'ab' * 14}{i}: 1\n" for i in range(1500)),
    "quoted": '"' + "\\x41" * 16_000,
    "lines": "a: |\n" + " x\n" * 21_000,
    "blank": "\n" * 65_000,
    "nested": "a: [" * 16_000,
    "globs": "paths:\n  exclude:\n" + f"  - '{'?' * 190}/**'\n" * 100,
    "tags": "!a " * 20_000,
    "patterns": "suppress:\n"
    + "".join(f"- {{pattern: '(x{i}.{{60}}(a|b)[^q]{{30}})'}}\n" for i in range(200)),
    "wide patterns": "suppress:\n"
    + "".join(f"- {{pattern: 'x{i}(\\pL{{20}}){{20}}'}}\n" for i in range(200)),
    "long patterns": "suppress:\n" + "".join(f"- {{pattern: 'x{i}.{{900}}'}}\n" for i in range(200)),
    "costly patterns": "suppress:\n" + "".join(f"- {{pattern: 'x{i}[^a]{{60}}'}}\n" for i in range(200)),
}
