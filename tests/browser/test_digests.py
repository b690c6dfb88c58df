"""Digests in a browser: the mail, and the pages about deliveries that wait for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from notifications.delivery import snapshot, store
from notifications.delivery.prepare import create_deliveries
from notifications.delivery.snapshot import token_for
from notifications.models import Delivery, Digest
from notifications.rendering import render
from reviews.reports import report_of
from tests import factories
from tests.browser import scenes
from tests.browser.conftest import Visit
from tests.browser.looking import LOOKS, PICTURES, is_too_wide, picture
from tests.notifications.samples import finding
from tests.notifications.together import review

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

DANA = "mail:dana@example.com"
_GROUND = "getComputedStyle(document.querySelector('.sheet')).backgroundColor"


def waiting() -> list[Delivery]:
    """Three reviews that wait for dana's digest."""
    long = scenes.finished_review()
    lock = factories.ReviewJobFactory(changelist_id="12346")
    clean = factories.ReviewJobFactory(changelist_id="12347")
    findings = (finding(is_new=True, anchor="finding-2"), finding(severity="low", title="A typo", line=90))
    reports = {
        clean: review("12347", title="Say what the flag does", banner="", author="erin"),
        lock: review(
            "12346", findings=findings, author="bob", banner="The language model was not available."
        ),
        long: report_of(long),
    }
    for job, report in reports.items():
        token = token_for(job.changelist_id, DANA, job.review_version)
        message = render(report, DANA, token, unsubscribe_url=f"https://reviews.test/unsubscribe/{token}/")
        create_deliveries(
            job.pk, job.changelist_id, job.review_version, {DANA: message}, digest_minutes={DANA: 15}
        )
    return list(Delivery.objects.filter(recipient=DANA).order_by("id"))


def sent() -> list[Delivery]:
    rows = waiting()
    Digest.objects.update(due_at=timezone.now())
    claimed = store.claim(store.read(rows[0].pk), "maildir")
    assert claimed is not None
    store.mark_sent(claimed, "1772600767.a.eml")
    return rows


@pytest.mark.long
def test_the_digest_fits_every_screen(visit: Visit) -> None:
    rows = sent()
    page = visit(f"/admin/deliveries/{rows[1].pk}/message/html/", scenes.ann(is_superuser=True))
    for scheme, ground in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(23, 27, 34)")):
        page.emulate_media(color_scheme=scheme)
        for width in (320, 390, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            assert not is_too_wide(page), (scheme, width)
            picture(page, f"digest-{scheme}-{width}")
        assert page.evaluate(_GROUND) == ground
    assert page.get_by_role("heading", level=1).inner_text().startswith("3 reviews: ")
    headings = [heading.inner_text() for heading in page.get_by_role("heading", level=2).all()]
    assert len(headings) == 3
    assert headings[-1] == "Say what the flag does"
    if PICTURES:
        (Path(PICTURES) / "digest.txt").write_text(snapshot.thaw(rows[1]).text)


@pytest.mark.long
@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_a_delivery_says_until_when_it_waits_and_with_what(visit: Visit, width: int, scheme: str) -> None:
    rows = waiting()
    user = scenes.ann(is_superuser=True)
    page = visit(f"/admin/notifications/delivery/{rows[0].pk}/change/", user, width=width, scheme=scheme)
    expect(page.get_by_text("Waits for a digest, which is due")).to_be_visible()
    expect(page.get_by_role("link", name="12346, version 1")).to_be_visible()
    assert not is_too_wide(page)
    picture(page, f"waiting-{scheme}-{width}")
    page.goto(f"/admin/deliveries/{rows[0].pk}/message/")
    expect(page.get_by_text("3 reviews: ").first).to_be_visible()
    picture(page, f"preview-{scheme}-{width}")
    page.goto(f"/reviews/{rows[0].job_id}/")
    expect(page.get_by_text("waits for a digest, which is due")).to_be_visible()
    assert not is_too_wide(page)
    picture(page, f"review-{scheme}-{width}")


@pytest.mark.long
def test_a_decision_says_whom_it_counts_for(visit: Visit) -> None:
    rows = waiting()
    Digest.objects.update(due_at=timezone.now())
    claimed = store.claim(store.read(rows[0].pk), "smtp")
    assert claimed is not None
    store.start_reconciling(store.read(rows[0].pk))
    store.move(store.read(rows[0].pk), "uncertain")  # type: ignore[arg-type]
    page = visit(f"/admin/notifications/delivery/{rows[1].pk}/change/", scenes.ann(is_superuser=True))
    expect(page.get_by_text("It is one message about 3 reviews")).to_be_visible()
    picture(page, "uncertain")
    page.get_by_role("button", name="Decide…").click()
    expect(page.get_by_text("the decision applies to all of them")).to_be_visible()
    picture(page, "decide")
    page.get_by_label("It arrived").check()
    page.get_by_label("Evidence or reason").fill("OPS-7: dana has it")
    page.get_by_role("button", name="Decide about 1 delivery").click()
    expect(page.locator(".messagelist")).to_contain_text("1 decided.")
    expect(page.locator(".messagelist")).to_contain_text("It is one message about 3 reviews.")
    assert set(Delivery.objects.filter(recipient=DANA).values_list("status", flat=True)) == {"sent"}


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_people_choose_their_digest_on_their_own_page(visit: Visit, width: int, scheme: str) -> None:
    from notifications.preferences import policy

    dana = factories.UserFactory(username="dana", email="dana@example.com")
    page = visit("/subscriptions/", dana, width=width, scheme=scheme)
    page.get_by_label("Collect reviews for").select_option("15")
    page.get_by_role("region", name="One mail for several reviews").get_by_role("button", name="Save").click()
    expect(page.get_by_text("Reviews within 15 minutes come in one mail from now on.")).to_be_visible()
    assert policy.preference_of(DANA).digest_minutes == 15
    expect(page.get_by_label("Collect reviews for")).to_have_value("15")
    assert not is_too_wide(page)
    picture(page, f"own-{scheme}-{width}")
