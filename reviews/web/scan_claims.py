"""The claims of a scanned document as its page shows them, each with the finding about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reviews.drift.claims import Kind, Verdict
from reviews.models import FindingRow, Scan, ScanDocument
from reviews.recipients.viewing_scopes import Scope

QUOTED = 100  # characters of a claim that the title of its finding holds at least


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """A claim as the page shows it.

    `since`: the first of the compared scans that had this verdict too. `finding` is what the scan reports
    about it, None where the reader may not see that or it has none.
    """

    fields: Mapping[str, Any]
    look: str
    since: datetime
    finding: int | None = None

    @property
    def why(self) -> str:
        """Return why it has its verdict, as a sentence."""
        given = str(self.fields["says"] or self.fields["reason"])
        if not given and self.is_refuted:
            is_path = self.fields["kind"] == Kind.PATH
            given = "No file or folder is there with this name" if is_path else "This does not hold now"
        return f"{given.rstrip('.')}." if given else ""  # it may begin with a path: its case stays

    @property
    def is_refuted(self) -> bool:
        return bool(self.fields["verdict"] == Verdict.REFUTED)


def findings_of(scan: Scan, rows: Sequence[ScanDocument], scope: Scope) -> list[FindingRow]:
    """Return the findings of a scan about documents that the reader may see."""
    of_scan = FindingRow.objects.filter(scope.findings(), job=scan.pk, file__in=[row.path for row in rows])
    return list(of_scan.only("id", "file", "line", "title").order_by("pk"))


def finding_about(claim: Mapping[str, Any], row: ScanDocument, reported: Sequence[FindingRow]) -> int | None:
    """Return the finding about a refuted claim: at its line, with its text in the title."""
    if claim["verdict"] != Verdict.REFUTED:
        return None
    quoted = " ".join(claim["text"].split())[:QUOTED]
    at_line = (one for one in reported if (one.file, one.line) == (row.path, claim["line"]))
    return next((one.pk for one in at_line if f"`{quoted}" in one.title), None)
