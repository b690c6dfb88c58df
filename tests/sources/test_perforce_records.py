"""The samples are those of the fact sheet; `origin` is stated per sample."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviews.sources.perforce.records import Message, indexed, number_in, parse
from reviews.sources.perforce.types import FileType

# origin: captured, p4 and p4d 2025.2, tagged JSON; one command's answers joined to one stream
CAPTURED = b"""\
{"clientFile":"/ws/a.txt","depotFile":"//depot/a.txt","haveRev":"1","headAction":"add","isMapped":""}
{"data":"nothere.txt - no such file(s).\\n","generic":17,"severity":2}
{"data":"//depot/c.txt - also opened by alice@ws2","level":1}
{"action":"add","depotFile":"//depot/a.txt","rev":"1"}
{"data":"hi\\n"}
{"data":""}
"""


def test_four_kinds_of_records_are_distinguished() -> None:
    answer = parse(CAPTURED)
    assert [result["depotFile"] for result in answer.results] == ["//depot/a.txt", "//depot/a.txt"]
    assert answer.results[0]["isMapped"] == ""
    assert answer.messages == [Message("nothere.txt - no such file(s).\n", 2, 17)]
    assert answer.infos == ["//depot/c.txt - also opened by alice@ws2"]
    assert answer.texts == ["hi\n", ""]
    assert not answer.bad_lines
    assert not answer.cut_off


@pytest.mark.parametrize("severity", [3, "3"])
def test_a_severity_may_come_as_a_number_or_as_text(severity: object) -> None:
    line = json.dumps({"data": "x", "severity": severity, "generic": 36}).encode() + b"\n"
    assert parse(line).messages == [Message("x", 3, 36)]


def test_severity_that_is_not_a_number_is_not_success() -> None:
    assert parse(b'{"data":"x","severity":"bad"}\n').messages[0].severity >= 3


@pytest.mark.parametrize("length", range(1, 40))
def test_a_cut_line_is_noticed_wherever_it_is_cut(length: int) -> None:
    line = b'{"change":"5","user":"ann","status":"x"}\n'
    answer = parse(line[:length])
    assert answer.cut_off
    assert answer.results == []


@pytest.mark.parametrize("line", [b"not json\n", b"[1]\n", b'"x"\n', b"null\n", b"[" * 100_000 + b"\n"])
def test_line_that_is_not_a_record_is_counted(line: bytes) -> None:
    answer = parse(line + b'{"change":"5"}\n')
    assert answer.bad_lines == 1
    assert answer.results == [{"change": "5"}]


def test_bytes_that_are_not_utf8_survive() -> None:
    answer = parse(b'{"depotFile":"//depot/caf\xe9"}\n')
    assert answer.results[0]["depotFile"].encode("utf-8", "surrogateescape") == b"//depot/caf\xe9"


@given(st.binary())
def test_no_output_makes_the_parser_raise(data: bytes) -> None:
    parse(data)


def test_numbered_fields_come_in_numeric_order() -> None:
    fields = {f"depotFile{n}": str(n) for n in (0, 10, 2, 1)} | {"how0,1": "x", "change": "5"}
    rows = indexed(dict(sorted(fields.items())))
    assert [row["depotFile"] for row in rows] == ["0", "1", "2", "10"]
    assert rows[0]["how,1"] == "x"


@pytest.mark.parametrize(
    ("text", "number"), [("12", 12), ("", None), ("none", None), ("²", None), ("-1", None)]
)
def test_numbers_are_plain_digits(text: str, number: int | None) -> None:
    assert number_in({"rev": text}, "rev") == number


@pytest.mark.parametrize(
    ("text", "shown", "binary", "link"),
    [
        ("text", "text", False, False),
        ("text+kx", "text+kx", False, False),
        ("ubinary", "binary+F", True, False),
        ("xtext", "text+x", False, False),
        ("ktext", "text+k", False, False),
        ("symlink", "symlink", False, True),
        ("apple", "apple", True, False),
        ("tempobj", "binary+FSw", True, False),
    ],
)
def test_old_and_new_names_of_types_are_understood(text: str, shown: str, binary: bool, link: bool) -> None:
    kind = FileType.parse(text)
    assert (str(kind), kind.is_binary, kind.is_symlink) == (shown, binary, link)


@pytest.mark.parametrize(
    ("kind", "collapsed"),
    [
        ("text+k", "$Id$ $Author$ $Revision$ $Other: x$"),
        ("text+ko", "$Id$ $Author: ann$ $Revision: #3$ $Other: x$"),
        ("text", "$Id: //a#3$ $Author: ann$ $Revision: #3$ $Other: x$"),
    ],
)
def test_expanded_keywords_collapse_where_the_type_expands_them(kind: str, collapsed: str) -> None:
    text = "$Id: //a#3$ $Author: ann$ $Revision: #3$ $Other: x$"
    assert FileType.parse(kind).collapse_keywords(text) == collapsed
