"""Removal of secrets from logs, stacks and error contexts."""

from __future__ import annotations

import json
import logging
import math
import sys
import traceback
from collections.abc import Iterator, Mapping, MutableMapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from criticizer.redaction.engine import redact
from criticizer.redaction.known_secrets import registered
from criticizer.redaction.redacted_text import RedactionBlocked
from criticizer.redaction.rules import key_names

WITHHELD: Final = "<withheld: redaction failed>"
_NAMED: Final = "<withheld: named as a secret>"
_ROOT: Final = Path(__file__).resolve().parents[2]
_READ: Final = 262_144  # characters that are read; the result is far shorter
_MARGIN: Final = 4_096  # characters dropped before a cut, so that no half of a token is left
_SHORT: Final = 80  # characters; longer texts seldom occur twice
_MAX_ERRORS: Final = 12
_MAX_FRAMES: Final = 60
_MAX_DEPTH: Final = 5
_MAX_ITEMS: Final = 60
_OWN_KEYS: Final = frozenset({"timestamp", "level"})
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def clean(text: str, limit: int = 20_000) -> str:
    """Return `text` redacted and cut to `limit` characters. Never raises.

    For logs, stacks and errors of providers. NUL and lone surrogates are replaced first; where
    redaction fails the result is `<withheld: redaction failed>`.
    """
    try:
        if len(text) <= _SHORT and len(text) <= limit and _is_plain(text, registered().generation):
            return text
        # Redact before cutting: the rules do not find half of a token, which is still a secret.
        if len(text) > _READ:
            text = text[: _READ - _MARGIN]
        plain = text.replace("\0", "\ufffd").encode("utf-8", "backslashreplace").decode("utf-8")
        cleaned = redact(plain).text
        return cleaned if len(cleaned) <= limit else cleaned[: max(limit - 13, 0)] + "… <truncated>"
    except Exception:  # noqa: BLE001 - the promise of this function
        return WITHHELD


@lru_cache(maxsize=4_096)
def _is_plain(text: str, generation: int) -> bool:
    """Return whether redaction leaves a short text unchanged; event names and ids recur.

    The cached answer holds for one `generation` of own secrets.
    """
    try:
        return redact(text).text == text
    except RedactionBlocked:
        return False


def _place(filename: str) -> str:
    """Return a path without the machine's directories."""
    path = Path(filename)
    if path.is_relative_to(_ROOT) and "site-packages" not in path.parts:
        return path.relative_to(_ROOT).as_posix()
    if "site-packages" in path.parts:
        return "/".join(path.parts[len(path.parts) - path.parts[::-1].index("site-packages") :])
    return path.name


def _message(error: BaseException) -> str:
    try:
        return clean(str(error), 4_000)
    except Exception:  # noqa: BLE001 - the error's own `__str__` may fail
        return WITHHELD


