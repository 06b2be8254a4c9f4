"""Releases: what to publish, the session that carries it out, and what is published, with everything about it.

A session is opened on a table of records. A request is bound to it, charged, read and drawn, in one pipeline for all
kinds of table. A release holds public facts only.
"""

from slowscale.release.ratios import box
from slowscale.release.reading import read_release
from slowscale.release.release import Release

__all__ = ["Release", "box", "read_release"]
