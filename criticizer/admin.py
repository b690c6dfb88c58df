"""Registers the admin of this app's tables.

Django's autodiscovery looks for this module only.
"""

from criticizer.queue import admin as queue_admin
from criticizer.resilience import admin as circuit_admin
from criticizer.security import admin as security_admin
from criticizer.workers import admin as worker_admin

__all__ = ["circuit_admin", "queue_admin", "security_admin", "worker_admin"]
