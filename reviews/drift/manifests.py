"""Scripts and versions of dependencies in build files. Nothing is run."""

from __future__ import annotations

import ast
import configparser
import json
import posixpath
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import yaml

from reviews.drift.versions import Span, span_of

# A file that cannot be read says nothing.
_UNREADABLE = (
    ValueError, TypeError, AttributeError, KeyError, RecursionError, SyntaxError, yaml.YAMLError,
    configparser.Error,
)  # fmt: skip


class Scripts(NamedTuple):
    """The names that a runner knows. `is_open`: it may know more than can be read."""

    names: frozenset[str]
    is_open: bool = False


def _npm(text: str) -> Scripts:
    return Scripts(frozenset(_table(json.loads(text), "scripts")))


def _make(text: str) -> Scripts:
    names: set[str] = set()
    is_open = bool(re.search(r"^-?s?include\b|^\s*\$\((?:eval|foreach|call)", text, re.MULTILINE))
    for found in re.finditer(r"^([^\s#:=][^#:=\n]*?)\s*::?(?![=:])", text, re.MULTILINE):
        for name in found[1].split():
            is_open |= "%" in name or "$(" in name or "${" in name
            names.add(name)
    for found in re.finditer(r"^\.PHONY\s*:\s*((?:[^\n\\]|\\\n)*)", text, re.MULTILINE):
        names.update(found[1].replace("\\\n", " ").split())
    return Scripts(frozenset(names), is_open)


def _ini(text: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.read_string(text)
    return parser


def _tox(text: str) -> Scripts:
    sections = _ini(text)
    names = {name.partition(":")[2] for name in sections.sections() if name.startswith("testenv:")}
    listed = sections.get("tox", "envlist", fallback="") or sections.get("tox", "env_list", fallback="")
    names.update(re.split(r"[,\s]+", listed.strip()))
    return Scripts(frozenset(names - {""}), "{" in listed or any("{" in name for name in names))


def _nox(text: str) -> Scripts:
    names, is_open = set(), False
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef):
            continue
        for mark in node.decorator_list:
            call = mark.func if isinstance(mark, ast.Call) else mark
            if isinstance(call, ast.Attribute) and call.attr in ("session", "parametrize"):
                keywords = mark.keywords if isinstance(mark, ast.Call) else ()
                named = next((k.value for k in keywords if k.arg == "name"), ast.Constant(node.name))
                if isinstance(named, ast.Constant):
                    names.add(str(named.value))
                else:
                    is_open = True
    return Scripts(frozenset(names), is_open)


def _just(text: str) -> Scripts:
    names = re.findall(r"^@?([A-Za-z_][\w-]*)(?:[ \t]+[^:\n]*?)?:(?!=)", text, re.MULTILINE)
    names += re.findall(r"^alias\s+([\w-]+)", text, re.MULTILINE)
    return Scripts(frozenset(names), bool(re.search(r"^(?:import|mod)\b", text, re.MULTILINE)))


def _yaml_scripts(table: str, include: str) -> Callable[[str], Scripts]:
    def read(text: str) -> Scripts:
        data = yaml.safe_load(text)
        return Scripts(frozenset(_table(data, table)), isinstance(data, dict) and include in data)

    return read


def _toml_scripts(*paths: str) -> Callable[[str], Scripts]:
    def read(text: str) -> Scripts:
        data = tomllib.loads(text)
        return Scripts(frozenset(name for path in paths for name in _table(data, *path.split("."))))

    return read


def _cargo(part: str) -> Callable[[str], Scripts]:
    def read(text: str) -> Scripts:
        data = tomllib.loads(text)
        names = {str(one.get("name")) for one in data.get(part, []) if isinstance(one, dict)}
        names |= {str(data["package"].get("name"))} if part == "bin" and "package" in data else set()
        return Scripts(frozenset(names))

    return read


_ENTRY_POINTS = _toml_scripts("project.scripts", "project.gui-scripts", "tool.poetry.scripts")
RUNNERS: Mapping[str, Mapping[str, Callable[[str], Scripts]]] = {
    "npm": {"package.json": _npm},
    "make": {"GNUmakefile": _make, "makefile": _make, "Makefile": _make},
    "tox": {"tox.ini": _tox, "tox.toml": _toml_scripts("env")},
    "nox": {"noxfile.py": _nox},
    "just": {"justfile": _just, "Justfile": _just, ".justfile": _just},
    "task": dict.fromkeys(("Taskfile.yml", "Taskfile.yaml"), _yaml_scripts("tasks", "includes")),
    "poe": {"pyproject.toml": _toml_scripts("tool.poe.tasks")},
    "poetry": {"pyproject.toml": _ENTRY_POINTS},
    "uv": {"pyproject.toml": _ENTRY_POINTS},
    "pdm": {"pyproject.toml": _toml_scripts("project.scripts", "tool.pdm.scripts")},
    "cargo --bin": {"Cargo.toml": _cargo("bin")},
    "cargo --example": {"Cargo.toml": _cargo("example")},
    "compose": dict.fromkeys(
        ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"),
        _yaml_scripts("services", "include"),
    ),
}  # fmt: skip
BUILT_IN = {
    "npm": frozenset(["test", "start", "stop", "restart", "install", "ci"]),
    # What tools of the environment bring, and no manifest names.
    "poetry": frozenset(["python", "pytest", "pip", "black", "ruff", "mypy"]),
    "uv": frozenset(["python", "pytest", "pip", "black", "ruff", "mypy"]),
}


