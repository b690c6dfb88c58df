"""The page of a repository's `.criticizer.yml`.

It shows the file, its warnings, and what holds with where it is from.
"""

from __future__ import annotations

import json

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render

from criticizer.redaction import clean
from reviews.configuration.keys import KEYS
from reviews.models import RepositoryConfiguration
from reviews.recipients.viewing_scopes import scope_of
from reviews.web.reader_page import reader_page

_ORDER = {path: place for place, path in enumerate(KEYS)}  # the database keeps none


@reader_page
def configuration(request: HttpRequest, pk: int) -> HttpResponse:
    """Show a configuration to people who may read the file; to others it does not exist."""
    row = get_object_or_404(RepositoryConfiguration.objects.select_related("job"), pk=pk)
    found = row.configuration
    path = f"{row.root}{found['name']}"
    if not found["name"] or not scope_of(request.user).allows(path):
        raise Http404
    context = {
        "row": row,
        "path": path,
        "warnings": [fault["text"] for fault in found["warnings"]],
        "hidden": found["hidden"],
        "values": [
            (key, clean(json.dumps(value, ensure_ascii=False), 2_000), found["sources"].get(key, ""))
            for key, value in sorted(found["values"].items(), key=lambda each: _ORDER.get(each[0], 0))
        ],
    }
    return render(request, "reviews/configuration.html", context)
