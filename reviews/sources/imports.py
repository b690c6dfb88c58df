"""Files that a change imports, as depot paths. A guess by the languages' usual layouts, never exact."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from reviews.sources.base import FileChange

MAX_IMPORTED = 60
# Blanks of one line only: `\s*` after `^` would read a run of empty lines again from each of them.
_PYTHON = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+\(?([\w, ]*)|import[ \t]+([\w.]+))", re.MULTILINE
)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([\w./+-]{1,200})"', re.MULTILINE)
_JAVA = re.compile(r"^[ \t]*import[ \t]+(?:static[ \t]+)?([\w.]{1,200})(?:\.\*)?;", re.MULTILINE)
_SCRIPT = re.compile(r"""(?:from|import|require\s*\()\s*["'](\.{1,2}/[\w./@-]{1,200})["']""")
_RUBY = re.compile(r"""^[ \t]*require_relative[ \t]+["']([\w./-]{1,200})["']""", re.MULTILINE)
_SCRIPT_ENDINGS = (".ts", ".tsx", ".js", ".jsx", ".mjs", "/index.ts", "/index.js")


def imported_paths(files: Sequence[FileChange]) -> list[str]:
    """Return where the changed files' imports may lead, at most MAX_IMPORTED, nearest first."""
    found: dict[str, None] = {}
    for file in files:
        if file.new_text and not file.generated and not file.unsent:
            for path in _imports(file.path, file.new_text):
                normal = "//" + posixpath.normpath("/" + path[2:])[1:]
                if normal.count("/") > 2 and normal.split("/")[2] == file.path.split("/")[2]:  # one depot
                    found[normal] = None
                if len(found) >= MAX_IMPORTED:
                    return list(found)
    return list(found)


def _imports(path: str, text: str) -> Iterator[str]:
    folder, ending = posixpath.dirname(path), posixpath.splitext(path)[1].casefold()
    if ending in (".py", ".pyi"):
        yield from _python(folder, text)
    elif ending in (".c", ".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp"):
        for name in _INCLUDE.findall(text):
            yield f"{folder}/{name}"
            for root in _parents(folder):
                yield f"{root}/{name}"
                yield f"{root}/include/{name}"
    elif ending in (".java", ".kt"):
        for name in _JAVA.findall(text):
            inside = name.replace(".", "/")
            package = inside.partition("/")[0]
            roots = [root for root in _parents(folder) if folder[len(root) :].startswith(f"/{package}/")]
            yield from (f"{root}/{inside}{ending}" for root in roots[:1])
    elif ending in (".js", ".jsx", ".ts", ".tsx", ".mjs", ".cjs"):
        for name in _SCRIPT.findall(text):
            stem = re.sub(r"\.(?:js|jsx|mjs)$", "", name)
            yield from (f"{folder}/{stem}{end}" for end in _SCRIPT_ENDINGS)
    elif ending == ".rb":
        yield from (f"{folder}/{name.removesuffix('.rb')}.rb" for name in _RUBY.findall(text))


def _python(folder: str, text: str) -> Iterator[str]:
    for module, names, plain in _PYTHON.findall(text):
        dotted = (module or plain).strip()
        dots = len(dotted) - len(dotted.lstrip("."))
        inside = dotted.lstrip(".").replace(".", "/")
        if dots:
            roots = [posixpath.normpath(posixpath.join(folder, *[".."] * (dots - 1)))]
            roots = ["/" + roots[0] if not roots[0].startswith("//") else roots[0]]
        else:
            roots = _parents(folder)
        for root in roots:
            base = f"{root}/{inside}".rstrip("/")
            if inside:
                yield f"{base}.py"
            inner = [name.strip() for name in names.split(",")[:5]]
            yield from (f"{base}/{name}.py" for name in inner if name.isidentifier())


def _parents(folder: str) -> list[str]:
    """Return the folders above a file, the nearest first, without the depot itself."""
    parts = folder[2:].split("/")
    return ["//" + "/".join(parts[:count]) for count in range(len(parts), 0, -1)][:6]
