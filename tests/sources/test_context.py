"""Files that a change uses: fetched inside allow-list, scope and budget, or left out."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from criticizer.resilience.failures import Component, ErrorClass, PermanentFailure, RetryableFailure
from reviews.sources.allowlist import AllowList
from reviews.sources.base import Action, Change, ChangeStatus, FileChange, Mention
from reviews.sources.context_files import (
    MAX_BYTES,
    MAX_FILES,
    ContextFetcher,
    ContextLimits,
    imported_paths,
    wanted_names,
)
from reviews.sources.fetcher import ChangeFetcher
from reviews.sources.git import GitSource
from reviews.sources.names import defines, names_in
from reviews.sources.perforce.source import PerforceSource
from tests.fakes.p4.server import FakeDepot, added, edited
from tests.reviewers.build import change as change_of
from tests.sources.gitrepo import GitRepo

USES = "def bill(order):\n    return discounted(order, BASE_RATE)\n"
DEFINES = "BASE_RATE = 2\n\n\ndef discounted(order, rate):\n    return order * rate\n"


def everything(path: str) -> bool:
    return True


def paths_of(change: Change) -> list[str]:
    return [file.path for file in change.context]


# --- names and imports, pure ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "line", "name"),
    [
        ("py", "def discounted(order):", "discounted"),
        ("py", "    async def discounted(self):", "discounted"),
        ("py", "class Prices(Base):", "Prices"),
        ("py", "RATE: Final = 2", "RATE"),
        ("py", "    rate: int | None", "rate"),
        ("py", "    rate: int,", ""),
        ("py", "    price(a) and other(b)", ""),
        ("py", "# def price(a)", ""),
        ("ts", "export default function price(a) {", "price"),
        ("ts", "export const price = async (a) => {", "price"),
        ("ts", "  price(a: number): number {", "price"),
        ("ts", "  readonly price?: number;", "price"),
        ("tsx", "  private price = (a) => {", "price"),
        ("js", "  price: function (a) {", "price"),
        ("ts", "  price: 2,", ""),
        ("go", "func (p *Prices) Price(a int) error {", "Price"),
        ("go", "type Prices struct {", "Prices"),
        ("go", '\tPrice int64 `json:"price"`', "Price"),
        ("go", "\tPrice(ctx context.Context) (int, error)", "Price"),
        ("go", "\tPrice Kind = iota", "Price"),
        ("go", "\tprice(a)", ""),
        ("java", "  public static int price(int a) throws E {", "price"),
        ("java", "    private final Map<String, Integer> prices = new HashMap<>();", "prices"),
        ("java", "    PRICE(2),", "PRICE"),
        ("cs", "    public decimal Price { get; set; }", "Price"),
        ("kt", "fun price(a: Int): Int {", "price"),
        ("c", "int price(int a);", "price"),
        ("c", "static char *price(int a)", "price"),
        ("c", "price(int a)", "price"),
        ("c", "    unsigned int price;", "price"),
        ("c", "static const char *price = 0;", "price"),
        ("cpp", "int Prices::price(int a) const {", "price"),
        ("h", "#define PRICE(x) (x)", "PRICE"),
        ("rs", "pub(crate) fn price<T>(a: T) -> T {", "price"),
        ("rs", "impl Prices {", "Prices"),
        ("rs", "    pub price: Option<u32>,", "price"),
        ("rs", "    Price(u32),", "Price"),
        ("rb", "  def self.price(a)", "price"),
        ("rb", "  attr_reader :price", "price"),
        ("php", "    private ?int $price = 2;", "price"),
        ("ts", "return price(a)", ""),
        ("py", "    price(a)", ""),
        ("c", "if (price(a)) {", ""),
        ("c", "price(a);", ""),
        ("js", "x.price(a);", ""),
    ],
)
def test_a_line_that_defines_a_name_is_told_from_one_that_uses_it(ending: str, line: str, name: str) -> None:
    found = defines(f"//depot/a.{ending}", line)
    assert name in found if name else not found


@pytest.mark.parametrize("ending", ["py", "go", "ts", "java", "c", "rs", "php", "rb", "x"])
@pytest.mark.parametrize(
    "line",
    [
        *("a " * 200_000, "(" * 100_000, "x." * 100_000 + "(", "\t" * 100_000 + "f(", "  a:" * 9_000),
        *("    public " * 9_000, "\tA(" * 9_000, "    int a[" * 9_000),
    ],
)
def test_hostile_lines_cost_little(line: str, ending: str) -> None:
    for _ in range(200):
        defines(f"a.{ending}", line)


def test_names_are_those_of_code_without_keywords_and_comments() -> None:
    lines = ["    return charge_card(order, self.Rate)  # and", "# never charged_twice", "for key in items:"]
    assert names_in("a.py", lines) == {"charge_card", "order", "Rate"}
    assert names_in("a.md", lines) == set()


def test_names_that_the_change_defines_are_not_looked_for() -> None:
    files = [
        FileChange("//d/a.py", Action.ADD, new_text="other_name(1)\nlocal_name(2)\n"),
        FileChange("//d/b.py", Action.ADD, new_text="def local_name(x):\n    pass\n"),
        FileChange("//d/gone.py", Action.DELETE, old_text="old_name()\n"),
    ]
    assert wanted_names(files) == ["other_name"]


@pytest.mark.parametrize(
    "text", ["\n" * 300_000, "from " + "." * 300_000, "from" + " " * 300_000, "# " * 200_000]
)
@pytest.mark.parametrize("path", ["//d/a/b.py", "//d/a/b.h", "//d/a/b.java", "//d/a/b.ts", "//d/a/b.rb"])
def test_hostile_imports_cost_little(path: str, text: str) -> None:
    began = time.thread_time()
    assert imported_paths([FileChange(path, Action.ADD, new_text=text)]) == []
    assert time.thread_time() - began < 2


def test_imports_lead_to_files_of_the_same_depot_only() -> None:
    text = "from .prices import discounted\nfrom shop.core import rates\nimport ....etc.passwd\n"
    found = imported_paths([FileChange("//d/shop/bill.py", Action.ADD, new_text=text)])
    assert {"//d/shop/prices.py", "//d/shop/core/rates.py", "//d/shop/core.py"} <= set(found)
    script = "import x from '../../../../../other/secret'\nimport y from './y'\n"
    found = imported_paths([FileChange("//d/web/a.ts", Action.ADD, new_text=script)])
    assert {path.split("/")[2] for path in found} == {"d"}


# --- the allow-list ------------------------------------------------------------------------------


@dataclass
class Tree:
    """A source of paths and texts that finds and reads whatever it is asked, and more."""

    files: dict[str, str]
    lies: dict[str, str] = field(default_factory=dict)  # read though nobody asked
    case_sensitive: bool = True
    literal_names: bool = False
    name: str = "tree"
    asked: list[str] = field(default_factory=list)

    def find(
        self, names: Sequence[str], change: Change, *, allowed: Callable[[str], bool], seconds: float
    ) -> list[Mention]:
        return [Mention(path, name, True) for path in self.files for name in names]  # ignores `allowed`

    def read_at(
        self, paths: Sequence[str], change: Change, *, max_bytes: int, seconds: float, is_before: bool = False
    ) -> list[tuple[str, bytes]]:
        self.asked += paths
        return [(path, (self.files | self.lies).get(path, "x").encode()) for path in [*paths, *self.lies]]


LINES = (
    ["//depot/open/..."],
    ["//depot/open/...", "-//depot/open/secret/..."],
    ["//depot/*/lib/...", "-//depot/private/..."],
    ["//depot/open/*.py", "//depot/open/sub/..."],
    ["//depot/...", "-//depot/open/sec..."],
    ["//Depot/Open/..."],
)
PARTS = (
    *("open", "lib", "sub") * 12,
    "open",
    "Open",
    "OPEN",
    "secret",
    "Secret",
    "private",
    "lib",
    "sub",
    "..",
    ".",
    "...",
    "*",
    "a@b",
    "a%40b",
)
NAMES = (
    *("a.py", "b.py", "c.py") * 8,
    "a.py",
    "A.py",
    "b*.py",
    "c#1.py",
    "...py",
    "d.py@2",
    "%2e%2e.py",
    "e%25.py",
    "f\n.py",
    "link.py",
)


@pytest.mark.parametrize("trees", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_nothing_outside_the_allow_list_or_the_budget_is_in_the_context_of_a_tree(trees: int) -> None:
    """Names with wildcards and revisions, other case, moved files, and a source that reads more."""
    source = random.Random(7)
    read = 0
    for number in range(trees):
        allow_list = AllowList(source.choice(LINES), case_sensitive=source.random() < 0.5)
        paths = [
            "//"
            + "/".join(
                [
                    source.choice((*("depot",) * 6, "Depot", "other")),
                    *source.choices(PARTS, k=source.randint(0, 3)),
                    source.choice(NAMES),
                ]
            )
            for _ in range(source.randint(1, 12))
        ]
        tree = Tree(
            {path: "x" * source.choice((1, 50, 5_000)) for path in paths},
            lies=dict.fromkeys(source.sample(paths, min(2, len(paths))), "lie") | {"//other/x.py": "lie"},
            case_sensitive=allow_list.case_sensitive,
        )
        moved = FileChange(
            "//depot/open/moved.py", Action.RENAME, old_path=source.choice(paths), old_text="", new_text=USES
        )
        limits = ContextLimits(files=source.randint(1, 5), bytes=source.choice((10, 6_000)))
        scope = source.choice(("//", "//depot/open/"))
        fetcher = ContextFetcher(tree, allow_list, lambda path, scope=scope: path.startswith(scope), limits)  # type: ignore[arg-type, misc]
        found = fetcher.added_to(change_of(moved)).context
        for file in found:
            read += 1
            assert allow_list.decide(file.path).allowed, (number, file.path)
            assert file.path.startswith(scope)
            assert file.path not in (moved.path, moved.old_path)
        for path in tree.asked:
            assert allow_list.decide(path).allowed, (number, path)
        assert len(found) <= limits.files
        assert sum(len(file.text) for file in found) <= limits.bytes
    assert read > trees / 5


def test_the_real_limits_are_those_of_the_documentation() -> None:
    assert (ContextLimits().files, ContextLimits().bytes, ContextLimits().seconds) == (20, 400_000, 10.0)
    many = {f"//depot/open/{n}.py": DEFINES + "# " + "x" * 30_000 for n in range(50)}
    tree = Tree(many)
    found = ContextFetcher(tree, AllowList(["//depot/..."]), everything).added_to(  # type: ignore[arg-type]
        change_of(
            FileChange(
                "//depot/open/bill.py", Action.ADD, new_text="".join(f"use_name_{n}()\n" for n in range(40))
            )
        )
    )
    assert len(tree.asked) <= MAX_FILES
    assert sum(len(file.text) for file in found.context) <= MAX_BYTES


@pytest.mark.parametrize(
    "error",
    [
        RetryableFailure(ErrorClass.NETWORK_TIMEOUT, Component.SOURCE, "slow"),
        PermanentFailure(ErrorClass.AUTH_DENIED, Component.SOURCE, "no"),
        ValueError("a defect"),
    ],
)
@pytest.mark.parametrize("method", ["find", "read_at", "case_sensitive"])
def test_context_never_fails_a_fetch(error: Exception, method: str) -> None:
    class Broken(Tree):
        pass

    def fail(*_: object, **__: object) -> None:
        raise error

    setattr(Broken, method, property(fail) if method == "case_sensitive" else fail)
    tree = Broken.__new__(Broken)
    tree.files, tree.lies, tree.literal_names, tree.asked = {"//depot/lib.py": DEFINES}, {}, False, []
    if method != "case_sensitive":
        tree.case_sensitive = True
    reviewed = change_of(FileChange("//depot/bill.py", Action.ADD, new_text=USES))
    assert ContextFetcher(tree, AllowList(["//depot/..."]), everything).added_to(reviewed) == reviewed  # type: ignore[arg-type]


def test_generated_and_binary_files_are_no_context() -> None:
    tree = Tree(
        {
            "//depot/a_pb2.py": "# Generated by the protocol buffer compiler.  DO NOT EDIT!\n" + DEFINES,
            "//depot/b.py": "# Code generated by x. DO NOT EDIT.\n" + DEFINES,
            "//depot/c.py": "\0\1\2" + DEFINES,
        }
    )
    reviewed = change_of(FileChange("//depot/bill.py", Action.ADD, new_text=USES))
    fetcher = ContextFetcher(tree, AllowList(["//depot/..."]), everything)  # type: ignore[arg-type]
    assert paths_of(fetcher.added_to(reviewed)) == []


# --- git -----------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path) -> GitRepo:
    repo = GitRepo(tmp_path / "repo")
    repo.commit_files(
        {
            "shop/bill.py": "def bill(order):\n    return 0\n",
            "shop/prices.py": DEFINES,
            "far/away/prices.py": "def discounted(a, b):\n    return 0\n",
            "far/a@b#1.py": "BASE_RATE = 1\n",
            "secret/prices.py": "def discounted(a, b):\n    return 1  # secret\n",
            "shop/uses.py": "discounted(1, BASE_RATE)\n",
            "notes.txt": "def discounted(a): pass\n",
        }
    )
    return repo


def fetched(repo: GitRepo, sha: str, *lines: str, may_read: Callable[[str], bool] = everything) -> Change:
    source = GitSource("demo", repo.path)
    allow_list = AllowList(lines or ["//demo/..."])
    change = ChangeFetcher(source, allow_list, lambda _: None).fetch(f"git:demo@{sha}")
    return ContextFetcher(source, allow_list, may_read).added_to(change)


def test_git_finds_the_nearest_definitions_at_the_state_of_the_commit(repository: GitRepo) -> None:
    sha = repository.commit_files({"shop/bill.py": USES})
    repository.commit_files({"shop/prices.py": "def discounted(later):\n    pass\n"})
    change = fetched(repository, sha)
    assert paths_of(change)[0] == "//demo/shop/prices.py"
    assert change.context[0].text == DEFINES
    assert change.context[0].names == ("BASE_RATE", "discounted")
    assert "//demo/shop/uses.py" not in paths_of(change)
    assert "//demo/notes.txt" not in paths_of(change)
    assert "//demo/far/a%40b%231.py" in paths_of(change)


def test_git_context_stays_inside_the_allow_list_and_the_scope(repository: GitRepo) -> None:
    sha = repository.commit_files({"shop/bill.py": USES})
    assert paths_of(fetched(repository, sha, "//demo/shop/bill.py", "//demo/secret/...")) == [
        "//demo/secret/prices.py"
    ]
    assert paths_of(fetched(repository, sha, "//demo/...", "-//demo/shop/p...", "-//demo/far/...")) == [
        "//demo/secret/prices.py"
    ]
    inside = fetched(repository, sha, may_read=lambda path: path.startswith("//demo/shop/"))
    assert paths_of(inside) == ["//demo/shop/prices.py"]


def test_git_context_follows_no_links_and_enters_no_changed_or_moved_file(repository: GitRepo) -> None:
    (repository.path / "linked.py").symlink_to("secret/prices.py")
    (repository.path / "shop" / "prices.py").unlink()
    sha = repository.commit_files({"shop/bill.py": USES, "shop/new/prices.py": DEFINES})
    change = fetched(repository, sha, "//demo/...", "-//demo/secret/...")
    assert {file.old_path for file in change.files} >= {"//demo/shop/prices.py"}
    assert set(paths_of(change)) <= {"//demo/far/away/prices.py", "//demo/far/a%40b%231.py"}
    assert all("secret" not in file.text for file in change.context)
    read = GitSource("demo", repository.path).read_at(
        ["//demo/linked.py", "//demo/shop", "//demo/none.py", "//demo/far/away/prices.py"],
        change, max_bytes=10_000, seconds=5,
    )  # fmt: skip
    assert [(path, data is None) for path, data in read] == [
        ("//demo/linked.py", True), ("//demo/shop", True), ("//demo/far/away/prices.py", False)
    ]  # fmt: skip


def test_git_finds_and_reads_whatever_the_repository_sets_and_files_are_called(repository: GitRepo) -> None:
    for setting in ("color.ui=always", "grep.column=true", "grep.patternType=perl"):
        repository.git("config", *setting.split("="))
    sha = repository.commit_files(
        {
            "shop/bill.js": "pay($fee, fee_of(2));\n",
            ":(exclude)a.js": "let $fee = 2;\n",
            ":!b.js": "var fee_of = 3;\n",
        }
    )
    change = replace(fetched(repository, sha), files=(FileChange("//demo/shop/bill.js", Action.EDIT),))
    source = GitSource("demo", repository.path)
    found = source.find(["$fee", "fee_of"], change, allowed=everything, seconds=5)
    paths = sorted({mention.path for mention in found if mention.name == "$fee" or mention.is_definition})
    assert paths == ["//demo/:!b.js", "//demo/:(exclude)a.js", "//demo/shop/bill.js"]
    read = source.read_at(paths, change, max_bytes=10_000, seconds=5)
    assert [path for path, _ in read] == paths


def test_a_name_in_very_many_files_is_no_lead(repository: GitRepo) -> None:
    repository.commit_files({f"many/m{n}.py": "discounted(1)\n" for n in range(70)})
    sha = repository.commit_files({"shop/bill.py": USES})
    names = {name for file in fetched(repository, sha).context for name in file.names}
    assert names == {"BASE_RATE"}


# --- Perforce ------------------------------------------------------------------------------------


def perforce(depot: FakeDepot, number: str, *lines: str) -> Change:
    source = PerforceSource(depot.config())
    allow_list = AllowList(lines or ["//depot/..."])
    change = ChangeFetcher(source, allow_list, lambda _: None).fetch(number)
    return ContextFetcher(source, allow_list, everything).added_to(change)


IMPORTING = "from lib.prices import discounted\n" + USES


@pytest.fixture
def depot(tmp_path: Path) -> FakeDepot:
    depot = FakeDepot(tmp_path)
    depot.submit(
        added("//depot/main/shop/rates.py", "BASE_RATE = 3\n"), added("//depot/main/lib/prices.py", DEFINES)
    )
    depot.submit(added("//depot/main/shop/hidden.py", "BASE_RATE = 4\n"))
    return depot


def test_perforce_searches_the_folders_of_the_change_and_follows_its_imports(depot: FakeDepot) -> None:
    number = depot.submit(edited("//depot/main/shop/bill.py", "x\n", IMPORTING))
    depot.submit(edited("//depot/main/lib/prices.py", DEFINES, "def discounted(later):\n    pass\n"))
    change = perforce(depot, number)
    assert paths_of(change) == [
        "//depot/main/shop/hidden.py",
        "//depot/main/shop/rates.py",
        "//depot/main/lib/prices.py",
    ]
    assert change.context[-1].text == DEFINES  # as it was


def test_perforce_reads_nothing_outside_the_allow_list(depot: FakeDepot) -> None:
    number = depot.submit(edited("//depot/main/shop/bill.py", "x\n", IMPORTING))
    change = perforce(depot, number, "//depot/main/shop/...", "-//depot/main/shop/hidden.py")
    assert paths_of(change) == ["//depot/main/shop/rates.py"]
    for call in [*depot.calls("print"), *depot.calls("grep")]:
        assert "hidden" not in " ".join([*call.argv, *call.stdin])
        assert "/lib/" not in " ".join([*call.argv, *call.stdin])


def test_perforce_that_refuses_grep_leaves_the_imports(depot: FakeDepot) -> None:
    number = depot.shelve(edited("//depot/main/shop/bill.py", "x\n", IMPORTING))
    depot.misbehave("grep", times=99, messages=["no_permission"])
    assert paths_of(perforce(depot, number)) == ["//depot/main/lib/prices.py"]
    assert len(depot.calls("grep")) == 1


@pytest.mark.parametrize("command", ["files", "grep", "print"])
def test_perforce_that_fails_at_context_gives_the_change_all_the_same(depot: FakeDepot, command: str) -> None:
    number = depot.submit(edited("//depot/main/shop/bill.py", "x\n", IMPORTING))
    source = PerforceSource(depot.config())
    allow_list = AllowList(["//depot/..."])
    change = ChangeFetcher(source, allow_list, lambda _: None).fetch(number)
    depot.misbehave(
        command,
        times=99,
        stderr="Perforce client error:\n\tConnect to server failed; check $P4PORT.\n",
        exit=1,
    )
    with_context = ContextFetcher(source, allow_list, everything).added_to(change)
    assert replace(with_context, context=()) == change
    assert change.status is ChangeStatus.SUBMITTED
