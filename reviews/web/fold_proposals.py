"""The button of the page Quality that applies a proposal to fold findings (guarantee G415)."""

from __future__ import annotations

from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from criticizer.db.query_limits import StatementTimeout, statement_timeout
from reviews import acceptance
from reviews.extents import Extent, NotAccepted
from reviews.recipients.viewing_scopes import scope_of
from reviews.roles import DISMISS_WIDELY, READ
from reviews.web.quality import MILLISECONDS, Figures, QualityFilter, is_of_tree, narrowed, weeks_of
from reviews.web.reader_page import POST, page_for


@page_for(READ, DISMISS_WIDELY, methods=POST)
def fold(request: HttpRequest) -> HttpResponse:
    """Dismiss what a rule or a category finds, if the page still proposes it."""
    wanted = QualityFilter(request.GET).wanted()
    scope = scope_of(request.user)
    try:
        with statement_timeout(MILLISECONDS):
            shown = Figures(narrowed(wanted), request.user, scope, weeks_of(wanted))
            named = (request.POST.get("by"), request.POST.get("name"))
            rate = next((rate for rate in shown.rates() if (rate.by, rate.name) == named), None)
            if rate is None or not is_of_tree(wanted):
                raise NotAccepted("Not folded: there is no such proposal.")
            rights = Extent(seen=scope, may_be_wide=True)
            actor, path = request.user.get_username(), wanted.get("path", "")
            row = acceptance.fold(rate, shown.findings, path, actor, rights)
    except StatementTimeout:
        messages.error(request, "Not folded: counting took too long. Choose fewer weeks or a path.")
    except NotAccepted as problem:
        messages.error(request, str(problem))
    else:
        return HttpResponseRedirect(reverse("reviews:finding", args=[row.job_id, row.pk]))
    return HttpResponseRedirect(f"{reverse('reviews:quality')}?{urlencode(wanted)}")
