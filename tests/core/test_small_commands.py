"""Commands say what they were asked wrongly, and when there is nothing to show."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from criticizer.models import SecurityEvent
from reviews.audit import hash_chain
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("head", ["nothing:" + "a" * 64, "security_events", "security_events:abc", ":"])
def test_a_head_that_cannot_be_one_is_a_wrong_question_and_no_tampering(head: str) -> None:
    factories.SecurityEventFactory()
    hash_chain.seal("security_events", settle_seconds=-1)
    with pytest.raises(CommandError, match="give TABLE:LINK as an audit_sealed line shows them") as refused:
        call_command("verify_audit", "--head", head, stdout=StringIO(), stderr=StringIO())
    assert refused.value.returncode == 2
    assert "security_events" in str(refused.value)
    assert not SecurityEvent.objects.filter(kind=SecurityEvent.Kind.AUDIT_FAULT).exists()


def test_a_link_that_is_not_in_the_chain_is_tampering() -> None:
    with pytest.raises(CommandError, match="audit rows have changed since they were sealed") as failed:
        call_command(
            "verify_audit", "--head", "security_events:" + "a" * 64, stdout=StringIO(), stderr=StringIO()
        )
    assert failed.value.returncode == 1


@pytest.mark.parametrize("options", [{}, {"all": True}])
def test_an_empty_archive_says_that_it_is_empty(options: dict[str, bool]) -> None:
    out, errors = StringIO(), StringIO()
    call_command("read_letter_archive", stdout=out, stderr=errors, **options)
    assert out.getvalue() == ""
    assert "The archive is empty" in errors.getvalue()


def test_a_letter_that_is_not_in_the_archive_is_said() -> None:
    with pytest.raises(CommandError, match="not in these files: dead letter 5"):
        call_command("read_letter_archive", letter=[5], stdout=StringIO(), stderr=StringIO())
