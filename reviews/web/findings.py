"""Pages of one finding: its verdicts and its thread, and the link in a message."""

from __future__ import annotations

from dataclasses import replace

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from criticizer import texts
from criticizer.security.headers import keeps_query_out_of_referrer
from reviews import fixes, verdicts
from reviews.extents import Extent, NotAccepted
from reviews.models import FindingRow
from reviews.recipients import verdict_links
from reviews.recipients.viewing_scopes import Scope, scope_of
from reviews.roles import DISMISS_WIDELY, JUDGE, READ
from reviews.states import VERDICTS, FindingEventKind
from reviews.web.reader_page import POST, page_for, reader_page
from reviews.web.review_results import finding_views
from reviews.web.within_review import kept_query


class VerdictForm(forms.Form):
    """A verdict on a finding: one of VERDICTS or `undone`, why, and how far a dismissal reaches."""

    verdict = forms.ChoiceField(
        choices=[(kind.value, kind.label) for kind in (*VERDICTS, FindingEventKind.UNDONE)]
    )
    reason = forms.CharField(required=False, max_length=verdicts.MAX_REASON)
    scope = forms.CharField(required=False, max_length=20)
    paths = forms.CharField(required=False, max_length=1024)
    until = forms.DateField(required=False)


class CommentForm(forms.Form):
    text = forms.CharField(
        max_length=verdicts.MAX_COMMENT,
        widget=forms.Textarea(attrs={"rows": 3}),
        label="Comment",
        help_text=f"Plain text, at most {verdicts.MAX_COMMENT} characters. It cannot be changed later.",
    )


@reader_page
def finding(request: HttpRequest, job_id: int, finding_id: int) -> HttpResponse:
    """Show a finding, the verdicts on it and its thread."""
    scope = scope_of(request.user)
    return _page(request, _seen(scope, job_id, finding_id), scope)


@reader_page
def patch(request: HttpRequest, job_id: int, finding_id: int) -> HttpResponse:
    """Download the suggestion of a finding as a patch (guarantee G331).

    404 where it is not certain to apply.
    """
    row = _seen(scope_of(request.user), job_id, finding_id)
    text = fixes.patch_of(row)
    if not text:
        raise Http404
    headers = {"Content-Disposition": f'attachment; filename="finding-{row.pk}.patch"'}
    return HttpResponse(text, content_type="text/x-diff; charset=utf-8", headers=headers)


@page_for(READ, JUDGE, methods=POST)
def verdict(request: HttpRequest, job_id: int, finding_id: int) -> HttpResponse:
    """Store a verdict on a finding, then go back to where it was given."""
    user = request.user
    scope = scope_of(user)
    row = _seen(scope, job_id, finding_id)
    rights = Extent(seen=scope, may_be_wide=user.has_perm(DISMISS_WIDELY))
    _give(request, VerdictForm(request.POST), row, user.get_username(), rights)
    return _back(row, request.POST.get("view", ""), request.POST.get("filter", ""))


@page_for(READ, JUDGE, methods=POST)
def comment(request: HttpRequest, job_id: int, finding_id: int) -> HttpResponse:
    """Add a comment to the thread of a finding."""
    scope = scope_of(request.user)
    row = _seen(scope, job_id, finding_id)
    form = CommentForm(request.POST, label_suffix="")
    if form.is_valid():
        try:
            verdicts.comment(row, request.user.get_username(), form.cleaned_data["text"])
            return _back(row, "thread")
        except NotAccepted as problem:
            form.add_error("text", str(problem))
    return _page(request, row, scope, form)


@never_cache
@keeps_query_out_of_referrer
@require_http_methods(["GET", "HEAD", "POST"])
def verdict_link(request: HttpRequest, signed: str = "") -> HttpResponse:
    """Ask for the verdict on GET, and store it on POST (guarantee G263).

    GET stores nothing, because programs follow links. 404 for a link that is not ours, too old, or whose
    recipient may not judge the finding any more.
    """
    opened = verdict_links.opened(signed or request.GET.get("key", ""))
    if opened is None:
        return render(request, "reviews/verdict_link.html", {"why": texts.LINK_NOT_VALID}, status=404)
    is_done = request.method == "POST" and _give(
        request, VerdictForm(request.POST), opened.finding, opened.actor, Extent(seen=opened.seen)
    )
    state = verdicts.said_about([opened.finding.identity], opened.seen)
    context = {
        "row": opened.finding,
        "actor": opened.actor,
        "said": state.get(opened.finding.identity),
        "max_reason": verdicts.MAX_REASON,
        "is_done": is_done,
    }
    return render(request, "reviews/verdict_link.html", context)


def _seen(scope: Scope, job_id: int, finding_id: int) -> FindingRow:
    """Return a finding that may be seen. Raises Http404."""
    get_object_or_404(scope.jobs().only("pk"), pk=job_id)
    rows = FindingRow.objects.filter(scope.findings(), job=job_id).select_related("job")
    return get_object_or_404(rows, pk=finding_id)


def _give(request: HttpRequest, form: VerdictForm, row: FindingRow, actor: str, rights: Extent) -> bool:
    if not form.is_valid():
        problem = "; ".join(str(error) for errors in form.errors.values() for error in errors)
        messages.error(request, f"Not saved. {problem}")
        return False
    given = form.cleaned_data
    extent = replace(rights, scope=given["scope"] or rights.scope, paths=given["paths"], until=given["until"])
    try:
        verdicts.give(row, given["verdict"], actor, given["reason"], extent)
    except NotAccepted as problem:
        messages.error(request, str(problem))
        return False
    return True


def _back(row: FindingRow, view: str, narrowed: str = "") -> HttpResponseRedirect:
    """Redirect to the review's tab as it was filtered, or to the finding's page (`thread`)."""
    if view == "thread":
        return HttpResponseRedirect(reverse("reviews:finding", args=[row.job_id, row.pk]))
    kept = kept_query({**QueryDict(narrowed).dict(), "view": view if view in ("files", "findings") else ""})
    query = f"?{kept.urlencode()}" if kept else ""
    return HttpResponseRedirect(f"{reverse('reviews:detail', args=[row.job_id])}{query}#finding-{row.pk}")


def _page(
    request: HttpRequest, row: FindingRow, scope: Scope, form: CommentForm | None = None
) -> HttpResponse:
    (view,) = finding_views([row], scope)
    context = {
        "job": row.job,
        "finding": view,
        "may_judge": request.user.has_perm(JUDGE),
        "events": verdicts.thread(row, scope),
        "form": form or CommentForm(label_suffix=""),
        "view": "thread",
    }
    return render(request, "reviews/finding.html", context)
