"""Secrets of code hosts: none gets out, in refusals that repeat it and dead letters too."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.apps import apps
from django.core import serializers

from deadletters.models import DeadLetter
from reviews.artifacts import store
from reviews.models import Artifact, ReviewJob
from tests.fakes.github import Act, private_key
from tests.hosts import deliveries, sides
from tests.hosts.sides import Site
from tests.stack import eventually

pytestmark = [pytest.mark.cluster(seconds=40), pytest.mark.long, pytest.mark.django_db(transaction=True)]


@contextmanager
def arguments_of_children() -> Iterator[set[str]]:
    """Collect the command lines of every process below this one, as long as the block runs."""
    seen, ended = set[str](), threading.Event()

    def watch() -> None:
        while not ended.wait(0.005):
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    seen.add("\0".join(process.cmdline()))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def test_check_11_no_secret_is_in_a_log_a_row_an_artifact_an_argument_or_a_file(
    tmp_path: Path, transactional_db: None, settings: Any
) -> None:
    with sides.running(tmp_path) as both, arguments_of_children() as arguments:
        for is_long in (False, True):
            both.api.has_long_tokens = is_long
            site = Site(both, tmp_path, f"long-{is_long}/web".lower())
            assert site.ended(site.report(site.push())).status == "succeeded"
            # GitHub refuses the token, and a rude proxy before it repeats all that it got.
            echo = {"message": ""}
            refusal = Act(
                keep=False, status=401, body=echo, before=lambda e=echo: e.update(message=said(both))
            )
            both.api.script(*[refusal] * 20, on=f"PATCH {site.path}/issues/comments/")
            refused = site.report(site.push())
            assert site.ended(refused).status == "dead_lettered"
            other = Site(both, tmp_path, f"git-{is_long}/web".lower())
            both.host.accepts = lambda password: False
            unread = other.report(other.push())
            assert other.ended(unread).status == "dead_lettered"
            both.host.accepts = both.api.accepts
        eventually(lambda: DeadLetter.objects.count() == 4)
        logs = both.stack.logs()
    secrets = secrets_of(both)
    assert len(secrets) > 12
    assert any("fetch" in line.split("\0") for line in arguments)
    for secret in secrets:
        assert secret not in logs
        assert not [line for line in arguments if secret in line]
    stored = "".join(serializers.serialize("json", kind._default_manager.all()) for kind in apps.get_models())
    assert not [secret for secret in secrets if secret in stored]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if path.name == "config" and "mirrors" in path.parts]
    for path in files:
        content = path.read_bytes()
        assert not [secret for secret in secrets if secret.encode() in content], path
    read = [content for artifact in artifacts(settings, tmp_path) for content in [store.content_of(artifact)]]
    assert len(read) >= ReviewJob.objects.filter(status="succeeded").count() > 0
    assert not [secret for secret in secrets if any(secret.encode() in content for content in read)]


def said(both: sides.Sides) -> str:
    """Return what an answer may repeat: the last call's headers, and every token."""
    return json.dumps([dict(both.api.calls[-1].headers), *both.api.tokens])


def secrets_of(both: sides.Sides) -> set[str]:
    """Return the webhook's secret, the lines of the key, and all tokens, also as git sends them."""
    shown = {call.headers.get("authorization", "").partition(" ")[2] for call in both.api.calls}
    tokens = {*both.api.tokens, *shown} - {""}
    logins = {base64.b64encode(f"x-access-token:{token}".encode()).decode() for token in both.api.tokens}
    return {deliveries.SECRET, *private_key().splitlines()[1:-2], *tokens, *logins}


def artifacts(settings: Any, directory: Path) -> list[Artifact]:
    """Return the stored files of all jobs, where the installation has put them."""
    local = "django.core.files.storage.FileSystemStorage"
    places = {
        name: {"BACKEND": local, "OPTIONS": {"location": directory / name}}
        for name in ("artifacts_raw", "artifacts_redacted")
    }
    settings.STORAGES = {**settings.STORAGES, **places}
    return list(Artifact.objects.filter(deleted_at=None))
