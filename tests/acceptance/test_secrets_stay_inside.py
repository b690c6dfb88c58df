"""A secret in a change reaches no model, log, mail, row, answer or page."""

from __future__ import annotations

import base64
import io
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import EmailMessage
from typing import Any

import pytest
import structlog
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.urls import reverse

from criticizer.redaction import known_secrets, register_own_secrets
from reviews.artifacts import store
from reviews.intake import api_keys
from reviews.models import Artifact
from tests import skips
from tests.acceptance import stages
from tests.acceptance.world import MAIL, World
from tests.api.conftest import ApiClient
from tests.fakes.llm import Recorded, Reply
from tests.fakes.p4.server import added, deleted, edited
from tests.fakes.smtp import SmtpServer, Switches
from tests.redaction.fakes import ALNUM, begin, draw, end, password, pem_lines

PATH = "//depot/main/settings.py"
# How many rows of a table have their pages opened in the admin. The rows themselves are all searched, and
# so are the artifacts and the pages of dead letters. `make test` opens pages of the admin in the test that
# plants every kind of secret, as many as there are plantings; `make test-all` opens more, in every test.
IS_ALL = skips.is_all()
MANY_ROWS = 25 if IS_ALL else 3
SOME_ROWS = 25 if IS_ALL else 0


@dataclass(frozen=True)
class Planted:
    """Text that holds a secret, and the parts of it that must be seen nowhere."""

    text: str
    needles: tuple[str, ...]


def _planted() -> dict[str, Planted]:
    token = "gh" + "p_" + draw(36, ALNUM, seed=11)
    pem, word, uri_word = pem_lines(5, seed=12), password(13), draw(14, ALNUM, seed=14)
    return {
        "token": Planted(f"deploy({token!r})", (token,)),
        "pem": Planted("\n".join([begin(), *pem, end()]), tuple(pem)),
        "password": Planted(f'DB_PASSWORD = "{word}"', (word,)),
        "uri": Planted(f'DSN = "postgres://app:{uri_word}@db.example.com/app"', (uri_word,)),
    }


PLANTED = _planted()
KINDS = sorted(PLANTED)
PLANTED["all"] = Planted(
    "\n".join(PLANTED[kind].text for kind in KINDS),
    tuple(needle for kind in KINDS for needle in PLANTED[kind].needles),
)


def in_a_new_file(world: World, text: str) -> str:
    return world.depot.submit(added(PATH, f"import os\n{text}\nos.getcwd()\n"))


def in_an_added_line(world: World, text: str) -> str:
    return world.depot.submit(edited(PATH, "import os\n", f"import os\n{text}\n"))


def in_a_removed_line(world: World, text: str) -> str:
    return world.depot.submit(edited(PATH, f"import os\n{text}\n", "import os\n"))


def in_a_deleted_file(world: World, text: str) -> str:
    return world.depot.submit(deleted(PATH, f"{text}\n"), added("//depot/main/b.py", "import sys\n"))


def in_the_description(world: World, text: str) -> str:
    return world.depot.submit(added(PATH, "import os\n"), description=f"{text}\n\nMore words.\n")


# All kinds at once in each place; in `make test-all` each kind alone too, where most secrets are added.
PLANTINGS = [("all", place) for place in (in_a_new_file, in_a_removed_line, in_the_description)]
if IS_ALL:
    PLANTINGS += [("all", place) for place in (in_an_added_line, in_a_deleted_file)]
    PLANTINGS += [(kind, in_a_new_file) for kind in KINDS]


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """Collect what the process writes to standard error, as its own formatter renders it."""
    root = logging.getLogger()
    formatter = next(
        handler.formatter
        for handler in root.handlers
        if isinstance(handler.formatter, structlog.stdlib.ProcessorFormatter)
    )
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(formatter)
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield lines
    root.setLevel(level)
    root.removeHandler(handler)


def rows_of_every_table() -> Iterator[tuple[str, str]]:
    """Yield (table, row as text) for all there is in the database."""
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT t::text FROM "{table}" t')
            for (row,) in cursor.fetchall():
                # A document is stored with its characters escaped.
                yield table, row.replace('\\"', '"').replace("\\n", "\n")


def texts_of(mail: EmailMessage) -> Iterator[str]:
    yield from (str(value) for value in mail.values())
    for part in mail.walk():
        if not part.is_multipart():
            yield str(part.get_content())


