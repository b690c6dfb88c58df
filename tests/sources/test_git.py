from __future__ import annotations

import os
from pathlib import Path

import pytest

from criticizer.resilience.failures import ErrorClass, Failure, PermanentFailure, RetryableFailure
from reviews.sources.base import Action, FileChange, ListedChange, SkipReason
from reviews.sources.git import GitSource
from tests.sources.gitrepo import GitRepo


@pytest.fixture
def repo(tmp_path: Path) -> GitRepo:
    return GitRepo(tmp_path / "repo")


def source(repo: GitRepo) -> GitSource:
    return GitSource("app", repo.path)


def describe(repo: GitRepo, sha: str) -> ListedChange:
    return source(repo).describe(f"git:app@{sha}")


def read(repo: GitRepo, sha: str, max_bytes: int = 1_000_000) -> dict[str, FileChange]:
    files = describe(repo, sha).files
    return {file.path: file for file in source(repo).read(files, max_bytes=max_bytes)}


def refusal(repo: GitRepo, changelist_id: str) -> Failure:
    with pytest.raises(Failure) as caught:
        source(repo).describe(changelist_id)
    return caught.value


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_the_header_of_a_commit(repo: GitRepo) -> None:
    repo.commit_files({"a": "1\n"})
    sha = repo.commit_files({"a": "2\n"}, "Subject é\n\nBody\nwith \x01 lines")
    change = describe(repo, sha)
    assert change.author == "Ann"
    assert change.description == "Subject é\n\nBody\nwith \x01 lines"
    assert change.created_at_epoch == 1790849023
    assert change.status == "submitted"


def test_a_message_in_another_encoding_is_read_as_text(repo: GitRepo) -> None:
    repo.git("config", "i18n.commitEncoding", "ISO-8859-1")
    tree = repo.git("write-tree")
    sha = repo.git("commit-tree", tree, stdin="Grüße\n".encode("latin-1"))
    repo.git("branch", "latin", sha)
    assert describe(repo, sha).description == "Grüße"


def test_a_root_commit_adds_everything(repo: GitRepo) -> None:
    sha = repo.commit_files({"a.txt": "1\n", "d/b.txt": "2\n"})
    files = read(repo, sha)
    assert {path: file.action for path, file in files.items()} == {
        "//app/a.txt": "add",
        "//app/d/b.txt": "add",
    }
    assert files["//app/d/b.txt"].new_text == "2\n"
    assert files["//app/d/b.txt"].old_text is None


def test_an_empty_commit_lists_nothing(repo: GitRepo) -> None:
    repo.commit_files({"a": "1\n"})
    assert describe(repo, repo.commit("Nothing.")).files == ()


def test_a_merge_is_reviewed_against_its_first_parent(repo: GitRepo) -> None:
    repo.commit_files({"a": "1\n"})
    repo.git("checkout", "-q", "-b", "side")
    repo.commit_files({"from-side": "s\n"})
    repo.git("checkout", "-q", "main")
    repo.commit_files({"on-main": "m\n"})
    repo.git("merge", "-q", "--no-ff", "-m", "Merge.", "side")
    assert set(read(repo, repo.git("rev-parse", "HEAD"))) == {"//app/from-side"}


def test_a_rename_with_an_edit_has_both_names_and_both_sides(repo: GitRepo) -> None:
    body = "".join(f"line {n}\n" for n in range(40))
    repo.commit_files({"old name.txt": body})
    sha = repo.commit_files({"old name.txt": None, "new@name.txt": f"{body}more\n"})
    (file,) = read(repo, sha).values()
    assert (file.action, file.old_path, file.path) == (
        Action.RENAME,
        "//app/old name.txt",
        "//app/new%40name.txt",
    )
    assert file.old_text == body
    assert file.new_text == f"{body}more\n"


