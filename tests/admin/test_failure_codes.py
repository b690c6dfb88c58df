"""The admin's list of failure codes: the same tables as docs/failures.md."""

from __future__ import annotations

import re

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client

from criticizer.resilience.failures import TABLE
from reviews import failure_reference
from reviews.api.error_catalog import API_TABLE
from reviews.reviewers import coverage_texts
from tests.factories import DeadLetterFactory

URL = "/admin/failure-codes/"


@pytest.fixture
def operator(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ann"))
    return client


def test_every_code_has_a_row_that_can_be_linked_to(operator: Client) -> None:
    response = operator.get(URL)
    assert response.status_code == 200
    html = response.content.decode()
    anchors = re.findall(r'<tr id="(CRITICIZER_E\d+)"', html)
    assert len(anchors) == len(set(anchors))
    assert set(anchors) == {kind.code for kind in (*TABLE.values(), *API_TABLE)}
    assert "default-src 'self'" in response["Content-Security-Policy"]
    assert " style=" not in html.partition('<div id="content"')[2]


def test_the_page_of_the_docs_has_the_same_rows(operator: Client) -> None:
    shown = operator.get(URL).context["sections"]
    written = failure_reference.sections()
    assert [[(row["code"], *row["cells"]) for row in section["rows"]] for section in shown] == [
        [tuple(row) for row in section.rows] for section in written
    ]


def test_every_text_of_a_review_is_listed() -> None:
    texts = [row[-1] for row in failure_reference.sections()[2].rows]
    for text in (
        *coverage_texts.NOT_REVIEWED.values(),
        *coverage_texts.UNREACHED.values(),
        coverage_texts.UNAVAILABLE,
        coverage_texts.NO_MODEL_BANNER,
    ):
        assert text in texts


def test_the_letter_leads_to_its_code(operator: Client) -> None:
    letter = DeadLetterFactory()
    html = operator.get(f"/admin/deadletters/deadletter/{letter.pk}/change/").content.decode()
    assert f'href="{URL}#{letter.code}"' in html
    assert URL in operator.get("/admin/deadletters/deadletter/").content.decode()


def test_it_is_only_read_and_only_by_staff(operator: Client) -> None:
    assert operator.post(URL).status_code == 405
    response = Client().get(URL)
    assert (response.status_code, response["Location"].partition("?")[0]) == (302, "/admin/login/")


def test_a_stale_page_of_the_docs_is_refused(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    call_command("failure_table", check=True)
    monkeypatch.setattr(failure_reference, "_HEAD", "# Other\n")
    with pytest.raises(CommandError, match="not current"):
        call_command("failure_table", check=True)
    assert (settings.BASE_DIR / "docs" / "failures.md").read_text().startswith("# Failures\n")
