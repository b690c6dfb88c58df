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
from reviews.recipients.recipient_reports import masked
from reviews.sources.pull import depot_prefix
from reviews.web import labels
from reviews.web.files_tab import FileView
from reviews.web.finding_html import Judging, finding_html, proposal_line, prose, verdict_line
from reviews.web.highlight import rows_html
from reviews.web.review_results import FindingView

register = template.Library()

_SHA = re.compile(r"([a-z]+:[^@]+@[0-9a-f]{12})[0-9a-f]{28}")
_COMMIT = re.compile(r"git:([^@]+)@")

register.filter(timestamps.time_ago)
register.filter(timestamps.timestamp)
register.filter(masked)
register.filter(labels.took)
register.filter(labels.state_for_readers)
register.filter("code_rows", rows_html)
register.filter(prose)
register.filter(verdict_line)
register.filter(proposal_line)
register.filter(invitations.may_be_invited)
register.filter(invitations.may_invite)


@register.filter
def changelist(changelist_id: str) -> str:
    """Shorten the changelist of a commit to twelve digits of its hash; others stay as they are."""
    return _SHA.sub(r"\1", changelist_id)


@register.filter
def repository_tree(changelist_id: str) -> str:
    """Return the tree of the repository of a commit or pull request, such as `//app/`.

    "" for other changelists.
    """
    if commit := _COMMIT.match(changelist_id):
        return f"//{commit[1]}/"
    return depot_prefix(changelist_id) or ""


@register.filter
def ending(value: str) -> str:
    """Show how an earlier finding ended, as messages say it."""
    return status_in_words(Ending(value)).capitalize() if value else ""


@register.filter
def visible(text: str) -> str:
    """Replace characters that hide or reorder text by their code points."""
    return name_invisible(str(text))


# The next four are no templates: a page has up to a thousand files. Status and digest are our own words.
@register.filter
def tree_entry(file: FileView) -> SafeString:
    """Return a file's line in the tree of the tab Files."""
    status = file.status.capitalize()
    counts = "".join(
        f'<span class="severity" data-severity="{severity}">{count}'
        f'<span class="sr-only"> {severity}</span></span>'
        for severity, count in file.severities
    )
    return SafeString(
        f'<li><a href="#file-{file.number}">'
        f'<span class="state-dot" data-state="{file.status}" title="{status}">'
        f'<span class="sr-only">{status}: </span></span>'
        f'<span class="path">{escape(name_invisible(file.name))}</span>{counts}</a></li>'
    )


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
def show_finding(context: Context, finding: FindingView) -> SafeString:
    """Return a finding as `finding_html` does, for the reader of the page."""
    may, judging = context["perms"]["reviews"], None
    if may["add_findingevent"]:
        judging = Judging(
            str(context["csrf_token"]),
            context["view"],
            str(context.get("kept", "")),
            may_be_wide=may["dismiss_widely"],
            actor=context["user"].get_username(),
        )
    return finding_html(finding, context["view"], judging)