def test_contents_over_the_budget_are_renamed_only_if_equal(
    repo: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(f"line {number}\n" for number in range(200))
    repo.commit_files({"moved": text, "edited": text.replace("line 7", "row 7")})
    changes: dict[str, str | bytes | None] = {"moved": None, "new": text, "edited": None}
    sha = repo.commit_files({**changes, "new-edited": text.replace("line 9", "row 9")})
    assert {file.action for file in describe(repo, sha).files} == {Action.RENAME}
    monkeypatch.setattr("reviews.sources.git._RENAME_BYTES", 3000)
    files = {file.path: file.action for file in describe(repo, sha).files}
    assert files == {
        "//app/new": Action.RENAME,
        "//app/edited": Action.DELETE,
        "//app/new-edited": Action.ADD,
    }


def test_many_pairs_are_not_compared(repo: GitRepo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reviews.sources.git._RENAME_PAIRS", 8)
    text = "".join(f"line {number}\n" for number in range(50))
    repo.commit_files({f"old{number}": f"{text}{number}\n" for number in range(3)})
    gone: dict[str, str | bytes | None] = dict.fromkeys(f"old{number}" for number in range(3))
    sha = repo.commit_files({**gone, **{f"new{number}": f"{text}{number}{number}\n" for number in range(3)}})
    assert sorted(file.action for file in describe(repo, sha).files) == [Action.ADD] * 3 + [Action.DELETE] * 3


@pytest.mark.long
def test_a_commit_that_needs_too_much_processor_time_is_refused_at_its_first_attempt(
    repo: GitRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha = repo.commit_files({"a": "1\n"})
    monkeypatch.setattr("reviews.sources.git_command.CPU_SECONDS", 1)
    body = 'if [ "$1" = diff-tree ]; then while :; do :; done; else exec git "$@"; fi'
    bomb = GitSource("app", repo.path, script(tmp_path / "git", body))
    with pytest.raises(PermanentFailure, match="1 s of processor time") as caught:
        bomb.describe(f"git:app@{sha}")
    assert caught.value.error_class is ErrorClass.POLICY_REJECTED


def test_a_commit_that_needs_much_memory_is_refused_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = GitRepo(tmp_path / "app")
    repository.commit_files({"a.py": "one = 1\n"})
    tree = repository.git("rev-parse", "HEAD^{tree}")
    text = f"tree {tree}\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\n".encode() + b"x" * 100_000_000
    large = repository.git("hash-object", "-w", "-t", "commit", "--stdin", stdin=text)
    repository.git("update-ref", "refs/heads/main", large)
    source = GitSource("app", repository.path)
    monkeypatch.setattr("reviews.sources.git_command.MAX_MEMORY_BYTES", 40_000_000)
    with pytest.raises(PermanentFailure, match="memory") as caught:
        source.describe(f"git:app@{large}")
    assert caught.value.error_class is ErrorClass.POLICY_REJECTED
    monkeypatch.undo()
    assert [file.path for file in source.describe(f"git:app@{large}").files] == ["//app/a.py"]


def test_a_commit_that_no_branch_leads_to_is_unknown(repo: GitRepo) -> None:
    kept = repo.commit_files({"a": "1\n"})
    rewritten = repo.commit_files({"a": "2\n"})
    assert describe(repo, rewritten).files
    repo.git("reset", "-q", "--hard", kept)
    assert describe(repo, kept).files
    failure = refusal(repo, f"git:app@{rewritten}")
    assert (failure.error_class, "no branch" in failure.detail) == (ErrorClass.NOT_FOUND, True)
    repo.git("update-ref", "refs/pull/1/head", rewritten)
    refusal(repo, f"git:app@{rewritten}")
    pulls = GitSource("app", repo.path, references=["refs/heads/*", "refs/pull/*"])
    assert pulls.describe(f"git:app@{rewritten}").files
    assert pulls.describe(f"git:app@{kept}").files
    one = GitSource("app", repo.path, references=["refs/pull/1/head"])
    assert one.describe(f"git:app@{rewritten}").files
    repo.git("update-ref", "refs/heads/team/feature", rewritten)
    assert describe(repo, rewritten).files


def test_objects_of_another_repository_are_unknown_until_a_branch_leads_to_them(
    repo: GitRepo, tmp_path: Path
) -> None:
    other = GitRepo(tmp_path / "other")
    secret = other.commit_files({"secret": "1\n"})
    (repo.path / ".git/objects/info/alternates").write_text(f"{other.path}/.git/objects\n")
    repo.commit_files({"a": "1\n"})
    assert refusal(repo, f"git:app@{secret}").error_class is ErrorClass.NOT_FOUND
    repo.git("branch", "shared", secret)
    assert describe(repo, secret).files


@pytest.mark.parametrize("content", ["1" * 40, "no id"])
def test_a_broken_reference_hides_no_commit_and_leads_to_none(repo: GitRepo, content: str) -> None:
    pushed = repo.commit_files({"a": "1\n"})
    dangling = repo.git("commit-tree", f"{pushed}^{{tree}}", "-p", pushed, "-m", "Not pushed.")
    (repo.path / ".git/refs/heads/broken").write_text(f"{content}\n")
    assert describe(repo, pushed).files
    for unknown in (dangling, "2" * 40):
        assert refusal(repo, f"git:app@{unknown}").error_class is ErrorClass.NOT_FOUND


def test_commits_are_reachable_whatever_their_dates(repo: GitRepo) -> None:
    shas = []
    for number, year in enumerate((2020, 2040, 1975, 1971, 2001, 1999)):
        repo.write("a", f"{number}\n")
        repo.git("add", "-A")
        tree, parents = repo.git("write-tree"), [part for sha in shas[-1:] for part in ("-p", sha)]
        date = f"committer Ann <ann@example.com> {(year - 1970) * 31_557_600} +0000"
        lines = [f"tree {tree}", *(f"parent {sha}" for sha in parents[1::2]), f"author{date[9:]}", date]
        text = "\n".join(lines) + "\n\nA change.\n"
        shas.append(repo.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=text.encode()))
    repo.git("update-ref", "refs/heads/main", shas[-1])
    for sha in shas:
        assert describe(repo, sha).files


def test_modes_links_and_submodules_have_types(repo: GitRepo) -> None:
    repo.commit_files({"run.sh": "echo\n", "was-file": "text of a file\nmore\n"})
    (repo.path / "run.sh").chmod(0o755)
    (repo.path / "link").symlink_to("/etc/passwd")
    (repo.path / "was-file").unlink()
    (repo.path / "was-file").symlink_to("run.sh")
    repo.git("add", "-A")
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},module")
    repo.git("commit", "-q", "-m", "Types.")
    files = read(repo, repo.git("rev-parse", "HEAD"))
    assert (files["//app/run.sh"].old_file_type, files["//app/run.sh"].file_type) == ("text", "text+x")
    assert files["//app/run.sh"].skipped is SkipReason.IDENTICAL
    assert files["//app/link"].skipped is SkipReason.SYMLINK
    assert files["//app/link"].skip_detail == "link target /etc/passwd"
    assert files["//app/was-file"].skip_detail == "link target run.sh"
    assert files["//app/module"].skipped is SkipReason.SUBMODULE


def test_a_moved_submodule_names_both_commits(repo: GitRepo) -> None:
    for digit in "12":
        repo.git("update-index", "--add", "--cacheinfo", f"160000,{digit * 40},module")
        repo.git("commit", "-q", "-m", "Module.")
    (file,) = read(repo, repo.git("rev-parse", "HEAD")).values()
    assert file.skip_detail == "commit 111111111111 → 222222222222"


def test_a_file_in_the_place_of_a_submodule_is_read(repo: GitRepo) -> None:
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},module")
    repo.git("commit", "-q", "-m", "Module.")
    repo.git("rm", "-q", "--cached", "module")
    (file,) = read(repo, repo.commit_files({"module": "now a file\n"})).values()
    assert (file.old_text, file.new_text) == (None, "now a file\n")


