"""GitHub, as an App: its tokens, its calls, and the meaning of its answers.

Imports no models and no settings: callers take a permit of the host's dependency before they call.
"""
