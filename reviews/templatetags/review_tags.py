"""Template filters of the pages: untrusted text in, escaped HTML or plain text out."""

from __future__ import annotations

import re
from html import escape

from django import template
from django.template import Context
from django.utils.safestring import SafeString

from criticizer.admin_site import timestamps
from criticizer.invisible_characters import name_invisible
from criticizer.wording import plural_count
from notifications.rendering import Ending
from notifications.rendering.summary import status_in_words
from reviews import invitations
from reviews.recipients.visibility import masked
from reviews.sources.pull import depot_prefix
from reviews.states import WIDE_SCOPES, DismissalScope
from reviews.states import FindingEventKind as Kind
from reviews.verdicts import MAX_REASON
from reviews.web import labels
from reviews.web.files_tab import FileView
from reviews.web.highlight import rows_html
from reviews.web.review_page import FindingView

register = template.Library()

_SHA = re.compile(r"(git:[^@]+@[0-9a-f]{12})[0-9a-f]{28}")
_COMMIT = re.compile(r"git:([^@]+)@")
_CODE = re.compile(r"`([^`\n]{1,400})`")
_WONT_FIX = "Won\N{RIGHT SINGLE QUOTATION MARK}t fix"

register.filter(timestamps.time_ago)
register.filter(timestamps.timestamp)
register.filter(masked)
register.filter(labels.took)
register.filter("code_rows", rows_html)
register.filter(invitations.may_be_invited)
register.filter(invitations.may_invite)


@register.filter
def changelist(changelist_id: str) -> str:
    """Shorten a git changelist to twelve digits of its hash; others stay as they are."""
    return _SHA.sub(r"\1", changelist_id)


@register.filter
def repository_tree(changelist_id: str) -> str:
    """Return the tree of a commit's or pull request's repository, such as `//app/`; "" for others."""
    if commit := _COMMIT.match(changelist_id):
        return f"//{commit[1]}/"
    return depot_prefix(changelist_id) or ""


@register.filter
def state_for_readers(status: str) -> str:
    """Return the status label for reviewers."""
    return labels.state_for_readers(status)


@register.filter
def ending(value: str) -> str:
    """Show what became of an earlier finding as messages say it."""
    return status_in_words(Ending(value)).capitalize() if value else ""


@register.filter
def in_words(name: str) -> str:
    """Return the name of a field as people write it: `Input tokens`."""
    return name.replace("_", " ").capitalize()


@register.filter
def visible(text: str) -> str:
    """Replace characters that hide or reorder text by their code points."""
    return name_invisible(str(text))


@register.filter
def prose(text: str) -> SafeString:
    """Escape a message and mark text in backticks as code; pages.css keeps the line ends."""
    pieces = map(escape, _CODE.split(name_invisible(str(text))))
    return SafeString("".join(f"<code>{piece}</code>" if n % 2 else piece for n, piece in enumerate(pieces)))


# The next three are no templates: a page has up to a thousand files. Status and digest are our own words.
@register.filter
def file_attributes(file: FileView) -> SafeString:
    """Return the attributes of a file's section in the tab Files."""
    return SafeString(
        f'id="file-{file.number}" data-path="{escape(file.path)}" data-content="{file.content}" '
        f'aria-label="{escape(name_invisible(file.path))}"'
    )


@register.filter
def file_head(file: FileView) -> SafeString:
    """Return the head of a file's section in the tab Files."""
    action = f"<span>{escape(file.action)}</span> " if file.action != "edit" else ""
    if file.old_path and file.old_path != file.path:
        action += f'<span>from <span class="path">{escape(name_invisible(file.old_path))}</span></span> '
    return SafeString(
        f'<header><h3 class="path">{escape(name_invisible(file.path))}</h3><p class="tags">{action}'
        f'<span class="state" data-state="{file.status}">{file.status.capitalize()}</span></p>'
        '<label class="viewed" hidden><input type="checkbox"> Viewed</label></header>'
    )


@register.simple_tag
def folded_diff(file: FileView, review: str, query: str) -> SafeString:
    """Return the fold that fetches a file's diff; `query` are the filters of the review's page."""
    address = escape(f"{review}files/{file.number}/{query}")
    return SafeString(
        f'<details data-src="{address}"><summary>{plural_count(file.lines, "line")}: show the diff</summary>'
        f'<p class="muted padded"><a href="{address}">Open the diff of this file</a></p></details>'
    )


@register.simple_tag(takes_context=True)
def verdict_forms(context: Context, address: str, finding: FindingView) -> SafeString:
    """Return the forms by which a person judges the finding of an address; on its own page, how far."""
    # Not a template: a page has hundreds of them. Nothing in it is of the depot or of a model.
    said, is_alone = finding.said, context["view"] == "thread"
    kind = said.verdict.kind if said.verdict else ""
    query = str(context.get("kept", ""))
    form = (
        f'<form method="post" action="{escape(address)}verdict/">'
        f'<input type="hidden" name="csrfmiddlewaretoken" value="{context["csrf_token"]}">'
        f'<input type="hidden" name="view" value="{escape(context["view"])}">'
        f'<input type="hidden" name="filter" value="{escape(query)}">'
    )
    offered = {"undone": "Undo", Kind.USEFUL: "Useful", Kind.WRONG: "Wrong", Kind.INTENDED: "Intended"}
    buttons = "".join(
        f'<button class="quiet" name="verdict" value="{value}">{label}</button>'
        for value, label in offered.items()
        if value != kind and (kind or said.proposal or value != "undone")
    )
    more, reach = ("Dismiss", _reach(context, finding)) if is_alone else ("Dismiss with a reason", "")
    return SafeString(
        f"{form}{buttons}</form> <details><summary>{more}\N{HORIZONTAL ELLIPSIS}</summary>{form}"
        f'<label>Reason <input name="reason" maxlength="{MAX_REASON}" autocomplete="off" required></label>'
        f'{reach}<button name="verdict" value="wont_fix">{_WONT_FIX}</button>'
        '<button class="quiet" name="verdict" value="wrong">Wrong, for this reason</button>'
        '<button class="quiet" name="verdict" value="intended">Intended, for this reason</button>'
        "</form></details>"
    )


def _reach(context: Context, finding: FindingView) -> str:
    """Return the fields that say how far a dismissal reaches, as far as this person may choose."""
    may_be_wide = context["perms"]["reviews"]["dismiss_widely"]
    scopes = [
        scope
        for scope in DismissalScope
        if (may_be_wide or scope not in WIDE_SCOPES)
        and (scope != DismissalScope.RULE or finding.row.rule_name)
    ]
    options = "".join(
        f'<option value="{scope.value}">{escape(str(scope.label))}</option>' for scope in scopes
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
