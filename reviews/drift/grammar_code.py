"""Facts of source in other languages, read by grammar: names, defaults, routes, exports."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from importlib import import_module

from tree_sitter import Language, Node, Parser

from reviews.drift.code_facts import ANY_METHOD, Code, Route, names_read
from reviews.reviewers.grammars import GRAMMARS

SECONDS = 1.0  # of the processor, for one file
MAX_NODES = 200_000  # that are looked at
MAX_LITERAL = 200  # bytes
_JS_ROUTE = re.compile(
    r"\b(?:app|router|server|api|fastify|routes?)\.(get|post|put|patch|delete|head|options"
    r"|all)\(\s*(?:[\"'`]([^\"'`]*)[\"'`])?"
)
_GO_ROUTE = re.compile(
    r"\.(GET|POST|PUT|PATCH|DELETE|HandleFunc|Handle|Get|Post|Put|Patch|Delete)\(\s*\"(?:(GET|POST"
    r"|PUT|PATCH|DELETE) )?(/[^\"]*)\""
)


_parsers: dict[str, Parser] = {}
_PAIRS_TEXT = """
pair variable_declarator const_spec var_spec keyed_element const_item static_item assignment enum_assignment
public_field_definition field_definition property_declaration init_declarator preproc_def const_element
assignment_pattern required_parameter
"""
_PAIRS = frozenset(_PAIRS_TEXT.split())
_NO_LITERALS = frozenset(("object", "array", "arrow_function", "call_expression"))
_LITERALS = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|-?\d[\d_.]*|true|false|nil|null|None")


def read(language: str, text: str) -> Code | None:
    """Return what a file says, or None where it has a syntax error or takes too long."""
    root = _parsed(language, text)
    if root is None:
        return None
    defaults: list[tuple[str, str | None]] = []
    plain = bytearray(text.encode(errors="replace"))
    queue, count = [root], 0
    while queue and count < MAX_NODES:
        node = queue.pop()
        count += 1
        if "comment" in node.type:
            comment = slice(node.start_byte, node.end_byte)
            plain[comment] = re.sub(rb"[^\n]", b" ", plain[comment])
            continue
        defaults += _default(node)
        queue.extend(node.children)
    return _said(plain.decode("utf-8", "replace"), defaults)


def _parsed(language: str, text: str) -> Node | None:
    """Return the root of a file without a syntax error."""
    if language not in _parsers:
        grammar = GRAMMARS[language]
        try:
            _parsers[language] = Parser(Language(getattr(import_module(grammar.module), grammar.entry)()))
        except ImportError:
            return None
    parser = _parsers[language]
    data, end = text.encode(errors="replace"), time.thread_time() + SECONDS
    try:
        tree = parser.parse(
            lambda offset, _: data[offset : offset + 65_536],
            progress_callback=lambda _, __: time.thread_time() > end,
        )
    except ValueError:
        parser.reset()
        return None
    return None if tree.root_node.has_error else tree.root_node


def _default(node: Node) -> Iterator[tuple[str, str | None]]:
    """Yield what a node defines, with its value where that is a literal."""
    if node.type not in _PAIRS or node.named_child_count < 2:
        return
    first, last = node.named_children[0], node.named_children[-1]
    name = (first.text or b"").decode("utf-8", "replace").strip("\"'")
    if re.fullmatch(r"[\w$-]+", name) and last.type not in _NO_LITERALS:
        is_short = last.end_byte - last.start_byte < MAX_LITERAL
        value = (last.text or b"").decode("utf-8", "replace").strip() if is_short else ""
        yield name, value.strip("\"'") if _LITERALS.fullmatch(value) else None


def _said(plain: str, defaults: Sequence[tuple[str, str | None]]) -> Code:
    """Return what a file without its comments says."""
    routes = [
        Route(ANY_METHOD if verb == "all" else verb.upper(), path)
        for verb, path in _JS_ROUTE.findall(plain)
        if path.startswith("/")
    ]
    for verb, prefixed, path in _GO_ROUTE.findall(plain):
        routes.append(Route(prefixed or (ANY_METHOD if verb.startswith("Handle") else verb.upper()), path))
    exported = re.findall(
        r"\b(?:export\s+(?:default\s+)?(?:async\s+)?(?:abstract\s+)?(?:function\*?|class|const|let"
        r"|var|interface|type|enum)"
        r"|exports\.|pub(?:\([^)]*\))?\s+(?:async\s+)?(?:fn|struct|enum|trait|mod|type|const"
        r"|static))\s*([\w$]+)", plain
    )  # fmt: skip
    for group in re.findall(r"\bexport\s*(?:type\s*)?\{([^}]*)\}", plain):
        exported += [part.split(" as ")[-1].strip() for part in group.split(",")]
    is_open = bool(re.search(r"\bexport\s*\*|module\.exports\s*=|\bpub use\b.*\*|macro_rules!", plain))
    return Code(names_read(plain), tuple(defaults), tuple(routes), False, frozenset(exported), is_open)
