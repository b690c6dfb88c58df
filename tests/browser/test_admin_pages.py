"""The admin in a browser: each page opens, fits its window and obeys the CSP."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from reviews.models import ReviewJob, Subscription
from tests import factories
from tests.browser import scenes
from tests.browser.conftest import Visit
from tests.browser.looking import is_too_wide, picture
from tests.browser.test_axe import IS_ALL, violations

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
# One page of each template; what others say and whether they are served is looked at without a browser.
OF_EACH_KIND = {
    "reviews_reviewjob_change",
    "reviews_allowlistentry_changelist",
    "reviews_allowlistentry_change",
    "reviews_allowlistentry_history",
    "reviews_allowlistentry_delete",
    "reviews_apikey_add",
    "criticizer_securityevent_change",
    "criticizer_workercluster_change",
    "deadletters_deadlettergroup_change",
    "auth_user_change",
    "password_change",
}


@pytest.mark.browser(seconds=14)
def test_every_page_of_the_admin_opens_without_a_complaint(visit: Visit) -> None:
    scenes.list_of_reviews()
    letter = factories.DeadLetterFactory()
    entry = factories.AllowListEntryFactory()
    rule = factories.TeamRuleFactory()
    skipped = factories.SkippedPathFactory()
    key = factories.ApiKeyFactory()
    event = factories.SecurityEventFactory()
    cluster = factories.WorkerClusterFactory()
    ann = scenes.ann(is_superuser=True)
    job = ReviewJob.objects.get(review_version=2)
    pages: list[tuple[str, list[Any]]] = [
        ("reviews_reviewjob_changelist", []),
        ("reviews_reviewjob_change", [job.pk]),
        ("reviews_allowlistentry_changelist", []),
        ("reviews_allowlistentry_add", []),
        ("reviews_allowlistentry_change", [entry.pk]),
        ("reviews_allowlistentry_history", [entry.pk]),
        ("reviews_allowlistentry_delete", [entry.pk]),
        ("reviews_allowlistentryevent_changelist", []),
        ("reviews_teamrule_changelist", []),
        ("reviews_teamrule_add", []),
        ("reviews_teamrule_change", [rule.pk]),
        ("reviews_teamrule_history", [rule.pk]),
        ("reviews_teamrule_delete", [rule.pk]),
        ("reviews_skippedpath_changelist", []),
        ("reviews_skippedpath_add", []),
        ("reviews_scantarget_changelist", []),
        ("reviews_scantarget_add", []),
        ("reviews_skippedpath_delete", [skipped.pk]),
        ("reviews_apikey_changelist", []),
        ("reviews_apikey_add", []),
        ("reviews_apikey_change", [key.pk]),
        ("criticizer_securityevent_changelist", []),
        ("criticizer_securityevent_change", [event.pk]),
        ("criticizer_workercluster_changelist", []),
        ("criticizer_workercluster_change", [cluster.pk]),
        ("deadletters_deadletter_changelist", []),
        ("deadletters_deadletter_change", [letter.pk]),
        ("deadletters_deadletter_discard", [letter.pk]),
        ("deadletters_deadlettergroup_changelist", []),
        ("deadletters_deadlettergroup_change", [letter.group_id]),
        ("deadletters_replaybatch_changelist", []),
        ("auth_user_changelist", []),
        ("auth_user_change", [ann.pk]),
        ("auth_group_changelist", []),
        ("password_change", []),
    ]
    page = visit("/admin/", ann)
    for name, args in pages if IS_ALL else [row for row in pages if row[0] in OF_EACH_KIND]:
        address = reverse(f"admin:{name}", args=args)
        response = page.goto(address)
        assert response is not None
        assert (address, response.status, is_too_wide(page)) == (address, 200, False)


@pytest.mark.long
def test_the_dead_letter_fits_a_phone_and_a_wide_screen(visit: Visit) -> None:
    letter = scenes.open_letter()
    ann = scenes.ann("operator")
    page = visit(reverse("admin:deadletters_deadletter_change", args=[letter.pk]), ann, width=360)
    expect(page.get_by_role("heading", level=1)).to_have_text(
        f"Dead letter {letter.pk}: NETWORK_TIMEOUT in stage fetch"
    )
    expect(page.get_by_text("Check the load of the version control server")).to_be_visible()
    for address in (page.url, reverse("admin:reviews_reviewjob_change", args=[letter.job_id])):
        page.goto(address)
        for width in (360, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            assert not is_too_wide(page), (address, width)
            picture(page, f"letter-{address.rstrip('/').split('/')[-3]}-{width}")
    page.goto(reverse("admin:deadletters_deadletter_change", args=[letter.pk]))
    page.emulate_media(color_scheme="dark")
    picture(page, "letter-1280-dark")
    page.get_by_role("link", name="Replay it with one form").click()
    expect(page.get_by_role("heading", name="Is the cause fixed?")).to_be_in_viewport()
    expect(page.get_by_role("button", name="The cause is fixed: replay 1")).to_be_visible()


@pytest.mark.long
def test_ann_discards_a_letter_with_a_reason(visit: Visit) -> None:
    letter = scenes.open_letter()
    ann = scenes.ann("operator")
    page = visit(reverse("admin:deadletters_deadletter_change", args=[letter.pk]), ann)
    page.get_by_role("link", name="Discard").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Discard the dead letter")
    page.get_by_role("button", name="Discard the dead letter").click()
    assert page.locator("textarea:invalid").count() == 1  # the browser asks for the reason first
    page.get_by_label("Reason").fill("the branch was deleted")
    page.get_by_role("button", name="Discard the dead letter").click()
    expect(page.locator(".messagelist")).to_contain_text("Discarded.")
    expect(page.locator(".messagelist")).to_be_focused()
    expect(page.locator(".events")).to_contain_text("the branch was deleted")
    expect(page.get_by_role("link", name="Discard")).to_have_count(0)
    expect(page.get_by_text("Check the load of the version control server")).to_have_count(0)


@pytest.mark.long
def test_ways_back_can_be_read(visit: Visit) -> None:
    """Django's own styles write them in the colour that ours fill them with."""
    ann = scenes.ann(is_superuser=True)
    own = Subscription.objects.create(owner=ann, pattern="//shop/payments/...")
    paths = [f"/admin/auth/user/{ann.pk}/delete/", f"/admin/reviews/subscription/{own.pk}/change/"]
    assert violations(visit, paths, ann) == []
