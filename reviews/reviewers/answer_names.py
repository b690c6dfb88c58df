"""Names that models give to the fields of a finding, and words that they use for a severity."""

from __future__ import annotations

import re
from collections.abc import Mapping

from reviews.reviewers.base import FindingSeverity

CATEGORIES = (
    "bug",
    "security",
    "concurrency",
    "resource",
    "api",
    "data-loss",
    "performance",
    "test",
    "rule",
)
MAX_CODE_CHARS = 4_000  # of the new lines of a suggestion
LIMITS = {"title": 80, "problem": 600, "trigger": 300, "suggestion": 1200}
MAX_FIELDS = 60  # of one raw finding

# The first name is ours; of several that a finding has, the one listed first wins.
_NAMES = {
    "file": "file path filename filepath relativepath newpath sourcefile filewithpath location"
    " relevantfile uri document",
    "hunk": "hunk hunkid hunkname",
    "line": "line startline linenumber linestart lineno firstline fromline beginline lines linerange"
    " linenumbers relevantlinesstart newline row ln",
    "end_line": "endline lineend toline lastlinenumber stopline relevantlinesend",
    "quote": "quote existingcode codequote quotedcode quotedline quotedlines quotestart codesnippet snippet"
    " code originalcode currentcode offendingcode problematiccode badcode sourceline codeline"
    " linecontent linetext"
    " sourcecode evidence excerpt codeblock affectedcode relevantcode before diff",
    "quote_end": "quoteend endquote lastline quotelast",
    "side": "side diffside",
    "category": "category type kind issuetype class label labels tag tags issuecategory area",
    "rule_id": "ruleid rule",
    "context": "context contextids contextid contextblocks contextused usedcontext restson basedon",
    "severity": "severity level priority impact importance criticality risk severitylevel sev risklevel",
    "confidence": "confidence confidencescore certainty score probability likelihood",
    "title": "title summary headline header subject name issueheader shortdescription oneliner"
    " onesentencesummary heading",
    "problem": "problem description body message explanation issuecontent details detail comment text content"
    " note remark reason rationale analysis issue finding bug defect why what concern"
    " longdescription markdown"
    " problemdescription reasoning vulnerability",
    "replace": "replace replaces replacelines",
    "with": "with replacewith",
    "trigger": "trigger scenario failurescenario reproduction whenitfails condition example howtoreproduce"
    " exploit input steps consequence",
    "suggestion": "suggestion suggestedfix fix recommendation remediation proposedfix solution suggestedcode"
    " improvedcode replacement resolution howtofix suggestions recommendedfix fixsuggestion correction after"
    " suggestedchange newcode action mitigation patch",
}
FIELD_OF = {name: field for field, names in reversed(_NAMES.items()) for name in names.split()}
RANK = {name: rank for names in _NAMES.values() for rank, name in enumerate(names.split())}

_SEVERITIES = {
    FindingSeverity.CRITICAL: "critical blocker fatal severe emergency showstopper p0 s0 sev0 crit",
    FindingSeverity.HIGH: "high major error serious important urgent p1 s1 sev1 danger severity1",
    FindingSeverity.MEDIUM: "medium moderate med warning warn normal average p2 s2 sev2 potential mid",
    FindingSeverity.LOW: "low minor info informational information note notice trivial nit nitpick hint"
    " suggestion style cosmetic p3 p4 p5 s3 s4 sev3 sev4 optional negligible",
}
_SEVERITY_OF = {word: severity for severity, words in _SEVERITIES.items() for word in words.split()}
_SEVERITY_OF |= {"🔴": FindingSeverity.HIGH, "🟠": FindingSeverity.MEDIUM, "🟡": FindingSeverity.MEDIUM}
_WORD = re.compile(r"[a-z]+\d?|[🔴🟠🟡]")


def letters_of(name: str) -> str:
    """Return the letters of a field's name, in the form in which names are compared."""
    return "".join(filter(str.isalpha, name[:60])).casefold()


def field_of(name: str) -> str | None:
    """Return our name of a field, or None."""
    return FIELD_OF.get(letters_of(name))


def is_like_a_finding(raw: Mapping[str, object]) -> bool:
    """Return whether an object has fields of a finding: what is wrong, and where."""
    names = {field_of(name) for name in list(raw)[:MAX_FIELDS]}
    if not names & {"problem", "title"}:
        return False
    return bool(names & {"file", "quote", "line"}) or any(
        "location" in name.casefold() or name.casefold() in ("position", "range", "place") for name in raw
    )


def severity_in(text: str) -> str | None:
    """Return the severity that words such as `Major` or `critical_issues` state, or None."""
    words = _WORD.findall(text[:200].casefold())
    return next((str(_SEVERITY_OF[word]) for word in words if word in _SEVERITY_OF), None)
