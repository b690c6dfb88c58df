"""Settings of the cluster drill: the product's own, with a wrong clock and a next version.

CLUSTER_CLOCK names a file that holds seconds: `time.time` and Django's `now` are so far ahead. (Debian's
libfaketime makes Python's `time.sleep` fail, and time namespaces leave the time of day alone.)
CLUSTER_NEXT_VERSION adds the migration of `benchmarks.next_version`.
"""

import os
import time
from datetime import UTC, datetime
from pathlib import Path

from criticizer.environment import dotenv

# A .env of this checkout names a real database and model.
os.environ[dotenv.IGNORED] = "1"

from django.utils import timezone

from criticizer.settings import *  # noqa: F403

if _file := os.environ.get("CLUSTER_CLOCK"):
    _clock, _true_time = Path(_file), time.time
    _read = {"offset": 0.0, "until": 0.0}

    def _offset() -> float:
        if time.monotonic() > _read["until"]:
            _read["until"] = time.monotonic() + 0.25
            _read["offset"] = float(_clock.read_text() or 0)
        return _read["offset"]

    def _now() -> datetime:
        return datetime.fromtimestamp(time.time(), UTC)

    time.time = lambda: _true_time() + _offset()
    timezone.now = _now

# Their own, of a call or two a second, would make a run of hundreds of calls too long.
RATE_LIMITS = {**RATE_LIMITS, "github": 50.0, "gitea": 50.0, "gitlab": 50.0}  # noqa: F405
STAGES = {**STAGES, "notify": ("benchmarks.drill_stages.notify", STAGES["notify"][1])}  # noqa: F405
if os.environ.get("CLUSTER_NEXT_VERSION"):
    INSTALLED_APPS = [*INSTALLED_APPS, "benchmarks.next_version"]  # noqa: F405
