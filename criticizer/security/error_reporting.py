"""Masking of configured secrets in tracebacks: on error pages, in mail to admins, on stderr."""

from __future__ import annotations

import sys
from types import TracebackType

from django.utils.safestring import SafeString
from django.views.debug import ExceptionReporter

from criticizer.redaction import clean_stack
from criticizer.redaction.known_secrets import registered

MASK = "[own secret withheld]"


def mask(text: str) -> str:
    """Return `text` with every registered secret masked, in every usual encoding."""
    data = text.encode("utf-8", "surrogatepass")
    pieces, at = [], 0
    for start, end, _ in sorted(registered().spans(data)):
        if start >= at:
            pieces += [data[at:start], MASK.encode()]
            at = end
    pieces.append(data[at:])
    return b"".join(pieces).decode("utf-8", "replace")


class MaskingReporter(ExceptionReporter):
    """Django's error report with the secrets in its locals and settings masked."""

    def get_traceback_html(self) -> SafeString:
        return SafeString(mask(super().get_traceback_html()))

    def get_traceback_text(self) -> SafeString:
        return SafeString(mask(super().get_traceback_text()))


def print_clean(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Print an error that ends the process, without secrets (sys.excepthook)."""
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)
    else:
        print(clean_stack(error.with_traceback(traceback)), file=sys.stderr)  # noqa: T201
