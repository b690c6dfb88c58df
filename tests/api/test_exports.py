"""Findings as files for other tools, through the API and the pages."""

from __future__ import annotations

import csv
import io
import json
from random import Random
from urllib.parse import unquote

import pytest
from django.test import Client
from jsonschema import Draft202012Validator

from reviews.finding_exports import FORMS
from reviews.models import FindingRow, ReviewJob, RuleUse
from reviews.reviewers.base import FindingSeverity
from tests import factories, sarif, skips
from tests.api.conftest import ApiClient
from tests.pages.test_actions import reader_of_some_files

pytestmark = pytest.mark.django_db


@pytest.fixture
def job() -> ReviewJob:
    job: ReviewJob = factories.ReviewJobFactory(status="succeeded")
    file = "//depot/main/a b%40v2.py"
    factories.CoverageRowFactory(job=job, file=file)
    factories.FindingRowFactory(job=job, file=file, severity="critical", title="=cmd()", suggestion="Ask.")
    factories.FindingRowFactory(job=job, file="//depot/main/old.py", side="old", severity="medium", line=3)
    factories.FindingRowFactory(job=job, file="//depot/secret/b.py", severity="low", line=None, end_line=None)
    factories.FindingRowFactory(job=job, file="description", severity="low", line=None, end_line=None)
    return job


def get(client: ApiClient, job: ReviewJob, form: str) -> str:
    answer = client.get(f"/api/v1/reviews/{job.pk}/findings.{form}")
    assert answer.status_code == 200
    assert "attachment" in answer["Content-Disposition"]
    return str(answer.content.decode())


def test_sarif_names_places_on_the_new_side_only(reviewer: ApiClient, job: ReviewJob) -> None:
    text = get(reviewer, job, "sarif")
    assert sarif.wrong_in(text) == []
    log = json.loads(text)
    (run,) = log["runs"]
    assert (log["version"], run["tool"]["driver"]["name"]) == ("2.1.0", "Criticizer")
    first, old, whole, description = run["results"]
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "main/a%20b%40v2.py"
    assert place["region"] == {"startLine": 12, "endLine": 12}
    assert [result["level"] for result in run["results"]] == ["error", "warning", "note", "note"]
    assert run["tool"]["driver"]["rules"][first["ruleIndex"]]["id"] == first["ruleId"] == "bug"
    assert "region" not in old["locations"][0]["physicalLocation"]
    assert "region" not in whole["locations"][0]["physicalLocation"]
    assert description["locations"] == []
    identities = {result["partialFingerprints"]["criticizer/v1"] for result in run["results"]}
    assert identities == {str(row.identity) for row in FindingRow.objects.all()}


def test_every_file_names_the_rule_that_a_finding_cites(reviewer: ApiClient, job: ReviewJob) -> None:
    before = json.loads(get(reviewer, job, "sarif"))["runs"][0]
    assert "rule" not in before["results"][0]["properties"]
    other = factories.ReviewJobFactory(status="succeeded")
    for of, said in ((other, "Of another review."), (job, "Money is never a float.")):
        RuleUse.objects.create(job=of, name="no-floats", text=said, parts=[1])
    first = FindingRow.objects.filter(job=job).order_by("pk")[0]
    FindingRow.objects.filter(pk=first.pk).update(rule="no-floats")
    note = "Rule no-floats: Money is never a float."
    text = get(reviewer, job, "sarif")
    assert sarif.wrong_in(text) == []
    run = json.loads(text)["runs"][0]
    results = run["results"]
    assert (results[0]["properties"]["rule"], "rule" in results[1]["properties"]) == ("no-floats", False)
    assert note in results[0]["message"]["text"]
    for fact in ("ruleId", "ruleIndex", "partialFingerprints"):
        assert [result[fact] for result in results] == [result[fact] for result in before["results"]]
    assert run["tool"] == before["tool"]
    assert note in json.loads(get(reviewer, job, "rdjson"))["diagnostics"][0]["message"]
    assert note in json.loads(get(reviewer, job, "gitlab"))[0]["content"]["body"]
    found = json.loads(get(reviewer, job, "json"))["findings"]
    assert [(one["rule"], one["rule_note"]) for one in found[:2]] == [("no-floats", note), ("", "")]
    header, *lines = csv.reader(io.StringIO(get(reviewer, job, "csv")))
    assert header[-2:] == ["rule", "rule_note"]
    assert [line[-2:] for line in lines[:2]] == [["no-floats", note], ["", ""]]


