"""What recipients read: honest, bounded, escaped, and the same on every attempt."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from uuid import UUID

import pytest

from notifications.messages import MAX_FILES, MAX_FINDINGS, MAX_SUBJECT, Report, ReportFile, render
from notifications.providers.base import Message
from tests.notifications.samples import finding, report

TOKEN = UUID(int=7, version=5)


def rendered(of: Report, recipient: str = "mail:ann@example.com") -> Message:
    return render(of, recipient, TOKEN)


def files(**statuses: int) -> tuple[ReportFile, ...]:
    return tuple(
        ReportFile(f"//depot/main/{status}{n}.py", status, "too large" if status == "skipped" else "")
        for status, count in statuses.items()
        for n in range(count)
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "1 finding, 1 of 2 files read"),
        ({"findings": ()}, "no findings, 1 of 2 files read"),
        ({"findings": (finding(), finding(severity="critical"))}, "2 findings (1 critical, 1 high)"),
        ({"findings": (), "coverage": ()}, "no findings, 0 of 0 files read"),
        ({"findings": (), "coverage": files(skipped=1)}, "no findings, 0 of 1 file read"),
        ({"coverage": files(reviewed=3, partial=2)}, "3 of 5 files read, 2 in part"),
        ({"coverage": files(checked=4)}, "4 of 4 files read, by checks only"),
        ({"coverage": files(reviewed=1, checked=3)}, "4 of 4 files read"),
    ],
)
def test_the_subject_never_counts_findings_without_coverage(changes: dict[str, object], says: str) -> None:
    made = rendered(report(**changes))
    assert says in made.subject.replace("1 finding (1 high)", "1 finding")
    headline = made.subject.split(": ", 1)[1].split(" - ")[0]
    for body in (made.text, made.html):
        assert headline in body


def test_plain_text_and_html_tell_the_same_facts() -> None:
    made = rendered(report(banner="The model was not available.", status_lines=("Model: none",)))
    for fact in (
        "//depot/main/app.py:12-14",
        "The lock is not released",
        "the lock stays taken",
        "lock.acquire()",
        "with lock:",
        "The model was not available.",
        "//depot/main/logo.png",
        "binary",
        "https://reviews.test/reviews/7/",
        "Model: none",
        "12345",
        "bob",
    ):
        assert fact in made.text, fact
        assert fact in made.html, fact
        assert fact in json.dumps(made.payload) or fact in {"lock.acquire()", "//depot/main/app.py:12-14"}


def test_the_plain_text_reads_well() -> None:
    assert rendered(report()).text == (
        "1 finding (1 high), 1 of 2 files read\n"
        "Read the file under a lock\n"
        "\n"
        "Changelist  12345, version 1\n"
        "Author      bob\n"
        "Review      https://reviews.test/reviews/7/\n"
        "\n"
        "HIGH (1)\n"
        "\n"
        "//depot/main/app.py:12-14\n"
        "  The lock is not released\n"
        "\n"
        "    When read() raises, the lock stays taken.\n"
        "\n"
        "    12 + lock.acquire()\n"
        "    13   read()\n"
        "\n"
        "    Suggestion:\n"
        "    with lock:\n"
        "        read()\n"
        "\n"
        "WHAT WAS READ: 1 of 2 files\n"
        "  skipped: //depot/main/logo.png (binary)\n"
        "\n"
        "--\n"
        "Sent by Criticizer.\n"
    )


def test_findings_are_grouped_the_gravest_first() -> None:
    made = rendered(
        report(
            findings=tuple(finding(severity=severity) for severity in ("low", "critical", "medium", "high"))
        )
    )
    for body in (made.text.upper(), made.html.upper()):
        positions = [body.index(f"{severity} (1)") for severity in ("CRITICAL", "MEDIUM", "LOW")]
        assert positions == sorted(positions)


def test_what_is_left_out_is_counted_in_words() -> None:
    made = rendered(
        report(
            findings=tuple(finding(line=n) for n in range(1, MAX_FINDINGS + 8)),
            coverage=files(skipped=MAX_FILES + 3),
        )
    )
    assert f"{MAX_FINDINGS + 7} findings" in made.subject
    for body in (made.text, made.html):
        assert "… and 7 more findings" in body
        assert "… and 3 more files" in body
    data = made.payload["data"]
    assert isinstance(data, dict)
    assert (data["findings_total"], data["findings_left_out"]) == (MAX_FINDINGS + 7, 7)


def test_nothing_is_said_to_be_left_out_when_nothing_is() -> None:
    assert "more finding" not in rendered(report(findings=(finding(),) * MAX_FINDINGS)).text


def test_size_is_bounded_whatever_comes_in() -> None:
    huge = "A" * 1_000_000
    made = rendered(
        report(
            title=huge,
            author=huge,
            banner=huge,
            findings=(finding(title=huge, message=huge, suggestion=huge, file=huge),) * 500,
            coverage=tuple(ReportFile(huge, "skipped", huge) for _ in range(500)),
            status_lines=(huge,) * 500,
        )
    )
    assert len(made.subject) <= MAX_SUBJECT
    assert len(made.text) < 500_000
    assert len(made.html) < 600_000
    assert len(json.dumps(made.payload)) < 700_000
    assert "…" in made.text


def test_markup_in_untrusted_text_stays_text() -> None:
    hostile = '<script>alert(1)</script><img src=x onerror="x">&amp;'
    made = rendered(
        report(
            title=hostile,
            author=hostile,
            banner=hostile,
            findings=(finding(title=hostile, message=hostile, suggestion=hostile, file=hostile),),
            coverage=(ReportFile(hostile, "skipped", hostile),),
            status_lines=(hostile,),
        )
    )
    seen: set[str] = set()

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            seen.add(tag)

    Tags().feed(made.html)
    assert not seen & {"script", "img"}
    assert hostile in made.text  # plain text shows it as it is, unescaped


@pytest.mark.parametrize("url", ["javascript:alert(1)", "data:text/html,x", ""])
def test_only_web_addresses_become_links(url: str) -> None:
    assert "href" not in rendered(report(url=url)).html


def test_headers_and_lines_cannot_be_injected() -> None:
    made = rendered(report(title="x\r\nBcc: mallory@example.com\x00\u202egpj\ud800"))
    assert "\n" not in made.subject
    assert "\r" not in made.subject
    for text in (made.subject, made.text, made.html):
        text.encode()
        assert not set(text) & {"\x00", "\u202e", "\r"}


def test_the_same_report_gives_the_same_bytes() -> None:
    assert rendered(report()) == rendered(report())


def test_a_commit_is_named_short_in_the_subject_and_whole_in_the_body() -> None:
    name = "git:app@" + "0123456789" * 4
    made = rendered(report(changelist_id=name, review_version=3))
    assert "git:app@012345678901 v3: " in made.subject
    assert name in made.text


def test_versions_of_a_changelist_share_a_thread() -> None:
    first, second = (rendered(report(review_version=version)) for version in (1, 2))
    assert first.thread == second.thread


def test_the_address_has_no_channel() -> None:
    assert rendered(report(), "webhook:https://ci.example.com/x").address == "https://ci.example.com/x"


def test_findings_without_a_line_and_on_the_old_side_say_so() -> None:
    made = rendered(report(findings=(finding(line=None, end_line=None), finding(side="old", end_line=12))))
    assert "\n//depot/main/app.py\n" in made.text
    assert "//depot/main/app.py:12 (before the change)" in made.text


def test_the_html_mail_is_readable_without_colours_and_in_dark_mode() -> None:
    html = rendered(report()).html
    assert '<html lang="en">' in html
    assert "prefers-color-scheme: dark" in html
    assert "<h1" in html
    assert "http-equiv" not in html
    assert "<img" not in html  # nothing is loaded from anywhere
