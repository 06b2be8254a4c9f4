"""The hash chain of a ledger: the hash of an entry covers the hash before it, so a changed or missing entry shows."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from slowscale.accounting.entries import read_entry
from slowscale.core.errors import SlowscaleError

FIRST_HASH = "0" * 64  # the hash before the first entry


def link_hash(before: str, number: int, payload: str) -> str:
    """Return the hash of an entry, computed from the hash before it, its number and its text."""
    return hashlib.sha256(f"{before}\n{number}\n{payload}".encode("utf-8", "surrogatepass")).hexdigest()


def chain_problems(
    rows: Sequence[tuple[int, str, str]],
    top: Sequence[tuple[int, str]],
    head: Mapping[str, Any] | None,
) -> list[str]:
    """Return the problems of a ledger file, given its entries (number, text, hash) and its stored head (number, hash).

    If an earlier `head` is given, it must still be in the chain.
    """
    problems: list[str] = []
    before, place, seen = FIRST_HASH, 0, {}
    for number, payload, stored in rows:
        place += 1
        if number != place:
            problems.append(f"entry {place} is missing")
            place = number
        if link_hash(before, number, payload) != stored:
            problems.append(f"entry {number} was changed, or an entry before it")
        before = seen[number] = stored
        try:
            read_entry(payload)
        except SlowscaleError as error:
            problems.append(f"entry {number} cannot be read: {error}")
    if top != [(place, before)]:
        problems.append(
            "the newest entry is not the one that was written last: entries were removed from the end, or added"
        )
    if head is not None and seen.get(head["entry"]) != head["hash"]:
        problems.append(f"entry {head['entry']} does not have the hash that was given: entries were removed or changed")
    return problems
