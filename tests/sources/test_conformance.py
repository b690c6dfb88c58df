"""Conformance of every source to the `Source` interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

import pytest

from criticizer.resilience.failures import Component, ErrorClass, Failure
from reviews.sources.allowlist import AllowList
from reviews.sources.base import Action, Change, SkipReason, Source
from reviews.sources.fetcher import ChangeFetcher
from reviews.sources.paths import encode_path
from reviews.sources.registry import SourcesConfig, source_for
from tests.fakes.p4.server import FakeDepot, FakeFile, added, deleted, edited, moved
from tests.sources.gitrepo import GitRepo


class World(ABC):
    """A place where changes can be made, and the source that reads them."""

    root: str
    unknown_id: str

    @abstractmethod
    def change(self, *files: FakeFile, description: str = "A change.\n") -> str:
        """Make one change of these files, given by raw names below `root`, and return its id."""

    @property
    @abstractmethod
    def config(self) -> SourcesConfig: ...

    def source(self, changelist_id: str) -> Source:
        return source_for(changelist_id, self.config)

    def fetch(self, changelist_id: str, max_file_bytes: int = 1_000_000) -> Change:
        fetcher = ChangeFetcher(
            self.source(changelist_id),
            AllowList([f"{self.root}..."]),
            pytest.fail,
            max_file_bytes=max_file_bytes,
        )
        return fetcher.fetch(changelist_id)


class Perforce(World):
    root = "//depot/"
    unknown_id = "99999"

    def __init__(self, directory: Path) -> None:
        self.depot = FakeDepot(directory)

    @property
    def config(self) -> SourcesConfig:
        return SourcesConfig(perforce=self.depot.config())

    def _file(self, file: FakeFile) -> FakeFile:
        source = self.root + encode_path(file.source) if file.source else None
        return FakeFile(
            self.root + encode_path(file.path), file.action, file.old, file.new, file.type, source
        )

    def change(self, *files: FakeFile, description: str = "A change.\n") -> str:
        return self.depot.submit(*map(self._file, files), description=description)


class Shelf(Perforce):
    def change(self, *files: FakeFile, description: str = "A change.\n") -> str:
        return self.depot.shelve(*map(self._file, files), description=description)


class Git(World):
    root = "//app/"
    unknown_id = "git:app@" + "1" * 40

    def __init__(self, directory: Path) -> None:
        self.repo = GitRepo(directory / "repo")
        self.repo.commit("Start.")

    @property
    def config(self) -> SourcesConfig:
        return SourcesConfig(git={"app": self.repo.path})

    def change(self, *files: FakeFile, description: str = "A change.\n") -> str:
        before = {file.source or file.path: file.old for file in files if file.old is not None}
        for name, old in before.items():
            self.repo.write(name, old)
        self.repo.commit("Before.")
        for file in files:
            if file.source or file.new is None:
                (self.repo.path / (file.source or file.path)).unlink()
            if file.new is not None:
                self.repo.write(file.path, file.new)
        return f"git:app@{self.repo.commit(description)}"


@pytest.fixture(params=[Perforce, Shelf, Git], ids=["perforce", "shelf", "git"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    world: World = request.param(tmp_path)
    return world


BODY = "".join(f"line {n}\n" for n in range(30))


def test_each_action_has_its_sides(world: World) -> None:
    change = world.fetch(
        world.change(
            added("new.c", "new\n"),
            edited("edit.c", "old\n", "new\n"),
            deleted("gone.c", "old\n"),
            moved("from.c", "to.c", BODY, BODY + "more\n"),
        )
    )
    files = {file.path.removeprefix(world.root): file for file in change.files}
    assert {name: (file.action, file.old_text, file.new_text) for name, file in files.items()} == {
        "new.c": (Action.ADD, None, "new\n"),
        "edit.c": (Action.EDIT, "old\n", "new\n"),
        "gone.c": (Action.DELETE, "old\n", None),
        "to.c": (Action.RENAME, BODY, BODY + "more\n"),
    }
    assert files["to.c"].old_path == f"{world.root}from.c"
    assert all(file.old_path is None for name, file in files.items() if name != "to.c")


def test_the_author_the_description_and_the_time_are_there(world: World) -> None:
    change = world.fetch(world.change(added("a", "1\n"), description="First line\n\nÜber\n"))
    assert change.author.lower() == "ann"
    assert change.description.strip() == "First line\n\nÜber"
    assert change.created_at_epoch == 1790849023
    assert change.version_key


def test_the_same_content_has_the_same_key(world: World) -> None:
    change = world.change(added("a", "1\n"))
    other = world.change(added("b", "1\n"))
    describe = world.source(change).describe
    assert describe(change).version_key == describe(change).version_key != describe(other).version_key


def test_raw_names_are_encoded_once(world: World) -> None:
    names = ["a@b", "100%", "C#/x", "st*r", "a%40b", "%2540", "sp ace", "ü"]
    change = world.fetch(world.change(*(edited(f"d/{name}", "old\n", f"{name}\n") for name in names)))
    found = {file.path: file.new_text for file in change.files}
    assert found == {f"{world.root}d/{encode_path(name)}": f"{name}\n" for name in names}


TEXTS = {
    "utf-8": ("é\n".encode(), "é\n", "utf-8", False),
    "mark": (b"\xef\xbb\xbfa\n", "a\n", "utf-8-sig", False),
    "utf-16": ("é\n".encode("utf-16"), "é\n", "utf-16", False),
    "cp1252": (b"caf\xe9\n", "café\n", "cp1252", False),
    "crlf": (b"a\r\nb\r\n", "a\nb\n", "utf-8", True),
    "no end": (b"no end", "no end", "utf-8", False),
    "empty": (b"", "", "utf-8", False),
}


@pytest.mark.parametrize(
    ("world", "content", "text", "encoding", "crlf"),
    [
        pytest.param(
            source, *fields, id=f"{source.__name__}-{name}",
            marks=() if number % 3 == place else pytest.mark.long,  # `make test` tries each once
        )
        for place, source in enumerate((Perforce, Shelf, Git))
        for number, (name, fields) in enumerate(TEXTS.items())
    ],
    indirect=["world"],
)  # fmt: skip
def test_text_is_decoded_the_same_way(
    world: World, content: bytes, text: str, encoding: str, crlf: bool
) -> None:
    (file,) = world.fetch(world.change(added("a", content))).files
    assert (file.new_text, file.encoding, file.crlf, file.skipped) == (text, encoding, crlf, None)
    assert file.size_bytes == len(content)


def test_what_is_not_reviewed_is_listed_with_its_reason(world: World) -> None:
    change = world.fetch(
        world.change(
            added("binary", b"\0\1\2"),
            added("large", "x" * 3000),
            added("made.py", "# @generated\n"),
            moved("here", "there", BODY),
            added("plain", "text\n"),
        ),
        max_file_bytes=2000,
    )
    assert {file.path.removeprefix(world.root): file.skipped for file in change.files} == {
        "binary": SkipReason.BINARY,
        "large": SkipReason.TOO_LARGE,
        "made.py": None,
        "there": SkipReason.IDENTICAL,
        "plain": None,
    }
    for file in change.files:
        assert (file.new_text is None) == (file.skipped is not None)


def test_reading_answers_in_the_order_of_the_question(world: World) -> None:
    change = world.change(*(added(f"f{n}", f"{n}\n") for n in range(12)))
    source = world.source(change)
    files = list(reversed(source.describe(change).files))
    assert [file.path for file in source.read(files, max_bytes=100)] == [file.path for file in files]


def test_an_unknown_change_is_not_found(world: World) -> None:
    world.change(added("a", "1\n"))
    with pytest.raises(Failure) as caught:
        world.source(world.unknown_id).describe(world.unknown_id)
    assert (caught.value.error_class, caught.value.component) == (ErrorClass.NOT_FOUND, Component.SOURCE)


def test_healthy_source_passes_its_health_check(world: World) -> None:
    world.source(world.change(added("a", "1\n"))).check_health()


def test_the_tree_of_a_change_is_listed_and_searched_where_the_source_can(world: World) -> None:
    world.change(
        added("docs/a@b.md", "some_word\n"), added("gone.c", "other\n"), added("x/c.c", "some_word_2\n")
    )
    number = world.change(deleted("gone.c", "other\n"), added("late.c", "some_word and other\n"))
    source, change = world.source(number), world.fetch(number)
    below = world.root
    listed = source.tree(change, below, most=10, seconds=30)
    assert listed is not None
    if isinstance(world, Shelf):  # what is shelved is in no state of the depot
        assert f"{below}late.c" not in listed
        return
    assert {path.removeprefix(below) for path in listed} == {"docs/a%40b.md", "x/c.c", "late.c"}
    assert {entry.kind for entry in listed.values()} == {"file"}
    assert set(source.tree(change, f"{below}docs/", most=10, seconds=30) or {}) == {f"{below}docs/a%40b.md"}
    assert source.tree(change, below, most=2, seconds=30) is None
    found = source.holding(["some_word", "nowhere"], change, seconds=30)
    if not source.can_search:
        assert found is None
        return
    assert found == {
        "some_word": {f"{below}docs/a%40b.md", f"{below}late.c"},
        "nowhere": frozenset(),
    }
