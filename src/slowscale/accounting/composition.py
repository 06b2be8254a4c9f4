"""Composition: the total of several charges, by sequential and parallel composition (Lemmas PRzCDP-seq and -par)."""

import math
from collections import Counter
from itertools import product
from typing import Any

from slowscale.accounting.charge import Charge, Piece
from slowscale.accounting.record import Parallel, RecordPolicy
from slowscale.accounting.spent import Pieces, Spent

MOST_COMBINATIONS = 16  # of parts that a record may be in, for which what was drawn is kept apart


def total_of(charges: list[Charge]) -> Spent:
    """Return what a record may have lost through all charges."""
    pures = [(charge, charge.pure_policy) for charge in charges if charge.pure_policy is not None]
    pure = _composed(pures) if charges and len(pures) == len(charges) else None
    total = _composed([(charge, charge.policy) for charge in charges])
    protects = charges[0].protects if charges else None
    tables = sum(charge.tables for charge in charges)
    return Spent(total.terms, total.parallel, total.filtered, len(charges), protects, pure, _pieces(charges), tables)


def _composed(charges: list[tuple[Charge, RecordPolicy]]) -> RecordPolicy:
    """Return the policy of all charges: those about labels of a column compose in parallel, the rest in sequence."""
    terms = [term for charge, policy in charges if charge.by is None for term in policy.terms]
    parallel = [one for charge, policy in charges if charge.by is None for one in policy.parallel]
    parts: dict[str, dict[Any, list[RecordPolicy]]] = {}
    for charge, policy in charges:
        for label in charge.labels:
            parts.setdefault(charge.by or "", {}).setdefault(label, []).append(policy)
    for by, found in parts.items():
        parallel.append(Parallel(by, tuple((label, _in_sequence(policies)) for label, policies in found.items())))
    return RecordPolicy(tuple(terms), tuple(parallel), any(policy.filtered for _, policy in charges))


def _pieces(charges: list[Charge]) -> tuple[Pieces, ...]:
    """Return what a record may have been exposed to, for each combination of parts; () if there are too many."""
    always: Counter[Piece] = Counter()
    parts: dict[str, dict[Any, Counter[Piece]]] = {}
    for charge in charges:
        if charge.by is None:
            always.update(charge.pieces)
        for label in charge.labels:
            parts.setdefault(charge.by or "", {}).setdefault(label, Counter()).update(charge.pieces)
    choices = [{frozenset(one.items()): one for one in found.values()}.values() for found in parts.values()]
    if math.prod(map(len, choices)) > MOST_COMBINATIONS:
        return ()
    return tuple(tuple(sum(chosen, start=always.copy()).items()) for chosen in product(*choices))


def _in_sequence(policies: list[RecordPolicy]) -> RecordPolicy:
    terms = tuple(term for policy in policies for term in policy.terms)
    parallel = tuple(one for policy in policies for one in policy.parallel)
    return RecordPolicy(terms, parallel, any(policy.filtered for policy in policies))
