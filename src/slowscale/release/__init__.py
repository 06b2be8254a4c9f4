"""Releases: requests, the session that carries them out, and the released tables with everything public about them.

A session is opened on a table of records. A request is bound to it, charged, read and drawn, in one pipeline for all
kinds of table. A release holds public facts only.
"""

from slowscale.release.numbers import box

__all__ = ["box"]
