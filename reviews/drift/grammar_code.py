"""What source of other languages says, read by its grammar: names, defaults, routes and exports."""

from __future__ import annotations

import re
import time
from importlib import import_module

from tree_sitter import Language, Node, Parser

from reviews.drift.code_facts import ANY_METHOD, Code, Route, names_read
from reviews.reviewers.grammars import GRAMMARS

SECONDS = 1.0  # of the processor, for one file
_JS_ROUTE = re.compile(
    r"\b(?:app|router|server|api|fastify|routes?)\.(get|post|put|patch|delete|head|options"
    r"|all)\(\s*(?:[\"'`]([^\"'`]*)[\"'`])?"
)
_GO_ROUTE = re.compile(
    r"\.(GET|POST|PUT|PATCH|DELETE|HandleFunc|Handle|Get|Post|Put|Patch|Delete)\(\s*\"(?:(GET|POST"
    r"|PUT|PATCH|DELETE) )?(/[^\"]*)\""
)


_parsers: dict[str, Parser] = {}
_PAIRS = frozenset(
    (
        "pair",
        "variable_declarator",
        "const_spec",
        "var_spec",
        "keyed_element",
        "const_item",
        "static_item",
        "assignment",
        "enum_assignment",
        "public_field_definition",
        "field_definition",
        "property_declaration",
        "init_declarator",
        "preproc_def",
        "const_element",
        "assignment_pattern",
        "required_parameter",
    )
)
_LITERALS = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|-?\d[\d_.]*|true|false|nil|null|None")


def read(language: str, text: str) -> Code | None:
    """Return what a file says, or None where it has a syntax error or takes too long."""
    root = _parsed(language, text)
    return None if root is None else _other(root, text)


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


def _other(root: Node, text: str) -> Code:
    defaults: list[tuple[str, str | None]] = []
    queue, count = [root], 0
    comments: list[tuple[int, int]] = []
    while queue and count < 200_000:
        node = queue.pop()
        count += 1
        if "comment" in node.type:
            comments.append((node.start_byte, node.end_byte))
            continue
        if node.type in _PAIRS and node.named_child_count >= 2:
            first, last = node.named_children[0], node.named_children[-1]
            name = (first.text or b"").decode("utf-8", "replace").strip("\"'")
            value = (
                (last.text or b"").decode("utf-8", "replace").strip()
                if last.end_byte - last.start_byte < 200
                else ""
            )
            if re.fullmatch(r"[\w$-]+", name) and last.type not in (
                "object",
                "array",
                "arrow_function",
                "call_expression",
            ):
                defaults.append((name, value.strip("\"'") if _LITERALS.fullmatch(value) else None))
        queue.extend(node.children)
    data = bytearray(text.encode(errors="replace"))
    for start, end in comments:
        data[start:end] = re.sub(rb"[^\n]", b" ", bytes(data[start:end]))
    plain = data.decode("utf-8", "replace")
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
