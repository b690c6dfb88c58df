"""GitHub, as an App: its tokens, one bounded exchange, and the meaning of its answers.

Knows no models and no settings: callers take a permit of the host's dependency before they call.
"""
