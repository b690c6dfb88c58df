"""Secrets come from the environment or files, are never shown, and rotate."""

from __future__ import annotations

import copy
import json
import os
import pickle
import pprint
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import structlog
from cryptography.fernet import Fernet
from django.conf import settings as configured
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.test import RequestFactory

from criticizer.environment import variables
from criticizer.environment.reader import Environment, SecretSource
from criticizer.environment.secret import Secret
from criticizer.redaction import redact_event, register_own_secrets
from criticizer.redaction.known_secrets import OwnSecrets, registered
from criticizer.security.encryption import key_id
from criticizer.security.error_reporting import MASK, MaskingReporter, mask
from criticizer.storage import artifact_storages
from deadletters.models import LetterArchive
from notifications.providers.email.smtp import SmtpConfig
from notifications.providers.slack.provider import SlackConfig
from reviews import secret_inventory
from reviews.reviewers.model import LlmConfig
from tests import factories
from tests.fakes.llm import FakeLlm

NOW = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> str:
    """A secret that this process knows as its own, for this test only."""
    monkeypatch.setattr("criticizer.redaction.known_secrets._registered", OwnSecrets())
    value = "planted" + "-own-value-" + "4711"
    register_own_secrets([value])
    return value


# -- where they come from ------------------------------------------------------------------------


