"""Claims of documents, and the results of verifying them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """Kind of a claim: its subject."""

    PATH = "path_reference"
    COMMAND = "command"
    VERSION = "dependency_version"
    ROUTE = "api_route"
    ENVIRONMENT = "environment"
    CONFIG = "config"
    EXAMPLE = "code_example"


class Form(StrEnum):
    """Form of a claim, which decides where its subject is looked for."""

    LINK = "link"  # of a path: relative to the document
    MENTION = "mention"  # of a path: in prose, relative to the root or to a folder above the document
    RUN = "run"  # of a path: a script that a command starts
    ARGUMENT = "argument"  # of a path: another word of a command, which may be written by it
    PAGE = "page"  # of a path: a page of the same documentation, without its extension
    REQUIRED = "required"  # of a version: what is needed at least
    PLAIN = ""


class Verdict(StrEnum):
    HOLDS = "holds"
    REFUTED = "refuted"
    AMBIGUOUS = "ambiguous"
    UNCHECKABLE = "uncheckable"


class Reason(StrEnum):
    """Reason why a claim is ambiguous or not checkable. None says whether something exists."""

    NONE = ""
    ANYWHERE = "a bare name may be anywhere"
    SEVERAL = "several definitions"
    OUT_OF_SIGHT = "not visible to this review"
    SUBMODULE = "inside a submodule"
    WRITTEN_AT_RUN_TIME = "ignored, or written at run time"
    NO_MANIFEST = "no manifest"
    OPEN_MANIFEST = "a manifest with patterns or includes"
    UNKNOWN_PACKAGE = "not a known dependency"
    DYNAMIC = "registered at run time"
    NOT_INDEXED = "not indexed: syntax error"
    NOT_OURS = "not of this repository"
    NOT_SEARCHED = "too large to search"
    NOT_READ = "not read: too large, or no text"
    NO_TIME = "no time left"
    NOT_A_CONSTANT = "no literal value"
    NEVER_HELD = "not true before the change either"


@dataclass(frozen=True, slots=True)
class Claim:
    """One checkable statement of a document. Lines count from 1.

    `subject` and `value` are what it names: path and anchor, runner and script, package and version,
    method and path, variable, key and default, module and symbol. `folder` is where a command runs.
    `is_firm`: it says that something is there; what a reader is to create is not.
    """

    document: str
    line: int
    kind: Kind
    subject: str
    value: str = ""
    form: Form = Form.PLAIN
    folder: str = ""
    text: str = ""
    is_firm: bool = True

    @property
    def key(self) -> tuple[str, ...]:
        """Return what makes two claims of one document the same."""
        return self.kind, self.form, self.subject, self.value, self.folder


class Judgement(NamedTuple):
    """The outcome of one claim in one tree.

    `found` is the path that it rests on, or rested on; `says` what is there instead (our words and names of
    the tree); `instead` the text that would make the claim true, where that is certain.
    """

    verdict: Verdict
    reason: Reason = Reason.NONE
    found: str = ""
    says: str = ""
    instead: str = ""


def holds(found: str = "") -> Judgement:
    return Judgement(Verdict.HOLDS, found=found)


def refuted(says: str, found: str = "", instead: str = "") -> Judgement:
    return Judgement(Verdict.REFUTED, found=found, says=says, instead=instead)


def ambiguous(reason: Reason) -> Judgement:
    return Judgement(Verdict.AMBIGUOUS, reason)


def uncheckable(reason: Reason) -> Judgement:
    return Judgement(Verdict.UNCHECKABLE, reason)
