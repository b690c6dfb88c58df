"""GitHub, as an App: its tokens, one bounded exchange, and the meaning of its answers.

Knows no models and no settings: callers take a permit of the host's dependency before they call.
"""

from criticizer.codehosts.client import Reply
from criticizer.codehosts.github.client import GitHub
from criticizer.codehosts.github.tokens import AppConfig
from criticizer.codehosts.names import Repository, dependency_of
