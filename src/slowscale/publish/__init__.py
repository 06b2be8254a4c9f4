"""Publications: what readers see around the numbers of a release, and the files that they get.

Everything here is computed from what was released, so no record loses anything by it.
"""

from slowscale.publish.publication import ColumnLabel, Publication
from slowscale.publish.writing import publish

__all__ = ["ColumnLabel", "Publication", "publish"]
