"""The `.env` file: read as other programs read theirs; the shipped example starts as it is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from criticizer.environment import dotenv

EXAMPLE = (settings.BASE_DIR / ".env.example").read_text()
# What the example cannot hold: secrets, and programs of the machine.
FILLED = {
    "SECRET_KEY": "not-a-real-key-" * 4,
    "ARTIFACT_KEYS": Fernet.generate_key().decode(),
    "LLM_PROVIDER": "openai",
    "P4_EXECUTABLE": sys.executable,
    "SWARM_TICKET": "0123456789ABCDEF",
    "POSTMARK_WEBHOOK_AUTH": "postmark:for-tests",
    "WEBHOOK_SECRETS": "whsec_bm90LWEtcmVhbC1zZWNyZXQ=",
}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("N=none               # none, openai (any)", "none"),
        ("N=pa#ss", "pa#ss"),
        ("N=pa#ss # word", "pa#ss"),
        ("N=#hash", "#hash"),
        ("N=", ""),
        ("N=                # a comment alone", ""),
        ("N=a\t# after a tab", "a"),
        ("N=two words", "two words"),
        ("N=$ecret", "$ecret"),
        ("N=http://a/#b", "http://a/#b"),
        ("  export N = a ", "a"),
        ("N='a # b'", "a # b"),
        ("N='a # b' # c", "a # b"),
        (r"N='it\'s a \n'", r"it's a \n"),
        (r'N="a # \"b\" \\ \d"', r'a # "b" \ \d'),
        ('N=""', ""),
        ("N=it's", "it's"),
        ("\ufeff# first\nN=a\r\n\n#N=b", "a"),
        ("N=a\nN=b", "b"),
    ],
)
def test_a_line_is_read_as_elsewhere(tmp_path: Path, line: str, value: str) -> None:
    (tmp_path / ".env").write_text(line)
    environment: dict[str, str] = {}
    dotenv.load(tmp_path / ".env", environment)
    assert environment == {"N": value}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A=b\nhunter2", "line 2 is not NAME=value"),
        ("2B=hunter2", "line 1 is not NAME=value"),
        ("A='hunter2", "line 1 has a quote without its end"),
        ("A='hunter2' hunter2", "line 1 has a quote without its end"),
        ('A="hunter2', "line 1 has a quote without its end"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_and_not_repeated(text: str, words: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=words) as refused:
        dotenv.parse(text)
    assert "hunter2" not in str(refused.value)


def test_what_is_set_already_stays_and_no_file_is_no_error(tmp_path: Path) -> None:
    environment = {"A": "set"}
    dotenv.load(tmp_path / ".env", environment)
    (tmp_path / ".env").write_text("A=file\nB=file\n")
    dotenv.load(tmp_path / ".env", environment)
    assert environment == {"A": "set", "B": "file"}
    (tmp_path / ".env").write_bytes(b"A=\xff\xfe")
    with pytest.raises(ImproperlyConfigured, match="cannot be read"):
        dotenv.load(tmp_path / ".env", environment)


# A `.env` beside `manage.py`, without writing one over somebody's own.
_WITH_A_FILE = """
import sys
from importlib import import_module
from pathlib import Path
read = Path.read_text
text = "SMTP_HOST=real.example.com\\nMAIL_FROM=real@example.com\\nSLACK_BOT_TOKEN=xoxb-real\\n"
Path.read_text = lambda path, *a, **k: text if path.name == ".env" else read(path, *a, **k)
module = import_module(sys.argv[1])
print(repr(module.SMTP_HOST), module.MAIL_FROM, module.os.environ.get("SLACK_BOT_TOKEN"))
"""


def with_a_file(module: str, place: Path) -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "CRITICIZER_DATA_DIR": str(place),
        "DEPOT_ALLOW_LIST": "//depot/main/...",
    }
    done = subprocess.run(
        [sys.executable, "-c", _WITH_A_FILE, module], cwd=settings.BASE_DIR, env=environment,
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.mark.long
def test_tests_and_benchmarks_read_no_file_of_the_checkout(tmp_path: Path) -> None:
    """It names somebody's real mail server, database and model."""
    assert with_a_file("criticizer.settings", tmp_path) == "'real.example.com' real@example.com xoxb-real"
    for module in ("tests.settings", "benchmarks.settings"):
        assert with_a_file(module, tmp_path) == "'' criticizer@localhost None", module


def test_a_process_that_is_told_so_reads_no_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=file\n")
    environment = {dotenv.IGNORED: "1"}
    dotenv.load(tmp_path / ".env", environment)
    assert environment == {dotenv.IGNORED: "1"}
    environment = {dotenv.IGNORED: ""}
    dotenv.load(tmp_path / ".env", environment)
    assert environment == {dotenv.IGNORED: "", "A": "file"}


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the program, with a place for a `.env` of its own."""
    place = tmp_path_factory.mktemp("installation")
    for room in ("criticizer", "reviews", "notifications", "deadletters", "templates"):
        shutil.copytree(settings.BASE_DIR / room, place / room)  # what is compiled comes along
    shutil.copy(settings.BASE_DIR / "manage.py", place)
    return place


def checked(place: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run `manage.py check` of an installation in an empty environment, with this `.env`."""
    (place / ".env").write_text(text)
    return subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=place, env={"PATH": os.environ["PATH"]},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_the_example_starts_as_it_is(installation: Path) -> None:
    done = checked(installation, EXAMPLE)
    assert done.returncode == 0, done.stderr
    assert (installation / "var" / "secrets" / "secret_key").exists()


def uncommented() -> list[str]:
    """Return the example's lines with every variable in them set."""
    return [re.sub(r"^#(?=[A-Z0-9_]+=)", "", line) for line in EXAMPLE.splitlines()]


@pytest.mark.long
def test_the_example_starts_with_every_line_uncommented(installation: Path) -> None:
    lines = []
    for line in uncommented():
        name = line.partition("=")[0]
        lines.append(f"{name}={FILLED[name]}   # for the test" if name in FILLED else line)
    done = checked(installation, "\n".join(lines))
    assert done.returncode == 0, done.stderr
    assert "ERRORS" not in done.stderr


def test_a_comment_behind_any_line_of_the_example_is_no_part_of_its_value() -> None:
    """As the file had them once."""
    alone = [line for line in uncommented() if re.match(r"[A-Z0-9_]+=\S", line)]
    values = dotenv.parse("\n".join(f"{line}    # a comment" for line in alone))
    assert values == {line.partition("=")[0]: line.partition("=")[2] for line in alone}
