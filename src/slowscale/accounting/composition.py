"""Composition: the total of several charges, by sequential and parallel composition (Lemmas PRzCDP-seq and -par)."""

from collections import Counter
from dataclasses import replace
from typing import Any

from slowscale.accounting.charge import Charge
from slowscale.accounting.record import Parallel, RecordPolicy
from slowscale.accounting.spent import Piece, Spent

MOST_PIECES = 200  # the most different pure policies for which the best choice of notion is searched


def total_of(charges: list[Charge]) -> Spent:
    """Return what a record may have lost through all charges."""
    pures = [(charge, charge.pure_policy) for charge in charges if charge.pure_policy is not None]
    pure = _composed(pures) if charges and len(pures) == len(charges) else None
    total = _composed([(charge, charge.policy) for charge in charges])
    protects = charges[0].protects if charges else None
    pieces = _pieces(charges)
    tables = sum(charge.tables for charge in charges)
    return Spent(total.terms, total.parallel, total.filtered, len(charges), protects, pure, pieces, tables)


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


def _pieces(charges: list[Charge]) -> tuple[Piece, ...]:
    """Return the parts of the total that have independent noise, if counting some of them as pure may improve a bound.

    The result is empty if releases were made in parallel, or if there are too many parts. The total is then converted
    as a whole, which is valid too.
    """
    rest: list[RecordPolicy] = []  # the policies without a pure guarantee
    pure: Counter[tuple[RecordPolicy, RecordPolicy]] = Counter()
    for charge in charges:
        if charge.by is not None or charge.policy.parallel:
            return ()
        for policy, as_pure in _independent_parts(charge):
            if as_pure is None:
                rest.append(policy)
            else:
                pure[policy, as_pure] += 1
    if len(pure) + bool(rest) < 2 or len(pure) > MOST_PIECES:
        return ()
    last = (Piece(_in_sequence(rest)),) if rest else ()
    return (*(Piece(policy, as_pure, times) for (policy, as_pure), times in pure.items()), *last)


def _independent_parts(charge: Charge) -> list[tuple[RecordPolicy, RecordPolicy | None]]:
    """Return the policies of a charge by column if its pure policies are known by column, else those of the whole."""
    columns = charge.pure_columns
    if columns is None:
        return [(charge.policy, charge.pure_policy)]

    def only(policy: RecordPolicy, name: str | None) -> RecordPolicy:
        return replace(policy, terms=tuple(term for term in policy.terms if term[0] == name))

    names = dict.fromkeys(name for name, _ in charge.policy.terms)
    pures = {name for name, _ in columns.terms}
    return [(only(charge.policy, name), only(columns, name) if name in pures else None) for name in names]


def _in_sequence(policies: list[RecordPolicy]) -> RecordPolicy:
    terms = tuple(term for policy in policies for term in policy.terms)
    parallel = tuple(one for policy in policies for one in policy.parallel)
    return RecordPolicy(terms, parallel, any(policy.filtered for policy in policies))
