"""Shared parts of the Django admin: base classes, lists, search, bulk actions, charts."""
