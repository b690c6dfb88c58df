"""Pages without their markup: who is served is decided before a page is rendered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from unittest.mock import patch

from django.template import Context, Template
from django.test import signals

from tests import skips

READ = "?X"  # the letters of `People` whose pages are rendered and looked at


def as_seen_by(letter: str) -> AbstractContextManager[None]:
    """Render pages for those whose markup is looked at; in `make test-all` for everybody."""
    return nullcontext() if letter in READ else unread()


def unread() -> AbstractContextManager[None]:
    """Render pages of which only the context is asserted in `make test-all` alone."""
    return nullcontext() if skips.is_all() else unrendered()


@contextmanager
def unrendered() -> Iterator[None]:
    """Let a template be named in the answer as ever, and be rendered as nothing."""

    def name_only(template: Template, context: Context) -> str:
        signals.template_rendered.send(sender=template, template=template, context=context)
        return ""

    with patch.object(Template, "_render", name_only):
        yield
