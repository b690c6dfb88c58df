"""Grammars of the languages that have outlines, and their nodes that define something."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grammar:
    """The grammar of a language, and its types of nodes that define something."""

    module: str
    functions: str
    types: str
    values: str
    entry: str = "language"


_JS = "function_declaration generator_function_declaration method_definition"
_TS_TYPES = (
    "class_declaration abstract_class_declaration interface_declaration enum_declaration internal_module"
)
_TS_VALUES = "variable_declarator type_alias_declaration public_field_definition property_signature pair"
_TS = f"{_JS} method_signature function_signature abstract_method_signature"
_C_VALUES = "type_definition preproc_def preproc_function_def declaration field_declaration enumerator"
GRAMMARS = {
    "python": Grammar("tree_sitter_python", "function_definition", "class_definition", "assignment"),
    "javascript": Grammar(
        "tree_sitter_javascript", _JS, "class_declaration", "variable_declarator field_definition pair"
    ),
    "typescript": Grammar("tree_sitter_typescript", _TS, _TS_TYPES, _TS_VALUES, "language_typescript"),
    "tsx": Grammar("tree_sitter_typescript", _TS, _TS_TYPES, _TS_VALUES, "language_tsx"),
    "go": Grammar(
        "tree_sitter_go",
        "function_declaration method_declaration",
        "type_spec type_alias",
        "const_spec var_spec method_elem field_declaration",
    ),
    "java": Grammar(
        "tree_sitter_java",
        "method_declaration constructor_declaration compact_constructor_declaration",
        "class_declaration interface_declaration enum_declaration record_declaration"
        " annotation_type_declaration",
        "field_declaration constant_declaration enum_constant",
    ),
    "c": Grammar(
        "tree_sitter_c", "function_definition", "struct_specifier union_specifier enum_specifier", _C_VALUES
    ),
    "cpp": Grammar(
        "tree_sitter_cpp",
        "function_definition",
        "struct_specifier union_specifier enum_specifier class_specifier namespace_definition",
        f"{_C_VALUES} alias_declaration concept_definition",
    ),
    "rust": Grammar(
        "tree_sitter_rust",
        "function_item function_signature_item macro_definition",
        "struct_item enum_item union_item trait_item impl_item mod_item",
        "const_item static_item type_item field_declaration enum_variant",
    ),
    "ruby": Grammar("tree_sitter_ruby", "method singleton_method", "class module", "assignment"),
    "csharp": Grammar(
        "tree_sitter_c_sharp",
        "method_declaration constructor_declaration local_function_statement",
        "class_declaration interface_declaration struct_declaration record_declaration enum_declaration"
        " namespace_declaration",
        "property_declaration field_declaration delegate_declaration enum_member_declaration",
    ),
    "php": Grammar(
        "tree_sitter_php",
        "function_definition method_declaration",
        "class_declaration interface_declaration trait_declaration enum_declaration",
        "const_element property_declaration",
        "language_php",
    ),
}
_EXTENSIONS = {
    extension: language
    for language, extensions in {
        "python": "py pyi",
        "javascript": "js jsx mjs cjs",
        "typescript": "ts mts cts",
        "tsx": "tsx",
        "go": "go",
        "java": "java",
        "c": "c",
        "cpp": "h cc cpp cxx hh hpp hxx ipp",
        "rust": "rs",
        "ruby": "rb rake",
        "csharp": "cs",
        "php": "php",
    }.items()
    for extension in extensions.split()
}


# Text that no header of C has. The grammar of C++ takes half as long again for the same text.
_CPP = re.compile(
    r"::|^[ \t]*(?:template\s*<|namespace\b|using\s|class\s+\w|(?:public|private|protected)\s*:)",
    re.MULTILINE,
)


def language_of(path: str, text: str) -> str | None:
    """Return the name of a file's language, or None where it has no grammar here."""
    extension = posixpath.splitext(path)[1][1:].casefold()
    return "c" if extension == "h" and not _CPP.search(text) else _EXTENSIONS.get(extension)
