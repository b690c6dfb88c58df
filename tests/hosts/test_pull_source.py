"""The content of pull requests, by real git from a real server that asks for a password."""

from __future__ import annotations

import base64
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from criticizer.codehosts.github.host import GitHubHost
from criticizer.codehosts.github.tokens import AppConfig
from criticizer.resilience.failures import ErrorClass, Failure, PermanentFailure, RetryableFailure
from criticizer.workers.subprocesses import CommandResult
from reviews.sources import git_command, mirror, mirror_space
from reviews.sources.allowlist import AllowList
from reviews.sources.base import Action, Change, SkipReason
from reviews.sources.fetcher import ChangeFetcher
from reviews.sources.git_command import GitCommand
from reviews.sources.mirror import MirrorConfig
from reviews.sources.mirror_space import delete_unused
from reviews.sources.pull import CommitSource, PullSource
from reviews.sources.rules import RuleReader
from tests.fakes.git_http import GitHost, PullRequests
from tests.fakes.github import GitHubServer
from tests.fakes.hosts import host_at
from tests.sources.gitrepo import GitRepo

TOKEN = "ghs_99_eyJhbGciOiJSUzI1NiJ9.e30.c2lnbmVk-by_nobody"
ID = "github:acme/website#7"
ROOT = "//github/acme/website/"


def clone_url(api: str) -> str:
    return GitHubHost(AppConfig("", (), api)).clone_url("acme/website")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[GitHost]:
    with GitHost(tmp_path / "host", TOKEN) as started:
        yield started


@pytest.fixture
def repository(host: GitHost, tmp_path: Path) -> PullRequests:
    return PullRequests(host, tmp_path)


@pytest.fixture
def config(host: GitHost, tmp_path: Path) -> MirrorConfig:
    return MirrorConfig(
        clone_url(f"{host.url}/api/v3"),
        tmp_path / "mirrors" / "github" / "500.git",
        lambda refused: TOKEN,
        lag_pauses_seconds=(0.0,),
    )


def source(config: MirrorConfig, head: str, base: str, base_ref: str = "main") -> PullSource:
    return PullSource(ID, "refs/pull/7/head", head, base, base_ref, config)


def fetched(config: MirrorConfig, head: str, base: str, base_ref: str = "main") -> Change:
    fetcher = ChangeFetcher(source(config, head, base, base_ref), AllowList([f"{ROOT}..."]), pytest.fail)
    return fetcher.fetch(ID)


def failure_of(config: MirrorConfig, head: str, base: str, base_ref: str = "main") -> Failure:
    with pytest.raises((PermanentFailure, RetryableFailure)) as raised:
        fetched(config, head, base, base_ref)
    return raised.value


def paths(change: Change) -> dict[str, Action]:
    return {file.path.removeprefix(ROOT): file.action for file in change.files}