def test_large_sides_are_not_read(repo: GitRepo) -> None:
    repo.commit_files({"shrinks": "x" * 2000, "grows": "x", "fits": "x"})
    sha = repo.commit_files({"shrinks": "y", "grows": "y" * 2000, "fits": "y"})
    files = read(repo, sha, max_bytes=1000)
    assert files["//app/shrinks"].skipped is SkipReason.TOO_LARGE
    assert files["//app/grows"].skipped is SkipReason.TOO_LARGE
    assert files["//app/grows"].size_bytes == 2000
    assert files["//app/fits"].new_text == "y"


def test_line_ends_and_encodings_are_recorded(repo: GitRepo) -> None:
    sha = repo.commit_files(
        {"crlf": "a\r\nb\r\n", "bom": b"\xef\xbb\xbfa\n", "latin": b"caf\xe9\n", "bin": b"\0\1", "empty": ""}
    )
    files = read(repo, sha)
    assert (files["//app/crlf"].new_text, files["//app/crlf"].crlf) == ("a\nb\n", True)
    assert (files["//app/bom"].new_text, files["//app/bom"].encoding) == ("a\n", "utf-8-sig")
    assert (files["//app/latin"].new_text, files["//app/latin"].encoding) == ("café\n", "cp1252")
    assert files["//app/bin"].skipped is SkipReason.BINARY
    assert (files["//app/empty"].new_text, files["//app/empty"].skipped) == ("", None)


