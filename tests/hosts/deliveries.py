"""Webhooks as GitHub sends them: recorded payloads, made ones, and their signatures."""

from __future__ import annotations

import gzip
import hashlib
import hmac
import json
import uuid
from pathlib import Path
from typing import Any

SECRET = "a secret of the tests"
APP_ID = "99"
PATH = "/api/v1/hosts/github/webhook/"
RECORDED = Path(__file__).resolve().parents[3] / "shared" / "data" / "github_webhook_examples.json.gz"
HEAD, BASE = "a" * 40, "b" * 40
Json = dict[str, Any]


def recorded() -> list[tuple[str, Json]]:
    """Return the recorded payloads with the names of their events; none where the file is not."""
    if not RECORDED.exists():
        return []
    with gzip.open(RECORDED) as file:
        return [(kind["name"], example) for kind in json.load(file) for example in kind["examples"]]


def pull_request(action: str = "opened", *, head: str = HEAD, at: int = 0, **changes: Any) -> Json:
    """Return a payload with the fields that are read. `at`: minutes of the host's time."""
    number = changes.pop("number", 7)
    base_ref = changes.pop("base_ref", "main")
    repository = changes.pop("repository", {"id": 500, "full_name": "Acme/Website"})
    return {
        "action": action,
        "number": number,
        "pull_request": {
            "number": number,
            "state": "closed" if action == "closed" else "open",
            "draft": action == "converted_to_draft",
            "head": {"sha": head, "ref": "topic"},
            "base": {"sha": BASE, "ref": base_ref},
            "updated_at": f"2026-01-31T12:{at:02}:00Z",
            **changes,
        },
        "repository": repository,
        "installation": {"id": 3},
        "sender": {"login": "ann", "type": "User"},
    }


def comment(
    body: str = "/review", *, association: str = "MEMBER", sender: str = "User", **issue: Any
) -> Json:
    return {
        "action": "created",
        "issue": {"number": 7, "state": "open", "pull_request": {"url": "https://x"}, **issue},
        "comment": {"id": 1, "body": body, "author_association": association, "user": {"type": sender}},
        "repository": {"id": 500, "full_name": "Acme/Website"},
        "installation": {"id": 3},
        "sender": {"login": "ann", "type": sender},
    }


def check(
    kind: str = "check_run", *, head: str = HEAD, app: int = int(APP_ID), numbers: tuple[int, ...] = ()
) -> Json:
    return {
        "action": "rerequested",
        kind: {"head_sha": head, "app": {"id": app}, "pull_requests": [{"number": one} for one in numbers]},
        "repository": {"id": 500, "full_name": "Acme/Website"},
        "installation": {"id": 3},
    }


def installation(action: str, number: int = 3) -> Json:
    return {"action": action, "installation": {"id": number, "account": {"login": "Acme"}}}


def repository(action: str, full_name: str = "Acme/Website") -> Json:
    return {"action": action, "repository": {"id": 500, "full_name": full_name}, "installation": {"id": 3}}


def signature(body: bytes, secret: str = SECRET) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def headers(body: bytes, event: str, *, delivery: str = "", secret: str = SECRET) -> dict[str, str]:
    return {
        "Content-Type": "application/json",
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": delivery or str(uuid.uuid4()),
        "X-Hub-Signature-256": signature(body, secret),
    }
