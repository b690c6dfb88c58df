"""Acceptance read from the next version: rates, and proposals to fold that people apply."""

from __future__ import annotations

import random
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission

from criticizer.redaction import Redactor
from reviews import acceptance
from reviews.acceptance import Rate
from reviews.dismissals import fold_dismissed
from reviews.models import CoverageRow, FindingEvent, FindingRow, ReviewJob, ViewerScope
from reviews.pipeline import StageClaim
from reviews.reviewers.prepare import ReviewLimits, prepare
from reviews.stages import versions
from reviews.states import Stage
from tests import factories, skips
from tests.pages.test_dismissals import operator, verdict_of
from tests.pages.test_verdicts import client_of, reviewer
from tests.reviewers.build import change, edited

pytestmark = pytest.mark.django_db

OLD = [f"line {number} of the file" for number in range(1, 31)]
AT = 12
FLAGGED = "total = price * count + {}"


def lines(flagged: str, *, above: int = 0, below: str = "") -> list[str]:
    """Return the new content, with `flagged` in place of line AT.

    `above` lines are added at the top, and `below` replaces the next line.
    """
    new = [*OLD[: AT - 1], *([flagged] if flagged else []), below or OLD[AT], *OLD[AT + 1 :]]
    return [f"new {number}" for number in range(above)] + new


# How the next version treats the flagged line `code` -> (its content, reported again as, accepted).
# None: the file has left the change; "partial": it is read in part. Accepted None: nothing is known.
KINDS: dict[str, Any] = {
    "changed": lambda code: (lines(f"{code} - 1"), "", True),
    "removed": lambda _: (lines(""), "", True),
    "replaced and moved": lambda code: (lines(code.replace("price", "fee"), above=3), "", True),
    "untouched": lambda code: (lines(code), "", False),
    "moved": lambda code: (lines(code, above=7), "", False),
    "indented": lambda code: (lines(f"    {code}"), "", False),
    "neighbour changed": lambda code: (lines(code, below="another neighbour"), "", False),
    "changed and reported again": lambda code: (lines(f"{code} # 1"), "The total is rounded wrongly", False),
    "left the change": lambda _: (None, "", None),
    "read in part": lambda code: ("partial", "", None),
}


def version(number: int, changelist: str) -> ReviewJob:
    job: ReviewJob = factories.ReviewJobFactory(
        changelist_id=changelist, review_version=number, status="succeeded"
    )
    factories.StageRunFactory(job=job, stage=Stage.LLM, status="succeeded")
    return job


def test_acceptance_is_right_for_200_constructed_pairs_of_versions() -> None:
    """In `make test` for a quarter of them: each kind five times."""
    chance, wrong, pairs, rounds = random.Random(3), [], 0, skips.examples(20)
    for number in range(rounds):
        first, second = version(1, f"77{number}"), version(2, f"77{number}")
        edits, again, coverage, expected = [], [], [], {}
        for kind, made in KINDS.items():
            file, code = f"//depot/{kind.replace(' ', '_')}.c", FLAGGED.format(chance.randrange(1_000))
            content, title, is_accepted = made(code)
            row = factories.FindingRowFactory(
                job=first,
                file=file,
                line=AT,
                end_line=AT,
                title="The total is rounded",
                excerpt=[[AT, "+", code]],
            )
            expected[row.identity] = kind, is_accepted
            if content is None:
                continue
            status = "partial" if content == "partial" else "reviewed"
            new = lines(f"{code}0") if content == "partial" else content
            edits.append(edited(file, "\n".join(OLD) + "\n", "\n".join(new) + "\n"))
            coverage.append(CoverageRow(job=second, file=file, status=status))
            if title:
                excerpt = [[AT, "+", new[AT - 1]]]
                again.append(
                    factories.FindingRowFactory.build(
                        job=second, file=file, line=AT, end_line=AT, title=title, excerpt=excerpt, side="new"
                    )
                )
        claim = StageClaim(1, uuid4(), 1, Stage.LLM, 1, 5, 1, second.pk, f"77{number}", 2)
        prepared = prepare(change(*edits), Redactor(), ReviewLimits())
        write = versions.compare(claim, again, coverage, prepared)
        FindingRow.objects.bulk_create(again)
        write()
        rows = FindingRow.objects.filter(identity__in=expected).order_by("pk")
        newest = dict(rows.values_list("identity", "pk"))
        known = set(rows.filter(acceptance.KNOWN).values_list("pk", flat=True))
        accepted = set(rows.filter(acceptance.ACCEPTED).values_list("pk", flat=True))
        for identity, (kind, is_accepted) in expected.items():
            found = newest[identity] in accepted if newest[identity] in known else None
            pairs += 1
            wrong += [] if found == is_accepted else [(kind, found)]
    assert pairs == 10 * rounds
    assert wrong == []


@pytest.mark.parametrize(
    ("accepted", "known", "low", "high"),
    [(0, 20, 0.0, 0.161), (10, 20, 0.299, 0.701), (20, 20, 0.839, 1.0), (1, 10, 0.018, 0.404)],
)
def test_the_range_is_wilsons(accepted: int, known: int, low: float, high: float) -> None:
    """Against published tables of Wilson's interval without correction."""
    assert Rate("model", "m", accepted, known).interval == pytest.approx((low, high), abs=0.001)


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (Rate("category", "nit", 3, 20), True),
        (Rate("rule", "check:todo", 0, 20), True),
        (Rate("category", "nit", 3, 19), False),
        (Rate("category", "nit", 4, 20), False),
        (Rate("category", "nit", 3, 20, is_folded=True), False),
        (Rate("model", "m", 0, 90), False),  # nobody folds a model, a path or a verdict
        (Rate("path", "//a/", 0, 90), False),
    ],
)
def test_below_a_fifth_of_20_is_a_proposal(rate: Rate, expected: bool) -> None:
    assert rate.is_proposal == expected