def _table(data: Any, *names: str) -> dict[str, Any]:
    for name in names:
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


# -- versions --------------------------------------------------------------------------------------------


class Fact(NamedTuple):
    """A version that a file says: of a lock file, or of a manifest."""

    name: str
    span: Span
    is_locked: bool
    text: str


_OTHER_NAMES = {
    "node-js": "node", "nodejs": "node", "golang": "go", "python3": "python", "postgres": "postgresql"
}  # fmt: skip


def normalized(name: str) -> str:
    """Return the form in which names of packages are compared."""
    folded = re.sub(r"[-_.]+", "-", name).lower()
    return _OTHER_NAMES.get(folded, folded)


def _facts(pairs: Iterable[tuple[str, Any]], *, is_locked: bool = False) -> Iterator[Fact]:
    for name, entry in pairs:
        text = entry.get("version") if isinstance(entry, dict) else entry
        if isinstance(text, str) and (span := span_of(text, is_locked=is_locked)):
            yield Fact(normalized(name), span, is_locked, text)


def _package_json(text: str) -> Iterator[Fact]:
    data = json.loads(text)
    for table in ("dependencies", "devDependencies", "peerDependencies", "optionalDependencies", "engines"):
        yield from _facts(_table(data, table).items())


def _package_lock(text: str) -> Iterator[Fact]:
    packages = _table(json.loads(text), "packages")
    own = (
        (path[len("node_modules/") :], entry)
        for path, entry in packages.items()
        if path.count("node_modules/") == 1
    )
    yield from _facts(own, is_locked=True)


def _requirement(line: str) -> tuple[str, str] | None:
    found = re.match(r"\s*([A-Za-z][\w.-]*)(?:\[[^\]]*\])?\s*\(?([<>=~!][^;#\\)]*)?", line)
    return (found[1], (found[2] or "").strip()) if found else None


def _pyproject(text: str) -> Iterator[Fact]:
    data = tomllib.loads(text)
    project = _table(data, "project")
    if isinstance(project.get("requires-python"), str):
        yield from _facts([("python", project["requires-python"])])
    groups = [project.get("dependencies"), *_table(project, "optional-dependencies").values()]
    lines = [line for group in groups if isinstance(group, list) for line in group if isinstance(line, str)]
    yield from _facts(pair for line in lines if (pair := _requirement(line)))
    yield from _facts(_table(data, "tool", "poetry", "dependencies").items())


def _requirements(text: str) -> Iterator[Fact]:
    for line in text.splitlines():
        pair = _requirement(line)
        if pair and not line.lstrip().startswith(("-", "#")):
            yield from _facts([pair], is_locked=pair[1].startswith("=="))


def _toml_lock(text: str) -> Iterator[Fact]:
    packages = tomllib.loads(text).get("package", [])
    pairs = ((str(one.get("name")), one.get("version")) for one in packages if isinstance(one, dict))
    yield from _facts(pairs, is_locked=True)


def _cargo_toml(text: str) -> Iterator[Fact]:
    data = tomllib.loads(text)
    rust = _table(data, "package").get("rust-version")
    yield from _facts([("rust", f">={rust}")] if rust else [])
    pairs = {**_table(data, "dependencies"), **_table(data, "dev-dependencies")}
    yield from _facts(
        (name, f"^{entry}" if isinstance(entry, str) and entry[:1].isdigit() else entry)
        for name, entry in pairs.items()
    )


def _go_mod(text: str) -> Iterator[Fact]:
    if found := re.search(r"^go\s+([\d.]+)", text, re.MULTILINE):
        yield from _facts([("go", f">={found[1]}")])
    for path, version in re.findall(r"^(?:require)?\s+([\w./-]+)\s+v([\d.]+)", text, re.MULTILINE):
        yield from _facts([(posixpath.basename(path), version)], is_locked=True)


def _runtime(name: str) -> Callable[[str], Iterator[Fact]]:
    def read(text: str) -> Iterator[Fact]:
        yield from _facts([(name, text.strip().removeprefix("v"))], is_locked=text.count(".") >= 2)

    return read


def _docker(text: str) -> Iterator[Fact]:
    for image, tag in re.findall(
        r"^FROM\s+(?:--\S+\s+)?([\w./-]+):v?([\d.]+)", text, re.MULTILINE | re.IGNORECASE
    ):
        yield from _facts([(posixpath.basename(image), tag)])


VERSION_FILES: Mapping[str, Callable[[str], Iterator[Fact]]] = {
    "package.json": _package_json, "package-lock.json": _package_lock, "pyproject.toml": _pyproject,
    "requirements.txt": _requirements, "poetry.lock": _toml_lock, "uv.lock": _toml_lock,
    "Cargo.lock": _toml_lock,
    "Cargo.toml": _cargo_toml, "go.mod": _go_mod, ".python-version": _runtime("python"),
    ".nvmrc": _runtime("node"),
    ".node-version": _runtime("node"), "Dockerfile": _docker, "Containerfile": _docker,
}  # fmt: skip


def scripts_in(name: str, runner: str, text: str) -> Scripts | None:
    """Return the scripts of a manifest, None where it cannot be read."""
    with suppress(*_UNREADABLE):
        return RUNNERS[runner][name](text)
    return None


def versions_in(name: str, text: str) -> list[Fact] | None:
    """Return the versions of a manifest or lock file, None where it cannot be read."""
    with suppress(*_UNREADABLE):
        return list(VERSION_FILES[name](text))
    return None