def pages(jobs: list[int], rows: int) -> Iterator[tuple[str, str]]:
    """Yield (address, text) of what API clients and people with an account can read."""
    operator = ApiClient(api_keys.create("operator", "operator"))
    browser = Client()
    browser.force_login(get_user_model().objects.create_superuser("ann"))
    for client, paths in (
        (
            operator,
            [*(f"/api/v1/reviews/{job}/" for job in jobs), "/api/v1/reviews/", "/api/v1/dead-letters/",
             "/metrics"],
        ),
        (
            browser,
            ["/", "/admin/deadletters/deadletter/", *(f"/reviews/{job}/" for job in jobs),
             *(f"/reviews/{job}/live/" for job in jobs),
             *(f"/admin/reviews/reviewjob/{job}/change/" for job in jobs)],
        ),
    ):  # fmt: skip
        for path in paths:
            answer = client.get(path)
            assert answer.status_code == 200, (path, answer.status_code)
            yield path, answer.content.decode()
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM dead_letters")
        for (letter,) in cursor.fetchall():
            for client, path in (
                (operator, f"/api/v1/dead-letters/{letter}/"),
                (browser, f"/admin/deadletters/deadletter/{letter}/change/"),
            ):
                answer = client.get(path)
                assert answer.status_code == 200, (path, answer.status_code)
                yield path, answer.content.decode()
    yield from the_admin(browser, rows)
    yield from error_pages(browser)
    yield from error_pages(operator)


def the_admin(browser: Client, rows: int) -> Iterator[tuple[str, str]]:
    """Yield the pages of the admin, as (name, text).

    They are each list, the pages and histories of its last rows, and each redacted artifact.
    """
    for model in admin.site._registry:
        base = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        keys = model._default_manager.order_by("-pk").values_list("pk", flat=True)[:rows]
        addresses = [reverse(f"{base}_changelist")] if keys or rows >= MANY_ROWS else []
        addresses += [reverse(f"{base}_{view}", args=[pk]) for pk in keys for view in ("change", "history")]
        for address in addresses:
            answer = browser.get(address)
            assert answer.status_code in {200, 302, 403}, (address, answer.status_code)
            yield f"console {model._meta.model_name}", answer.content.decode()
    for artifact in Artifact.objects.filter(is_raw=False):
        answer = browser.get(reverse("admin:reviews_artifact_content", args=[artifact.pk]))
        assert answer.status_code == 200
        yield f"artifact page {artifact.kind}", answer.content.decode()
    for address in ("/admin/", "/admin/reviews/allowlistentry/explain/?path=" + PATH):
        yield "console", browser.get(address).content.decode()


def error_pages(client: Client) -> Iterator[tuple[str, str]]:
    for address in ("/nothing/", "/reviews/999999/", "/admin/nothing/", "/api/v1/reviews/999999/",
                    "/api/v1/reviews/?page=x", "/readyz"):  # fmt: skip
        yield "error page", client.get(address).content.decode()
    yield (
        "error page",
        client.post("/api/v1/reviews/", b"{", content_type="application/json").content.decode(),
    )
    yield "error page", client.get("/", headers={"host": "elsewhere.example.com"}).content.decode()


def redacted_artifacts() -> Iterator[tuple[str, str]]:
    """Yield what lies sealed on disk and is called redacted, opened."""
    for artifact in Artifact.objects.filter(is_raw=False):
        yield f"artifact {artifact.kind}", store.content_of(artifact).decode().replace('\\"', '"')


def everything_outside(
    world: World, jobs: list[int], logged: io.StringIO, rows: int = SOME_ROWS
) -> Iterator[tuple[str, str]]:
    """Yield (where, text) of all that has left the worker's memory in the clear."""
    for request in world.llm.requests:
        yield "model request", json.dumps(request.body, ensure_ascii=False)
        yield "model headers", str(request.headers)
    yield from rows_of_every_table()
    for mail in world.mails():
        for text in texts_of(mail):
            yield "mail", text
    for received in world.receiver.requests:
        yield "webhook", json.dumps(received.body, ensure_ascii=False)
    for path in world.files.rglob("*"):
        if path.is_file() and "fake-p4" not in path.parts:
            yield f"file {path.name}", path.read_bytes().decode("latin-1")
            yield "file name", path.name
    yield from redacted_artifacts()
    yield from pages(jobs, rows)
    yield "log", logged.getvalue().replace('\\"', '"').replace("\\n", "\n")


