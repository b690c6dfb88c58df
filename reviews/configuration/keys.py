"""The table of keys of `.criticizer.yml`: type, default, range, and what each does.

`resolving` validates a file against it; `reference` writes the JSON Schema, the documentation and the
example from it. A key stands here once something obeys it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reviews.configuration.kinds import Boolean, Choice, GlobList, Kind, RuleList, Whole
from reviews.drift.claims import Kind as ClaimKind
from reviews.reviewers.base import SEVERITY_ORDER, FindingSeverity
from reviews.reviewers.checks import OPTIONAL_CHECKS

BEHAVIOR = "behavior"  # claims that only a model can judge
SEVERITIES = tuple(reversed([severity.value for severity in FindingSeverity]))  # the least first


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The operator's settings, which bound what a file may say."""

    llm: bool = True
    max_findings: int = 200


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the table.

    `protects`: a value that cannot be read takes its strict reading, not its default. `limit` returns the
    operator's value, which is default and maximum at once; None: there is none.
    """

    path: str
    kind: Kind
    default: Any
    doc: str
    protects: bool = False
    limit: Callable[[Ceiling], Any] | None = None
    example: str = ""

    def default_under(self, ceiling: Ceiling) -> Any:
        return self.default if self.limit is None else self.limit(ceiling)


_TABLE = (
    Key("version", Whole(1, 1), 1, "Version of this format. Of a file of another version nothing is used."),
    Key(
        "paths.include", GlobList(is_empty_allowed=False), ["**"],
        "Files that are reviewed. Of others only the checks that protect read anything.", protects=True,
        example='["src/**", "tests/**"]',
    ),
    Key(
        "paths.exclude", GlobList(), [],
        "Files that are not reviewed, whatever `paths.include` says; no model gets them.", protects=True,
        example='["vendor/", "**/*.generated.py"]',
    ),
    Key(
        "llm", Boolean(), True,
        "Whether a language model reads the change. It cannot switch on what the operator has off.",
        protects=True, limit=lambda ceiling: ceiling.llm,
    ),
    Key(
        "agent", Boolean(), False,
        "Whether the repository's own agents read the change in place of the installation's model, by keys"
        " that the operator gives them. Without a model of the installation nothing is asked.", protects=True,
    ),
    *(
        Key(f"checks.{name}", Boolean(), True, f"Whether the check `{name}` runs.")
        for name in OPTIONAL_CHECKS
    ),
    Key(
        "min_severity", Choice(SEVERITIES), SEVERITIES[0],
        "The least severity that is shown. What is below is stored and counted.",
    ),
    Key(
        "max_findings", Whole(1, 200), 50,
        "How many findings a message shows in full, besides critical ones. Default and maximum are the"
        " operator's `FINDING_BUDGET`.", limit=lambda ceiling: ceiling.max_findings,
    ),
    Key(
        "suppress", RuleList(), [],
        "Findings that are hidden from people: all fields of a rule must match. They are stored and counted."
        " What a check that protects reports is never hidden.",
        example='[{file: "tests/**", category: style, reason: "tests may be verbose"}]',
    ),
    Key("docs.enabled", Boolean(), True, "Whether documents are verified against the change."),
    Key(
        "docs.include", GlobList(is_empty_allowed=False), ["**"], "Documents that are verified.",
        example='["README.md", "docs/**"]',
    ),
    Key(
        "docs.exclude", GlobList(), [], "Documents that are not, whatever `docs.include` says.",
        example='["docs/archive/"]',
    ),
    Key("docs.max_claims", Whole(1, 200), 50, "How many untrue claims a review reports."),
    *(
        Key(f"docs.claim_types.{kind}", Boolean(), True, f"Whether claims of the kind `{kind}` are verified.")
        for kind in ClaimKind
    ),
    Key(
        f"docs.claim_types.{BEHAVIOR}", Boolean(), True,
        "Whether the model compares sections of documents with the change.",
    ),
    Key(
        "check.block", Choice(("none", *SEVERITIES)), "none",
        "The check run on a code host fails at findings of this severity or a higher one.",
    ),
)  # fmt: skip

KEYS: Mapping[str, Key] = {key.path: key for key in _TABLE}
PROTECTING = frozenset(path for path, key in KEYS.items() if key.protects)
SECTIONS = frozenset(path[:at] for path in KEYS for at, char in enumerate(path) if char == ".")


def rank(severity: str) -> int:
    """Return a number that is higher for a higher severity."""
    return -SEVERITY_ORDER[FindingSeverity(severity)]
