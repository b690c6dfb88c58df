"""`manage.py check --deploy` as a complete production installation: no warning is left."""

import os
import sys
from pathlib import Path

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "DATABASE_URL": "postgres://criticizer@127.0.0.1:5432/criticizer",
    "SECRET_KEY": "".join(chr(33 + (7 * n) % 90) for n in range(64)),
    "ARTIFACT_KEYS": "A" * 43 + "=",
    "DEPOT_ALLOW_LIST": "//depot/project/...",
    "CHANGE_SOURCES": "perforce",
    "P4_EXECUTABLE": sys.executable,  # stands for p4, which this machine may not have
    "P4PORT": "ssl:perforce.example.com:1666",
    "P4USER": "criticizer",
    "BASE_URL": "https://criticizer.example.com",
    "SMTP_HOST": "mail.example.com",
    "SMTP_SECURITY": "starttls",
    "MAIL_FROM": "criticizer@example.com",
    "WEBHOOK_SECRETS": "whsec_" + "A" * 43 + "=",
    "OPERATOR_ALERTS": "mail:ops@example.com",
}
manage = Path(__file__).resolve().parent.parent / "manage.py"
command = [sys.executable, str(manage), "check", "--deploy", "--fail-level", "WARNING"]
os.execve(sys.executable, command, ENVIRONMENT)
