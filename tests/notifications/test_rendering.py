"""Messages: complete counts, bounded, escaped, the same bytes each time."""

from __future__ import annotations

import dataclasses
import json
from html.parser import HTMLParser
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criticizer.inert_links import break_links
from notifications.digests.message import compose
from notifications.providers.base import Message
from notifications.rendering import (
    MAX_BRIEF,
    MAX_FILES,
    MAX_FINDINGS,
    MAX_SUBJECT,
    Comparison,
    EarlierFinding,
    Ending,
    ExcerptLine,
    Report,
    ReportFile,
    ReportFinding,
    render,
)
from notifications.rendering.selection import choose
from tests.notifications.samples import REVIEWED_AT, finding, report

TOKEN = UUID(int=7, version=5)
UNSUBSCRIBE = "https://reviews.test/unsubscribe/abc.def/"
GMAIL_CUTS_AT = 102_000  # bytes of HTML


def rendered(of: Report, recipient: str = "mail:ann@example.com", **options: Any) -> Message:
    return render(of, recipient, TOKEN, **options)


def files(**statuses: int) -> tuple[ReportFile, ...]:
    return tuple(
        ReportFile(f"//depot/main/{status}{n}.py", status, "too large" if status == "skipped" else "")
        for status, count in statuses.items()
        for n in range(count)
    )


def filled(text: str, count: int = 1) -> Report:
    """Return a report with the text in every field that takes text, `count` of everything in it."""

    def made(cls: Any, **fixed: object) -> Any:
        texts = {f.name: text for f in dataclasses.fields(cls) if f.type in {"str", str}}
        return cls(**{**texts, **fixed})

    rows = (made(ExcerptLine, line=3, kind="+"), made(ExcerptLine, line=4))
    severe = made(ReportFinding, line=3, severity="high", excerpt=rows, is_new=True, anchor="finding-1")
    strange = made(ReportFinding, line=3, excerpt=rows)
    whole: Report = made(
        Report,
        review_version=2,
        reviewed_at=REVIEWED_AT,
        url="https://reviews.test/reviews/7/",
        findings=(severe, strange) * count,
        coverage=(made(ReportFile), made(ReportFile, status="skipped")) * count,
        status_lines=(text,) * count,
        since=Comparison(1, (EarlierFinding(severe, Ending.FIXED),) * count),
    )
    return whole


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "1 finding (1 high), 1 of 2 files read"),
        ({"findings": ()}, "no findings, 1 of 2 files read"),
        ({"findings": (finding(), finding(severity="critical"))}, "2 findings (1 critical, 1 high)"),
        ({"findings": (), "coverage": ()}, "no findings, 0 of 0 files read"),
        ({"findings": (), "coverage": files(skipped=1)}, "no findings, 0 of 1 file read"),
        ({"coverage": files(reviewed=3, partial=2)}, "3 of 5 files read, 2 in part"),
        ({"coverage": files(checked=4)}, "4 of 4 files read, by checks only"),
        ({"coverage": files(reviewed=1, checked=3)}, "4 of 4 files read (3 by checks only)"),
    ],
)
def test_findings_are_never_counted_without_what_was_read(changes: dict[str, object], says: str) -> None:
    made = rendered(report(**changes))
    assert says in made.text
    assert says[0].upper() + says[1:] in made.html or says in made.html
    data = made.payload["data"]
    assert isinstance(data, dict)
    assert says in data["headline"]


def test_plain_text_html_and_json_tell_the_same_facts() -> None:
    made = rendered(
        report(
            banner="The model was not available.",
            status_lines=("Model: none",),
            findings=(finding(anchor="finding-3", category="bug"),),
            since=Comparison(1, (EarlierFinding(finding(title="A leak"), Ending.FIXED),)),
        ),
        unsubscribe_url=UNSUBSCRIBE,
    )
    data = json.dumps(made.payload)
    for fact in (
        "The lock is not released",
        "the lock stays taken",
        "with lock:",
        "The model was not available.",
        "//depot/main/logo.png",
        "binary",
        "https://reviews.test/reviews/7/",
        "https://reviews.test/reviews/7/#finding-3",
        "Model: none",
        "12345",
        "bob",
        "A leak",
    ):
        assert fact in made.text, fact
        assert fact in made.html, fact
        assert fact in data, fact
    for fact in ("//depot/main/app.py:12-14", "lock.acquire()", "found by the language model", UNSUBSCRIBE):
        assert fact in made.text, fact
        assert fact in made.html, fact


