"""Verification of claims about paths, anchors and imports of other languages' examples."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from reviews.drift.claims import Claim, Form, Judgement, Reason, ambiguous, holds, refuted, uncheckable
from reviews.drift.index import Index
from reviews.drift.trees import Stored, above

_SOURCES = (".md", ".rst", ".markdown", ".mdx", ".txt", ".ipynb", ".adoc")


def judge(claim: Claim, index: Index) -> Judgement:
    """Return whether a path, and its anchor, is there."""
    outcome = judge_path(claim, index)
    if outcome.verdict != "holds" or not claim.value:
        return outcome
    return _judge_anchor(claim, index, outcome.found)


def judge_path(claim: Claim, index: Index) -> Judgement:
    places = [place for place in dict.fromkeys(candidates(claim)) if not place.startswith("..")]
    if not places:
        return uncheckable(Reason.NOT_OURS)
    for place in places:
        if index.has(place) and (
            not claim.subject.endswith("/") or place in index.folders or index.inside(place)
        ):
            return holds(place)
    for place in places:
        match index.inside(place):
            case Stored.LINK:
                return holds(place)
            case Stored.SUBMODULE:
                return uncheckable(Reason.SUBMODULE)
    if any(index.may_be_hidden(place) for place in places):
        return uncheckable(Reason.OUT_OF_SIGHT)
    if any(index.is_ignored(place) for place in places):
        return uncheckable(Reason.WRITTEN_AT_RUN_TIME)
    return _of_missing(claim, places, index)


def _of_missing(claim: Claim, places: Sequence[str], index: Index) -> Judgement:
    """Return the verdict where none of the places is there, or could be there unseen."""
    other_case = next(
        (index.lowered[place.lower()] for place in places if place.lower() in index.lowered), ""
    )
    if other_case:
        return refuted(f"its name is written {other_case}", other_case, instead=written(claim, other_case))
    if claim.form not in (Form.LINK, Form.PAGE):
        if _elsewhere(claim, index):
            return ambiguous(Reason.ANYWHERE)
        if "/" in claim.subject and not any(place.split("/", 1)[0] in index.tops for place in places):
            return uncheckable(Reason.NOT_OURS)
    if claim.form is Form.LINK and claim.subject.startswith("/"):
        return ambiguous(Reason.ANYWHERE)  # the root of a site is not known
    return refuted(_nearest(claim, index))


def candidates(claim: Claim) -> Iterator[str]:
    """Yield the places that a path may mean, relative to the root, the likeliest first."""
    own = posixpath.dirname(claim.document)
    subject = claim.subject
    if not subject:  # an anchor of the document itself
        yield claim.document
        return
    if claim.form in (Form.LINK, Form.PAGE):
        bases = [own]
        if subject.startswith("/"):
            bases = [""] if claim.form is Form.LINK else list(above(own))
    elif claim.folder:
        bases = [claim.folder, posixpath.join(own, claim.folder)]
    else:
        bases = ["", *above(own)]
    for base in bases:
        place = posixpath.normpath(posixpath.join(base, subject.lstrip("/")))
        place = "" if place == "." else place
        yield place
        if claim.form is Form.PAGE:
            yield from (place + ending for ending in _SOURCES)
            yield f"{place}/index.md"
        elif claim.form is Form.LINK:
            stem, ending = posixpath.splitext(place)
            if ending in (".html", ".htm"):
                yield from (stem + other for other in _SOURCES)
            elif ending not in _SOURCES:
                yield from (place + other for other in _SOURCES)
                yield from (f"{place}/{name}" for name in ("index.md", "README.md", "index.rst"))


def written(claim: Claim, place: str) -> str:
    """Return a path of the tree as the claim would write it."""
    own = posixpath.dirname(claim.document)
    if claim.form in (Form.LINK, Form.PAGE):
        if claim.subject.startswith("/"):
            return f"/{place}"
        path = posixpath.relpath(place, own or ".")
        path = f"./{path}" if claim.subject.startswith("./") and not path.startswith(".") else path
        if claim.form is Form.PAGE and not claim.subject.endswith(_SOURCES):
            path = posixpath.splitext(path)[0]
    elif claim.folder:
        path = posixpath.relpath(place, claim.folder)
    elif own and index_relative(claim, place):
        path = posixpath.relpath(place, own)
    else:
        path = place
    return path + ("/" if claim.subject.endswith("/") and not path.endswith("/") else "")


def index_relative(claim: Claim, place: str) -> bool:
    """Return whether prose names a path relative to its document: by less than the whole path."""
    own = posixpath.dirname(claim.document)
    return (
        place.startswith(f"{own}/")
        and not claim.subject.lstrip("./").startswith(f"{own}/")
        and not posixpath.dirname(claim.subject).startswith(own.split("/")[0])
    )


def _elsewhere(claim: Claim, index: Index) -> bool:
    """Return whether a name in prose could mean a file in some other folder."""
    name = posixpath.basename(claim.subject.rstrip("/"))
    tail = "/" + claim.subject.lstrip("./").rstrip("/")
    if claim.subject.endswith("/"):
        return any(f"/{folder}".endswith(tail) for folder in index.folders)
    return any(f"/{path}".endswith(tail) for path in index.by_name.get(name, ()))


def _nearest(claim: Claim, index: Index) -> str:
    """Return a sentence about the one file that has the same name elsewhere, or ""."""
    same = index.by_name.get(posixpath.basename(claim.subject), ())
    return f"a file of that name is at {same[0]}" if len(same) == 1 else ""


def _judge_anchor(claim: Claim, index: Index, place: str) -> Judgement:
    page = index.page(place) if place.lower().endswith((".md", ".markdown", ".rst")) else None
    anchor = claim.value
    if page is None or (anchor.startswith(("L", ":~:")) and anchor[1:2].isdigit()):
        return uncheckable(Reason.NOT_A_CONSTANT) if page is None else holds(place)
    if anchor in page.anchors or anchor.lower() in page.anchors:
        return holds(place)
    if claim.subject.lower().endswith((".html", ".htm")):  # what builds it gives anchors of its own
        return ambiguous(Reason.ANYWHERE)
    return refuted("no heading there has that anchor", place)


def judge_import(claim: Claim, index: Index) -> Judgement:
    """Verify an import of Go, Java, C or Rust by the files that it needs."""
    subject = claim.subject
    if claim.folder == "go":
        named = re.search(r"^module[ \t]+(\S+)", index.text("go.mod") or "", re.MULTILINE)
        if named is None or not f"{subject}/".startswith(f"{named[1]}/"):
            return uncheckable(Reason.NOT_OURS)
        return _folder(subject[len(named[1]) + 1 :], index)
    if claim.folder == "java":
        tail = subject.replace(".", "/")
        top = "/".join(tail.split("/")[:2])
        return _tail([f"{tail}.java", f"{tail}.kt"], top, index)
    if claim.folder == "c":
        return _tail([subject], subject.split("/")[0], index)
    if claim.folder == "rust":
        return _rust(subject.split("::"), index)
    return uncheckable(Reason.NOT_OURS)


def _folder(place: str, index: Index) -> Judgement:
    if place in index.folders:
        return holds(place)
    return uncheckable(Reason.OUT_OF_SIGHT) if index.may_be_hidden(place) else refuted("no such folder")


def _tail(tails: list[str], own: str, index: Index) -> Judgement:
    for tail in tails:
        for path in index.by_name.get(posixpath.basename(tail), ()):
            if f"/{path}".endswith(f"/{tail}"):
                return holds(path)
    if not index.tree.is_whole:
        return uncheckable(Reason.OUT_OF_SIGHT)
    is_ours = any(f"/{own}/" in f"/{folder}/" for folder in index.folders)
    return refuted("no such file") if is_ours else uncheckable(Reason.NOT_OURS)


def _rust(parts: list[str], index: Index) -> Judgement:
    named = re.search(r"^name[^=\n]*=[ \t]*\"?([^\"\s]+)", index.text("Cargo.toml") or "", re.MULTILINE)
    if named is None or parts[0] != named[1].replace("-", "_"):
        return uncheckable(Reason.NOT_OURS)
    symbol = parts[-1]
    paths = index.code_holding(symbol)
    if paths is None or not index.tree.is_whole:
        return uncheckable(Reason.NOT_SEARCHED)
    codes = {path: index.code(path) for path in paths if path.endswith(".rs")}
    for path, one in codes.items():
        if one is not None and symbol in (one.symbols or ()):
            return holds(path)
    if f"src/{symbol}" in index.folders or f"src/{symbol}.rs" in index.entries:
        return holds()
    if any(one is None or one.is_open for one in codes.values()):
        return uncheckable(Reason.NOT_INDEXED)
    return refuted("nothing public has that name")
