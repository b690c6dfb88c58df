"""Filter of false claims: placeholders, examples, history, plans, other people's names."""

from __future__ import annotations

import posixpath
import re

_HISTORIES = re.compile(
    r"(?:change(?:s|log)|history|(?:\d{4}-)?news|release[-_ ]?notes?|licen[cs]e|copying|authors|upgrading"
    r"|migrat|what'?s-?new|deprecat)",
    re.IGNORECASE,
)
_DECISIONS = re.compile(
    r"(?:^|/)(?:adrs?|decisions|proposals|rfcs|peps|releases|changelogs?|history|news(?:fragments)?|whatsnew)/",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_ODD = re.compile(r"[\s<>{}$*?|\"'`\\,;=()\[\]^!…]|\.\.\.|%[A-Za-z(]|^~|^//|^@|&&")
_PLACEHOLDER = re.compile(
    r"(?:^|[/_.-])(?:examples?|foo|bar|baz|qux|xxx+|placeholder|dummy|your|my|some|sample)(?:[/_.-]|$)"
    r"|(?:^|/)path/to(?:/|$)|(?:^|/)(?:your|my)[a-z]|^(?:x/y|a/b|foo|bar)",
    re.IGNORECASE,
)
_NUMBERS = re.compile(r"[vV]?\d[\d./:-]*")
_LOCALE = re.compile(r"[a-z]{2,3}[-_][A-Z]{2}")
_MIME = re.compile(r"(?:application|audio|font|image|message|model|multipart|text|video)/[\w.+-]+")
_CHOICE = re.compile(r"(?:[A-Za-z]{1,12}/){1,3}[A-Za-z]{1,12}")
_FILES = ("Makefile", "Dockerfile", "LICENSE", "Containerfile", "Procfile", "Gemfile", "justfile")
_BARE_FILE = re.compile(
    r"[\w.-]+\.(?:py|pyi|js|jsx|mjs|cjs|ts|tsx|go|rs|java|kt|c|cc|cpp|h|hpp|cs|rb|php"
    r"|sh|bash|ps1|sql|md|rst|txt|toml|ya?ml|json|ini|cfg|conf|xml|html?|css|scss|proto"
    r"|tf|gradle|env|example|lua|swift|vue|svelte|ipynb|csv)"
)
_INLINE_CODE = re.compile(r"`+[^`]*`+")
_HISTORY = re.compile(
    r"\b(?:remov(?:e|es|ed|ing|al)|delet(?:e|es|ed|ing)|formerly|previously|no longer|used to"
    r"|used to be|renam(?:e|es|ed|ing)"
    r"|moved (?:to|from)|replac(?:e|es|ed|ing)|deprecat\w+|obsolete|(?:does|do|did) not exist"
    r"|doesn't exist|isn't there"
    r"|was called|were called|instead of|until version|since version|legacy|dropped|was in)\b",
    re.IGNORECASE,
)
_FUTURE = re.compile(
    r"\b(?:will|todo|fixme|planned|coming soon|in the future|roadmap|not yet|would|someday|upcoming)\b",
    re.IGNORECASE,
)
_ILLUSTRATION = re.compile(
    r"\be\.\s?g\.|\bfor (?:example|instance)\b|\bsuch as\b|\blike this\b|\bsay,|\bimagine\b"
    r"|\bsuppose\b|\bhypothetical",
    re.IGNORECASE,
)
_NEGATION = re.compile(
    r"\b(?:never|don't|do not|must not|cannot|without|there is no|no such)\b", re.IGNORECASE
)
_CREATION = re.compile(
    r"\b(?:creat(?:e|es|ed|ing)|generat(?:e|es|ed|ing)|writ(?:e|es|ing|ten)|output|sav(?:e|es|ed"
    r"|ing)|produc(?:e|es|ed|ing)"
    r"|add (?:a|an|the|your|new)|new (?:file|folder|directory)|put|place|copy|appears?|ends up"
    r"|named?|call it|build[s]?)\b",
    re.IGNORECASE,
)
_SIBLING = re.compile(
    r"\b(?:another|other|sibling|separate|upstream|downstream|different) (?:repo|repository|project"
    r"|package)\b",
    re.IGNORECASE,
)
_RUN_TIME = re.compile(
    r"(?:^|/)(?:build|dist|out|target|node_modules|\.venv|venv|env|__pycache__|\.git|\.cache|\.tox"
    r"|\.mypy_cache|\.pytest_cache"
    r"|coverage|htmlcov|tmp|temp|logs?|_build|site|\.next|vendor|bin/Debug|bin/Release)(?:/|$)|(?:^"
    r"|/)\.env(?:\.local)?$|\.(?:log|pyc|o|so|tmp|pid|lock|sqlite3?)$",
    re.IGNORECASE,
)


def is_history(document: str) -> bool:
    """Return whether a document is about the past: it may name what is gone."""
    return bool(_HISTORIES.match(posixpath.basename(document)) or _DECISIONS.search(document))


def is_unasserted(sentence: str, section: str) -> bool:
    """Return whether a sentence does not state what is so now.

    It tells of history, plans, examples or other projects.
    """
    prose = _INLINE_CODE.sub("", sentence)  # `DELETE /users` deletes nothing
    return bool(
        _HISTORY.search(prose)
        or _FUTURE.search(sentence)
        or _ILLUSTRATION.search(sentence)
        or _SIBLING.search(sentence)
        or section.lower().startswith("example")
    )


def is_firm(sentence: str) -> bool:
    """Return whether a sentence says that something is there, rather than what to create."""
    return not (_CREATION.search(sentence) or _NEGATION.search(sentence))


def is_url(text: str) -> bool:
    return bool(_SCHEME.match(text)) or text.startswith(("//", "www."))


def path_in(text: str) -> str:
    """Return the path that inline code may name, without decoration, or ""."""
    path = re.sub(r"(?::\d+(?:[-:]\d+)?|#L\d+(?:-L\d+)?)$", "", text.strip())
    if len(path) > 200 or _ODD.search(path) or path.startswith(("/", "-", "~", "#")):
        return ""
    if path in ("./", "../") or path.endswith((".", "-")) or any(mark in path for mark in ("//", "@", ":")):
        return ""
    return "" if _PLACEHOLDER.search(path) else path


def names_a_file(path: str) -> bool:
    """Return whether a path in prose can be told from a choice, a module, a number or a type."""
    if _NUMBERS.fullmatch(path) or _LOCALE.fullmatch(path) or _MIME.fullmatch(path):
        return False
    if path.endswith("/"):
        return len(path) > 2
    return "/" in path or path in _FILES or _BARE_FILE.fullmatch(path) is not None


_FILE_NAME = re.compile(
    r".*\.(?:md|markdown|rst|txt|adoc|html?|pdf|png|jpe?g|gif|svg|webp|ico|py|pyi|ipynb|js|mjs|ts|tsx|jsx|go|rs|java"
    r"|kt|c|cc|cpp|h|hpp|cs|rb|php|sh|ps1|sql|toml|ya?ml|json|ini|cfg|conf|xml|css|scss|proto|tf|lua|swift|vue|csv"
    r"|example|lock|zip|gz|drawio|puml|mmd)",
    re.IGNORECASE,
)


def is_reference(target: str) -> bool:
    """Return whether a link's target reads like a name of an API, such as `package.module`.

    A file's name does not.
    """
    return "/" not in target and not _FILE_NAME.fullmatch(target)


def is_choice(path: str) -> bool:
    """Return whether a path reads like `and/or` or `owner/repo`."""
    return bool(_CHOICE.fullmatch(path))


def is_written_at_run_time(path: str) -> bool:
    return bool(_RUN_TIME.search(path))


def is_placeholder(text: str) -> bool:
    return bool(_PLACEHOLDER.search(text))