def assert_inside(
    world: World, jobs: list[int], logged: io.StringIO, needles: tuple[str, ...], rows: int = SOME_ROWS
) -> None:
    looked_at = set()
    for where, text in everything_outside(world, jobs, logged, rows):
        looked_at.add(where)
        for needle in needles:
            assert needle not in text, f"{where} holds the secret"
    assert {"jobs", "attempts", "stage_runs", "log", "/", "/metrics", "error page"} <= looked_at
    if rows >= MANY_ROWS:
        assert {f"console {model._meta.model_name}" for model in admin.site._registry} <= looked_at


def test_a_planted_secret_stays_inside(world: World, logged: io.StringIO) -> None:
    """Every planting is a review of its own; then everything is searched once for all secrets."""
    jobs = {
        world.job(place(world, PLANTED[kind].text), MAIL, world.hook, key=f"{kind}-{place.__name__}"): place
        for kind, place in PLANTINGS
    }
    world.settle()
    assert len(jobs) == len(PLANTINGS) == len(world.mails()) == len(world.receiver.processed)
    assert len(world.llm.requests) >= len(jobs)
    for job, place in jobs.items():
        assert world.status(job) == "succeeded", place
        kinds = set(Artifact.objects.filter(job_id=job).values_list("kind", flat=True))
        assert kinds == {
            "change",
            "redacted",
            "prompt",
            "answer",
            "mail",
        }  # all of them are among what is searched
        if place in {in_a_new_file, in_an_added_line}:
            # The finding is reported all the same: by kind and line.
            found = world.api.get(f"/api/v1/reviews/{job}/").json()["findings"]
            assert [finding["line"] for finding in found if finding["category"] == "security"], place
    assert_inside(world, list(jobs), logged, PLANTED["all"].needles, MANY_ROWS)


def test_a_secret_in_a_file_name_stays_inside(world: World, logged: io.StringIO) -> None:
    (token,) = PLANTED["token"].needles
    jobs = {}
    for directory, status in (("main", "succeeded"), ("secret", "dead_lettered")):
        changelist = world.depot.submit(added(f"//depot/{directory}/{token}.py", "breakpoint()\n"))
        jobs[world.job(changelist, MAIL, world.hook, key=directory)] = status
    world.settle()
    assert {job: world.status(job) for job in jobs} == jobs
    assert_inside(world, list(jobs), logged, (token,))


@pytest.mark.long
def test_an_ordinary_file_name_is_shown_whole(world: World) -> None:
    path = "//depot/main/src/services/billing/2026-01-31_invoice_totals.test.py"
    job = world.job(world.depot.submit(added(path, "x = 1\n")), MAIL)
    world.settle()
    assert [row["file"] for row in world.api.get(f"/api/v1/reviews/{job}/").json()["coverage"]] == [path]


def test_a_secret_that_the_model_writes_is_not_passed_on(world: World, logged: io.StringIO) -> None:
    (token,) = PLANTED["token"].needles

    def answer(request: Recorded) -> Reply:
        finding: dict[str, Any] = {
            "file": PATH, "hunk": None, "quote": "import os", "quote_end": None, "side": "new",
            "category": "security", "rule_id": None, "severity": "high", "confidence": 90,
            "title": f"Uses {token}", "problem": f"The key is {token}.", "trigger": f"Calling {token}.",
            "suggestion": f"Remove {token}.",
        }  # fmt: skip
        return Reply(answer={"findings": [finding], "files_read": [PATH]})

    world.llm.server.respond = answer
    job = world.job(in_a_new_file(world, "os.getpid()"), MAIL, world.hook)
    world.settle()
    assert world.status(job) == "succeeded"
    sources = {found["source"] for found in world.api.get(f"/api/v1/reviews/{job}/").json()["findings"]}
    assert any(not source.startswith("check:") for source in sources), "the model's finding was dropped"
    assert_inside(world, [job], logged, (token,))


def test_an_error_that_quotes_secrets_keeps_them_out_of_dead_letter_attempt_and_log(
    world: World, logged: io.StringIO
) -> None:
    planted = PLANTED["all"]

    def break_down() -> None:
        try:
            json.loads(planted.text)
        except ValueError as error:
            raise RuntimeError(f"cannot read:\n{planted.text}\n") from error

    jobs = []
    for stage in ("fetch", "llm", "notify") if IS_ALL else ("llm",):
        stages.BEFORE[stage] = break_down
        changelist = world.depot.submit(added(PATH, f"import {stage}\n"))
        jobs.append(world.job(changelist, MAIL, key=stage))
        world.settle()
        del stages.BEFORE[stage]
    for job in jobs:
        assert world.status(job) == "dead_lettered"
        letter = world.letter(job)
        assert letter.error_class == "INTERNAL_BUG"
        assert "RuntimeError" in letter.last_stack
    assert_inside(world, jobs, logged, planted.needles, max(SOME_ROWS, 1))