def test_a_secret_in_a_file_has_the_files_age(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("value\n")
    os.utime(file, (NOW.timestamp(), NOW.timestamp()))
    env = Environment({"LLM_API_KEY_FILE": str(file)})
    assert env.text("LLM_API_KEY") == "value"
    assert env.source_of("LLM_API_KEY") == SecretSource("LLM_API_KEY", "file", NOW)


def test_a_secret_in_the_environment_has_no_age_unless_it_is_told() -> None:
    env = Environment({"A": "x", "B": "x", "B_SET_AT": "2026-06-01", "C": "x", "C_SET_AT": "yesterday"})
    assert env.source_of("A") == SecretSource("A", "environment", None)
    assert env.source_of("B") == SecretSource("B", "environment", NOW)
    with pytest.raises(ImproperlyConfigured, match="C_SET_AT: is not a date"):
        env.source_of("C")
    assert env.source_of("D").source == "unset"


def test_a_generated_secret_says_so(tmp_path: Path) -> None:
    (tmp_path / "k").write_text("x")
    assert Environment({}).source_of("K", tmp_path / "k").source == "generated"
    assert Environment({"K": "x"}).source_of("K", tmp_path / "k").source == "environment"


# -- status --------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_the_status_shows_source_age_and_use_and_no_value(settings: Any) -> None:
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    settings.ARTIFACT_KEYS = [new, old]
    settings.WEBHOOK_SECRETS = ["whsec_b25l", "whsec_dHdv"]
    settings.SECRET_SOURCES = [
        SecretSource("ARTIFACT_KEYS", "file", NOW - timedelta(days=91)),
        SecretSource("LLM_API_KEY", "environment", None),
        SecretSource("SMTP_PASSWORD", "file", NOW - timedelta(days=90)),
        SecretSource("WEBHOOK_SECRETS", "environment", None),
    ]
    factories.ArtifactFactory.create_batch(2, key_id=key_id(old))
    found = {status.name: status for status in secret_inventory.statuses(NOW)}
    assert [name for name, status in found.items() if status.is_old] == ["ARTIFACT_KEYS"]
    assert found["ARTIFACT_KEYS"].use == (
        f"{key_id(new)} in use, seals new artifacts, 0 stored; {key_id(old)} opens older artifacts, 2 stored"
    )
    assert found["LLM_API_KEY"].age_days is None
    assert found["WEBHOOK_SECRETS"].use == "2 in use, each signs every webhook"
    out, errors = StringIO(), StringIO()
    settings.SECRET_SOURCES = [SecretSource("ARTIFACT_KEYS", "file", datetime(2020, 1, 1, tzinfo=UTC))]
    call_command("secrets_status", stdout=out, stderr=errors)
    assert "WARNING: ARTIFACT_KEYS is older than 90 days" in errors.getvalue()
    for value in (old, new, *settings.WEBHOOK_SECRETS, settings.SECRET_KEY):
        assert value not in out.getvalue() + errors.getvalue()
    with pytest.raises(CommandError):
        call_command("secrets_status", "--fail", stdout=out, stderr=errors)


@pytest.mark.django_db
def test_a_key_that_seals_an_excerpt_or_archived_letters_may_not_be_removed(settings: Any) -> None:
    new, excerpts, letters, unused = (Fernet.generate_key().decode() for _ in range(4))
    settings.SECRET_SOURCES = [SecretSource("ARTIFACT_KEYS", "file", NOW)]
    settings.ARTIFACT_KEYS = [excerpts]
    factories.FindingRowFactory(excerpt=[[1, "+", "return 2;"]])
    LetterArchive.objects.create(
        name="one", sha256="0" * 64, key_id=key_id(letters), letter_count=1, first_letter=1, last_letter=1
    )
    settings.ARTIFACT_KEYS = [new, excerpts, letters, unused]
    (status,) = secret_inventory.statuses(NOW)
    assert status.use.split("; ")[1:] == [
        f"{key_id(excerpts)} opens older artifacts, 1 stored",
        f"{key_id(letters)} opens older artifacts, 1 stored",
        f"{key_id(unused)} opens older artifacts, 0 stored, may be removed",
    ]


@pytest.mark.django_db
def test_the_model_server_is_asked_which_key_it_accepts(settings: Any) -> None:
    settings.SECRET_SOURCES = [
        SecretSource(name, "environment", None) for name in ("LLM_API_KEY", "LLM_API_KEY_NEXT")
    ]
    settings.LLM_PROVIDER, settings.LLM_API_KEYS = "openai", ["old-key", "new-key"]

    def uses() -> list[str]:
        return [status.use.partition(";")[0] for status in secret_inventory.statuses(NOW, ask=True)]

    with FakeLlm(refused_keys=frozenset({"old-key"})) as server:
        settings.LLM_BASE_URL = server.base_url
        assert uses() == ["refused now", "accepted now"]
    assert uses() == ["not answered now (NETWORK_UNREACHABLE)"] * 2


@pytest.mark.django_db
def test_api_keys_are_listed_with_age_and_last_use_until_they_are_revoked() -> None:
    factories.ApiKeyFactory(name="ci", created_at=NOW - timedelta(days=120), last_used_at=NOW)
    factories.ApiKeyFactory(name="gone", revoked_at=NOW)
    found = {status.name: status for status in secret_inventory.statuses(NOW)}
    assert found["API key ci"].is_old
    assert found["API key ci"].use == "last used 2026-06-01"
    assert "API key gone" not in found


def test_every_credential_of_the_settings_is_in_the_status() -> None:
    """A new setting that looks like a secret must be known to the status and to the redactor."""
    known = {source.name for source in configured.SECRET_SOURCES} | {
        "LLM_API_KEYS",
        "SECRET_SOURCES",
        "IMAP_ARCHIVE_PASSWORD",
    }
    looks = [
        name
        for name in dir(configured)
        if name.isupper()
        and any(word in name for word in ("SECRET", "PASSWORD", "API_KEY", "_KEYS", "TOKEN"))
        and configured.is_overridden(name)
        and not name.startswith(("AUTH_PASSWORD", "PASSWORD_HASHERS", "LLM_MAX", "TOKEN_LIMIT"))
    ]
    assert set(looks) <= known
    assert len(looks) >= 6


@pytest.fixture
def from_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Secret, Path]:
    monkeypatch.setattr("criticizer.redaction.known_secrets._registered", OwnSecrets())
    file = tmp_path / "password"
    file.write_text("planted-in-a-file-1\n")
    return variables.secret(Environment({"SMTP_PASSWORD_FILE": str(file)}), "SMTP_PASSWORD"), file


def test_a_secret_is_read_when_it_is_used_and_known_before_it_is_handed_out(
    from_file: tuple[Secret, Path],
) -> None:
    secret, file = from_file
    assert list(secret) == ["planted-in-a-file-1"]
    file.write_text("planted-in-a-file-2\n")
    assert "planted-in-a-file-2" in mask("planted-in-a-file-2")
    assert secret[0] == "planted-in-a-file-2"
    assert mask("planted-in-a-file-2 planted-in-a-file-1") == f"{MASK} {MASK}"
    written = iter(("planted-as-it-is-read-1", "planted-as-it-is-read-2"))
    value = Secret("SMTP_PASSWORD", lambda: [next(written)])[0]
    assert mask(str(value)) == MASK
    file.write_text("two\nlines")
    with pytest.raises(ImproperlyConfigured, match="SMTP_PASSWORD_FILE: holds line breaks"):
        secret[0]
    file.write_text("")
    with pytest.raises(ImproperlyConfigured, match="SMTP_PASSWORD_FILE: the file is empty"):
        bool(secret)