def test_odd_names_come_through(repo: GitRepo) -> None:
    names = ["a b", "100%", "a#b", "a%40b", "[...slug].tsx", "-n", "é", "quote\"'s", "tab\there"]
    sha = repo.commit_files({f"odd/{name}": f"{name}\n" for name in names})
    files = read(repo, sha)
    assert {file.new_text for file in files.values()} == {f"{name}\n" for name in names}
    assert {"//app/odd/100%25", "//app/odd/a%2540b", "//app/odd/[...slug].tsx"} <= set(files)


def test_a_name_that_is_not_utf8_keeps_its_bytes(repo: GitRepo) -> None:
    Path(os.fsdecode(os.fsencode(repo.path) + b"/caf\xe9")).write_text("x\n")
    (file,) = read(repo, repo.commit()).values()
    assert file.path == "//app/caf\udce9"


def test_reading_nothing_starts_nothing(repo: GitRepo) -> None:
    assert source(repo).read([], max_bytes=10) == []


@pytest.mark.parametrize("depth", [1, 2])
def test_a_shallow_end_is_refused_and_whole_commits_are_not(
    repo: GitRepo, tmp_path: Path, depth: int
) -> None:
    repo.commit_files({"a": "1\n"})
    repo.commit_files({"a": "2\n"})
    sha = repo.commit_files({"a": "3\n"})
    repo.git("clone", "-q", "--depth", str(depth), f"file://{repo.path}", str(tmp_path / "shallow"))
    shallow = GitSource("app", tmp_path / "shallow")
    if depth == 1:
        with pytest.raises(PermanentFailure, match="unshallow") as caught:
            shallow.describe(f"git:app@{sha}")
        assert caught.value.error_class is ErrorClass.CONFIG_INVALID
    else:
        assert len(shallow.describe(f"git:app@{sha}").files) == 1