def test_the_payload_counts_what_changed() -> None:
    new, old = finding(is_new=True), finding(is_new=False, line=90)
    earlier = EarlierFinding(finding(title="A leak"), Ending.NOT_READ)
    data: Any = rendered(report(findings=(old, new), since=Comparison(3, (earlier,)))).payload["data"]
    assert data["since"] == {
        "version": 3,
        "summary": "1 new, 1 still there, 1 not read again",
        "new": 1,
        "still_there": 1,
        "earlier": [
            {
                "fate": "not_read",
                "file": "//depot/main/app.py",
                "line": 12,
                "severity": "high",
                "title": "A leak",
                "identity": "",
            }
        ],
        "earlier_left_out": 0,
    }
    assert [found["is_new"] for found in data["findings"]] == [True, False]  # new ones first
    assert data["severities"] == {"high": 2}


def test_a_first_version_mentions_no_earlier_one() -> None:
    made = rendered(report())
    assert "since version" not in (made.text + made.html).lower()
    data: Any = made.payload["data"]
    assert data["since"] is None


def test_findings_are_grouped_worst_first() -> None:
    severities = ("low", "critical", "medium", "strange", "high")
    made = rendered(report(findings=tuple(finding(severity=severity) for severity in severities)))
    for body in (made.text.upper(), made.html.upper()):
        positions = [
            body.index(f"{severity} (1)") for severity in ("CRITICAL", "HIGH", "MEDIUM", "LOW", "STRANGE")
        ]
        assert positions == sorted(positions)


def test_what_is_not_shown_in_full_is_listed_and_the_rest_is_counted_by_severity() -> None:
    many = MAX_FINDINGS + MAX_BRIEF + 7
    short = {"message": "", "suggestion": "", "excerpt": ()}
    made = rendered(
        report(
            findings=(
                *(finding(line=n, end_line=n, title=f"Remark {n}", **short) for n in range(1, many)),
                finding(severity="low", title="The last", **short),
            ),
            coverage=files(skipped=MAX_FILES + 3),
        )
    )
    shown = made.text.count("\nRemark ")
    listed = made.text.count("\n- Remark ")
    assert 20 <= shown <= MAX_FINDINGS
    assert 20 <= listed <= MAX_BRIEF
    left_out = many - shown - listed
    words = f"… and {left_out} more findings ({left_out - 1} high, 1 low), not listed here"
    assert words in made.text.replace("\n", " ")
    assert words in made.html
    for body in (made.text, made.html):
        assert f"High ({many - 1})".upper() in body.upper()
        for n in range(1, many):
            assert (f"Remark {n}\n" in body or f"Remark {n} (" in body or f">Remark {n}<" in body) == (
                n <= shown + listed
            )
        assert "more files, not listed here" in body
    data: Any = made.payload["data"]
    assert (data["findings_total"], data["findings_left_out"]) == (many, many - MAX_FINDINGS)


def test_nothing_is_said_to_be_left_out_when_nothing_is() -> None:
    made = rendered(report(findings=(finding(),) * 10, coverage=files(skipped=10)))
    assert "more finding" not in made.text + made.html
    assert "not listed here" not in made.text + made.html


def test_what_was_shortened_says_so() -> None:
    made = rendered(report(findings=(finding(message="word " * 2000),)))
    for body in (made.text, made.html):
        assert "… (shortened)" in body