def test_a_pull_request_is_what_merging_its_head_would_change(
    repository: PullRequests, config: MirrorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.branch("topic")
    repository.pull(7, {"src/b.py": "two = 2\n"}, "Add b.\n\nIt was missing.")
    repository.branch("main")
    repository.work.commit_files({"src/c.py": "three = 3\n"}, "On main meanwhile.")
    repository.push("refs/heads/main")
    repository.branch("topic", "topic")
    repository.work.git("merge", "-q", "--no-edit", "main")
    head = repository.pull(7, {"src/a.py": "one = 11\n"}, "Change a.")
    # The host's own word of the base is older than the branch that the head holds by now.
    change = fetched(config, head, repository.base)
    assert paths(change) == {"src/a.py": Action.EDIT, "src/b.py": Action.ADD}
    assert change.files[0].new_text == "one = 11\n"
    assert (change.source, change.author) == ("github", "Ann")
    assert change.description.startswith("Change a.")
    assert "It was missing." in change.description
    assert "meanwhile" not in change.description
    described = source(config, head, repository.base)
    with monkeypatch.context() as counted:
        ran: list[str] = []
        run = GitCommand.run

        def noted(self: GitCommand, subcommand: str, *arguments: str, **options: Any) -> CommandResult:
            ran.append(subcommand)
            return run(self, subcommand, *arguments, **options)

        counted.setattr(GitCommand, "run", noted)
        described.describe(ID)
    assert ran.count("merge-base") == 1


@pytest.mark.parametrize("reported", [pytest.param("", marks=pytest.mark.long), "f" * 40])
def test_where_a_branch_begins_does_not_choose_the_files_before_the_change(
    repository: PullRequests, config: MirrorConfig, reported: str
) -> None:
    path, rules = f"{ROOT}.criticizer.yml", f"{ROOT}REVIEW.md"
    repository.work.commit_files({"REVIEW.md": "old rules\n"})
    repository.push("refs/heads/main")
    repository.branch("topic")
    head = repository.pull(7, {"src/b.py": "two = 2\n", "REVIEW.md": "the author's rules\n"})
    repository.branch("main", "main")
    repository.work.commit_files({".criticizer.yml": "llm: false\n", "REVIEW.md": "new rules\n"})
    repository.push("refs/heads/main")
    change = fetched(config, head, reported)
    read = source(config, head, reported).read_at(
        [path, rules], change, max_bytes=10_000, seconds=5, is_before=True
    )
    assert read == [(path, b"llm: false\n"), (rules, b"new rules\n")]
    reader = RuleReader(
        source(config, head, reported), AllowList([f"{ROOT}..."]), lambda name: name.startswith(ROOT)
    )
    assert [rule.text for rule in reader.added_to(change, []).rules] == ["new rules\n"]


@pytest.mark.long
def test_the_head_of_a_version_stays_whatever_is_pushed_later(
    repository: PullRequests, config: MirrorConfig
) -> None:
    repository.branch("topic")
    head = repository.pull(7, {"src/b.py": "two = 2\n"})
    first = fetched(config, head, repository.base)
    repository.branch("topic")  # begins again from main: a force-push
    other = repository.pull(7, {"src/d.py": "four = 4\n"})
    forget(repository, head)
    assert paths(fetched(config, other, repository.base)) == {"src/d.py": Action.ADD}
    again = fetched(config, head, repository.base)
    assert again.version_key == first.version_key
    # Also when the branch holds the head by now, and when the branch is gone.
    repository.push("refs/heads/main", other)
    assert paths(fetched(config, other, repository.base)) == {"src/d.py": Action.ADD}
    assert paths(fetched(config, other, repository.base, "gone")) == {"src/d.py": Action.ADD}
    assert paths(fetched(config, head, "b" * 40)) == {"src/b.py": Action.ADD}  # nor is it what was reported


@pytest.mark.long
def test_a_head_that_was_dropped_before_it_was_fetched_is_not_found(
    repository: PullRequests, config: MirrorConfig
) -> None:
    repository.branch("topic")
    head = repository.pull(7, {"src/b.py": "two = 2\n"})
    repository.branch("topic")
    repository.pull(7, {"src/d.py": "four = 4\n"})
    # Not reachable any more, but kept by the host: it is fetched by its id.
    assert paths(fetched(config, head, repository.base)) == {"src/b.py": Action.ADD}
    forget(repository, head)
    elsewhere = replace(config, directory=config.directory.with_name("501.git"))
    assert failure_of(elsewhere, head, repository.base).error_class is ErrorClass.NOT_FOUND


@pytest.mark.long
def test_a_gone_pull_request_is_gone_also_where_head_names_no_branch(
    repository: PullRequests, config: MirrorConfig
) -> None:
    repository.bare.git("symbolic-ref", "HEAD", "refs/heads/none")
    failure = failure_of(config, "c" * 40, repository.base)  # pull request 7 has no reference
    assert failure.error_class is ErrorClass.NOT_FOUND


def forget(repository: PullRequests, commit: str) -> None:
    repository.bare.git("gc", "-q", "--prune=now")
    assert repository.bare.git("cat-file", "--batch-check", stdin=f"{commit}\n".encode()).endswith("missing")


def test_the_token_is_in_no_argument_and_in_no_file(
    repository: PullRequests, config: MirrorConfig, tmp_path: Path, host: GitHost
) -> None:
    log = tmp_path / "arguments"
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    git.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {log}\nexec git "$@"\n')
    git.chmod(0o755)
    repository.branch("topic")
    head = repository.pull(7, {"src/b.py": "two = 2\n"})
    fetched(replace(config, executable=git), head, repository.base)
    assert "fetch" in log.read_text().splitlines()
    login = base64.b64encode(f"x-access-token:{TOKEN}".encode())
    written = [log, *(path for path in config.directory.rglob("*") if path.is_file())]
    assert len(written) > 3
    for path in written:
        content = path.read_bytes()
        assert TOKEN.encode() not in content, path
        assert login not in content, path
    assert not (config.directory / "hooks").exists()
    assert stat_mode(config.directory) == 0o700


def stat_mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize(
    ("answer", "error_class", "is_retried"),
    [
        ("401 Unauthorized", ErrorClass.AUTH_DENIED, False),
        pytest.param("403 Forbidden", ErrorClass.PERMISSION_DENIED, False, marks=pytest.mark.long),
        ("404 Not Found", ErrorClass.NOT_FOUND, False),
        ("200 OK", ErrorClass.UPSTREAM_UNAVAILABLE, True),  # a page of a proxy
        ("302 Found", ErrorClass.POLICY_REJECTED, False),
        pytest.param("307 Temporary Redirect", ErrorClass.POLICY_REJECTED, False, marks=pytest.mark.long),
        ("429 Too Many Requests", ErrorClass.RATE_LIMITED, True),
        pytest.param(
            "500 Internal Server Error", ErrorClass.UPSTREAM_UNAVAILABLE, True, marks=pytest.mark.long
        ),
        ("503 Service Unavailable", ErrorClass.UPSTREAM_UNAVAILABLE, True),
    ],
)
def test_answers_of_the_host_become_failures(
    repository: PullRequests,
    config: MirrorConfig,
    host: GitHost,
    answer: str,
    error_class: ErrorClass,
    is_retried: bool,
) -> None:
    repository.branch("topic")
    head = repository.pull(7, {"src/b.py": "two = 2\n"})
    with GitHost(host.root, "") as elsewhere:
        host.location = f"{elsewhere.url}/acme/website.git/info/refs?service=git-upload-pack"
        host.answers = [answer] * 10
        failure = failure_of(config, head, repository.base)
        assert elsewhere.asked == []
    assert (failure.error_class, isinstance(failure, RetryableFailure)) == (error_class, is_retried)
    assert failure.kind.code
    assert TOKEN not in repr((failure, failure.context))


def test_a_fresh_token_that_the_host_does_not_know_yet_is_shown_again(
    repository: PullRequests, config: MirrorConfig, host: GitHost
) -> None:
    repository.branch("topic")
    head = repository.pull(7, {"src/b.py": "two = 2\n"})
    host.answers = ["404 Not Found", "401 Unauthorized"]
    paused = replace(config, lag_pauses_seconds=(0.0, 0.0))
    assert paths(fetched(paused, head, repository.base)) == {"src/b.py": Action.ADD}


def test_a_revoked_token_is_made_anew_once_and_git_fetches_with_it(
    repository: PullRequests, config: MirrorConfig, host: GitHost
) -> None:
    """An owner who suspends the App for a moment ends its tokens before their time."""
    with GitHubServer() as api:
        found = host_at("github", api.url)
        named = found.repository("acme/website", api.add("acme/website").number)
        host.accepts = api.accepts
        connected = replace(config, token=partial(found.git_password, named), lag_pauses_seconds=())
        for change in range(2):
            repository.branch("topic")
            head = repository.pull(7, {"src/b.py": f"two = {change}\n"})
            assert paths(fetched(connected, head, repository.base)) == {"src/b.py": Action.ADD}
            api.tokens.clear()
        assert api.count("POST", ".*/access_tokens") == 2
        host.accepts = lambda password: False
        assert failure_of(connected, "a" * 40, "b" * 40).error_class is ErrorClass.AUTH_DENIED
        assert api.count("POST", ".*/access_tokens") == 3


def test_a_host_that_is_away_or_hangs_is_retried(config: MirrorConfig, host: GitHost) -> None:
    away = replace(config, url="http://127.0.0.1:9/acme/website.git")
    assert failure_of(away, "a" * 40, "b" * 40).error_class is ErrorClass.NETWORK_UNREACHABLE
    slow = replace(config, timeout_seconds=0.2)
    hanging = threading.Event()
    host.repository("acme/website")
    host.waits_for = hanging
    failure = failure_of(slow, "a" * 40, "b" * 40)
    hanging.set()
    assert failure.error_class is ErrorClass.NETWORK_TIMEOUT


@pytest.mark.long
def test_a_pack_that_arrives_cut_or_damaged_is_fetched_again(
    repository: PullRequests, config: MirrorConfig, host: GitHost
) -> None:
    repository.branch("topic")
    head = repository.pull(7, {"src/b.py": "two = 2\n"})
    fetched(config, head, repository.base)
    newer = repository.pull(7, {"large.bin": os.urandom(200_000)})
    made_at = config.directory.joinpath("config").stat().st_ino

    def flipped(pack: bytes) -> bytes:
        middle = len(pack) // 2
        return pack[:middle] + bytes([pack[middle] ^ 255]) + pack[middle + 1 :]

    # Of the first two git says "error: 404 bytes of body are still expected".
    for change in (lambda pack: pack[:-404], lambda pack: pack[:-3012], flipped):
        host.changes_pack = change
        failure = failure_of(config, newer, repository.base)
        assert (type(failure), failure.error_class) == (RetryableFailure, ErrorClass.UPSTREAM_UNAVAILABLE)
    host.changes_pack = None
    assert list(paths(fetched(config, newer, repository.base))) == ["large.bin", "src/b.py"]
    # The mirror was not taken for a damaged one.
    assert config.directory.joinpath("config").stat().st_ino == made_at


@pytest.mark.parametrize(
    "name", ["certificates", "gitmodules", "corrupt", "access-denied", "Redirect-timed-out"]
)
def test_the_name_of_a_repository_does_not_decide_what_failed(config: MirrorConfig, name: str) -> None:
    away = replace(config, url=f"http://127.0.0.1:9/acme/{name}.git")
    assert failure_of(away, "a" * 40, "b" * 40).error_class is ErrorClass.NETWORK_UNREACHABLE


@pytest.mark.long
def test_a_branch_may_take_the_place_of_a_folder_of_branches(
    repository: PullRequests, config: MirrorConfig
) -> None:
    repository.branch("topic")
    head = repository.pull(7, {"src/b.py": "two = 2\n"})
    for branch, gone in (("release", ""), ("release/1", "release"), ("release", "release/1")):
        if gone:
            repository.bare.git("update-ref", "-d", f"refs/heads/{gone}")
        repository.push(f"refs/heads/{branch}", repository.base)
        assert paths(fetched(config, head, "b" * 40, branch)) == {"src/b.py": Action.ADD}


@pytest.mark.parametrize(
    "url",
    [
        "http://git.example.com/a/b.git",
        "file:///srv/git/a.git",
        "ssh://git@example.com/a/b.git",
        "git://example.com/a/b.git",
        "ext::sh -c id",
        "/srv/git/a.git",
        "https://user:pw@example.com/a/b.git",
        "https://example.com/a/b.git?x=1",
    ],
)
def test_every_other_address_is_refused_before_git_runs(config: MirrorConfig, url: str) -> None:
    failure = failure_of(replace(config, url=url), "a" * 40, "b" * 40)
    assert failure.error_class is ErrorClass.CONFIG_INVALID
    assert not config.directory.exists()


def test_objects_that_git_refuses_are_not_taken(repository: PullRequests, config: MirrorConfig) -> None:
    """A folder `.git` and one named `..`: checked out anywhere, they would be hooks and escapes."""
    work = repository.work
    blob = work.git("hash-object", "-w", "--stdin", stdin=b"x")
    tree = work.git("mktree", stdin=f"100644 blob {blob}\tx\n".encode())
    for name in (b".git", b".."):
        raw = b"40000 " + name + b"\0" + bytes.fromhex(tree)
        evil = work.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", stdin=raw)
        head = work.git("commit-tree", evil, "-p", repository.base, "-m", "Evil.")
        repository.push("refs/pull/7/head", head)
        failure = failure_of(config, head, repository.base)
        assert (failure.error_class, failure.kind.code != "") == (ErrorClass.POLICY_REJECTED, True)


def test_a_repository_that_is_served_as_plain_files_is_refused_before_an_object_is_read(
    repository: PullRequests, config: MirrorConfig, host: GitHost
) -> None:
    repository.branch("topic")
    head = repository.pull(7, {"src/b.py": "two = 2\n"})
    repository.bare.git("update-server-info")
    host.is_dumb = True
    failure = failure_of(config, head, repository.base)
    assert (type(failure), failure.error_class) == (PermanentFailure, ErrorClass.POLICY_REJECTED)
    assert "dumb HTTP" in failure.detail
    # Neither a branch's name nor a commit's id gets past it, nor the question for the newest commit.
    commit = f"github:acme/website@{repository.base}"
    for ask in (partial(CommitSource(commit, config).describe, commit), mirror.Mirror(config).default_head):
        with pytest.raises(PermanentFailure, match="dumb HTTP"):
            ask()
    assert not [path for path in host.asked if "/objects/" in path]
    assert not [path for path in (config.directory / "objects").rglob("*") if path.is_file()]
    host.is_dumb = False
    assert paths(fetched(config, head, repository.base)) == {"src/b.py": Action.ADD}


def test_a_repository_over_the_limit_is_refused_and_leaves_nothing_behind(
    repository: PullRequests, config: MirrorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.branch("topic")
    head = repository.pull(7, {"large.bin": os.urandom(400_000)})
    monkeypatch.setattr(mirror, "MAX_PACK_BYTES", 200_000)
    assert failure_of(config, head, repository.base).error_class is ErrorClass.POLICY_REJECTED
    monkeypatch.undo()
    assert list(paths(fetched(config, head, repository.base))) == ["large.bin"]
    assert list((config.directory / "objects" / "pack").glob("tmp_*")) == []


def assert_needs_memory(config: MirrorConfig, head: str, base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as bounded:
        bounded.setattr(git_command, "MAX_MEMORY_BYTES", 60_000_000)
        failure = failure_of(config, head, base)
    assert (type(failure), failure.error_class) == (PermanentFailure, ErrorClass.POLICY_REJECTED)
    assert "memory" in failure.detail


@pytest.mark.long
def test_what_is_small_on_the_wire_and_large_in_memory_is_refused(
    repository: PullRequests, config: MirrorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.branch("topic")
    head = repository.pull(7, {"zeros.bin": bytes(120_000_000)})
    assert_needs_memory(config, head, repository.base, monkeypatch)
    assert list(paths(fetched(config, head, repository.base))) == ["zeros.bin"]


def test_a_host_whose_references_do_not_end_is_given_up(
    repository: PullRequests, config: MirrorConfig, host: GitHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.branch("topic")
    head = repository.pull(7, {"src/b.py": "two = 2\n"})
    host.changes_references = endless_references
    assert_needs_memory(config, head, repository.base, monkeypatch)
    host.changes_references = None
    assert list(paths(fetched(config, head, repository.base))) == ["src/b.py"]


def test_a_host_that_is_late_each_time_has_one_time_for_all_it_is_asked(
    repository: PullRequests, config: MirrorConfig, host: GitHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.branch("topic")
    head = repository.pull(7, {"src/b.py": "two = 2\n"})
    for gone in ("refs/heads/main", "refs/pull/7/head"):  # each is asked for again, by itself
        repository.bare.git("update-ref", "-d", gone)
    repository.push("refs/heads/other", repository.base)
    host.accepts = lambda password: time.sleep(0.4) is None and password == TOKEN
    monkeypatch.setattr(mirror, "MORE_SECONDS", 0.0)
    failure = failure_of(replace(config, timeout_seconds=2.0), head, repository.base)
    assert (type(failure), failure.error_class) == (RetryableFailure, ErrorClass.NETWORK_TIMEOUT)
    host.accepts = None
    assert list(paths(fetched(config, head, repository.base))) == ["src/b.py"]


def endless_references(_: bytes) -> Iterator[bytes]:
    for first in count(0, 1000):
        lines = (f"{first:040x} refs/heads/{'a' * 180}-{number}\n" for number in range(first, first + 1000))
        yield "".join(f"{len(line) + 4:04x}{line}" for line in lines).encode()


def test_submodules_links_and_other_branches_are_not_fetched(
    repository: PullRequests, config: MirrorConfig, host: GitHost
) -> None:
    repository.branch("secret")
    hidden = repository.work.commit_files({"hidden.txt": "not asked for"})
    repository.push("refs/heads/secret")
    repository.branch("topic")
    work = repository.work
    (work.path / "link").symlink_to("/etc/passwd")
    work.write(".gitmodules", f'[submodule "m"]\n\tpath = m\n\turl = {host.url}/acme/other.git\n')
    work.git("add", "-A")
    work.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},m")
    work.git("rm", "-q", "src/a.py")  # so that it is looked for among what was added
    work.git("commit", "-q", "-m", "Links.")
    head = work.git("rev-parse", "HEAD")
    repository.push("refs/pull/7/head")
    change = fetched(config, head, repository.base)
    reasons = {file.path.removeprefix(ROOT): file.skipped for file in change.files}
    assert reasons["m"] is SkipReason.SUBMODULE
    assert reasons["link"] is SkipReason.SYMLINK
    assert {path.split("/")[2] for path in host.asked} == {"website.git"}
    refs = (config.directory / "packed-refs", *config.directory.rglob("refs/**/*"))
    assert not [path for path in refs if path.is_file() and hidden in path.read_text()]


def test_hooks_and_alternates_of_the_host_do_not_come_with_a_fetch_and_no_hook_runs(
    repository: PullRequests, config: MirrorConfig, tmp_path: Path
) -> None:
    elsewhere, ran = GitRepo(tmp_path / "elsewhere", bare=True), tmp_path / "ran"
    (repository.bare.path / "objects" / "info" / "alternates").write_text(f"{elsewhere.path}/objects\n")
    names = ("reference-transaction", "post-checkout", "post-merge", "pre-auto-gc")

    def plant(directory: Path, command: str) -> None:
        directory.mkdir(exist_ok=True)
        for name in names:
            (directory / name).write_text(f"#!/bin/sh\n{command}\n")
            (directory / name).chmod(0o755)

    repository.branch("topic")
    first = repository.pull(7, {"src/b.py": "two = 2\n"})
    plant(repository.bare.path / "hooks", "exit 0")
    fetched(config, first, repository.base)
    assert not (config.directory / "objects" / "info" / "alternates").exists()
    assert not (config.directory / "hooks").exists()
    written = (config.directory / "config").read_text()
    assert not [word for word in ("hook", "include", "remote", "url", "alternate") if word in written]
    plant(config.directory / "hooks", f"touch {ran}")  # however they came to be there
    fetched(config, repository.pull(7, {"src/b.py": "two = 3\n"}), repository.base)
    assert not ran.exists()


def test_what_a_killed_fetch_left_and_a_damaged_mirror_are_put_right(
    repository: PullRequests, config: MirrorConfig
) -> None:
    repository.branch("topic")
    head = repository.pull(7, {"src/b.py": "two = 2\n"})
    expected = fetched(config, head, repository.base)
    lock = config.directory / "refs" / "pull" / "7" / "head.lock"
    lock.write_text("")
    left = config.directory / "objects" / "pack" / "tmp_pack_x"
    left.write_bytes(b"x")
    newer = repository.pull(7, {"src/b.py": "two = 22\n"})
    assert paths(fetched(config, newer, repository.base)) == {"src/b.py": Action.ADD}
    assert not left.exists()
    for pack in (config.directory / "objects" / "pack").iterdir():
        pack.chmod(0o600)
        pack.write_bytes(b"damaged")
    last = repository.pull(7, {"src/b.py": "two = 222\n"})
    assert paths(fetched(config, last, repository.base)) == {"src/b.py": Action.ADD}
    assert expected.files[0].path == f"{ROOT}src/b.py"


@pytest.mark.long
def test_fetches_of_one_repository_wait_for_each_other(
    repository: PullRequests, config: MirrorConfig
) -> None:
    heads = []
    for number in range(1, 5):
        repository.branch(f"topic{number}")
        heads.append((number, repository.pull(number, {f"{number}.py": "x = 1\n"})))
    found: dict[int, list[str]] = {}

    def fetch(number: int, head: str) -> None:
        changelist = f"github:acme/website#{number}"
        reference = f"refs/pull/{number}/head"
        pull = PullSource(changelist, reference, head, repository.base, "main", config)
        found[number] = [file.path.removeprefix(ROOT) for file in pull.describe(changelist).files]

    threads = [threading.Thread(target=fetch, args=one) for one in heads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [f"{number}.py"] for number, _ in heads}


def test_mirrors_that_were_not_fetched_for_long_are_deleted(
    repository: PullRequests, config: MirrorConfig
) -> None:
    repository.branch("topic")
    head = repository.pull(7, {"src/b.py": "two = 2\n"})
    fetched(config, head, repository.base)
    root = config.directory.parent.parent
    assert delete_unused(root, 3600, 1e9) == 0
    os.utime(config.directory, (time.time() - 4000, time.time() - 4000))
    assert delete_unused(root, 3600, 1e9) == 1
    assert not config.directory.exists()
    assert delete_unused(root / "none", 3600, 1e9) == 0


def test_above_the_size_of_all_mirrors_those_unused_for_longest_are_deleted(
    repository: PullRequests, config: MirrorConfig
) -> None:
    repository.branch("topic")
    head = repository.pull(7, {"large.bin": os.urandom(100_000)})
    mirrors = [replace(config, directory=config.directory.with_name(f"{n}.git")) for n in (501, 502, 503)]
    root = config.directory.parent.parent
    for age, one in zip((9000, 8000, 10), mirrors, strict=True):
        fetched(one, head, repository.base)
        os.utime(one.directory, (time.time() - age,) * 2)
    assert delete_unused(root, 86_400, 1_000_000) == 0
    assert delete_unused(root, 86_400, 250_000) == 1
    assert [one.directory.exists() for one in mirrors] == [False, True, True]
    assert delete_unused(root, 86_400, 1) == 1  # the third may be read just now
    assert [one.directory.exists() for one in mirrors] == [False, False, True]
    assert list(paths(fetched(mirrors[0], head, repository.base))) == ["large.bin"]


def test_an_author_who_pushes_again_and_again_does_not_fill_the_disk(
    repository: PullRequests, config: MirrorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_space, "MAX_PACKS", 3)
    monkeypatch.setattr(mirror_space, "MAX_VERSIONS", 2)
    monkeypatch.setattr(mirror_space, "MAX_MIRROR_BYTES", 1_000_000)
    heads = []
    packs = config.directory / "objects" / "pack"
    for number in range(6):
        repository.branch("topic")
        heads.append(repository.pull(7, {"large.bin": os.urandom(100_000)}))
        assert list(paths(fetched(config, heads[-1], repository.base))) == ["large.bin"]
        assert len(list(packs.glob("*.pack"))) <= 3, number
    assert sum(path.stat().st_size for path in packs.iterdir()) < 450_000
    for head in heads[:-1]:
        forget(repository, head)
    assert list(paths(fetched(config, heads[-2], repository.base))) == ["large.bin"]  # still here
    assert failure_of(config, heads[0], repository.base).error_class is ErrorClass.NOT_FOUND
    # What cannot be packed into less begins anew, once nothing reads it.
    monkeypatch.setattr(mirror_space, "MAX_MIRROR_BYTES", 150_000)
    os.utime(config.directory, (time.time() - 700,) * 2)
    assert list(paths(fetched(config, heads[-1], repository.base))) == ["large.bin"]
    assert sum(path.stat().st_size for path in packs.iterdir()) < 150_000


def test_a_mirror_that_is_read_begins_anew_at_twice_its_size_only_and_then_the_review_is_repeated(
    repository: PullRequests, config: MirrorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.branch("topic")
    head = repository.pull(7, {"large.bin": os.urandom(100_000)})
    repository.branch("other")
    other = repository.pull(8, {"other.bin": os.urandom(1000)})
    reader = source(config, head, repository.base)
    listed = reader.describe(ID).files
    monkeypatch.setattr(mirror_space, "MAX_MIRROR_BYTES", 80_000)
    fetched(config, other, repository.base)
    assert [file.size_bytes for file in reader.read(listed, max_bytes=1_000_000)] == [100_000]
    monkeypatch.setattr(mirror_space, "MAX_MIRROR_BYTES", 40_000)
    PullSource(ID, "refs/pull/8/head", other, repository.base, "main", config).describe(ID)
    for question in (lambda: reader.read(listed, max_bytes=1_000_000), lambda: reader.describe(ID)):
        with pytest.raises(RetryableFailure, match="fetched again meanwhile"):
            question()
    assert list(paths(fetched(config, head, repository.base))) == ["large.bin"]


@pytest.mark.long
def test_a_replay_of_an_old_head_keeps_it_however_many_are_newer(
    repository: PullRequests, config: MirrorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = []
    for number in range(4):
        repository.branch("topic")
        heads.append(repository.pull(7, {"a.bin": os.urandom(1000)}))
        fetched(config, heads[-1], repository.base)
        age = time.time() - 100 + number
        os.utime(config.directory / "refs" / "versions" / heads[-1], (age, age))
    for head in heads[:-1]:
        forget(repository, head)
    monkeypatch.setattr(mirror_space, "MAX_PACKS", 2)
    monkeypatch.setattr(mirror_space, "MAX_VERSIONS", 2)
    assert list(paths(fetched(config, heads[0], repository.base))) == ["a.bin"]
    assert failure_of(config, heads[1], repository.base).error_class is ErrorClass.NOT_FOUND


@pytest.mark.long
def test_a_pull_request_that_changes_nothing_says_so_where_no_base_was_reported(
    repository: PullRequests, config: MirrorConfig
) -> None:
    repository.push("refs/pull/7/head", repository.base)
    assert "changes nothing" in failure_of(config, repository.base, "").detail
    assert "no longer has the branch" in failure_of(config, repository.base, "", "gone").detail


def test_nothing_outside_the_allow_list_is_read_and_nothing_is_fetched_for_it(
    repository: PullRequests, config: MirrorConfig, host: GitHost
) -> None:
    repository.branch("topic")
    head = repository.pull(7, {"src/b.py": "two = 2\n", "secret/key.txt": "x\n"})
    denied: list[object] = []
    for line, asks in (("//github/acme/other/...", False), (f"{ROOT}src/...", True)):
        fetcher = ChangeFetcher(source(config, head, repository.base), AllowList([line]), denied.append)
        with pytest.raises(PermanentFailure, match="outside the allow-list"):
            fetcher.fetch(ID)
        assert bool(host.asked) is asks
    assert len(denied) == 2


def test_addresses_of_repositories_follow_the_api() -> None:
    for api, expected in (
        ("https://api.github.com", "https://github.com/acme/website.git"),
        ("https://api.github.com/", "https://github.com/acme/website.git"),
        ("https://ghe.example.com/api/v3", "https://ghe.example.com/acme/website.git"),
    ):
        assert clone_url(api) == expected


def test_the_newest_commit_is_asked_for_without_a_fetch_and_with_a_new_token_once(
    repository: PullRequests, config: MirrorConfig
) -> None:
    asked: list[str] = []

    def renewed(refused: str) -> str:
        asked.append(refused)
        return TOKEN if refused else "ghs_that_ended"

    assert mirror.Mirror(replace(config, token=renewed)).default_head() == repository.base
    assert asked == ["", "ghs_that_ended"]
    with pytest.raises(PermanentFailure) as raised:
        mirror.Mirror(replace(config, token=lambda refused: "ghs_that_ended")).default_head()
    assert raised.value.error_class is ErrorClass.AUTH_DENIED
    assert not list((config.directory / "objects" / "pack").glob("*.pack"))


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(b"", marks=pytest.mark.long),
        b"<!DOCTYPE html><title>Sign in</title>",
        pytest.param(b"<!DOCTYPE html>\n<html>\n<title>Back soon</title>\n</html>\n", marks=pytest.mark.long),
        pytest.param(b'{"message": "maintenance"}', marks=pytest.mark.long),
        pytest.param(b'{\n  "message": "maintenance"\n}\n', marks=pytest.mark.long),
        pytest.param(b"a\tb\nc\td\n", marks=pytest.mark.long),
        pytest.param(b"001e# service=git-upload-pack\n", marks=pytest.mark.long),
    ],
)
def test_a_page_instead_of_git_is_no_repository_without_a_commit(
    repository: PullRequests, config: MirrorConfig, host: GitHost, page: bytes
) -> None:
    host.page = page
    repository.branch("topic")
    head = repository.pull(7, {"src/b.py": "two = 2\n"})
    asked = mirror.Mirror(config).default_head, partial(fetched, config, head, repository.base)
    for ask in asked:
        host.answers = ["200 OK"] * 20
        with pytest.raises(RetryableFailure, match="a proxy may answer in its place") as raised:
            ask()
        assert raised.value.error_class is ErrorClass.UPSTREAM_UNAVAILABLE
    host.answers = []
    assert asked[0]() == repository.base
    assert paths(asked[1]()) == {"src/b.py": Action.ADD}


def test_an_empty_repository_has_no_newest_commit(host: GitHost, config: MirrorConfig) -> None:
    host.repository("acme/website")
    with pytest.raises(PermanentFailure, match="no commit") as raised:
        mirror.Mirror(config).default_head()
    assert raised.value.error_class is ErrorClass.NOT_FOUND
