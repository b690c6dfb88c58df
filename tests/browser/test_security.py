"""Attacks that only a browser can carry out, tried in one."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group
from django.contrib.sessions.models import Session

from criticizer.security import reauthentication
from reviews.models import ApiKey
from tests import factories
from tests.browser.conftest import Visit
from tests.security.test_injection import HOSTILE

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


@pytest.mark.browser(seconds=8)
def test_xss_no_field_of_a_review_runs_or_loads_anything(visit: Visit) -> None:
    text = " ".join(HOSTILE).replace("alert(1)", "document.body.dataset.harmed=1")
    job = factories.job_with_stages(title=text[:255], author=text[:255], banner=text[:512])
    factories.FindingRowFactory(
        job=job, title=text[:160], message=text, suggestion=text, excerpt=[[1, "+", text]]
    )
    letter = factories.DeadLetterFactory(detail=text, last_stack=text, sanitized_context={"a": text})
    root = factories.UserFactory(is_staff=True, is_superuser=True)
    for address in (
        "/",
        f"/reviews/{job.pk}/",
        f"/admin/reviews/reviewjob/{job.pk}/change/",
        f"/admin/deadletters/deadletter/{letter.pk}/change/",
    ):
        page = visit(address, root)
        assert page.locator("body").get_attribute("data-harmed") is None
        addresses = page.locator("a[href]").evaluate_all(
            "(links) => links.map((a) => a.getAttribute('href'))"
        )
        assert addresses
        assert [each for each in addresses if each.strip().lower().startswith("javascript:")] == []


@pytest.mark.long
def test_clickjacking_no_page_is_shown_inside_another(visit: Visit) -> None:
    page = visit("/login/", expects="frame")
    page.evaluate("""() => new Promise((done) => {
      const frame = document.createElement("iframe");
      frame.src = "/login/"; frame.onload = frame.onerror = done;
      document.body.append(frame);
    })""")
    assert page.frames[-1].locator("form").count() == 0


@pytest.mark.long
def test_the_password_is_asked_for_again_and_the_way_goes_on(visit: Visit) -> None:
    sam = factories.UserFactory(username="sam", is_staff=True)
    sam.groups.add(Group.objects.get(name="security admin"))
    page = visit("/admin/reviews/apikey/", sam)
    session = Session.objects.get()
    store = type(session).get_session_store_class()(session.session_key)
    store["password_at"] -= reauthentication.MAX_AGE_SECONDS + 1
    store.save()
    page.goto("/admin/reviews/apikey/add/")
    assert "Confirm your password" in page.inner_text("h1")
    page.fill("#id_password", factories.PASSWORD)
    page.get_by_role("button", name="Confirm").click()
    page.fill("#id_name", "ci")
    page.select_option("#id_role", "trigger")
    page.locator("input[name=_save]").click()
    assert ApiKey.objects.get().name == "ci"