def test_a_file_caught_empty_while_it_is_written_is_no_missing_key(tmp_path: Path) -> None:
    """A read during a rotation, which truncates the file and then writes it, fails.

    The next read has the new value.
    """
    file, following = tmp_path / "key", tmp_path / "next"
    file.write_text("first-value-1")
    following.write_text("second-value-2")
    names = {"LLM_API_KEY_FILE": str(file), "LLM_API_KEY_NEXT_FILE": str(following)}
    key = variables.secret(Environment(names), "LLM_API_KEY")
    file.write_text("")
    with pytest.raises(ImproperlyConfigured, match="LLM_API_KEY_FILE: the file is empty"):
        list(key)
    file.write_text("second-value-2")
    following.write_text("")  # a rotation that is over
    assert list(key) == ["second-value-2"]
    file.write_text("")
    assert list(variables.secret(Environment(names), "LLM_API_KEY")) == []  # never set


def test_the_values_of_a_secret_and_of_its_next_are_tried_in_order() -> None:
    env = {"LLM_API_KEY_NEXT": "planted-second", "WEBHOOK_SECRETS": "whsec_b25l,whsec_dHdv"}
    assert list(variables.secret(Environment(env), "LLM_API_KEY")) == ["planted-second"]
    env["LLM_API_KEY"] = "planted-first"
    assert list(variables.secret(Environment(env), "LLM_API_KEY")) == ["planted-first", "planted-second"]
    assert list(variables.secret(Environment(env), "WEBHOOK_SECRETS")) == ["whsec_b25l", "whsec_dHdv"]
    url = {"IMAP_ARCHIVE_URL": "imaps://robot:p%40ss-word@h/A", "IMAP_ARCHIVE_PASSWORD_NEXT": "next-one"}
    assert list(variables.archive_password(Environment(url))) == ["p@ss-word", "next-one"]


def with_locals(secret: Secret) -> str:
    password = secret[0]
    config = SmtpConfig("h", 25, "a@b.test", passwords=secret)
    try:
        raise RuntimeError(f"{config} {len(password)}")
    except RuntimeError as error:
        return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())


def as_logged(secret: Secret) -> str:
    with structlog.testing.capture_logs(processors=[redact_event]) as events:
        structlog.get_logger().error("x", a=secret, b=list(secret), c={"d": secret[0]}, e=f"said {secret[0]}")
    return str(events)


def on_debug_page(secret: Secret, text: str) -> str:
    try:
        password = secret[0]
        raise RuntimeError(f"{password} was refused")
    except RuntimeError:
        reporter = MaskingReporter(RequestFactory().get("/"), *sys.exc_info())
        return reporter.get_traceback_html() if text == "html" else reporter.get_traceback_text()


RENDERED: dict[str, Callable[[Secret], str]] = {
    "repr": repr,
    "str": str,
    "format": "{0} {0!r} {0!s}".format,
    "pprint": pprint.pformat,
    "values in a list": lambda secret: repr([list(secret), secret[:], {"password": secret[0]}]),
    "configuration": lambda secret: repr(SlackConfig(secret)) + repr(LlmConfig("u", "m", secret)),
    "locals": with_locals,
    "log": as_logged,
    "debug page": lambda secret: on_debug_page(secret, "html"),
    "mail to administrators": lambda secret: on_debug_page(secret, "text"),
    "known secrets": lambda secret: f"{secret[0] and registered()!r} {vars(registered())}",
}


@pytest.mark.parametrize("way", RENDERED)
def test_nothing_that_prints_a_secret_shows_its_value(from_file: tuple[Secret, Path], way: str) -> None:
    said = RENDERED[way](from_file[0])
    assert said
    assert "planted-in-a-file" not in said


