"""A finding as HTML, with the forms that judge it.

Not templates: a page has hundreds of findings, and templates took most of its time. Every text of a depot, a
model or a person is escaped here, and what hides or reorders text is named.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from html import escape

from django.utils.safestring import SafeString

from criticizer.admin_site.timestamps import time_ago
from criticizer.invisible_characters import name_invisible
from criticizer.wording import plural_count
from notifications.rendering.summary import source_in_words
from reviews.states import WIDE_SCOPES, DismissalScope
from reviews.states import FindingEventKind as Kind
from reviews.verdicts import MAX_REASON, Verdict
from reviews.web.highlight import rows_html
from reviews.web.review_results import FindingView

_CODE = re.compile(r"`([^`\n]{1,400})`")
_WONT_FIX = "Won\N{RIGHT SINGLE QUOTATION MARK}t fix"


@dataclass(frozen=True, slots=True)
class Judging:
    """Context of the forms of a page: its tab and filter, its reader, what they may do."""

    csrf_token: str
    view: str
    kept: str = ""
    may_be_wide: bool = False
    actor: str = ""


def finding_html(finding: FindingView, view: str, judging: Judging | None) -> SafeString:
    """Return a finding as HTML for a tab, or for its own page (`thread`).

    `judging` is None for readers who may not judge.
    """
    row, is_dismissed = finding.row, finding.is_dismissed
    folded = (
        _verdict(finding.said.verdict) if is_dismissed else row.folded and f"Folded: {_shown(row.folded)}"
    )
    title = _shown(row.title)
    parts = [
        f'<article class="finding panel{" is-dismissed" if is_dismissed else ""}" id="finding-{row.pk}" '
        f'data-severity="{_shown(row.severity)}">{_head(finding)}'
    ]
    if folded:
        parts.append(f'<details class="padded"><summary>{folded}</summary>')
    if finding.code:
        parts.append(_code(f"Lines of {_shown(row.file)}: {title}", rows_html(finding.code)))
    parts += ['<div class="body">', *_body(finding, title), "</div>"]
    if folded:
        parts.append("</details>")
    parts += ['<footer class="verdict">', *_foot(finding, view, judging), "</footer></article>"]
    return SafeString("".join(parts))


def prose(text: str) -> SafeString:
    """Escape a message and mark text in backticks as code; pages.css keeps the line ends."""
    pieces = map(escape, _CODE.split(name_invisible(str(text))))
    return SafeString("".join(f"<code>{piece}</code>" if n % 2 else piece for n, piece in enumerate(pieces)))


def verdict_line(verdict: Verdict) -> SafeString:
    """Return a text such as `Dismissed as wrong by ann 3 h ago: it is only reached in tests`."""
    return SafeString(_verdict(verdict))


def proposal_line(proposal: Verdict) -> SafeString:
    """Return who wants to dismiss a critical finding, and what is missing."""
    return SafeString(
        f"{_shown(proposal.actor)} wants to dismiss this critical finding ({_shown(proposal.kind_label)}) "
        f"{time_ago(proposal.at)}{_reason(proposal)}. It stays shown until a second person dismisses it too."
    )


def _shown(text: object) -> str:
    return escape(name_invisible(str(text)))


def _verdict(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    extent = f" ({_shown(verdict.extent)})" if verdict.extent else ""
    return (
        f"{_shown(verdict.label)} by {_shown(verdict.actor)} {time_ago(verdict.at)}{_reason(verdict)}{extent}"
    )


def _reason(verdict: Verdict) -> str:
    return f": {_shown(verdict.reason)}" if verdict.reason else ""


def _code(label: str, lines: str, css: str = "code") -> str:
    return (
        f'<pre class="{css}" tabindex="0" role="region" aria-label="{label}">'
        f'<code class="rows">{lines}</code></pre>'
    )


def _head(finding: FindingView) -> str:
    row, severity = finding.row, _shown(finding.row.severity)
    status = ""
    if row.is_new is not None or row.ending:
        status = f'<span class="version-status" data-status="{row.status}">{row.status_label}</span> · '
    sure = "" if row.confidence is None else f" · confidence {row.confidence}"
    return (
        f'<header><div class="line-one"><span class="severity" data-severity="{severity}">{severity}</span>'
        f'<h4>{prose(row.title)}</h4></div><p class="path"><a href="#finding-{row.pk}" '
        f'title="Link to this finding">{_shown(finding.where)}</a></p><p class="tags">{status}'
        f"{_shown(row.category)} · {_shown(source_in_words(row.source))}{sure}</p></header>"
    )


def _body(finding: FindingView, title: str) -> Iterator[str]:
    row = finding.row
    yield f'<p class="message">{prose(row.message)}</p>'
    if row.rule:
        text = f": {prose(finding.rule_text)}" if finding.rule_text else ""
        yield f'<p class="small">Rule <span class="path">{_shown(row.rule)}</span>{text}</p>'
    if row.evidence:
        paths = ", ".join(f'<span class="path">{_shown(path)}</span>' for path in row.evidence)
        yield f'<p class="muted small">It also depends on {paths}.</p>'
    if row.verification == "unverified":
        yield (
            '<p class="muted small">Not verified: the second pass did not confirm it. '
            "Check it before acting on it.</p>"
        )
    if note := row.evidence_note:
        yield f'<p class="muted small">{_shown(note)}</p>'
    if row.suggestion and not finding.is_brief:
        yield f'<div class="suggestion"><h5>Suggestion</h5>{"".join(_suggestion(finding, title))}</div>'


def _suggestion(finding: FindingView, title: str) -> Iterator[str]:
    for number, part in enumerate(finding.suggestion, start=1):
        if part.is_code:
            yield (
                f'<pre tabindex="0" role="region" aria-label="Suggested code {number}: {title}">'
                f"<code>{_shown(part.text)}</code></pre>"
            )
        else:
            yield f"<p>{prose(part.text)}</p>"
    if finding.fix:
        yield _code(f"Suggested change: {title}", rows_html(finding.fix))


def _foot(finding: FindingView, view: str, judging: Judging | None) -> Iterator[str]:
    state, address = finding.said, escape(finding.address)
    if state.verdict and not finding.is_dismissed:
        yield f'<p class="said">{_verdict(state.verdict)}</p>'
    if state.proposal:
        yield f'<p class="said">{proposal_line(state.proposal)}</p>'
    if judging:
        yield from _forms(finding, address, judging)
    if not finding.is_brief:
        yield f'<span class="copies"><button type="button" class="quiet" data-copy-link="{address}" hidden>'
        yield "Copy link</button>"
        if finding.row.edit:
            if lines := finding.new_lines:
                yield f'<button type="button" class="quiet" data-copy-fix="{escape(lines)}" hidden>Copy fix'
                yield "</button>"
            yield f'<button type="button" class="quiet" data-copy-patch="{address}patch/" hidden>'
            yield f'Copy as patch</button><a href="{address}patch/" download>Patch</a>'
        yield "</span>"
    if view != "thread":
        words = plural_count(state.comments, "comment") if state.comments else "Discuss"
        yield f'<a href="{address}">{words}</a>'


def _forms(finding: FindingView, address: str, judging: Judging) -> Iterator[str]:
    """Yield the forms that judge a finding; on its own page they ask how far as well."""
    state, is_alone = finding.said, judging.view == "thread"
    kind = state.verdict.kind if state.verdict else ""
    form = (
        f'<form method="post" action="{address}verdict/">'
        f'<input type="hidden" name="csrfmiddlewaretoken" value="{judging.csrf_token}">'
        f'<input type="hidden" name="view" value="{escape(judging.view)}">'
        f'<input type="hidden" name="filter" value="{escape(judging.kept)}">'
    )
    offered = {"undone": "Undo", Kind.USEFUL: "Useful", Kind.WRONG: "Wrong", Kind.INTENDED: "Intended"}
    buttons = "".join(
        f'<button class="quiet" name="verdict" value="{value}">{label}</button>'
        for value, label in offered.items()
        if value != kind and (kind or state.proposal or value != "undone")
    )
    if own := _without_reason(finding, judging.actor):
        yield (
            f'<div class="why">{form}<label>Why? <input name="reason" maxlength="{MAX_REASON}" '
            f'autocomplete="off" required></label><button name="verdict" value="{own}">Add the reason'
            "</button></form></div>"
        )
    more = "Dismiss" if is_alone else "Dismiss with a reason"
    reach = _reach(finding, may_be_wide=judging.may_be_wide) if is_alone else ""
    no_default = "<button disabled hidden></button>"  # Enter in a field chooses none of the verdicts
    yield (
        f"{form}{buttons}</form> <details><summary>{more}\N{HORIZONTAL ELLIPSIS}</summary>{form}{no_default}"
        f'<label>Reason <input name="reason" maxlength="{MAX_REASON}" autocomplete="off" required></label>'
        f'{reach}<button name="verdict" value="wont_fix">{_WONT_FIX}</button>'
        '<button name="verdict" value="wrong">Wrong, for this reason</button>'
        '<button name="verdict" value="intended">Intended, for this reason</button>'
        "</form></details>"
    )


def _without_reason(finding: FindingView, actor: str) -> str:
    """Return the kind of the reader's own dismissal that has no reason yet, or "".

    One that reaches further or ends is left to the finding's own page, whose form says how far.
    """
    verdict = finding.said.proposal or finding.said.verdict
    if verdict is None or not verdict.is_dismissal or verdict.actor != actor or verdict.is_match:
        return ""
    return "" if verdict.reason or verdict.extent or verdict.is_by_two else verdict.kind


def _reach(finding: FindingView, *, may_be_wide: bool) -> str:
    """Return the fields that say how far a dismissal reaches, as far as this person may choose."""
    left_out: Collection[str] = () if may_be_wide else WIDE_SCOPES
    options = "".join(
        f'<option value="{scope.value}">{escape(str(scope.label))}</option>'
        for scope in DismissalScope
        if scope not in left_out and (scope != DismissalScope.RULE or finding.row.rule_name)
    )
    paths = (
        '<label>Path <input name="paths" maxlength="1024" placeholder="//depot/main/..."></label>'
        if may_be_wide
        else ""
    )
    return (
        f'<label>Dismiss <select name="scope">{options}</select></label>{paths}'
        '<label>Until <input name="until" type="date"></label>'
    )
