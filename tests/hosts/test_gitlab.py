"""GitLab's two proofs, and the fields of its events."""

from __future__ import annotations

from typing import Any

import pytest

from criticizer.codehosts.events import Ignored, NotAuthentic, Noted, Stopped, Unreadable, Wanted
from criticizer.codehosts.gitlab.webhooks import Webhooks
from tests.hosts.kinds import SIGNING_KEY, gitlab_event

BODY = b'{"object_kind":"merge_request"}'
VECTOR = {
    "Webhook-Id": "f5e5f430-f57b-4e6e-9fac-d9128cd7232f",
    "Webhook-Timestamp": "1790000000",
    "Webhook-Signature": "v1,Kntau1fg9ygxa8dp8WcLexDJK5KeMBGKO22YLtZu7vc=",
}
TOKEN = "a token in clear"


def accepts(headers: dict[str, str], *secrets: str, body: bytes = BODY, now: float = 1_790_000_000.0) -> bool:
    try:
        Webhooks(secrets, lambda: now).authenticate(headers, body)
    except NotAuthentic:
        return False
    return True


def test_the_vector_is_accepted_beside_other_signatures_and_keys() -> None:
    assert accepts(VECTOR, SIGNING_KEY)
    assert accepts(VECTOR, "whsec_bm90IHRoaXM=", SIGNING_KEY)
    several = {**VECTOR, "Webhook-Signature": f"v1,bm8= {VECTOR['Webhook-Signature']}"}
    assert accepts(several, SIGNING_KEY)


@pytest.mark.parametrize(
    "changed",
    [
        {"Webhook-Id": "another"},
        {"Webhook-Timestamp": "1790000001"},
        {"Webhook-Timestamp": ""},
        {"Webhook-Timestamp": "1.79e9"},
        {"Webhook-Signature": "v2,Kntau1fg9ygxa8dp8WcLexDJK5KeMBGKO22YLtZu7vc="},
        {"Webhook-Signature": "Kntau1fg9ygxa8dp8WcLexDJK5KeMBGKO22YLtZu7vc="},
        {"Webhook-Signature": "v1,"},
    ],
)
def test_every_other_signature_is_refused_also_with_a_good_token(changed: dict[str, str]) -> None:
    assert not accepts({**VECTOR, **changed, "X-Gitlab-Token": TOKEN}, SIGNING_KEY, TOKEN)


def test_a_signature_counts_for_five_minutes() -> None:
    for seconds, is_accepted in ((-301, False), (-299, True), (299, True), (301, False)):
        assert accepts(VECTOR, SIGNING_KEY, now=1_790_000_000.0 + seconds) is is_accepted


def test_another_body_is_refused() -> None:
    assert not accepts(VECTOR, SIGNING_KEY, body=BODY + b" ")


def test_a_token_in_clear_counts_where_nothing_is_signed() -> None:
    assert accepts({"X-Gitlab-Token": TOKEN}, "newest", TOKEN)
    assert accepts({"X-Gitlab-Token": TOKEN}, SIGNING_KEY, TOKEN)
    # Signed with a key that is not set here: then it is the token that proves it.
    assert accepts({**VECTOR, "X-Gitlab-Token": TOKEN}, TOKEN)
    for given in ("", TOKEN[:-1], TOKEN.upper(), SIGNING_KEY):
        assert not accepts({"X-Gitlab-Token": given}, TOKEN, SIGNING_KEY)
    assert not accepts({"X-Gitlab-Token": ""}, "")
    assert not accepts({"X-Gitlab-Token": "x"})


def test_the_key_of_repeats_is_the_same_on_every_try() -> None:
    hooks = Webhooks([TOKEN])
    assert hooks.delivery_id({"Idempotency-Key": "k", "X-Gitlab-Webhook-UUID": "u"}, BODY) == "k"
    assert hooks.delivery_id({"Webhook-Id": "w"}, BODY) == "w"
    # That of an older GitLab is none: the same bytes are the same event.
    first = hooks.delivery_id({"X-Gitlab-Webhook-UUID": "u"}, BODY)
    assert first == hooks.delivery_id({"X-Gitlab-Webhook-UUID": "v"}, BODY)
    assert first != hooks.delivery_id({}, BODY + b" ")


def renamed() -> dict[str, Any]:
    """Return the event of a new title: an update without new commits."""
    content = gitlab_event("edited")
    return {**content, "changes": {"title": {"previous": "a", "current": "b"}}}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (gitlab_event(), Wanted),
        (gitlab_event("reopened"), Wanted),
        (gitlab_event("synchronize"), Wanted),
        (gitlab_event("ready_for_review"), Wanted),
        (gitlab_event("edited", base_ref="next"), Wanted),
        (gitlab_event(draft=True), Noted),
        (gitlab_event(work_in_progress=True), Noted),
        (gitlab_event("synchronize", state="closed"), Noted),
        (gitlab_event("converted_to_draft"), Stopped),
        (gitlab_event("closed"), Stopped),
        (gitlab_event("closed", last_commit=None), Stopped),
        (gitlab_event("converted_to_draft", last_commit=None), Stopped),
        (gitlab_event(last_commit=None), Ignored),
        (renamed(), Ignored),
        ({"object_kind": "note"}, Ignored),
        ({"object_kind": "merge_request", "object_attributes": {}}, Ignored),
    ],
)
def test_events_ask_for_what_they_say(content: dict[str, Any], expected: type[object]) -> None:
    assert isinstance(Webhooks([]).event({}, content).asked, expected)


def test_projects_of_groups_in_groups_have_their_whole_path() -> None:
    content = gitlab_event(repository={"id": 5, "full_name": "Acme/lib/Web.Site"})
    event = Webhooks([]).event({}, content)
    assert event.name == "merge_request.open"
    assert event.repository is not None
    assert (event.repository.number, event.repository.name) == (5, "Acme/lib/Web.Site")
    for wrong in ("acme", "acme/../x", "acme//x", "/acme/x", "acme/x y"):
        with pytest.raises(Unreadable):
            Webhooks([]).event({}, gitlab_event(repository={"id": 5, "full_name": wrong}))
