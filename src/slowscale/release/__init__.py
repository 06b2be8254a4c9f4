"""Releases: the published table, with everything that a reader needs to judge it.

A release holds public facts only.
"""

from slowscale.release.ratios import box
from slowscale.release.reading import read_release
from slowscale.release.release import Release
from slowscale.release.release_set import ReleaseSet, read_release_set

__all__ = ["Release", "ReleaseSet", "box", "read_release", "read_release_set"]
