"""Commands in documents: what a line of a shell runs, and where."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from reviews.drift.claims import Form, Kind

# Words of documents: no program is started by them (guarded by tests/security/test_proofs.py).
_LANGUAGES = "sh bash zsh shell console shell-session shellsession terminal"
_OF_YARN = """
add audit bin cache config create dlx exec explain global help import info init install link list login
node npm outdated pack patch publish remove run self set tag unlink unplug up upgrade version why
workspace workspaces test start stop restart ci update uninstall rm i t ls root prune rebuild dedupe
"""
_RUNNERS = "python python3 bash sh zsh node ruby perl source ."
LANGUAGES = frozenset(_LANGUAGES.split())
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_NAME = re.compile(r"[A-Za-z0-9_][\w.:-]*")
_HERE = re.compile(r"<<-?\s*['\"]?(\w+)")
_PROMPT = re.compile(r"\s*(?:\([\w.-]+\)\s*)?[$>%]\s+")
_YARN = frozenset(_OF_YARN.split())
_COMPOSE = frozenset(["up", "run", "exec", "logs", "build", "start", "stop", "restart", "rm", "pull", "ps"])
_SCRIPTS = frozenset(_RUNNERS.split())
# The arguments of these are not looked for.
_TOOLS = frozenset(
    ("git", "curl", "wget", "ssh", "scp", "mkdir", "touch", "pip", "docker", "rsync", "tar", "mv", "rm")
)


class Said(NamedTuple):
    """One claim that a command makes."""

    kind: Kind
    form: Form
    subject: str
    value: str
    folder: str


def in_block(lines: Sequence[str]) -> Iterator[tuple[int, Said]]:
    """Yield the claims of a block of shell, each with the offset of its line.

    A `cd` holds for what follows.
    """
    prompted = any(_PROMPT.match(line) for line in lines)
    folder: str | None = ""
    until = ""
    joined, first = "", 0
    for number, line in enumerate(lines):
        if until:
            until = "" if line.strip() == until else until
            continue
        if not joined:
            first = number
        if prompted and not joined:
            if not _PROMPT.match(line):
                continue
            line = _PROMPT.sub("", line, count=1)
        if line.rstrip().endswith("\\"):
            joined += line.rstrip()[:-1] + " "
            continue
        whole, joined = joined + line, ""
        if here := _HERE.search(whole):
            until = here[1]
        for words in _commands(whole):
            if words[0] == "cd":
                folder = _below(folder, words[1]) if len(words) == 2 else None
            elif folder is not None:
                for mention in in_words(words, folder):
                    yield first, mention


def in_line(text: str) -> Iterator[Said]:
    """Yield the claims of inline code that is a command."""
    for words in _commands(text):
        yield from in_words(words, "")


def _below(folder: str | None, to: str) -> str | None:
    if folder is None or to.startswith(("/", "~", "$", "-")) or re.search(r"[<>{}$*]", to):
        return None
    found = posixpath.normpath(posixpath.join(folder, to))
    return None if found.startswith("..") else ("" if found == "." else found)


def _commands(line: str) -> Iterator[list[str]]:
    """Yield the words of each command of a line, without what stands before its name."""
    if line.lstrip().startswith("#"):
        return
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        lexer.commenters = ""
        tokens = list(lexer)
    except ValueError:
        return
    words: list[str] = []
    for word in [*tokens, ";"]:
        is_comment = word == "#" or (word.startswith("#") and bool(words))
        if not is_comment and not (word and set(word) <= set(";&|()")):
            words.append(word)
            continue
        if kept := _stripped(words):
            yield kept
        words = []
        if is_comment:
            return


def _stripped(words: list[str]) -> list[str]:
    at = 0
    while at < len(words) and (
        _ASSIGNMENT.match(words[at]) or words[at] in ("sudo", "npx", "time", "exec", "env")
    ):
        at += 1
    kept = words[at:]
    if kept[:2] in (["poetry", "run"], ["uv", "run"], ["pipenv", "run"], ["pdm", "run"]):
        return kept[2:] if kept[2:3] and kept[2] in {*_SCRIPTS, "pytest", "tox", "nox"} else kept
    return kept


def _command(runner: str, name: str, folder: str) -> Said:
    return Said(Kind.COMMAND, Form.PLAIN, runner, name, folder)


def in_words(words: Sequence[str], folder: str) -> Iterator[Said]:
    """Yield what one command claims to be there."""
    match words:
        case ["npm" | "yarn" | "pnpm" | "bun" as name, *rest]:
            yield from _package_script(name, rest, folder)
        case ["make", *rest]:
            yield from _make(rest, folder)
        case ["tox" | "nox" as name, *rest]:
            yield from _sessions(name, rest, folder)
        case ["just" | "poe" | "task" | "invoke" as name, script, *_] if _NAME.fullmatch(script):
            yield _command(name, script, folder)
        case ["poetry" | "uv" | "pdm" | "hatch" as name, "run", script, *_] if _NAME.fullmatch(script):
            yield _command(name, script.rpartition(":")[2], folder)
        case ["cargo", *rest]:
            for option in ("--bin", "--example"):
                if option in rest[:-1]:
                    yield _command(f"cargo {option}", rest[rest.index(option) + 1], folder)
        case ["docker-compose", *rest] | ["docker", "compose", *rest]:
            yield from _compose(rest, folder)
        case [name, *rest]:
            yield from _script(name, rest, folder)


def _package_script(name: str, rest: list[str], folder: str) -> Iterator[Said]:
    for option in ("--prefix", "-C", "--cwd", "--dir"):
        if option in rest[:-1]:
            at = rest.index(option)
            below = _below(folder, rest[at + 1])
            if below is None:
                return
            folder = below
            del rest[at : at + 2]
    if any(
        word in ("-w", "--workspace", "--workspaces", "--filter", "-r", "workspace")
        or word.startswith("--workspace=")
        for word in rest
    ):
        return
    words = [word for word in rest if not word.startswith("-")]
    if words[:1] in (["run"], ["run-script"]):
        words = words[1:]
    elif name == "npm" or not words or words[0] in _YARN:
        return
    if words and _NAME.fullmatch(words[0]):
        yield _command("npm", words[0], folder)


def _make(rest: list[str], folder: str) -> Iterator[Said]:
    if "-f" in rest:
        return
    at = 0
    while at < len(rest):
        word = rest[at]
        if word == "-C" and at + 1 < len(rest):
            below = _below(folder, rest[at + 1])
            if below is None:
                return
            folder, at = below, at + 1
        elif word in ("-j", "-o", "-W", "-I"):
            at += 1
        elif not word.startswith("-") and "=" not in word and not word.isdigit():
            if not _NAME.fullmatch(word):
                return
            yield _command("make", word, folder)
        at += 1


def _sessions(name: str, rest: list[str], folder: str) -> Iterator[Said]:
    options = ("-e",) if name == "tox" else ("-s", "-e", "--session", "--sessions")
    for at, word in enumerate(rest[:-1]):
        if word in options:
            for one in rest[at + 1].split(","):
                if _NAME.fullmatch(one):
                    yield _command(name, one, folder)


def _compose(rest: list[str], folder: str) -> Iterator[Said]:
    if any(word in ("-f", "--file", "--profile") for word in rest):
        return
    words = [word for word in rest if not word.startswith("-")]
    if words and words[0] in _COMPOSE and len(words) > 1 and _NAME.fullmatch(words[1]):
        yield _command("compose", words[1], folder)


def _script(name: str, rest: list[str], folder: str) -> Iterator[Said]:
    script = name
    if posixpath.basename(name) in _SCRIPTS or name.endswith(("/python", "/python3")):
        if rest[:1] == ["-m"] and len(rest) > 1:
            if re.fullmatch(r"[A-Za-z_][\w.]*", rest[1]):
                yield Said(Kind.EXAMPLE, Form.RUN, rest[1], "", folder)
            rest = rest[2:]
            script = ""
        else:
            while rest and rest[0].startswith("-") and rest[0] != "-c":
                rest = rest[1:]
            if rest[:1] == ["-c"]:
                return
            script, rest = (rest[0], rest[1:]) if rest else ("", [])
    if script.endswith("manage.py"):
        if rest and re.fullmatch(r"[a-z][a-z0-9_]+", rest[0]):
            yield _command("manage.py", rest[0], folder)
    elif script and ("/" in script or re.search(r"\.(?:py|sh|js|rb|pl|ts|mjs)$", script)):
        yield Said(Kind.PATH, Form.RUN, script, "", folder)
    for word in rest if name not in _TOOLS else ():
        if "/" in word and not word.startswith("-"):
            yield Said(Kind.PATH, Form.ARGUMENT, word.split("::")[0], "", folder)