def _chain(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    """Yield the error and those that led to it, the newest first, each once."""
    seen: set[int] = set()
    todo: list[tuple[str, BaseException]] = [("", error)]
    while todo and len(seen) < _MAX_ERRORS:
        relation, current = todo.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield relation, current
        if isinstance(current, BaseExceptionGroup):
            todo += [("contains", inner) for inner in current.exceptions[:_MAX_ERRORS]]
        if current.__cause__ is not None:
            todo.append(("caused by", current.__cause__))
        elif current.__context__ is not None and not current.__suppress_context__:
            todo.append(("while handling", current.__context__))


def clean_stack(error: BaseException, limit: int = 20_000) -> str:
    """Return the error chain with its frames as `file:line function`. Never raises.

    It has at most `limit` characters, paths relative to the project, redacted messages, no source lines and
    no locals.
    """
    try:
        out: list[str] = []
        for relation, current in _chain(error):
            kind = f"{type(current).__module__}.{type(current).__qualname__}".removeprefix("builtins.")
            message = _message(current)
            out.append(f"{relation + ' ' if relation else ''}{kind}{': ' + message if message else ''}")
            frames = [
                f"  {_place(frame.f_code.co_filename)}:{line} {frame.f_code.co_name}"
                for frame, line in traceback.walk_tb(current.__traceback__)
            ]
            # Keep the deepest frames, which are the most useful.
            if len(frames) > _MAX_FRAMES:
                out.append(f"  … {len(frames) - _MAX_FRAMES} frames")
            out += frames[-_MAX_FRAMES:]
        # Redact the whole again: a secret may be in the name of a file or a class.
        return clean("\n".join(out), limit)
    except Exception:  # noqa: BLE001 - the promise of this function
        return WITHHELD


@lru_cache(maxsize=1_024)
def _names_secret(key: str) -> bool:
    name, lowered = key.encode("utf-8", "replace"), key.lower().encode("utf-8", "replace")
    for word in key_names.WORDS:
        at = lowered.find(word) if len(word) > 4 else -1
        end = at + len(word)
        if at >= 0 and key_names.strength(word, name[at:end], name[:at], name[end:]) >= key_names.SECRET:
            return True
    return lowered in (b"authorization", b"cookie", b"set-cookie", b"pass", b"pwd", b"prompt", b"diff")


def _safe(value: object, depth: int, limit: int) -> object:
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return clean(value, limit)
    if isinstance(value, (bytes, bytearray)):
        return f"<{len(value)} bytes>"
    if isinstance(value, BaseException):
        return clean_stack(value, limit)
    if depth <= 0:
        return "<withheld: too deep>"
    if isinstance(value, Mapping):
        return _safe_mapping(value, depth, limit)
    if isinstance(value, (list, tuple, set, frozenset)):
        items = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else list(value)
        return [_safe(item, depth - 1, limit) for item in items[:_MAX_ITEMS]]
    return clean(str(value), limit)


def _safe_item(key: str, value: object, depth: int, limit: int) -> object:
    is_plain = value is None or isinstance(value, (bool, int, float))
    return _NAMED if value and not is_plain and _names_secret(key) else _safe(value, depth, limit)


def _safe_mapping(value: Mapping[Any, Any], depth: int, limit: int) -> dict[str, object]:
    out: dict[str, object] = {}
    for key, item in list(value.items())[:_MAX_ITEMS]:
        out[clean(str(key), 200)] = _safe_item(str(key), item, depth - 1, limit)
    return out


def clean_context(context: Mapping[str, object], limit_bytes: int = 8_000) -> dict[str, object]:
    """Return the context redacted and as JSON of at most `limit_bytes`. Never raises.

    Values under names such as `password` are withheld whole. Where the context is too long, the last
    entries are dropped and `truncated` is added.
    """
    try:
        for length in (2_000, 400):
            out = _safe_mapping(context, _MAX_DEPTH, length)
            if len(json.dumps(out)) <= limit_bytes:
                return out
        while out and len(json.dumps(out | {"truncated": True})) > limit_bytes:
            out.popitem()
        out["truncated"] = True
        return out
    except Exception:  # noqa: BLE001 - the promise of this function
        return {"withheld": WITHHELD}


def error_of(exc_info: object) -> BaseException | None:
    """Return the exception of a line's `exc_info`, or None."""
    if isinstance(exc_info, BaseException):
        return exc_info
    if isinstance(exc_info, tuple) and len(exc_info) == 3 and isinstance(exc_info[1], BaseException):
        return exc_info[1]
    return sys.exc_info()[1] if exc_info else None


def redact_event(
    logger: object, method: str, event_dict: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Clean a structlog event: every value, and `exc_info`, which becomes `stack`. Never raises."""
    try:
        error = error_of(event_dict.pop("exc_info", None))
        if error is not None:
            event_dict["stack"] = clean_stack(error)
        for key, value in list(event_dict.items()):
            if key == "stack" and error is not None:
                continue
            if isinstance(value, (bool, int)) or value is None or key.startswith("_") or key in _OWN_KEYS:
                continue  # numbers, and fields that structlog itself adds
            withhold = value and _names_secret(str(key))
            event_dict[key] = _NAMED if withhold else _safe(value, _MAX_DEPTH, 20_000)
    except Exception:  # noqa: BLE001 - logging must not break the work
        event_dict.clear()
        event_dict["event"] = WITHHELD
    return event_dict


class SecretsFilter(logging.Filter):
    """Filter that cleans records of the standard logging.

    Message, arguments, extras, `exc_info` and stack.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Clean the record in place; always let it pass."""
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - arguments that do not fit the message
            message = str(record.msg)
        record.msg, record.args = clean(message), ()
        error = error_of(record.exc_info)
        if error is not None:
            record.exc_text = clean_stack(error)
        elif record.exc_text:
            record.exc_text = clean(record.exc_text)
        record.exc_info = None
        if record.stack_info:
            record.stack_info = clean(record.stack_info)
        for key, value in list(vars(record).items()):
            if key not in _STANDARD:
                setattr(record, key, _safe_item(key, value, 3, 4_000))
        return True