def test_bare_repositories_and_worktrees_work(repo: GitRepo, tmp_path: Path) -> None:
    repo.commit_files({"a": "1\n"})
    sha = repo.commit_files({"a": "2\n"})
    repo.git("clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))
    repo.git("worktree", "add", "-q", str(tmp_path / "tree"), "HEAD~1")
    for path in (tmp_path / "bare.git", tmp_path / "tree"):
        files = GitSource("app", path).describe(f"git:app@{sha}").files
        assert [file.path for file in files] == ["//app/a"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a repository away")
def test_a_repository_of_another_user_works(repo: GitRepo) -> None:
    sha = repo.commit_files({"a": "1\n"})
    for path in [repo.path, *repo.path.rglob("*")]:
        os.chown(path, 12345, 12345)
    assert len(read(repo, sha)) == 1


@pytest.mark.parametrize("what", ["missing", "tree", "blob", "tag"])
def test_unknown_commit_is_not_found(repo: GitRepo, what: str) -> None:
    repo.commit_files({"a": "1\n"})
    repo.git("tag", "-a", "-m", "Tag.", "v1")
    sha = {
        "missing": "1" * 40,
        "tree": repo.git("rev-parse", "HEAD^{tree}"),
        "blob": repo.git("rev-parse", "HEAD:a"),
        "tag": repo.git("rev-parse", "v1"),
    }[what]
    assert refusal(repo, f"git:app@{sha}").error_class is ErrorClass.NOT_FOUND


@pytest.mark.parametrize("given", ["12345", "git:other@" + "1" * 40, "git:app@HEAD", "git:app@--all", ""])
def test_ids_of_another_form_never_reach_git(repo: GitRepo, given: str) -> None:
    assert refusal(repo, given).error_class is ErrorClass.NOT_FOUND


def test_a_damaged_repository_is_a_configuration_failure_until_it_is_repaired(repo: GitRepo) -> None:
    sha = repo.commit_files({"a": "1\n"})
    config = repo.path / ".git/config"
    good = config.read_text()
    config.write_text("[core\n")
    assert refusal(repo, f"git:app@{sha}").error_class is ErrorClass.CONFIG_INVALID
    with pytest.raises(PermanentFailure):
        source(repo).check_health()
    config.write_text(good)
    source(repo).check_health()
    assert len(describe(repo, sha).files) == 1


def test_a_missing_object_costs_its_file_only(repo: GitRepo) -> None:
    sha = repo.commit_files({"lost": "lost\n", "kept": "kept\n"})
    blob = repo.git("rev-parse", "HEAD:lost")
    (repo.path / f".git/objects/{blob[:2]}/{blob[2:]}").unlink()
    files = read(repo, sha)
    assert files["//app/lost"].skipped is SkipReason.UNREADABLE
    assert files["//app/kept"].new_text == "kept\n"


@pytest.mark.parametrize("path", ["relative/repo", "/no/such/directory"])
def test_a_path_without_a_repository_is_a_configuration_failure(path: str) -> None:
    with pytest.raises(PermanentFailure) as caught:
        GitSource("app", Path(path))
    assert caught.value.error_class is ErrorClass.CONFIG_INVALID


def test_a_directory_inside_a_repository_is_not_taken_for_it(repo: GitRepo) -> None:
    repo.commit_files({"d/a": "1\n"})
    with pytest.raises(PermanentFailure, match="no git repository"):
        GitSource("app", repo.path / "d")


def test_nothing_in_a_repository_runs_here(repo: GitRepo, tmp_path: Path) -> None:
    proof = tmp_path / "it-ran"
    bait = script(tmp_path / "bait", f"touch {proof}; cat /dev/null")
    repo.commit_files({"a.txt": "1\n", ".gitattributes": "* diff=bait\n"})
    sha = repo.commit_files({"a.txt": "2\n"})
    for key in ("diff.external", "diff.bait.textconv", "core.fsmonitor", "core.pager", "gpg.program"):
        repo.git("config", key, str(bait))
    repo.git("config", "log.showSignature", "true")
    repo.git("diff", "HEAD~1", "HEAD")
    assert proof.exists(), "an ordinary git takes the bait"
    proof.unlink()
    assert read(repo, sha)["//app/a.txt"].new_text == "2\n"
    assert not proof.exists()


def test_replaced_objects_are_not_believed(repo: GitRepo) -> None:
    sha = repo.commit_files({"a": "real\n"})
    real, fake = repo.git("rev-parse", "HEAD:a"), repo.git("hash-object", "-w", "--stdin", stdin=b"fake\n")
    repo.git("replace", real, fake)
    assert read(repo, sha)["//app/a"].new_text == "real\n"


def test_a_partial_clone_fails_and_fetches_nothing(repo: GitRepo, tmp_path: Path) -> None:
    proof = tmp_path / "it-ran"
    sha = repo.commit_files({"a": "1\n"})
    repo.git("config", "uploadpack.allowFilter", "true")
    repo.git("clone", "-q", "--bare", "--filter=blob:none", f"file://{repo.path}", str(tmp_path / "partial"))
    bait = script(tmp_path / "bait", f'touch {proof}; exec git-upload-pack "$@"')
    partial = GitRepo.__new__(GitRepo)
    partial.path = tmp_path / "partial"
    partial.git("config", "remote.origin.uploadpack", str(bait))
    partial.git("config", "protocol.file.allow", "always")
    try:
        (file,) = read(partial, sha).values()
        assert file.skipped is SkipReason.UNREADABLE
    except PermanentFailure as failure:
        assert failure.error_class is ErrorClass.CONFIG_INVALID  # noqa: PT017 - old gits die, new ones answer
    assert not proof.exists()


def test_a_git_that_hangs_or_is_killed_is_retried(repo: GitRepo, tmp_path: Path) -> None:
    sha = repo.commit_files({"a": "1\n"})
    for body, seconds, error_class in (
        ("exec sleep 600", 0.5, ErrorClass.NETWORK_TIMEOUT),
        ("kill -9 $$", 20, ErrorClass.UPSTREAM_UNAVAILABLE),
    ):
        ill = GitSource("app", repo.path, script(tmp_path / "git", body), timeout_seconds=seconds)
        with pytest.raises(RetryableFailure) as caught:
            ill.describe(f"git:app@{sha}")
        assert caught.value.error_class is error_class
    assert len(describe(repo, sha).files) == 1


def test_content_that_ends_early_is_retried(repo: GitRepo, tmp_path: Path) -> None:
    sha = repo.commit_files({"a": "some text\n", "b": "more text\n"})
    files = describe(repo, sha).files
    body = 'if [ "$2" = --batch ]; then git "$@" | head -c 70; else exec git "$@"; fi'
    cut = GitSource("app", repo.path, script(tmp_path / "git", body))
    with pytest.raises(RetryableFailure, match="middle of its answer"):
        cut.read(files, max_bytes=1000)
