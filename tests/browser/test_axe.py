"""The rules of axe-core on every kind of page, in both colour schemes."""

from __future__ import annotations

import pytest

from criticizer.models import Circuit, SavedView
from deadletters import batches
from deadletters.models import DeadLetter
from notifications.preferences import unsubscribe
from tests import factories, skips
from tests.browser import scenes
from tests.browser.conftest import Visit
from tests.browser.looking import axe_says, is_too_wide
from tests.links import path_of

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
COLOURS = ("color-contrast", "link-in-text-block")  # the rules that depend on the colour scheme
IS_ALL = skips.is_all()
IN_DARK = 1 if IS_ALL else 3  # one page in so many is looked at, the first included


def violations(
    visit: Visit, paths: list[str], who: object, widths: tuple[int, ...] = (1280,), *, must_fit: bool = False
) -> list[str]:
    """Return the violations that axe finds on each page.

    Every rule is tried in light at each width, those of colours in dark too. With `must_fit`, a page that
    scrolls sideways at one of the widths is reported too. `make test` looks at a third of the pages in dark,
    `make test-all` at all of them.
    """
    found = []
    page = visit(paths[0], who, width=widths[0], expects="inline")
    for number, path in enumerate(paths):
        if path != paths[0]:
            page.goto(path)
        for width in widths:
            page.set_viewport_size({"width": width, "height": 900})
            found += [f"{path} {width}: {said}" for said in axe_says(page)]
            found += [f"{path} {width}: too wide"] if must_fit and is_too_wide(page) else []
        if number % IN_DARK:
            continue
        page.emulate_media(color_scheme="dark")
        page.evaluate("Promise.all(document.getAnimations().map((change) => change.finished))")
        found += [f"{path} dark: {said}" for said in axe_says(page, *COLOURS)]
        page.emulate_media(color_scheme="light")
    return found


@pytest.mark.browser(seconds=9)
def test_lists_of_reviewers_break_no_axe_rule(visit: Visit) -> None:
    scenes.live_workers()
    scenes.running_review()
    delivery = scenes.delivery_with_message()
    paths = ["/", "/findings/?severity=high", "/quality/?path=//shop/", "/subscriptions/"]
    # Lists have the same parts, and so have forms.
    paths = paths if IS_ALL else [paths[0], paths[2]]
    bob = scenes.bob()
    SavedView.objects.create(user=bob, page="pages.findings", name="Severe ones", query="severity=high")
    assert violations(visit, paths, bob) == []
    stop = path_of(unsubscribe.link(delivery.recipient, delivery.token))
    assert violations(visit, ["/login/", stop], None) == []


@pytest.mark.browser(seconds=8)
def test_pages_of_a_review_break_no_axe_rule(visit: Visit) -> None:
    scenes.live_workers()
    delivery, running = scenes.delivery_with_message(), scenes.running_review()
    paths = [
        f"/reviews/{delivery.job_id}/",
        f"/reviews/{delivery.job_id}/compare/",
        f"/reviews/{running.pk}/",
        f"/configurations/{scenes.configuration().pk}/",
        f"/reviews/{delivery.job_id}/findings/{delivery.job.findings.get(severity='critical').pk}/",
    ]
    # A running review is on the same page as one that ended.
    paths = paths if IS_ALL else [path for path in paths if path != f"/reviews/{running.pk}/"]
    assert violations(visit, paths, scenes.bob()) == []


@pytest.mark.browser(seconds=13)
def test_pages_of_dead_letters_break_no_axe_rule(visit: Visit) -> None:
    scenes.live_workers()
    letter = scenes.failures()
    ids = list(DeadLetter.objects.filter(group=letter.group).values_list("pk", flat=True))
    batch = batches.draft(filter={"groups": [letter.group_id]}, ids=ids, actor="ann", reason="OPS-7: mended")
    batches.dry_run(batch.pk)
    base = "/admin/deadletters"
    paths = [
        "/admin/",
        f"{base}/deadlettergroup/",
        f"{base}/deadlettergroup/{letter.group_id}/change/",
        f"{base}/deadletter/",
        *(f"{base}/deadletter/{pk}/change/" for pk in ids[:1]),
        f"{base}/deadletter/{letter.pk}/discard/",
        f"{base}/replaybatch/",
        f"{base}/replaybatch/{batch.pk}/change/",
    ]
    # The other lists, and ways to end or to change a letter, have parts of the same kinds.
    others = ("/admin/", "/discard/", "/deadlettergroup/", "/replaybatch/")
    paths = paths if IS_ALL else [path for path in paths if not path.endswith(others)]
    paths += ["/admin/reviews/teamrule/add/", f"/admin/reviews/reviewjob/{letter.job_id}/change/"]
    assert violations(visit, paths, scenes.ann(is_superuser=True)) == []


@pytest.mark.long
@pytest.mark.browser(seconds=12)
def test_admin_pages_break_no_axe_rule(visit: Visit) -> None:
    scenes.live_workers()
    letter, delivery = scenes.failures(), scenes.delivery_with_message()
    paths = [
        "/admin/reviews/reviewjob/",
        f"/admin/reviews/reviewjob/{letter.job_id}/change/",
        "/admin/notifications/delivery/",
        f"/admin/deliveries/{delivery.pk}/message/",
        "/admin/providers/",
        "/admin/reviews/teamrule/add/",
    ]
    assert violations(visit, paths, scenes.ann(is_superuser=True)) == []


@pytest.mark.long
def test_lists_and_forms_of_settings_break_no_axe_rule(visit: Visit) -> None:
    """They are made as the form of a team rule, the list of deliveries and their like are."""
    scenes.live_workers()
    paths = [
        "/admin/reviews/allowlistentry/add/",
        "/admin/reviews/skippedpath/",
        "/admin/reviews/skippedpath/add/",
        "/admin/reviews/scantarget/",
        "/admin/reviews/scantarget/add/",
    ]
    assert violations(visit, paths, scenes.ann(is_superuser=True)) == []


@pytest.mark.long
@pytest.mark.browser(seconds=12)
def test_admin_pages_on_a_phone_break_no_axe_rule(visit: Visit) -> None:
    """Parts that scroll sideways are reached by keyboard; links differ by more than colour."""
    scenes.live_workers()
    letter, delivery = scenes.open_letter(), scenes.delivery_with_message()
    Circuit.objects.create(name="llm:openai", state="open", reason="10 of 10 calls failed")
    run = letter.job.stages.get(stage="fetch")
    message = factories.OutboxMessageFactory(
        aggregate_type="stage_run", aggregate_id=run.pk, waiting_for="llm:openai"
    )
    paths = [
        f"/admin/deadletters/deadletter/?q=letter:{letter.pk}",
        f"/admin/deadletters/deadletter/{letter.pk}/change/",
        f"/admin/reviews/attempt/{run.attempt_rows.order_by('id')[0].pk}/change/",
        "/admin/failure-codes/",
        f"/admin/reviews/reviewjob/{delivery.job_id}/change/",
        f"/admin/criticizer/outboxmessage/{message.pk}/change/",
        "/admin/criticizer/circuit/llm_3Aopenai/change/",
        f"/admin/notifications/delivery/{delivery.pk}/change/",
        "/admin/providers/",
    ]
    assert violations(visit, paths, scenes.ann(is_superuser=True), (390,)) == []