@pytest.mark.parametrize("count", [MAX_FINDINGS, pytest.param(300, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "text",
    [
        "A" * 100_000,
        "<&\"'" * 20_000,
        *(pytest.param(one, marks=pytest.mark.long) for one in ("\N{HAMMER}" * 50_000, "a b\n" * 20_000)),
    ],
)
def test_size_is_bounded_whatever_comes_in(text: str, count: int) -> None:
    """Of 2 * `count` findings: more are left out than shown."""
    made = rendered(filled(text, count=count))
    assert len(made.subject) <= MAX_SUBJECT
    assert len(made.text.encode()) < 300_000
    assert len(made.html.encode()) < GMAIL_CUTS_AT
    assert len(json.dumps(made.payload, ensure_ascii=False).encode()) < 3_000_000
    assert "…" in made.text


def test_a_review_of_usual_size_is_below_what_gmail_shows() -> None:
    rows = tuple(ExcerptLine(f"    value = compute(first, second, {n})", "+", n) for n in range(17))
    many = tuple(
        finding(line=n * 20, title=f"Remark {n}", message="The value is wrong. " * 20, excerpt=rows)
        for n in range(1, 60)
    )
    made = rendered(report(findings=many))
    assert len(made.html.encode()) < GMAIL_CUTS_AT
    assert made.text.count("\nRemark ") >= 10


class Markup(HTMLParser):
    """A collector of the parts that a mail program would act on."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links |= {value or "" for name, value in attrs if name in {"href", "src", "action"}}


def test_markup_in_any_field_stays_text() -> None:
    hostile = '<script>alert(1)</script><img src=x onerror="x">&amp;\'"`<i>`'
    plain = Markup(rendered(filled("harmless")).html)
    made = rendered(filled(hostile), unsubscribe_url='https://x/"><script>')
    found = Markup(made.html)
    assert found.tags <= plain.tags | {"code"}
    assert found.attributes <= plain.attributes
    assert not found.tags & {"script", "img", "i"}
    assert found.links <= {
        "https://reviews.test/reviews/7/",
        "https://reviews.test/reviews/7/#finding-1",
        'https://x/"><script>',
    }
    assert hostile in made.text  # plain text shows it as it is, unescaped


@pytest.mark.parametrize("url", ["javascript:alert(1)", "data:text/html,x", ""])
def test_only_web_addresses_become_links(url: str) -> None:
    made = rendered(report(url=url, findings=(finding(anchor="finding-1"),)), unsubscribe_url=url)
    assert "href" not in made.html


@pytest.mark.parametrize("anchor", ['x" onclick="y', "a b", "", "x" * 65])
def test_an_anchor_that_is_none_is_no_link(anchor: str) -> None:
    made = rendered(report(findings=(finding(anchor=anchor),)))
    assert Markup(made.html).links == {"https://reviews.test/reviews/7/"}


ACTING = "\r\nBcc: mallory@example.com\x00\x1b[2J\u202egpj\u2066\u200b\ud800\ufeff\u2028\U000e0041\x85"


def test_no_field_can_bring_a_header_a_line_or_a_hidden_character() -> None:
    made = rendered(filled(f"x{ACTING}y"))
    assert "\n" not in made.subject
    for text in (made.subject, made.text, made.html, json.dumps(made.payload, ensure_ascii=False)):
        text.encode()
        assert not {c for c in set(text) & set(ACTING) if c != "\n" and not c.isprintable()}
    assert "⟨U+202E⟩" in made.text  # seen instead of obeyed
    assert "\nBcc:" not in made.subject


def test_the_same_report_gives_the_same_bytes() -> None:
    of = report(since=Comparison(1, (EarlierFinding(finding(), Ending.GONE),)))
    assert rendered(of, unsubscribe_url=UNSUBSCRIBE) == rendered(of, unsubscribe_url=UNSUBSCRIBE)
    shuffled = report(findings=(finding(line=1), finding(line=2)))
    other = report(findings=(finding(line=2), finding(line=1)))
    assert rendered(shuffled) == rendered(other)  # whatever order the rows were read in


def test_a_commit_is_named_short_in_the_subject_and_whole_in_the_body() -> None:
    name = "git:app@" + "0123456789" * 4
    made = rendered(report(changelist_id=name, review_version=3))
    assert made.subject.startswith("Review of git:app@012345678901: ")
    assert name in made.text
    assert name in made.html


def test_versions_of_a_changelist_share_thread_and_subject() -> None:
    first = rendered(report())
    second = rendered(report(review_version=2, findings=()), answers=first.token)
    assert first.thread == second.thread
    assert first.subject == second.subject  # mail programs break a thread where it changes
    assert "version 2" in second.text
    assert (first.answers, second.answers) == (None, first.token)


def test_the_line_that_inboxes_show_says_what_the_subject_does_not() -> None:
    made = rendered(report(findings=(finding(is_new=True),), since=Comparison(1)))
    start = made.html.index('<div style="display:none')
    assert made.html[start : start + 200].count("1 new, 0 still there. 1 finding (1 high), 1 of 2 files") == 1


def test_the_address_has_no_channel() -> None:
    assert rendered(report(), "webhook:https://ci.example.com/x").address == "https://ci.example.com/x"


def test_findings_without_a_line_and_on_the_old_side_say_so() -> None:
    made = rendered(report(findings=(finding(line=None, end_line=None), finding(side="old", end_line=12))))
    for body in (made.text, made.html):
        assert "//depot/main/app.py:12 (before the change)" in body
    assert "\n//depot/main/app.py\n" in made.text


# -- links -------------------------------------------------------------------------------------

OURS = "https://reviews.test/reviews/7/"


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("https://evil.example/login", "https[:]//evil[.]example/login"),
        ("HTTPS:\\\\evil.example\\login", "HTTPS[:]\\\\evil[.]example\\login"),
        ("//evil.example/x", "//evil[.]example/x"),
        ("www.evil.example", "www[.]evil[.]example"),
        ("mailto:a@evil.example", "mailto[:]a@evil[.]example"),
        ("a@evil.example", "a@evil[.]example"),
        ("evil.com", "evil[.]com"),
        ("EVIL.COM", "EVIL[.]COM"),
        ("evil.com/x", "evil[.]com/x"),
        ("bit.ly/abc", "bit[.]ly/abc"),
        ("evil.example:8080/x", "evil[.]example:8080/x"),
        ("evil.club?x=1", "evil[.]club?x=1"),
        ("a.b.c.d.e.f.g.h.i.j.k.evil.icu/x", "a[.]b[.]c[.]d[.]e[.]f[.]g[.]h[.]i[.]j[.]k[.]evil[.]icu/x"),
        ("evil\N{IDEOGRAPHIC FULL STOP}com/x", "evil[.]com/x"),
        ("xn--80ak6aa92e.com", "xn--80ak6aa92e[.]com"),
    ],
)
def test_text_of_others_is_no_link_in_mail_and_stays_as_it_is_in_the_payload(link: str, shown: str) -> None:
    theirs = finding(file=link, title=link, message=f"See ({link}).", suggestion=link)
    of = report(
        title=f"Fix {link} now", author=link, banner=link, findings=(theirs,), status_lines=(link,),
        coverage=(ReportFile(link, "skipped", link),),
        since=Comparison(1, (EarlierFinding(theirs, Ending.FIXED),)),
    )  # fmt: skip
    made = rendered(of, unsubscribe_url=UNSUBSCRIBE)
    digest = compose([made, rendered(report(changelist_id="2"))], TOKEN)
    for text in (made.subject, made.text, made.html, digest.text, digest.html):
        assert shown in text
        assert link not in text
    assert all(ours in text for ours in (OURS, UNSUBSCRIBE) for text in (made.text, made.html))
    assert made.payload["data"]["title"] == of.title  # type: ignore[index]


def test_code_keeps_its_dots_but_addresses_in_it_are_no_links() -> None:
    text = "total/count\n    self.total/count\n    https://evil.example/x"
    row = ExcerptLine("ratio = self.total/count  # https://evil.example/x", "+", 12)
    made = rendered(report(findings=(finding(message=text, suggestion=text, excerpt=(row,)),)))
    assert made.text.count("self.total/count") == 3
    assert "https://evil" not in made.text
    plain = "The call os.path.join in app.py:12 and README.md, not e.g. log.info(x)."
    assert plain in rendered(report(status_lines=(plain,))).text


@given(st.text(alphabet="ab.@:/[]-x \\wW", max_size=60))
def test_breaking_links_twice_changes_nothing(text: str) -> None:
    once = break_links(text)
    assert break_links(once) == once
    assert once.replace("[.]", ".").replace("[:]", ":") == text.replace("[.]", ".").replace("[:]", ":")


def test_a_long_text_is_broken_in_linear_time() -> None:
    for piece in ("a.", "a.b@", "/a.b", "@a", "www.", "-.", "://"):
        break_links(piece * 50_000)


def test_a_message_shows_as_many_findings_as_its_budget_and_every_critical_one() -> None:
    found = [finding(title=f"low {n}", severity="low", is_folded=n == 0) for n in range(5)]
    found.append(finding(title="worst", severity="critical"))
    shown = choose(report(findings=tuple(found), budget=2), lambda _: 1)
    assert [f.title for _, group in shown.groups for f in group] == ["worst", "low 1", "low 2"]
    assert sum(shown.counts.values()) == 6
    assert len(shown.brief) + sum(shown.left_out.values()) == 3
