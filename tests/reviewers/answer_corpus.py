"""A review of three findings in the forms in which models answer (origin: constructed).

`FORMS` maps a form's name to an answer that holds all of `FINDINGS`; `AROUND` has what may stand
around it. `NO_ANSWERS` hold no finding, and none may be made of them. Shared by tests and
`benchmarks.review_quality`.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

A, B = "//depot/p/a.py", "//depot/p/sub/b.py"
FINDINGS: tuple[dict[str, Any], ...] = (
    {
        "file": A,
        "hunk": "F1H1",
        "line": 3,
        "quote": "    total = price * count",
        "quote_end": None,
        "side": "new",
        "category": "bug",
        "rule_id": None,
        "severity": "high",
        "confidence": 80,
        "title": "Discount is ignored",
        "problem": "The total does not subtract the discount.",
        "trigger": "An order with a discount.",
        "suggestion": None,
    },
    {
        "file": A,
        "hunk": "F1H1",
        "line": 9,
        "quote": '    log("paid", {"id": order["id"], "by": user})',
        "quote_end": None,
        "side": "new",
        "category": "security",
        "rule_id": None,
        "severity": "medium",
        "confidence": 60,
        "title": "User is written to the log",
        "problem": 'The log holds the "user" object; it doesn\'t belong there, see https://x.example/a?b={c}.',
        "trigger": "Any order.",
        "suggestion": 'log("paid", order["id"])',
    },
    {
        "file": B,
        "hunk": "F2H1",
        "line": 44,
        "quote": "    handle = open(path, 'rb')  # never closed",
        "quote_end": None,
        "side": "new",
        "category": "resource",
        "rule_id": None,
        "severity": "low",
        "confidence": 90,
        "title": "Handle is never closed",
        "problem": "The file handle stays open.",
        "trigger": "Many calls.",
        "suggestion": "Use a with statement.",
    },
)
ANSWER = {"findings": list(FINDINGS), "files_read": [A, B]}
PLAIN = json.dumps(ANSWER)
PRETTY = json.dumps(ANSWER, indent=2)
_THOUGHT = 'Let me see. {"findings": [{"file": "x"}]} or maybe {} - the dict {"a": 1} [F1H1] looks odd.\n' * 3


def changed(**names: Any) -> str:
    """Return the answer with each finding's fields mapped: `field=new_name` or `field=function`."""
    findings = []
    for finding in FINDINGS:
        made: dict[str, Any] = {}
        for name, value in finding.items():
            change = names.get(name, name)
            if isinstance(change, str):
                made[change] = value
            elif change is not None:
                made[name] = change(value)
        findings.append(made)
    return json.dumps({"findings": findings, "files_read": [A, B]})


def each(template: str, separator: str = "\n", **more: Any) -> str:
    return separator.join(
        template.format(n=n + 1, **{**finding, **more}) for n, finding in enumerate(FINDINGS)
    )


def _yaml(text: object) -> str:
    return json.dumps(text)


def _nested(wrap: Any) -> str:
    return json.dumps([wrap(finding) for finding in FINDINGS])


_SARIF = {
    "runs": [
        {
            "results": [
                {
                    "ruleId": None,
                    "level": {"high": "error", "medium": "warning", "low": "note"}[f["severity"]],
                    "message": {"text": f["problem"]},
                    "locations": [
                        {
                            "physicalLocation": {
                                "artifactLocation": {"uri": f["file"]},
                                "region": {"startLine": f["line"], "snippet": {"text": f["quote"]}},
                            }
                        }
                    ],
                }
                for f in FINDINGS
            ]
        }
    ]
}

