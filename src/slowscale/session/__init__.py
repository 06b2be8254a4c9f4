"""Sessions: the one place where tables, mechanisms and ledgers meet.

A session is opened on a table of records. Each release is one scan of the table: exact sums by public key, noise on
each sum, and a table that may be published.
"""

from slowscale.session.inspection import Inspection
from slowscale.session.preview import Preview, SetPreview
from slowscale.session.session import Session

__all__ = ["Inspection", "Preview", "Session", "SetPreview"]
