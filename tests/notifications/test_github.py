"""Summaries on GitHub's pull requests: one comment, edited by later versions, safe Markdown."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from criticizer.resilience.failures import ErrorClass, PermanentFailure, QuotaExceeded, UncertainFailure
from notifications.providers.base import Evidence, LookUp, Message, Question
from notifications.providers.failures import NotWanted
from notifications.providers.pull_requests import markdown
from notifications.providers.pull_requests.provider import PullRequests
from tests.fakes import hosts
from tests.fakes.github import APP_ID, HEAD, SLUG, Act, GitHubServer, Repo, tokens_of
from tests.notifications.samples import message

POST = "POST /repos/acme/web/issues/7/comments"
NEWER = "2" * 40


@pytest.fixture
def server() -> Iterator[GitHubServer]:
    with GitHubServer() as running:
        running.add("acme/web")
        yield running
        assert running.faults == []


@pytest.fixture
def repo(server: GitHubServer) -> Repo:
    return server.repos["acme/web"]


def github(server: GitHubServer) -> PullRequests:
    return PullRequests(hosts.host_at("github", server.url, server=server))


def finding(**changes: object) -> dict[str, object]:
    return {
        "file": "//github/acme/web/src/app.py", "line": 12, "end_line": 14, "side": "new", "severity": "high",
        "title": "The lock is not released", "message": "When read() raises, the lock stays taken.",
        "suggestion": "with lock:\n    read()", **changes,
    }  # fmt: skip


def review(repo: Repo, version: int = 1, *, findings: int = 1, sha: str = HEAD, **changes: object) -> Message:
    """Return the message of one version of the review of pull request 7."""
    data: dict[str, object] = {
        "changelist_id": "github:acme/web#7",
        "review_version": version,
        "headline": f"{findings} findings in version {version}",
        "url": "https://reviews.test/reviews/7/",
        "findings": [finding(**changes)] * findings,
        "findings_total": findings,
        "coverage": [{"file": "//github/acme/web/logo.png", "status": "skipped", "reason": "binary"}],
        "pull_request": {"repository_id": repo.number, "head_sha": sha},
    }
    payload: dict[str, object] = {"type": "review.completed", "data": data}
    return message("acme/web#7", token=version, payload=payload)


def asked(server: GitHubServer, sent: Message) -> LookUp:
    return github(server).look_up(Question(sent, "", time.time()))


def bodies(repo: Repo) -> list[str]:
    return [c["body"] for c in repo.comments.values() if c["performed_via_github_app"]]


def test_a_summary_begins_with_its_marker_and_names_what_was_found(server: GitHubServer, repo: Repo) -> None:
    sent = review(repo)
    number = github(server).send(sent)
    assert list(map(str, repo.comments)) == [number]
    (body,) = bodies(repo)
    assert body.splitlines()[0] == (
        f"<!-- criticizer:summary pr={repo.number}#7 v=1 sha={HEAD} token={sent.token} -->"
    )
    assert "`src/app.py:12-14`" in body
    assert "```\nwith lock:\n    read()\n```" in body
    assert "Showing" not in body
    assert "Note:" not in body


def test_a_later_version_edits_the_comment_which_then_names_both(server: GitHubServer, repo: Repo) -> None:
    versions = [review(repo, version) for version in (1, 2, 3)]
    numbers = [github(server).send(sent) for sent in versions]
    assert len(set(numbers)) == 1
    (body,) = bodies(repo)
    assert "in version 3" in body
    assert tokens_of(repo) == [str(sent.token) for sent in reversed(versions)]
    assert [asked(server, sent).evidence for sent in versions] == [Evidence.FOUND] * 3


def test_an_older_version_never_replaces_a_newer_one(server: GitHubServer, repo: Repo) -> None:
    github(server).send(review(repo, 2))
    with pytest.raises(NotWanted, match="newer version"):
        github(server).send(review(repo, 1))
    assert "in version 2" in bodies(repo)[0]


def test_the_same_version_sent_again_is_the_same_comment(server: GitHubServer, repo: Repo) -> None:
    sent = review(repo)
    assert github(server).send(sent) == github(server).send(sent)
    assert tokens_of(repo) == [str(sent.token)]


def test_a_closed_pull_request_gets_nothing(server: GitHubServer, repo: Repo) -> None:
    repo.pulls[7].state = "closed"
    with pytest.raises(NotWanted, match="closed"):
        github(server).send(review(repo))
    assert not repo.comments


def test_results_of_an_older_head_say_so(server: GitHubServer, repo: Repo) -> None:
    repo.pulls[7].head = NEWER
    github(server).send(review(repo))
    assert bodies(repo)[0].splitlines()[2] == (
        f"Note: These results are from commit `{HEAD}`. The PR has been updated since this scan ran."
    )


def test_a_marker_that_another_user_pasted_is_not_believed(server: GitHubServer, repo: Repo) -> None:
    sent = review(repo)
    pasted = server.say("acme/web", 7, markdown.note(sent))
    bot = server.say("acme/web", 7, markdown.note(sent))
    bot["user"] = {"login": "other[bot]", "type": "Bot"}
    other = server.say("acme/web", 7, markdown.note(sent))
    other["performed_via_github_app"] = {"id": 1, "slug": SLUG}
    quoted = server.say("acme/web", 7, f"> {markdown.note(sent)}")
    quoted["performed_via_github_app"] = {"id": APP_ID}  # ours, but not at its beginning
    assert asked(server, sent).evidence is Evidence.ABSENT
    number = github(server).send(sent)
    assert int(number) not in {pasted["id"], bot["id"], other["id"], quoted["id"]}


def test_a_comment_whose_app_is_not_told_is_ours_by_its_login(server: GitHubServer, repo: Repo) -> None:
    sent = review(repo)
    number = github(server).send(sent)
    repo.comments[int(number)]["performed_via_github_app"] = None
    assert asked(server, sent).evidence is Evidence.FOUND
    repo.comments[int(number)]["user"]["type"] = "User"
    assert asked(server, sent).evidence is Evidence.ABSENT


def test_our_comment_is_found_on_the_third_page(server: GitHubServer, repo: Repo) -> None:
    for number in range(210):
        server.say("acme/web", 7, f"comment {number}")
    sent = review(repo)
    number = github(server).send(sent)
    for further in range(40):
        server.say("acme/web", 7, f"later {further}")
    assert asked(server, sent).notification_id == number
    assert github(server).send(review(repo, 2)) == number


def test_a_deleted_comment_is_posted_anew_once(server: GitHubServer, repo: Repo) -> None:
    number = int(github(server).send(review(repo)))
    # Deleted between the list and the edit.
    server.script(
        Act(before=lambda: repo.comments.pop(number)), on=f"PATCH /repos/acme/web/issues/comments/{number}"
    )
    assert int(github(server).send(review(repo, 2))) != number
    assert len(bodies(repo)) == 1
    repo.comments.clear()
    github(server).send(review(repo, 3))
    github(server).send(review(repo, 3))
    assert len(bodies(repo)) == 1


@pytest.mark.parametrize("version", [1, 2])  # 2: an edit
def test_an_answer_that_is_lost_is_uncertain_and_found(
    server: GitHubServer, repo: Repo, version: int
) -> None:
    call = POST
    if version == 2:
        call = f"PATCH /repos/acme/web/issues/comments/{github(server).send(review(repo))}"
    server.script(Act(then="reset"), on=call)
    sent = review(repo, version)
    with pytest.raises(UncertainFailure):
        github(server).send(sent)
    assert asked(server, sent).evidence is Evidence.FOUND
    server.script(
        Act(keep=False, status=502), on=f"PATCH /repos/acme/web/issues/comments/{next(iter(repo.comments))}"
    )
    further = review(repo, 3)
    with pytest.raises(UncertainFailure):
        github(server).send(further)
    assert asked(server, further).evidence is Evidence.ABSENT
    assert len(bodies(repo)) == 1


def test_a_token_that_expires_between_the_calls_is_renewed_once(server: GitHubServer, repo: Repo) -> None:
    server.script(Act(before=lambda: server.forward(3700)), on=POST)
    github(server).send(review(repo))
    assert len(bodies(repo)) == 1
    assert server.count("POST", "/app/installations/.*") == 2


def test_a_used_up_quota_is_a_wait_and_nothing_is_posted(server: GitHubServer, repo: Repo) -> None:
    server.script(Act(keep=False, status=403, headers={"retry-after": "2"}), on=POST)
    with pytest.raises(QuotaExceeded) as refused:
        github(server).send(review(repo))
    assert refused.value.retry_after_seconds == 2
    assert not repo.comments


def test_a_locked_pull_request_refuses_and_a_private_one_proves_nothing(
    server: GitHubServer, repo: Repo
) -> None:
    repo.pulls[7].is_locked = True
    with pytest.raises(PermanentFailure) as refused:
        github(server).send(review(repo))
    assert refused.value.error_class is ErrorClass.RECIPIENT_REJECTED
    sent, provider = review(repo), github(server)
    provider.look_up(Question(sent, "", time.time()))
    repo.is_hidden = True
    assert provider.look_up(Question(sent, "", time.time())).evidence is Evidence.UNKNOWN


def test_a_renamed_repository_gets_its_summary(server: GitHubServer, repo: Repo) -> None:
    server.rename("acme/web", "acme/site")
    github(server).send(review(repo))
    assert len(bodies(repo)) == 1


def test_a_review_is_posted_to_its_own_pull_request_only(server: GitHubServer, repo: Repo) -> None:
    server.add("acme/other")
    elsewhere = replace(review(repo), address="acme/other#7")
    with pytest.raises(PermanentFailure, match="its own pull request"):
        github(server).send(elsewhere)
    assert not server.repos["acme/other"].comments


# -- Markdown ----------------------------------------------------------------------------------

FENCES = "Use ```` ```python ```` or:\n```\n~~~\n`````\n<!-- criticizer:summary -->\n"


def summary(sent: Message) -> str:
    from notifications.providers.payload import review_payload

    found = review_payload(sent)
    assert found is not None
    marker = markdown.Marker(str(sent.token), found.repository_id, 7, found.version, found.head_sha)
    return markdown.summary(sent, found, marker)


def outside_code(body: str) -> str:
    """Return the text outside fenced blocks as CommonMark reads it; every fence must be closed."""
    kept, fence = [], ""
    for line in body.splitlines():
        run = re.match(r" {0,3}(`{3,})(.*)$", line)
        if fence:
            if run and len(run[1]) >= len(fence) and not run[2].strip():
                fence = ""
        elif run and "`" not in run[2]:
            fence = run[1]
        else:
            kept.append(line)
    assert not fence
    return "\n".join(kept)


@pytest.mark.parametrize("text", ["🙂" * 500, "x" * 500, "```\n" * 125, "👩‍👩‍👧‍👦<&>@ann#12 " * 30])
def test_400_findings_keep_both_limits_the_marker_and_the_fences(repo: Repo, text: str) -> None:
    sent = review(repo, findings=400, message=text, suggestion=f"{FENCES}{text}")
    body = summary(sent)
    assert len(body) <= markdown.MAX_CHARACTERS
    assert len(body.encode()) <= markdown.MAX_BYTES
    assert markdown.marker_of(body) is not None
    shown = body.count("**HIGH: ")
    assert 10 < shown < 400
    assert f"Showing {shown} of 400 findings." in outside_code(body)
    assert outside_code(body).count("HIGH: ") == shown
    assert "Not read completely:" in outside_code(body)
    body.encode().decode()  # no half of a pair


HOSTILE = [
    ("@ann and @acme/owners", r"@\w"),
    ("fixes #12, GH-12 and acme/web#3", r"#\d|GH-\d"),
    ("<!-- criticizer:summary pr=1#7 -->", r"(?<!\\)<"),
    ("![x](https://evil.example/a.png)", r"(?<!\\)[!\[\]]|https://"),
    ("see https://github.com/a/b/issues/3 and www.evil.example", r"https://|www\.e"),
    ("<img src=x onerror=alert(1)>", r"(?<!\\)<"),
    ("# heading\n- item\n1. one\n> quote\n---\n===", r"(?m)^(?:#|- i|1\. |>|---|===)"),
    ("a | b\n--|--\n$x$ ~~no~~ *no* _no_", r"(?<!\\)[|$~*_]"),
    ("/merge\n  /close\n/approve now", r"(?m)^\s*/"),
    ("see !12, %3, $4, &5 and ~bug", r"[!%$&]\d|~\w"),
]


@pytest.mark.parametrize(("text", "live"), HOSTILE)
@pytest.mark.parametrize("field", ["title", "message"])
def test_text_of_a_change_is_only_text(repo: Repo, text: str, live: str, field: str) -> None:
    changes: dict[str, Any] = {"title": "T", "message": "M", "suggestion": "", field: text}
    plain = summary(review(repo, findings=1, **changes))
    own = summary(review(repo, findings=1, title="T", message="M", suggestion=""))
    added = "\n".join(line for line in plain.splitlines() if line not in own.splitlines())
    added = added.removeprefix("**HIGH: ").removesuffix("**")
    assert not re.search(live, added)


def test_no_line_of_a_suggestion_is_a_quick_action(repo: Repo) -> None:
    body = summary(review(repo, findings=1, suggestion="```\n/merge\n\t/close\n#/usr/bin/env"))
    assert "/merge" in body
    assert not re.search(r"(?m)^\s*/", body)
    assert "\n#/usr/bin/env\n" in body


def test_a_path_cannot_leave_its_code_span(repo: Repo) -> None:
    body = summary(review(repo, findings=1, file="//github/acme/web/a`b`@ann.py"))
    assert "`a'b'@ann.py:12-14`" in body
