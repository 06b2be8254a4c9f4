"""Releases with other tables or facts than those that were drawn, for tests of what is made from them."""

from dataclasses import replace

import slowscale as ss


def with_table(release, table=None, **facts):
    """Return a release with one table, with other numbers or other facts of its table."""
    only = release[next(iter(release))]
    return release._with(only.with_facts(only.facts.with_(**facts), table=release.table if table is None else table))


def release_of(release, tables):
    """Return a release with these tables under these names, and with everything else of a release."""
    named = {
        name: replace(table, name=name, whole=release.facts.with_(tables={name: table.facts}))
        for name, table in tables.items()
    }
    return ss.Release.of(named, release.facts.with_(tables={}), release.policy, release.pure_policy)
