"""Texts drawn by seed from grammars: secrets in every place, and ordinary text beside them.

Nothing here is shared with the rules: names, formats and tokens are written anew, so that a
gap in the rules is not a gap of the measure as well.
"""

from tests.redaction.generated.measure import Report, measure, shrunk
from tests.redaction.generated.rows import Row, rows, rows_of_classes

__all__ = ["Report", "Row", "measure", "rows", "rows_of_classes", "shrunk"]
