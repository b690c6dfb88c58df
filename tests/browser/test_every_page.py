"""Pictures of every page of the URL configuration, taken only on request.

CRITICIZER_SCREENSHOTS=directory python -m pytest tests/browser/test_every_page.py

CRITICIZER_PAGES=expression takes only the pages whose name it matches, such as `admin-auth_user`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.urls import reverse
from django.utils import timezone

from criticizer.models import Circuit
from notifications.preferences import unsubscribe
from reviews import verdicts
from reviews.models import FindingRow, RepositoryConfiguration, ReviewJob, ScanTarget, Subscription
from tests import factories
from tests.browser import scenes
from tests.browser.conftest import Visit
from tests.browser.looking import PICTURES, settled
from tests.browser.test_lists import busy_day
from tests.links import path_of
from tests.security.addresses import addresses, parameters
from tests.security.world import review_rows

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not PICTURES, reason="pictures are taken only with CRITICIZER_SCREENSHOTS=directory"),
]
WIDTHS = (390, 1280, 1920)
_NO_PAGES = {
    "admin:jsi18n",
    "admin:logout",
    "admin:autocomplete",
    "live",
    "csv",
    "content",
    "password_change_done",
}


def _world(ann: Any) -> None:
    """Rows for every list, as a busy installation has them."""
    scenes.live_workers()
    busy_day()
    scenes.list_of_reviews()
    scenes.failures()
    scenes.configuration()
    scenes.scans()
    review_rows("refund", "//shop/payments/refund.py")
    for factory in (
        factories.AllowListEntryFactory,
        factories.TeamRuleFactory,
        factories.SkippedPathFactory,
        factories.SuppressionFactory,
        factories.SecurityEventFactory,
    ):
        factory()
    Circuit.objects.create(
        name="llm:openai", state="open", reason="10 of 10 calls failed", changed_at=timezone.now()
    )
    factories.ApiKeyFactory(name="trigger-of-the-server")
    job = ReviewJob.objects.get(review_version=2, author="bob")
    found = FindingRow.objects.filter(job=job).order_by("pk")
    verdicts.give(found[1], "useful", "bob")
    verdicts.give(found[3], "wrong", "bob", "It is only reached in tests.")
    verdicts.comment(found[0], "carol", "The gateway deduplicates only for a day.")
    Subscription.objects.create(owner=ann, pattern="//shop/payments/...")


def _admin_pages() -> Iterator[tuple[str, str]]:
    """Yield (name, address) of the admin's own pages: lists, forms, and a row's pages."""
    for name, pattern in addresses():
        is_page = name not in _NO_PAGES and name.rpartition("_")[2] not in _NO_PAGES
        if not name.startswith("admin:") or not is_page or pattern.name is None:
            continue
        needed = parameters(pattern)
        if not needed:
            yield name.removeprefix("admin:"), reverse(name)
            continue
        table = next(
            (
                m
                for m in admin.site._registry
                if name.startswith(f"admin:{m._meta.app_label}_{m._meta.model_name}_")
            ),
            None,
        )
        row = table and table._default_manager.order_by("-pk").first()
        if row is not None and len(needed) == 1:
            yield name.removeprefix("admin:"), reverse(name, args=[quote(row.pk)])


def _readers_pages() -> Iterator[tuple[str, str]]:
    job = ReviewJob.objects.get(review_version=2, author="bob")
    of_job = {"done": "", "by-severity": "?view=findings", "compare": "compare/", "again": "again/"}
    yield from ((name, f"/reviews/{job.pk}/{path}") for name, path in of_job.items())
    finding = FindingRow.objects.filter(job=job).order_by("pk")[0]
    yield "finding", f"/reviews/{job.pk}/findings/{finding.pk}/"
    yield "file", f"/reviews/{job.pk}/files/1/"
    running = ReviewJob.objects.get(changelist_id="48213")
    yield "running", f"/reviews/{running.pk}/"
    yield "cancel", f"/reviews/{running.pk}/cancel/"
    yield "dead", f"/reviews/{ReviewJob.objects.get(changelist_id='48190').pk}/"
    clean = ReviewJob.objects.get(changelist_id="48201")
    yield "clean", f"/reviews/{clean.pk}/"
    yield "configuration", f"/configurations/{RepositoryConfiguration.objects.latest('pk').pk}/"
    yield "scan", f"/scans/{ScanTarget.objects.latest('pk').pk}/"
    named = ["list", "findings", "quality", "scans", "subscriptions"]
    yield from ((name, reverse(f"reviews:{name}")) for name in named)
    yield "list-filtered", "/?severity=high"
    yield "findings-nothing", "/findings/?text=nowhere"
    yield "findings-filtered", "/findings/?severity=high&text=credential"
    yield "missing", "/reviews/999999/"
    names = ["change-password", "reauth", "failure-codes", "providers", "repositories", "invite"]
    yield from ((name, reverse(name)) for name in names)
    yield "message", reverse("job-message", args=[job.pk])
    yield "api-docs", "/api/docs/"


@pytest.mark.parametrize("part", ["empty", "readers", "admin", "anonymous"])
def test_pictures_of_every_page(visit: Visit, part: str) -> None:
    ann = scenes.ann(is_superuser=True)
    ann.email = "ann@example.com"
    ann.save()
    if part == "empty":
        tables = (m._meta for m in admin.site._registry)
        pages = [("list", "/"), ("findings", "/findings/"), ("quality", "/quality/")]
        pages += [("subscriptions", "/subscriptions/"), ("repositories", "/admin/repositories/")]
        pages += [("index", "/admin/")]
        pages += [(t.model_name, reverse(f"admin:{t.app_label}_{t.model_name}_changelist")) for t in tables]
    elif part == "readers":
        _world(ann)
        pages = list(_readers_pages())
    elif part == "admin":
        _world(ann)
        pages = list(_admin_pages())
    else:
        delivery = scenes.delivery_with_message()
        stop = path_of(unsubscribe.link(delivery.recipient, delivery.token))
        pages = [
            ("login", "/login/"),
            ("stop", stop),
            ("bad-link", "/verdict/?key=x"),
            ("missing", "/nowhere/"),
        ]
        pages += [("welcome", "/welcome/")]
    page = visit(pages[0][1], None if part == "anonymous" else ann, expects="Failed to load resource")
    wanted = re.compile(os.environ.get("CRITICIZER_PAGES", ""))
    for name, address in pages:
        if not wanted.search(f"{part}-{name}"):
            continue
        page.emulate_media(color_scheme="light")
        answer = page.goto(address)
        assert answer is not None
        assert answer.status < 500, address
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                page.evaluate("Promise.allSettled(document.getAnimations().map((change) => change.finished))")
                settled(page).screenshot(
                    path=Path(PICTURES) / f"{part}-{name}-{width}-{scheme}.png", full_page=True
                )
