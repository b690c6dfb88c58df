"""Settings of the test suite: the product's own, under a fixed environment.

Worker and web processes that serve a test are started with `CRITICIZER_TEST_DATABASE` and
take the environment as the test wrote it.
"""

import os
import tempfile
from pathlib import Path

from criticizer.environment import dotenv

# A .env of this checkout names somebody's real database, mail server and model.
os.environ[dotenv.IGNORED] = "1"

_database_name = os.environ.get("CRITICIZER_TEST_DATABASE")
if not _database_name:
    _FIXED = {
        "DEPOT_ALLOW_LIST": "//depot/main/...,//demo/...",
        "CHANGE_SOURCES": "perforce,git",
        "LLM_PROVIDER": "none",
        "DOCUMENT_SECTIONS": "0",  # a test of documents sets it: others count the calls of the model
    }
    for _name in list(os.environ):
        if _name.split("_")[0] in {
            "LLM",
            "SMTP",
            "P4PORT",
            "P4USER",
            "P4",
            "DATABASE",
            "WEBHOOK",
            "SLACK",
            "SWARM",
            "BASE",
            "DEFAULT",
            "GITHUB",
            "GITEA",
            "GITLAB",
        }:
            del os.environ[_name]
    os.environ.update(_FIXED)
    # One data directory, and so one PostgreSQL, a test process: what runs side by side does not meet.
    if "PYTEST_XDIST_WORKER" in os.environ or "CRITICIZER_DATA_DIR" not in os.environ:
        os.environ["CRITICIZER_DATA_DIR"] = str(
            Path(tempfile.gettempdir()) / f"criticizer-test-{os.getpid()}"
        )

from criticizer.db.embedded import OWNER  # noqa: E402
from criticizer.settings import *  # noqa: E402, F403

DELIVERY_AUDIT_SECONDS = 0  # a test that wants the audit runs it
COUNT_MILLISECONDS = 10_000  # a busy machine is no reason to say "many"
CIRCUIT_CACHE_SECONDS = 0.0  # what one test remembers, the next one must not
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # fast, tests only

# Tests empty tables that the application's role may not; `tests/core/test_privileges.py` is that role.
DATABASES["default"]["USER"] = os.environ.get("TEST_DATABASE_ROLE", OWNER)  # noqa: F405

if os.environ.get("CRITICIZER_SLOW_PAGES"):
    MIDDLEWARE = ["tests.browser.slow.slow_pages", *MIDDLEWARE]  # noqa: F405

if _database_name:
    DATABASES["default"]["NAME"] = _database_name  # noqa: F405
    EMBEDDED_DATABASE = False  # it is there: no process makes another one among its files
    DATA_DIR = Path(os.environ["TEST_FILES_DIR"])
    MAILDIR = DATA_DIR / "mail"
    for _storage in ("artifacts_raw", "artifacts_redacted"):
        STORAGES[_storage] = {  # noqa: F405
            "BACKEND": "django.core.files.storage.FileSystemStorage",
            "OPTIONS": {"location": DATA_DIR / _storage},
        }
    if _stages := os.environ.get("TEST_STAGES"):
        STAGES = {stage: (f"{_stages}.{stage}", queue) for stage, (_, queue) in STAGES.items()}  # noqa: F405
    if _maintenance := os.environ.get("TEST_MAINTENANCE"):
        MAINTENANCE = _maintenance.split(",")
