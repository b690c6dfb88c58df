"""Settings of the test suite: the product's own, under a fixed environment."""

import os
import tempfile

_FIXED = {
    "DEPOT_ALLOW_LIST": "//depot/main/...,//demo/...",
    "CHANGE_SOURCES": "perforce,git",
    "LLM_PROVIDER": "none",
}
for _name in [name for name in os.environ if name.split("_")[0] in {"LLM", "SMTP", "P4PORT", "P4USER", "DATABASE"}]:
    del os.environ[_name]
for _name, _value in _FIXED.items():
    os.environ[_name] = os.environ.get(f"TEST_{_name}", _value)
# One data directory a test run: runs beside each other do not meet.
os.environ.setdefault(
    "CRITICIZER_DATA_DIR", os.path.join(tempfile.gettempdir(), f"criticizer-test-{os.getpid()}")
)

from criticizer.settings import *  # noqa: E402, F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # fast, tests only
if _database_name := os.environ.get("CRITICIZER_TEST_DATABASE"):
    DATABASES["default"]["NAME"] = _database_name  # noqa: F405  a cluster process that serves a test