@pytest.mark.long
def test_a_model_server_that_echoes_the_key_in_its_error_does_not_spread_it(
    world: World, logged: io.StringIO
) -> None:
    key = "sk-" + draw(40, ALNUM, seed=15)
    world.settings.LLM_API_KEYS = [key]
    world.llm.script(
        Reply(status=401, body=json.dumps({"error": {"message": f"Incorrect key: {key}", "code": key}}))
    )
    job = world.job(world.commit, MAIL)
    world.settle()
    assert world.letter(job).error_class == "AUTH_DENIED"
    world.llm.requests.clear()  # that server is the one place where the key belongs
    assert_inside(world, [job], logged, (key,))


@pytest.mark.long
def test_the_search_finds_a_secret_where_there_is_one(world: World, logged: io.StringIO) -> None:
    """The search above finds text in the clear in rows, pages, mail, requests and the log."""
    word = "conspicuousword"
    job = world.job(
        world.depot.submit(added(PATH, f"{word} = 1\n"), description=f"{word}\n"), MAIL, world.hook
    )
    stages.BEFORE["notify"] = lambda: logging.getLogger("test").warning("saw %s", word)
    world.settle()
    found = {where for where, text in everything_outside(world, [job], logged, rows=0) if word in text}
    assert found >= {"model request", "jobs", "mail", "webhook", "/", f"/reviews/{job}/", "log"}


@pytest.mark.long
def test_the_deployments_own_credentials_reach_only_the_servers_they_are_for(
    world: World, logged: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every configured credential is planted and echoed by its server; no output holds one."""
    monkeypatch.setattr(known_secrets, "_registered", known_secrets.OwnSecrets())
    mail, mail_next, model, model_next = (password(seed) + "-own" for seed in (21, 22, 23, 24))
    hook = "whsec_" + base64.b64encode(draw(24, ALNUM, seed=25).encode()).decode()
    needles = (
        mail,
        mail_next,
        model,
        model_next,
        hook,
        world.settings.SECRET_KEY,
        *world.settings.ARTIFACT_KEYS,
    )
    register_own_secrets(needles)
    monkeypatch.setattr(known_secrets, "current", [lambda: needles])
    server = world.enter(
        SmtpServer(Switches(user="u", refuse_login=f"535 5.7.8 {mail} and {mail_next} are wrong"))
    )
    world.settings.SMTP_HOST, world.settings.SMTP_PORT = "127.0.0.1", server.port
    world.settings.SMTP_USER, world.settings.SMTP_SECURITY = "u", "none"
    world.settings.SMTP_PASSWORD = (mail, mail_next)
    world.settings.LLM_API_KEYS = [model, model_next]
    world.settings.WEBHOOK_SECRETS = (hook,)
    job = world.job(in_a_new_file(world, f"log({mail!r}, {model!r}, {hook!r})"), MAIL, world.hook)
    world.settle()
    assert world.status(job) == "dead_lettered"
    assert world.letter(job).error_class == "AUTH_DENIED"
    assert server.dialogues >= 2  # both passwords were tried
    assert world.llm.requests
    for request in world.llm.requests:
        request.headers.clear()  # the one place where the model's key belongs
    assert_inside(world, [job], logged, needles)


def test_a_page_that_breaks_down_says_nothing_of_why(
    world: World, logged: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = PLANTED["all"]

    def break_down(*args: object, **kwargs: object) -> None:
        raise RuntimeError(f"cannot show:\n{planted.text}\n")

    job = world.job(world.change(), MAIL)
    world.settle()
    monkeypatch.setattr("reviews.web.views.results_of", break_down)
    monkeypatch.setattr("reviews.admin.jobs.results_of", break_down)
    browser = Client(raise_request_exception=False)
    browser.force_login(get_user_model().objects.create_superuser("mallory"))
    for address in (f"/reviews/{job}/", f"/admin/reviews/reviewjob/{job}/change/"):
        answer = browser.get(address)
        assert answer.status_code == 500
        for needle in planted.needles:
            assert needle not in answer.content.decode()
    said = logged.getvalue()
    assert "RuntimeError" in said
    for needle in planted.needles:
        assert needle not in said