def test_a_secret_and_its_values_are_not_pickled_copied_or_serialized(from_file: tuple[Secret, Path]) -> None:
    for thing in (from_file[0], from_file[0][0]):
        for use in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be copied or pickled"):
                use(thing)
    with pytest.raises(TypeError):
        json.dumps(from_file[0])


@pytest.mark.long
def test_the_settings_hold_no_value_but_those_that_django_takes() -> None:
    """No module attribute of the settings, in a process of its own, holds a secret.

    Their dictionaries are included.
    """
    program = (
        "import django; django.setup(); import criticizer.settings as s;"
        "print({k: v for k, v in vars(s).items() if k != '__builtins__'})"
    )
    said = _run([sys.executable, "-c", program], Path(tempfile.mkdtemp()))
    assert "<secret SMTP_PASSWORD>" in said
    # Named in docs/rotation.md: Django takes SECRET_KEY and the passwords of DATABASES as text.
    allowed = {SECRETS["SECRET_KEY"], "planted-db-password", "planted-owner-password"}
    assert [needle for needle in NEEDLES if needle in said and needle not in allowed] == []


# -- nowhere shown -------------------------------------------------------------------------------


def test_own_secrets_are_masked_in_every_usual_spelling(own: str) -> None:
    text = mask(f"a {own} b {own.encode().hex()} c {own.replace('-', '%2D')}")
    assert own not in text
    assert own.encode().hex() not in text
    assert text.count(MASK) >= 2


def failing(own: str) -> Any:
    request = RequestFactory().get("/", HTTP_X_NOTE=own)
    kept = {"local": own}
    try:
        raise RuntimeError(f"refused: {kept['local']}")
    except RuntimeError:
        return MaskingReporter(request, *sys.exc_info())


def test_djangos_error_report_holds_no_own_secret_even_with_debug(own: str, settings: Any) -> None:
    settings.DEBUG = True
    report = failing(own)
    page, text = report.get_traceback_html(), report.get_traceback_text()
    assert "refused" in page
    assert own not in page
    assert "refused" in text
    assert own not in text


SECRETS = {
    "SECRET_KEY": "planted-secret-key-" * 4,
    "ARTIFACT_KEYS": "cGxhbnRlZC1hcnRpZmFjdC1rZXktMzItYnl0ZXMhISE=",
    "LLM_API_KEY": "planted-llm-key-one",
    "LLM_API_KEY_NEXT": "planted-llm-key-two",
    "SMTP_PASSWORD": "planted-smtp-one",
    "SMTP_PASSWORD_NEXT": "planted-smtp-two",
    "IMAP_ARCHIVE_PASSWORD_NEXT": "planted-imap-two",
    "WEBHOOK_SECRETS": "whsec_cGxhbnRlZC13ZWJob29r",
    "IMAP_ARCHIVE_URL": "imaps://robot:planted-imap-password@mail.example.com/Archive",
    "RESEND_API_KEY": "planted-resend-one",
    "RESEND_API_KEY_NEXT": "planted-resend-two",
    "RESEND_WEBHOOK_SECRETS": "whsec_cGxhbnRlZC1yZXNlbmQ=",
    "POSTMARK_SERVER_TOKEN": "planted-postmark-one",
    "POSTMARK_SERVER_TOKEN_NEXT": "planted-postmark-two",
    "POSTMARK_WEBHOOK_AUTH": "postmark:planted-postmark-password",
    "DATABASE_URL": "postgres://app:planted-db-password@127.0.0.1:9/nowhere",
    "DATABASE_OWNER_URL": "postgres://owner:planted-owner-password@127.0.0.1:9/nowhere",
}
S = "from django.conf import settings as s"
NEEDLES = [value for name, value in SECRETS.items() if "URL" not in name] + [
    "planted-db-password",
    "planted-owner-password",
    "planted-imap-password",
    "planted-postmark-password",
]