LINES = {"type": "integer", "minimum": 1}
RANGE = {
    "type": "object", "additionalProperties": False, "required": ["start", "end"],
    "properties": {
        side: {"additionalProperties": False, "required": ["line"], "properties": {"line": LINES}}
        for side in ("start", "end")
    },
}  # fmt: skip
TEXT, PATH = {"type": "string"}, {"type": "string", "pattern": r"^[^/.]", "minLength": 1}
# The formats' own documents, closed: reviewdog's proto/rdf, GitLab's "Code Quality report format".
RDJSON = {
    "type": "object", "additionalProperties": False, "required": ["source", "diagnostics"],
    "properties": {
        "source": {"type": "object", "required": ["name"]},
        "diagnostics": {"type": "array", "items": {
            "type": "object", "additionalProperties": False, "required": ["message", "location"],
            "properties": {
                "message": TEXT, "severity": {"enum": ["ERROR", "WARNING", "INFO"]},
                "location": {
                    "type": "object", "additionalProperties": False, "required": ["path"],
                    "properties": {"path": PATH, "range": RANGE},
                },
                "code": {"type": "object", "required": ["value"], "properties": {"value": TEXT}},
                "suggestions": {"type": "array", "items": {
                    "type": "object", "additionalProperties": False, "required": ["range", "text"],
                    "properties": {"range": RANGE, "text": TEXT},
                }},
            },
        }},
    },
}  # fmt: skip
GITLAB = {
    "type": "array", "items": {
        "type": "object", "required": ["description", "check_name", "fingerprint", "severity", "location"],
        "properties": {
            "description": {"type": "string", "minLength": 1}, "check_name": TEXT,
            "fingerprint": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
            "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
            "location": {
                "type": "object", "required": ["path", "lines"],
                "properties": {"path": PATH, "lines": {
                    "type": "object", "required": ["begin"], "properties": {"begin": LINES},
                }},
            },
        },
    },
}  # fmt: skip


def generated(random: Random) -> list[FindingRow]:
    """Return the findings of one review, whose names and texts hold what such formats trip over."""

    def words(least: int = 1) -> str:
        pieces = [
            "a",
            "b c",
            "%40",
            "%25",
            "#1",
            "\u00e4\u20ac",
            "\U0001f600",
            '"q"',
            "\\",
            "<b>",
            "[x]",
            "?y",
            "&",
            "\u202e",
        ]
        return "".join(random.choices(pieces, k=random.randint(least, 5)))

    rows = []
    for _ in range(random.randint(0, 6)):
        line = random.choice([None, random.randint(1, 10**6)])
        row = FindingRow(
            file=random.choice([f"//depot/{words()}/{words()}.py", f"//depot/a{words()}", "description"]),
            line=line,
            end_line=line and line + random.randint(0, 3),
            side=random.choice(["new", "new", "old"]),
            severity=random.choice(list(FindingSeverity)),
            category=random.choice(["bug", "security", words()[:32]]),
            title=words(),
            message=words() + "\n\x01\u2028",
            suggestion=random.choice(["", words()]),
            source="llm",
            confidence=random.choice([None, 80]),
            demoted=random.random() < 0.2,
            edit=random.choice([[], [3, ["a", words(), "c"], 1, 2, [words(), "d"]]]),
        )
        row.changelist_id, row.verdict = "12345", random.choice([None, "useful", "wrong", "wont_fix"])
        row.verdict_by, row.verdict_at, row.status = words(), None, "new"
        row.rule, row.rule_text = random.choice([("", ""), (f"//depot/{words()}", ""), ("r", words())])
        rows.append(row)
    return rows


def test_generated_reviews_are_valid_in_every_format() -> None:
    random, is_rdjson, is_gitlab = Random(11), Draft202012Validator(RDJSON), Draft202012Validator(GITLAB)
    made, number = 0, skips.examples(1_000)
    for _ in range(number):
        rows = generated(random)
        made += len(rows)
        assert sarif.wrong_in(FORMS["sarif"][0](rows)) == []
        assert list(is_rdjson.iter_errors(json.loads(FORMS["rdjson"][0](rows)))) == []
        entries = json.loads(FORMS["gitlab"][0](rows))
        assert list(is_gitlab.iter_errors(entries)) == []
        assert len({entry["fingerprint"] for entry in entries}) == len(entries)
        for entry, result in zip(
            entries, json.loads(FORMS["sarif"][0](rows))["runs"][0]["results"], strict=True
        ):
            for place in result["locations"]:
                uri = place["physicalLocation"]["artifactLocation"]["uri"]
                assert uri.isascii()
                assert unquote(uri) == entry["location"]["path"]
    assert made > 2 * number


def test_csv_holds_no_formula(reviewer: ApiClient, job: ReviewJob) -> None:
    header, first, *_ = csv.reader(io.StringIO(get(reviewer, job, "csv")))
    assert dict(zip(header, first, strict=True))["title"] == "'=cmd()"


