"""Verification of a claim against one tree: exact rules, and silence beyond their reach."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping

from reviews.drift import manifests, paths, routes
from reviews.drift.claims import Claim, Form, Judgement, Kind, Reason, ambiguous, holds, refuted, uncheckable
from reviews.drift.code_facts import Code
from reviews.drift.index import Index
from reviews.drift.manifests import normalized
from reviews.drift.trees import above
from reviews.drift.versions import agrees

_UNITS = {
    unit: size
    for names, size in (
        ("ms milliseconds", 1),
        ("s sec second seconds", 1000),
        ("m min minute minutes", 60_000),
        ("h hour hours", 3_600_000),
        ("d day days", 86_400_000),
    )
    for unit in names.split()
}
_MEASURE = re.compile(r"(-?\d[\d_,]*(?:\.\d+)?)\s*([a-z]*)")


def judge(claim: Claim, index: Index) -> Judgement:
    """Return the verdict of a claim in one tree."""
    return _JUDGES[claim.kind](claim, index)


def words_of(claims: Iterable[Claim]) -> set[str]:
    """Return the words that verifying claims will look for, so that one search finds them all."""
    found = set()
    for claim in claims:
        if claim.kind is Kind.ENVIRONMENT:
            found.add(claim.subject)
        elif claim.kind is Kind.CONFIG and (spelling := _spelling(claim.subject)):
            found.update(spelling)
        elif claim.kind is Kind.EXAMPLE and claim.folder in ("js", "rust"):
            found.add(claim.value or claim.subject.rpartition("::")[2])
    return {word for word in found if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", word)}


# -- commands and versions -------------------------------------------------------------------------------


def _command(claim: Claim, index: Index) -> Judgement:
    if claim.subject == "manage.py":
        return _django_command(claim, index)
    if claim.value in manifests.BUILT_IN.get(claim.subject, ()):
        return holds()
    folders = _folders(claim)
    found = index.scripts(claim.subject, folders)
    for path, scripts in found:
        if scripts is not None and claim.value in scripts.names:
            return holds(path)
    if not found:
        return uncheckable(Reason.NO_MANIFEST)
    if silent := [path for path, scripts in found if scripts is None]:
        return uncheckable(index.why_silent(silent))
    if any(scripts is not None and scripts.is_open for _, scripts in found):
        return uncheckable(Reason.OPEN_MANIFEST)
    names = manifests.RUNNERS[claim.subject]
    if any(index.may_be_hidden(posixpath.join(folder, name)) for folder in folders for name in names):
        return uncheckable(Reason.OUT_OF_SIGHT)
    if claim.subject == "cargo --bin" and f"src/bin/{claim.value}.rs" in index.entries:
        return holds(f"src/bin/{claim.value}.rs")
    return refuted(f"{found[0][0]} has no such entry", found[0][0])


def _django_command(claim: Claim, index: Index) -> Judgement:
    if claim.value in index.commands:
        return holds(index.commands[claim.value])
    if not index.commands:
        return uncheckable(Reason.NO_MANIFEST)
    if not index.tree.is_whole:
        return uncheckable(Reason.OUT_OF_SIGHT)
    return refuted("no management command has that name")


def _folders(claim: Claim) -> list[str]:
    own = posixpath.dirname(claim.document)
    if claim.folder:
        return list(dict.fromkeys((claim.folder, posixpath.normpath(posixpath.join(own, claim.folder)))))
    return list(above(own))


def _version(claim: Claim, index: Index) -> Judgement:
    facts, path = index.versions.get(normalized(claim.subject), ([], ""))
    if not facts:
        return uncheckable(Reason.UNKNOWN_PACKAGE)
    outcomes = {agrees(claim.value, fact.span) for fact in facts}
    if len(outcomes) > 1:
        return ambiguous(Reason.SEVERAL)
    if outcomes == {True}:
        return holds(path)
    return refuted(f"{path} says {facts[0].text}", path, facts[0].text if facts[0].is_locked else "")


# -- names, defaults, imports ----------------------------------------------------------------------------


def _environment(claim: Claim, index: Index) -> Judgement:
    held = index.code_holding(claim.subject)
    if held is None:
        return uncheckable(Reason.NOT_SEARCHED)
    silent = []
    for path in held:
        code = index.code(path)
        if code is None:
            silent.append(path)
        elif claim.subject in code.reads:
            return holds(path)
    if silent:
        return uncheckable(index.why_silent(silent))
    if not index.tree.is_whole:
        return uncheckable(Reason.OUT_OF_SIGHT)
    return refuted("nothing reads that name")


def _spelling(key: str) -> set[str]:
    """Return the ways in which code may write a key: `--dry-run` is `dry_run`."""
    plain = key.lstrip("-")
    return {plain, plain.replace("-", "_")}


def _definitions(claim: Claim, index: Index) -> list[tuple[str, str | None]] | Judgement:
    names = _spelling(claim.subject)
    found: list[tuple[str, str | None]] = []
    words = [name for name in names if "-" not in name] or [claim.subject.lstrip("-").split("-")[0]]
    for word in words:
        held = index.code_holding(word)
        if held is None:
            return uncheckable(Reason.NOT_SEARCHED)
        for path in held:
            if re.search(r"(?:^|/)(?:tests?|testing|__tests__|examples?|benchmarks?)/", path):
                continue
            code = index.code(path)
            if code is None:
                return uncheckable(index.why_silent([path]))
            found += [(path, value) for key, value in code.defaults if key.lstrip("-") in names]
    return found


def _config(claim: Claim, index: Index) -> Judgement:
    found = _definitions(claim, index)
    if isinstance(found, Judgement):
        return found
    if not found:
        return uncheckable(Reason.NOT_OURS)
    if len(found) > 1:
        return ambiguous(Reason.SEVERAL)
    if not index.tree.is_whole:
        return uncheckable(Reason.OUT_OF_SIGHT)
    path, value = found[0]
    if value is None:
        return uncheckable(Reason.NOT_A_CONSTANT)
    if _equal(claim.value, value):
        return holds(path)
    return refuted(f"{path} says {value[:80]}", path, value[:80])


def _equal(documented: str, actual: str) -> bool:
    first, second = (
        text.strip().strip("\"'`").lower().replace("null", "none") for text in (documented, actual)
    )
    if first == second:
        return True
    measures = [found for text in (first, second) if (found := _MEASURE.fullmatch(text))]
    if len(measures) < 2:
        return False
    numbers = [float(found[1].replace("_", "").replace(",", "")) for found in measures]
    units = [_UNITS.get(found[2], 1) if found[2] else None for found in measures]
    if None in units and numbers[0] == numbers[1]:  # a bare number is in the other's unit, or in milliseconds
        return True
    return numbers[0] * (units[0] or 1) == numbers[1] * (units[1] or 1)


def _example(claim: Claim, index: Index) -> Judgement:
    if claim.folder == "js":
        return _javascript(claim, index)
    if claim.folder in ("go", "java", "c", "rust"):
        return paths.judge_import(claim, index)
    return _python(claim, index)


def _python(claim: Claim, index: Index) -> Judgement:
    parts = claim.subject.split(".")
    root = next((base for base in ("", "src/") if _module(base + parts[0], index) is not None), None)
    if root is None:
        is_ours = parts[0] in index.tops and claim.form is not Form.RUN
        return refuted("no such package") if is_ours else uncheckable(Reason.NOT_OURS)
    place = root + "/".join(parts)
    module = _module(place, index)
    if module is None:
        parent = _module(posixpath.dirname(place), index) if len(parts) > 1 else None
        code = index.code(parent) if parent else None
        if code is not None and (parts[-1] in (code.symbols or ()) or code.is_open):
            return holds(parent or "")
        return _missing(place, index, "no such module")
    if not claim.value:
        return holds(module)
    below = f"{place}/{claim.value}"
    if not module:  # a folder without __init__
        is_there = _module(below, index) is not None
        return holds() if is_there else _missing(below, index, "no such module")
    code = index.code(module)
    if code is None:
        return uncheckable(index.why_silent([module]))
    if claim.value in (code.symbols or ()):
        return holds(module)
    if module.endswith("__init__.py") and _module(below, index) is not None:
        return holds(module)
    if code.is_open:
        return uncheckable(Reason.DYNAMIC)
    return _missing(below, index, f"{module} has no {claim.value}", module)


def _missing(place: str, index: Index, says: str, found: str = "") -> Judgement:
    if index.may_be_hidden(f"{place}.py") or index.may_be_hidden(place):
        return uncheckable(Reason.OUT_OF_SIGHT)
    return refuted(says, found) if index.inside(place) is None else uncheckable(Reason.SUBMODULE)


def _module(place: str, index: Index) -> str | None:
    """Return the file of a Python module, "" for a folder without one.

    None where there is no module.
    """
    for path in (f"{place}.py", f"{place}/__init__.py", f"{place}.pyi", f"{place}.pyx"):
        if path in index.entries:
            return path
    below = (path for path in index.entries if path.startswith(f"{place}/"))
    return "" if place in index.folders and any(path.endswith(".py") for path in below) else None


def _javascript(claim: Claim, index: Index) -> Judgement:
    found = re.search(r"\"name\"\s*:\s*\"([^\"]+)\"", index.text("package.json") or "")
    if found is None or claim.subject != found[1]:
        return uncheckable(Reason.NOT_OURS)
    held = index.code_holding(claim.value)
    if held is None or not index.tree.is_whole:
        return uncheckable(Reason.NOT_SEARCHED)
    codes: list[tuple[str, Code | None]] = [
        (path, index.code(path)) for path in held if re.search(r"\.[cm]?[jt]sx?$", path)
    ]
    for path, one in codes:
        if one is not None and claim.value in (one.symbols or ()):
            return holds(path)
    if silent := [path for path, one in codes if one is None]:
        return uncheckable(index.why_silent(silent))
    return refuted("nothing exports that name")


_JUDGES: Mapping[Kind, Callable[[Claim, Index], Judgement]] = {
    Kind.PATH: paths.judge,
    Kind.COMMAND: _command,
    Kind.VERSION: _version,
    Kind.ROUTE: routes.judge,
    Kind.ENVIRONMENT: _environment,
    Kind.CONFIG: _config,
    Kind.EXAMPLE: _example,
}
