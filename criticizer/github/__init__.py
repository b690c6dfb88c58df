"""GitHub, as an App: its tokens, one bounded exchange, and the meaning of its answers.

Knows no models and no settings: callers take a permit of `dependency_of` before they call.
"""

from criticizer.github.client import GitHub, Page, Reply
from criticizer.github.names import Repository, dependency_of
from criticizer.github.tokens import AppConfig

__all__ = ["AppConfig", "GitHub", "Page", "Reply", "Repository", "dependency_of"]