LIVE = (
    "@everyone", "#12", "GH-12", "!7", "](http", "http://", "evil.example/p.png", "<!--", "<img",
    "\n/merge", "\n```suggestion", "- ```suggestion", "\n~~~",
)  # fmt: skip


@pytest.mark.parametrize("form", ["rdjson", "gitlab"])
def test_text_of_a_finding_does_nothing_where_a_tool_posts_it_as_markdown(
    reviewer: ApiClient, job: ReviewJob, form: str
) -> None:
    said = (
        "Ask @everyone, fixes #12, GH-12 and !7. ![pixel](http://evil.example/p.png) <!-- mark --><img a=x>\n"
        "/merge\n```suggestion\nos.system(x)\n```\n- ```suggestion\nx\n```\n~~~\nx"
    )
    first = FindingRow.objects.filter(job=job).order_by("pk")[0]
    FindingRow.objects.filter(pk=first.pk).update(title=said.partition("\n")[0], message=said)
    content = json.loads(get(reviewer, job, form))
    if form == "rdjson":
        shown = [content["diagnostics"][0]["message"]]
    else:
        shown = [content[0]["description"], content[0]["content"]["body"]]
    assert [live for text in shown for live in LIVE if live in text] == []
    assert all("everyone, fixes" in text for text in shown)  # it is still there to be read
    # What is kept is not changed: programs that show nothing read it as it is.
    assert json.loads(get(reviewer, job, "json"))["findings"][0]["message"] == said


def test_sarif_links_nothing_in_the_text_of_a_finding(reviewer: ApiClient, job: ReviewJob) -> None:
    first = FindingRow.objects.filter(job=job).order_by("pk")[0]
    FindingRow.objects.filter(pk=first.pk).update(message="[the fix](http://evil.example/) and [a][b]")
    text = json.loads(get(reviewer, job, "sarif"))["runs"][0]["results"][0]["message"]["text"]
    assert "the fix" in text
    assert "](" not in text
    assert "][" not in text


def test_rdjson_and_gitlab_say_what_their_tools_read(reviewer: ApiClient, job: ReviewJob) -> None:
    diagnostic = json.loads(get(reviewer, job, "rdjson"))["diagnostics"][0]
    assert diagnostic["location"] == {
        "path": "main/a b@v2.py", "range": {"start": {"line": 12}, "end": {"line": 12}}
    }  # fmt: skip
    assert diagnostic["severity"] == "ERROR"
    entries = json.loads(get(reviewer, job, "gitlab"))
    assert [entry["severity"] for entry in entries] == ["critical", "minor", "info", "info"]
    assert entries[0]["location"] == {"path": "main/a b@v2.py", "lines": {"begin": 12}}


@pytest.mark.parametrize(
    ("changelist", "root"),
    [
        ("github:acme/web#7", "//github/acme/web/"),
        ("gitlab:acme/lib/web!7", "//gitlab/acme/lib/web/"),
        ("git:app@" + "a" * 40, "//app/"),
    ],
)
def test_paths_begin_in_the_repository_and_each_finding_has_its_own_fingerprint(
    reviewer: ApiClient, changelist: str, root: str
) -> None:
    job = factories.ReviewJobFactory(status="succeeded", changelist_id=changelist)
    for _ in range(2):  # the same remark about the same line twice
        factories.FindingRowFactory(job=job, file=f"{root}src/a%40b.py", line=3)
    content = get(reviewer, job, "gitlab")
    assert content.startswith("[")  # no byte order mark
    entries = json.loads(content)
    assert [entry["location"] for entry in entries] == [{"path": "src/a@b.py", "lines": {"begin": 3}}] * 2
    assert len({entry["fingerprint"] for entry in entries}) == 2
    uri = json.loads(get(reviewer, job, "sarif"))["runs"][0]["results"][0]["locations"][0]
    assert uri["physicalLocation"]["artifactLocation"]["uri"] == "src/a%40b.py"


@pytest.mark.parametrize("form", FORMS)
def test_a_file_holds_what_its_reader_may_see(job: ReviewJob, form: str) -> None:
    dave = reader_of_some_files()
    text = dave.get(f"/reviews/{job.pk}/findings.{form}").content.decode()
    assert "main/old.py" in text
    assert "b.py" not in text
    assert Client().get(f"/api/v1/reviews/{job.pk}/findings.{form}").status_code == 401


def test_other_forms_and_reviews_are_not_found(reviewer: ApiClient, job: ReviewJob) -> None:
    for address in (f"{job.pk}/findings.exe", f"{job.pk + 1}/findings.csv"):
        assert reviewer.get(f"/api/v1/reviews/{address}").status_code == 404