COMMANDS = [
    ["check", "--deploy"],
    ["diffsettings", "--all"],
    ["secrets_status"],  # fails: there is no database
    ["migrate"],
    ["no_such_command"],
    ["shell", "-c", f"{S}; import structlog; structlog.get_logger().error("
                    "'x', a=s.LLM_API_KEYS, b=s.SECRET_KEY, c=str(s.DATABASES))"],
    ["shell", "-c", f"{S}; raise ValueError(s.DATABASES, s.SMTP_PASSWORD)"],
]  # fmt: skip
# Runs manage.py with each list of arguments, as the interpreter would, to its end or its traceback.
EACH = """
import json, runpy, sys
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["manage.py", *arguments]
    try:
        runpy.run_path("manage.py", run_name="__main__")
    except SystemExit as end:
        print(end.code if isinstance(end.code, str) else "", file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    print("== end of", *arguments[:1], flush=True)
"""


@pytest.mark.long
def test_no_command_prints_a_configured_secret(tmp_path: Path) -> None:
    """A process of its own with every credential planted: standard output and error hold none."""
    done = _run([sys.executable, "-c", EACH, json.dumps(COMMANDS)], tmp_path)
    *said, rest = re.split(r"^== end of .*\n", done, flags=re.MULTILINE)
    assert (len(said), rest) == (len(COMMANDS), "")
    for command, text in zip(COMMANDS, said, strict=True):
        assert text.strip(), command
        assert [needle for needle in NEEDLES if needle in text] == [], command


def _run(command: list[str], data: Path) -> str:
    """Return what a process says that has every credential planted."""
    environment = {
        "PATH": os.environ["PATH"],
        "DJANGO_SETTINGS_MODULE": "criticizer.settings",
        "CRITICIZER_DATA_DIR": str(data),
        "DEPOT_ALLOW_LIST": "//depot/main/...",
        "SMTP_HOST": "mail.example.com",
        "IMAP_ARCHIVE_ADDRESS": "archive@example.com",
        "BASE_URL": "https://criticizer.example.com",
        **SECRETS,
    }
    done = subprocess.run(
        command,
        cwd=configured.BASE_DIR,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout


@pytest.mark.long
def test_a_malformed_database_url_stops_the_start_without_being_repeated(tmp_path: Path) -> None:
    """The check runs in a process of its own, as the URL's parser could warn.

    `test_variables` tries every secret.
    """
    environment = {
        "PATH": os.environ["PATH"],
        "CRITICIZER_DATA_DIR": str(tmp_path),
        "DEPOT_ALLOW_LIST": "//depot/main/...",
        "IMAP_ARCHIVE_ADDRESS": "archive@example.com",
        **SECRETS,
        "DATABASE_URL": "planted nonsense",
    }
    done = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=configured.BASE_DIR, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "planted nonsense" not in done.stdout + done.stderr
    assert done.returncode != 0
    assert done.stderr.startswith("criticizer: DATABASE_URL: is not a PostgreSQL URL. Set ")


# -- storages ------------------------------------------------------------------------------------


def test_artifacts_and_removed_letters_in_s3_lie_in_a_bucket_each(tmp_path: Path) -> None:
    values = {
        "ARTIFACT_STORAGE": "s3",
        "ARTIFACT_S3_BUCKET_RAW": "raw",
        "ARTIFACT_S3_BUCKET_REDACTED": "redacted",
        "ARTIFACT_S3_BUCKET_LETTERS": "letters",
        "ARTIFACT_S3_ENDPOINT": "https://s3.example.com",
        "DEPOT_ALLOW_LIST": "//depot/main/...",
        "CRITICIZER_DATA_DIR": str(tmp_path),
    }

    def made(**changes: str) -> dict[str, dict[str, Any]]:
        return artifact_storages(variables.read(Environment({**values, **changes})), tmp_path)

    assert {alias: storage["OPTIONS"]["bucket_name"] for alias, storage in made().items()} == {
        "artifacts_raw": "raw",
        "artifacts_redacted": "redacted",
        "letter_archive": "letters",
    }
    assert {storage["BACKEND"] for storage in made().values()} == {"storages.backends.s3.S3Storage"}
    for name, taken in (("ARTIFACT_S3_BUCKET_REDACTED", "raw"), ("ARTIFACT_S3_BUCKET_LETTERS", "redacted")):
        with pytest.raises(ImproperlyConfigured, match=f"^{name}: is also the bucket of other files"):
            made(**{name: taken})
    with pytest.raises(ImproperlyConfigured, match="ARTIFACT_S3_BUCKET_RAW: is not set"):
        made(ARTIFACT_S3_BUCKET_RAW="")