def many(accepted: int, known: int, **fields: Any) -> list[FindingRow]:
    job = factories.ReviewJobFactory(status="succeeded", model_name="qwen")
    given = {"file": "//depot/main/a.c", "category": "nit", **fields}
    factories.CoverageRowFactory(job=job, file=given["file"])
    return [
        factories.FindingRowFactory(
            job=job, ending="fixed" if number < accepted else "not_reported_again", **given
        )
        for number in range(known)
    ]


def shown(user: Any, query: str = "") -> dict[tuple[str, str], Rate]:
    quality = client_of(user).get(f"/quality/{query}").context["quality"]
    return {(rate.by, rate.name): rate for rate in quality.acceptance}


def test_rates_are_by_rule_category_path_model_and_verdict_of_what_a_reader_sees() -> None:
    many(2, 6)
    rows = many(1, 4, file="//depot/secret/b.c", source="check:todo", category="todo")
    many(1, 1, rule="//depot/secret/REVIEW.md")
    factories.FindingRowFactory(job=rows[0].job, file=rows[0].file)  # no version has followed
    factories.FindingEventFactory(
        identity=rows[0].identity, job=rows[0].job, file=rows[0].file, kind="useful"
    )
    found = {key: (rate.accepted, rate.known) for key, rate in shown(reviewer("all")).items()}
    assert found == {
        ("rule", "check:todo"): (1, 4), ("rule", "//depot/secret/REVIEW.md"): (1, 1),
        ("category", "nit"): (3, 7), ("category", "todo"): (1, 4),
        ("path", "//depot/main/"): (3, 7), ("path", "//depot/secret/"): (1, 4),
        ("model", "qwen"): (3, 7), ("verdict", "Useful"): (1, 1),
    }  # fmt: skip
    assert "secret" not in str(shown(reviewer("some", "//depot/main/...")))
    assert next(iter(shown(reviewer("every"), "?path=//depot/secret/"))) == ("rule", "check:todo")


def test_a_proposal_is_applied_by_a_person_and_by_nobody_else() -> None:
    many(2, 25)
    many(0, 5, severity="critical", category="bug")
    olga, bob = operator(), reviewer()
    assert shown(olga)["category", "nit"].is_proposal
    assert FindingEvent.objects.count() == 0  # looking applies nothing
    form = {"by": "category", "name": "nit"}
    assert client_of(bob).post("/quality/fold/?weeks=4", form).status_code == 403
    assert "fold proposed" in client_of(bob).get("/quality/").content.decode()
    text = client_of(olga).get("/quality/?weeks=4").content.decode()
    assert 'action="/quality/fold/?weeks=4"' in text
    for wrong in ({"by": "category", "name": "bug"}, {"by": "model", "name": "qwen"}, {}):
        client_of(olga).post("/quality/fold/?weeks=4", wrong)
    client_of(olga).post("/quality/fold/?weeks=4&author=ann", form)  # a part of the findings
    assert FindingEvent.objects.count() == 0
    client_of(olga).post("/quality/fold/?weeks=4", form)
    event = FindingEvent.objects.get()
    assert (event.actor, event.scope, event.paths, event.kind) == ("olga", "category", "", "wont_fix")
    assert event.text == "Folded: 2 of 25 accepted (2% to 25%)"
    assert shown(olga)["category", "nit"].is_folded
    client_of(olga).post("/quality/fold/?weeks=4", form)  # twice is once
    assert FindingEvent.objects.count() == 1
    later = factories.FindingRowFactory(category="nit", file="//lib/c.py", title="Else")
    critical = factories.FindingRowFactory(category="nit", severity="critical")
    for row in (later, critical):
        fold_dismissed(row.job_id, [row])
    assert (verdict_of(later) is not None, verdict_of(critical) is not None) == (True, False)


def test_a_proposal_of_a_narrowed_page_folds_in_that_tree_and_as_far_as_its_giver_sees() -> None:
    many(0, 20)
    many(0, 20, file="//depot/secret/b.c")
    lead = reviewer("lead", "//depot/main/...")
    lead.user_permissions.add(Permission.objects.get(codename="dismiss_widely"))
    client_of(lead).post("/quality/fold/?weeks=4&path=//depot/main/", {"by": "category", "name": "nit"})
    event = FindingEvent.objects.get()
    assert (event.paths, event.within) == ("//depot/main/...", ["//depot/main/"])
    ViewerScope.objects.all().delete()
    client_of(lead).post("/quality/fold/?weeks=4", {"by": "category", "name": "nit"})
    assert FindingEvent.objects.count() == 1


@pytest.mark.long
def test_what_one_folds_in_their_trees_stays_proposed_to_who_sees_others() -> None:
    many(0, 20)
    many(0, 20, file="//depot/secret/b.c")
    lead = reviewer("lead", "//depot/main/...")
    lead.user_permissions.add(Permission.objects.get(codename="dismiss_widely"))
    client_of(lead).post("/quality/fold/?weeks=4", {"by": "category", "name": "nit"})
    event = FindingEvent.objects.get()
    assert (event.paths, event.within) == ("", ["//depot/main/"])
    folded = {
        who: shown(user, query)["category", "nit"].is_folded
        for who, user, query in (
            ("its giver", lead, ""),
            ("all", operator(), ""),
            ("all, narrowed", operator("ola"), "?path=//depot/main/"),
            ("another tree", reviewer("dave", "//depot/secret/..."), ""),
        )
    }
    assert folded == {"its giver": True, "all": False, "all, narrowed": True, "another tree": False}
