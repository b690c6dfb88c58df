"""`manage.py check`: Django's own, with the checks that `up` runs before it starts."""

from django.core.management.commands.check import Command

from criticizer.checks import environment  # noqa: F401  registers them

__all__ = ["Command"]