FORMS: Mapping[str, str] = {
    "plain": PLAIN,
    "pretty": PRETTY,
    "fenced": f"```json\n{PRETTY}\n```",
    "fenced without a language": f"```\n{PLAIN}\n```",
    "fence never closed": f"```json\n{PRETTY}",
    "prose around": f"I looked at [F1H1] and {{x}}. Here it is:\n\n{PLAIN}\n\nTell me if {{more}} is needed.",
    "language word in front": f"json\n{PRETTY}",
    "byte order mark": "\ufeff" + PLAIN,
    "think block": f"<think>\n{_THOUGHT}</think>\n\n{PLAIN}",
    "thinking block fenced": f"<thinking>{_THOUGHT}</thinking>\n```json\n{PRETTY}\n```",
    "thought ends without a beginning": f"{_THOUGHT}</think>{PLAIN}",
    "thought never ends": f"<think>{_THOUGHT}So the answer is:\n{PLAIN}",
    "bracketed thought": f"[THINK]{_THOUGHT}[/THINK]{PLAIN}",
    "long thought": "<think>" + "Is it {so}? " * 2600 + f"</think>{PLAIN}",
    "channels": f"<|channel|>analysis<|message|>{_THOUGHT}<|end|><|start|>assistant<|channel|>final"
    f"<|message|>{PLAIN}<|return|>",
    "trailing commas": PRETTY.replace("\n    }", ",\n    }").replace("\n  ]", ",\n  ]"),
    "missing commas": PRETTY.replace('",\n', '"\n'),
    "single quotes": repr(ANSWER),
    "typographic quotes": re.sub(r'"(\w+)"(?=: )(?![^\n]*order)', r"“\1”", PRETTY),
    "keys without quotes": PRETTY.replace('"file"', "file")
    .replace('"title"', "title")
    .replace('"findings"', "findings"),
    "comments": PRETTY.replace('"hunk"', '// the place\n "hunk"').replace('"title"', '/* short */ "title"'),
    "hash comments": PRETTY.replace('      "hunk"', '      # the place\n      "hunk"'),
    "python words": PRETTY.replace("null", "None"),
    "quotes inside not escaped": PRETTY.replace('\\"', '"'),
    "line feeds inside": PRETTY.replace("does not subtract", "does not\nsubtract").replace(
        "stays open", "stays\n\nopen"
    ),
    "invalid escapes": PRETTY.replace("see https", "see \\https"),
    "cut in the end": PRETTY.rstrip("]}\n ").rsplit("]", 1)[0],
    "brackets missing": PLAIN.replace('}], "files_read"', '}, "files_read"').removesuffix("}"),
    "a bracket too many": PLAIN + "}",
    "comma after a bracket too many": PRETTY.replace("    },\n", "    }},\n", 1),
    "everything escaped": PLAIN.replace('\\"', "'").replace('"', '\\"'),
    "encoded twice": json.dumps(PLAIN),
    "html entities": html.escape(PLAIN, quote=True),
    "list at the top": json.dumps(list(FINDINGS)),
    "lines of objects": "\n".join(json.dumps(finding) for finding in FINDINGS),
    "objects in prose": each("Finding {n}:\n```json\n{json}\n```", "\n\n", json="{json}")
    .replace("{json}", "\0")
    .replace("\0", "%s")
    % tuple(json.dumps(f, indent=1) for f in FINDINGS),
    "an object for each file": "\n".join(
        json.dumps({"file": path, "findings": [f for f in FINDINGS if f["file"] == path]}) for path in (A, B)
    ),
    "an answer for each file": "\n\n".join(
        json.dumps({"findings": [f for f in FINDINGS if f["file"] == path], "files_read": [path]})
        for path in (A, B)
    ),
    "draft, then final": f"Draft:\n{json.dumps({'findings': [FINDINGS[0], {**FINDINGS[1], 'line': 1}]})}"
    f"\n\nAfter checking, the final answer:\n{PLAIN}",
    "schema repeated first": json.dumps(
        {
            "type": "object",
            "properties": {"findings": {"type": "array", "items": {"file": "x", "problem": "y"}}},
        }
    )
    + "\n"
    + PLAIN,
    "wrapped": json.dumps({"status": "ok", "result": {"review": ANSWER}}),
    "tool call": json.dumps({"name": "report", "arguments": PLAIN}),
    "tool call in tags": f"<tool_call>\n{json.dumps({'name': 'report', 'arguments': ANSWER})}\n</tool_call>",
    "issues instead of findings": PLAIN.replace('"findings"', '"issues"'),
    "grouped by severity": json.dumps(
        {f["severity"]: [{k: v for k, v in f.items() if k != "severity"}] for f in FINDINGS}
    ),
    "grouped by file": json.dumps(
        {
            "findings": {
                path: [{k: v for k, v in f.items() if k != "file"} for f in FINDINGS if f["file"] == path]
                for path in (A, B)
            }
        }
    ),
    "numbered": json.dumps({"findings": {str(n): f for n, f in enumerate(FINDINGS)}}),
    "other names": changed(quote="existing_code", problem="description", line="start_line", title="summary"),
    "names in another case": changed(
        file="filePath", severity="Severity", quote="Code Snippet", problem="Explanation"
    ),
    "place apart": _nested(
        lambda f: {
            "location": {
                "path": f["file"],
                "range": {"start": {"line": f["line"]}, "end": {"line": f["line"]}},
            },
            "severity": f["severity"],
            "code": f["quote"],
            "title": f["title"],
            "message": f["problem"],
        }
    ),
    "line in the path": _nested(
        lambda f: {**{k: v for k, v in f.items() if k != "line"}, "file": f"{f['file']}:{f['line']}"}
    ),
    "sarif": json.dumps(_SARIF),
    "severity in other words": changed(
        severity=lambda s: {"high": "MAJOR", "medium": "warning", "low": "Nitpick"}[s]
    ),
    "severity in capitals": changed(severity=str.upper),
    "confidence as a share": changed(confidence=lambda c: c / 100),
    "confidence as text": changed(confidence=lambda c: f"{c}%"),
    "confidence in words": changed(confidence=lambda c: "high"),
    "unknown category": changed(category=lambda c: "Logic Error"),
    "sides as in pull requests": changed(side=lambda s: "RIGHT"),
    "fields too many": PLAIN.replace('"hunk"', '"id": 7, "tags": ["x"], "meta": {"a": [1]}, "hunk"'),
    "fields missing": changed(
        hunk=None,
        quote_end=None,
        side=None,
        category=None,
        rule_id=None,
        trigger=None,
        suggestion=None,
        confidence=None,
    ),
    "null texts": changed(trigger=lambda t: None, category=lambda c: None, confidence=lambda c: None),
    "lists for text": changed(quote=lambda q: [q], suggestion=lambda s: ["Do this.", "Then that."]),
    "suggestion as an object": changed(suggestion=lambda s: {"description": "Do this.", "code": "x = 1"}),
    "line as text": changed(line=lambda n: f"L{n}-{n + 1}"),
    "no title": changed(title=None),
    "one unusable among them": json.dumps(
        {
            "findings": [FINDINGS[0], {"severity": "urgent"}, "and so on", 7, None, *FINDINGS[1:]],
            "files_read": [],
        }
    ),
    "yaml": "findings:\n"
    + each(
        "- file: {file}\n  line: {line}\n  quote: {quote_}\n"
        "  severity: {severity}\n  title: {title}\n  problem: |\n    {problem}",
        quote_="\0",
    ).replace("\0", "%s")
    % tuple(_yaml(f["quote"]) for f in FINDINGS),
    "markdown headings": "# Review\n\n"
    + each(
        "### {n}. {title}\n\n**File:** `{file}`  \n**Line:** {line}\n**Severity:** {severity}\n\n"
        "**Code:**\n```python\n{quote}\n```\n\n**Problem:** {problem}\n",
        "\n",
    ),
    "markdown list": each(
        "- **File**: `{file}`\n  - **Line**: {line}\n  - **Severity**: {severity}\n"
        "  - **Quote**: `{quote}`\n  - **Issue**: {title}\n  - **Description**: {problem}\n"
    ),
    "labelled blocks": each(
        "Title: {title}\nFile: {file}\nLine: {line}\nSeverity: {severity}\n"
        "Quote: {quote}\nProblem: {problem}\n",
        "\n---\n\n",
    ),
    "markdown table": "| File | Line | Severity | Code | Problem |\n|---|---|---|---|---|\n"
    + each("| {file} | {line} | {severity} | `{quote}` | {problem} |"),
    "tags": "<review>"
    + each(
        "<finding><file>{file}</file><line>{line}</line><severity>{severity}</severity><quote>{quote}</quote><title>{title}</title><problem>{problem}</problem></finding>"
    )
    + "</review>",
    "lint lines": each("{file}:{line}: [{severity}] {problem}"),
    "lint list": "I found these:\n\n" + each("{n}. `{file}:{line}` - **{severity}**: {problem}"),
}

NO_ANSWERS: Mapping[str, str] = {
    "nothing": "",
    "refusal": "I cannot help with that.",
    "praise": "The change looks good to me. No issues.",
    "thought only": f"<think>{_THOUGHT}</think>",
    "schema only": json.dumps({"type": "object", "properties": {"findings": {"type": "array"}}}),
    "code only": "```python\nfor item in [1, 2]:\n    total = {'file': 'x'}\n```",
    "the request repeated": "=== F1 //depot/p/a.py\n[F1H1] @@ -1,3 +1,4 @@\n"
    "new:\n    3 +    total = price * count",
    "cut before a finding": '{"findings": [',
    "numbers": '{"findings": [1, 2, 3]}',
}

# What stands around an answer, or how its lines end: each form is read in all of these as well.
AROUND: dict[str, Callable[[str], str]] = {
    "nothing": str,
    "reasoning": lambda text: f'<think>\n{{"findings": []}} maybe? The discount [1] ...\n</think>\n\n{text}',
    "prose": lambda text: f"Here is my review of the change:\n\n{text}",
    "lines of Windows": lambda text: text.replace("\r\n", "\n").replace("\n", "\r\n"),
}
