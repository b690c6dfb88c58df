from __future__ import annotations

import re
import time

import pytest

from reviews.reviewers.grammars import language_of
from reviews.reviewers.outline import Kind, enclosing, outline, section_of

TYPED = "class Order : Base {\n  int X = 1;\n  int total(int a) {\n    int z = 2;\n  }\n}"
SOURCES = {
    "a.py": "X = 1\n\n@cache\nclass Order(Base):\n    a = 2\n\n    async def total(self):\n        z = 1\n",
    "a.js": "const X = 1;\nclass Order extends Base {\n  total(a) {\n    const z = 2;\n  }\n}\n",
    "a.ts": "type X = string;\nabstract class Order<T> {\n  total(a: T): T {\n    const z = 2;\n  }\n}\n",
    "a.mts": "interface Order {\n  X?: string;\n}\nfunction total(a: Order) {\n  const z = { X: 2 };\n}\n",
    "a.tsx": "const X = 1;\nclass Order extends B<P> {\n  total = (a) => {\n    const z = <div/>;\n  }\n}\n",
    "a.go": "package p\nconst X = 1\ntype Order struct { A int }\nfunc (o *Order) total() {\n\tz := 2\n}\n",
    "A.java": TYPED.replace(": Base", "extends Base").replace("  int t", "  @Override\n  int t"),
    "a.c": "#define X 1\nstruct Order { int a; };\nstatic int *\ntotal(int a)\n{\n  int z = 2;\n}\n",
    "a.cpp": f"{TYPED};\n",
    "a.rs": "const X: u8 = 1;\nimpl Order {\n  pub fn total(&self) -> u8 {\n    let z = 2;\n  }\n}\n",
    "a.rb": "X = 1\nclass Order < Base\n  def total(a)\n    z = 2\n  end\nend\n",
    "a.cs": TYPED,
    "a.php": "<?php\nclass Order extends B {\n  const X = 1;\n  function total($a) {\n    $z = 2;\n  }\n}\n",
}


@pytest.mark.parametrize("path", SOURCES)
def test_definitions_of_every_language_are_found_and_local_variables_are_not(path: str) -> None:
    found = outline(path, SOURCES[path])
    assert found is not None
    by_name = {one.name: one for one in found}
    assert by_name["Order"].kind is Kind.TYPE
    assert by_name["total"].kind is Kind.FUNCTION
    assert by_name["X"].kind is Kind.VALUE
    assert "z" not in by_name
    lines = SOURCES[path].split("\n")
    inside = next(number for number, line in enumerate(lines, start=1) if re.search(r"\bz\b", line))
    assert "total" in [one.name for one in enclosing(found, inside)]
    assert "total" in section_of(found, lines, inside)


def test_the_section_of_a_line_holds_the_heads_of_all_that_is_around_it() -> None:
    text = (
        "class Order(Base):\n    def total(\n        self,\n    ) -> int:\n"
        "        def add(x):\n            return x\n"
    )
    found = outline("a.py", text)
    assert found is not None
    section = section_of(found, text.split("\n"), 6)
    assert section == "class Order(Base): > def total( self, ) -> int: > def add(x):"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.go", "package a\n\nvar n = 1 // of n\n// Take locks.\n// It returns nil.\nfunc wanted() {\n}\n"),
        ("a.ts", "x();\n\n\n/** Milliseconds,\n * or NaN. */\nexport function wanted() {}\n"),
        ("A.java", "class A {\n  int n;\n\n  /** The balance,\n   * or null. */\n  int wanted() {}\n}\n"),
        ("a.rs", "fn x() {}\n\n\n/// Per mille.\n#[inline]\npub fn wanted() {}\n"),
        ("a.rb", "class A\n  n = 1\n\n  # A text,\n  # or nil.\n  def wanted\n  end\nend\n"),
        ("a.cpp", "int n;\n\n\n// An index,\n// or -1.\nint wanted() { return 1; }\n"),
        ("a.py", "n = 1\n\n\n# Cached.\n@cache\ndef wanted():\n    pass\n"),
        ("a.cs", "class A {\n  int n;\n\n  /// A share,\n  /// below 1.\n  int wanted() { return 1; }\n}\n"),
    ],
)
def test_a_definition_knows_the_comment_above_it(path: str, text: str) -> None:
    (found,) = [one for one in outline(path, text) or () if one.name == "wanted"]
    assert (found.comment, found.head) == (4, 6)


def test_a_head_is_never_cut() -> None:
    text = f"class Order({'B' * 300}):\n    def total(self, {'b' * 300}):\n        return 1\n"
    found = outline("a.py", text)
    assert found is not None
    assert section_of(found, text.split("\n"), 3) == "type Order > function total"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.py", "(" * 900_000),
        ("a.cs", "> [" + "! ! " * 40_000),
        pytest.param("a.go", "* " * 80_000, marks=pytest.mark.long),
        ("a.py", "class A:\n" + "  x = [\n" * 90_000),
        pytest.param("a.py", "x = '''" + "y\n" * 400_000, marks=pytest.mark.long),
        pytest.param("a.js", "//\n" * 60_000 + "function f() {}\n", marks=pytest.mark.long),
        ("a.js", "function f(){" * 60_000 + "}" * 60_000),
        pytest.param("a.cpp", "namespace a{" * 60_000 + "}" * 60_000, marks=pytest.mark.long),
    ],
)
def test_a_file_that_takes_too_long_has_no_outline(path: str, text: str) -> None:
    began = time.thread_time()
    outline(path, text, seconds=0.25)
    assert time.thread_time() - began < 2
    # The parser is usable again.
    assert outline("b.py", "def f(): pass\n") is not None


@pytest.mark.parametrize("text", ["", "\0" * 100, "\ud800 = 1\n", "def f(:\n  class", "}}}}{{{{", "é" * 1000])
@pytest.mark.parametrize("path", SOURCES)
def test_text_that_is_not_the_language_is_no_error(path: str, text: str) -> None:
    outline(path, text)


def test_other_files_have_no_outline() -> None:
    assert language_of("//depot/README", "") is None
    assert outline("//depot/a.md", "# Title\n") is None
    assert outline("//depot/a.py", "x = 1\n" * 200_000) is None
