"""Releases: the published table, with everything that a reader needs to judge it.

A release holds public facts only.
"""

from slowscale.release.ratios import box
from slowscale.release.reading import read_release
from slowscale.release.release import Release

__all__ = ["Release", "box", "read_release"]
