"""Charges: what one release costs, and the total of all charges.

The total follows by sequential and parallel composition (Lemmas PRzCDP-seq and -par).
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import lru_cache
from itertools import product, repeat
from typing import Any

import numpy as np

from slowscale.accounting.bands import Band, Use, band_policy
from slowscale.accounting.explanation import Explanation, Loss, as_lines, at_most, explain, worst
from slowscale.accounting.largest import Value, check_largest, exact, in_words, value_of
from slowscale.accounting.record import ANY, COUNT, Parallel, RecordPolicy, Term, folded, read_if_any, read_policies
from slowscale.accounting.sizes import (
    NUMBERS_OF_RECORDS,
    RecordSize,
    SizesLike,
    assumed_count,
    default_sizes,
    read_sizes,
    sizes_in,
)
from slowscale.core.errors import ParameterError, ParameterTypeError, Shown
from slowscale.core.markup import html_text
from slowscale.core.typing import Record
from slowscale.mechanisms import Mechanism
from slowscale.policy import PURE, ZCDP
from slowscale.policy.bounded import BAND


@dataclass(frozen=True)
class Piece:
    """A part of a release with independent noise: one column, or the whole release.

    Attributes
    ----------
    policy, pure_policy
        The loss of a record by it, as PRzCDP and as PRDP; the latter is None without a pure guarantee.
    mechanism
        The mechanism of a column, as `to_dict` describes it in JSON. None if it is not known.
    use
        How the values of a record enter a column. None if it is not known.
    """

    policy: RecordPolicy
    pure_policy: RecordPolicy | None = None
    mechanism: str | None = None
    use: Use | None = None

    def loss(self, record: Mapping[str, Any], times: int = 1) -> Loss:
        """Return the loss of a record by `times` such releases."""
        rho, pure = float(self.policy(record)), None if self.pure_policy is None else float(self.pure_policy(record))
        found = Loss(rho, pure)
        if self.mechanism is not None:
            ((column, policy),) = self.policy.terms
            influence = 1.0 if column is None else abs(float(record[column]))
            found = Loss.of(rho, pure, policy, _read_mechanism(self.mechanism), influence)
        return found.repeated(times)

    def between(self, record: Mapping[str, Any], band: Band, times: int = 1) -> Loss | None:
        """Return the loss between the values of a record and others within a band, or None if none can be stated."""
        if self.use is None:
            return None
        ((column, policy),) = self.policy.terms
        pure = None if self.pure_policy is None else self.pure_policy.terms[0][1]
        mechanism = None if self.mechanism is None else _read_mechanism(self.mechanism)
        value = 0.0 if column is None else abs(float(record[column]))
        found = Loss.between((column, policy), pure, mechanism, self.use, value, band)
        return None if found is None else found.repeated(times)


@lru_cache(maxsize=1024)
def _read_mechanism(description: str) -> Mechanism | None:
    return read_mechanism(json.loads(description))


def read_mechanism(description: Any) -> Mechanism | None:
    """Return the mechanism that facts describe, or None if it uses a user function that was not supplied."""
    try:
        return Mechanism.from_dict(description)
    except ParameterError:
        return None


@dataclass(frozen=True)
class Charge:
    """What one release costs: its policies, the records that it is about, and its facts.

    Attributes
    ----------
    policy, pure_policy
        The loss of a record, as PRzCDP and as PRDP; the latter is None if the release has no pure guarantee.
    by, labels, kind
        For a release about the records with certain labels of a column: that column, the labels, and their type (text,
        whole numbers…).
    protects
        The column that identifies the entity of a record, or None if single records are protected.
    facts
        The facts of the release, which a ledger writes. None: the facts that follow from the charge.
    pure_columns
        The PRDP policies of the columns that have one. Given only if the columns have independent noise: each column
        may then be counted as pure or as PRzCDP. None if that is not known.
    tables
        The number of tables with independent noise. An entity may be in different cells of each.
    derived
        How each derived column is computed, in a normal form. All charges of an account must agree on it.
    largest
        The largest values, by column: the release refuses records or totals above them. They follow from the facts.
    mechanisms
        The mechanism of each term of the policy, as JSON, or None. They follow from the facts; () if they have none.
    uses
        How the values of a record enter each term of the policy. They follow from the facts, too.

    >>> from slowscale import Gaussian
    >>> charge = Charge(RecordPolicy((("emp", Gaussian(sigma=10).policy),)))
    >>> Charge.from_facts(charge.written) == charge
    True
    """

    policy: RecordPolicy
    pure_policy: RecordPolicy | None = None
    _: KW_ONLY
    by: str | None = None
    labels: tuple[Any, ...] = ()
    kind: str | None = None
    protects: str | None = None
    facts: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    pure_columns: RecordPolicy | None = None
    tables: int = 1
    derived: Mapping[str, str] = field(default_factory=dict, hash=False)
    largest: Mapping[str, Value] = field(default_factory=dict, hash=False)
    mechanisms: tuple[str | None, ...] = field(default=(), compare=False, repr=False)
    uses: tuple[Use, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.policy.terms and not self.policy.parallel:
            raise ParameterError("policy", "must have at least one term", code="empty")
        if self.policy.notion != ZCDP:
            given = Shown(f"a {self.policy.notion} policy")
            raise ParameterError("policy", allowed="PRzCDP", given=given, remedy="convert it with .to_zcdp()")
        texts = {"by": self.by, "kind": self.kind, "protects": self.protects}
        if wrong := [name for name, text in texts.items() if not isinstance(text, str | None)]:
            raise ParameterTypeError(wrong[0], allowed="text or None", given=type(texts[wrong[0]]))
        spellings: dict[str, str] = {}
        for name in self.policy.columns:
            other = spellings.setdefault(folded(name), name)
            if other != name:
                raise ParameterError(
                    f"columns {other!r} and {name!r}",
                    "have the same name for the ledger, so that their losses would be confused",
                    code="duplicate",
                    remedy="give one of them another name",
                )
        if (self.by is None) != (not self.labels) or not all(isinstance(label, str | int) for label in self.labels):
            raise ParameterError(
                "labels",
                "must be text or whole numbers, and given together with `by`, a column",
                code="labels",
                given=Shown(f"by={self.by!r} and {len(self.labels)} labels"),
            )
        if not all(isinstance(text, str) for pair in self.derived.items() for text in pair):
            raise ParameterTypeError("derived", allowed="a mapping of columns to text")
        pure = self.pure_columns
        if pure is not None:
            # With as many terms for a column as the policy has, no term of it is left out.
            found, wanted = (Counter(column for column, _ in one.terms) for one in (pure, self.policy))
            if pure.notion != PURE or pure.parallel or any(wanted[name] != count for name, count in found.items()):
                raise ParameterError(
                    "pure_columns",
                    "must have PRDP policies only, and for each of its columns as many terms as `policy` has",
                    code="mismatch",
                )
        if self.facts is not None and self.facts.get("protect") != self.protects:
            raise ParameterError(
                "facts['protect']",
                f"must equal `protects`, {self.protects!r}",
                code="mismatch",
                given=self.facts.get("protect"),
            )
        if self.facts is not None:
            object.__setattr__(self, "largest", check_largest(self.facts.get("largest"), "facts['largest']"))
        if self.facts is not None and not self.mechanisms:
            known = _terms_in(self.facts, self.policy.terms)
            object.__setattr__(self, "mechanisms", tuple(mechanism for mechanism, _ in known))
            if not self.uses:
                object.__setattr__(self, "uses", tuple(use for _, use in known))
        if len(self.uses) != len(self.policy.terms):
            object.__setattr__(self, "uses", tuple(self._unknown_use(name) for name, _ in self.policy.terms))

    @staticmethod
    def from_facts(
        facts: Mapping[str, Any],
        *,
        by: str | None = None,
        labels: tuple[str | int, ...] = (),
        kind: str | None = None,
        derived: Mapping[str, str] | None = None,
    ) -> "Charge":
        """Return the charge of a release from its facts, which include its "policy" and "pure_policy".

        Parameters
        ----------
        facts
            The facts of a release.
        by, labels, kind, derived
            As for a charge.
        """
        check_facts(facts)
        tables = facts.get("tables")
        drawn = [one for one in tables.values() if one.get("rollup") is None] if isinstance(tables, Mapping) else []
        return Charge(
            *read_policies(facts),
            by=by,
            labels=tuple(labels),
            kind=kind,
            protects=facts.get("protect"),
            facts=facts,
            pure_columns=read_if_any(facts, "pure_columns"),
            tables=max(1, len(drawn)),
            derived={} if derived is None else derived,
        )

    def _unknown_use(self, column: str | None) -> Use:
        """Return how values enter a term, if that is not known."""
        derived = column is not None and folded(column) in map(folded, self.derived)
        reads = (ANY,) if derived else ()
        return Use("" if column is None else folded(column), reads, not derived, entity=self.protects is not None)

    def band_policy(self, band: Band | float = BAND) -> RecordPolicy:
        """Return the loss of a record between its values and others within a band.

        Parameters
        ----------
        band
            The band, or its factor, above 1: all released values may then change.
        """
        if not isinstance(band, Band):
            band = Band.of(band, self.uses)
        return band_policy(self.policy, self.uses, band)

    @property
    def written(self) -> dict[str, Any]:
        """The facts that a ledger writes."""
        if self.facts is not None:
            check_facts(self.facts)
            return dict(self.facts)
        pure = None if self.pure_policy is None else self.pure_policy.to_dict()
        facts: dict[str, Any] = {"policy": self.policy.to_dict(), "pure_policy": pure, "protect": self.protects}
        if self.largest:
            facts["largest"] = dict(self.largest)
        return facts if self.pure_columns is None else {**facts, "pure_columns": self.pure_columns.to_dict()}

    @property
    def pieces(self) -> list[Piece]:
        """The parts with independent noise: each column, if that is known of the columns, or else the whole release."""
        if self.policy.parallel or not (self.mechanisms or self.pure_columns is not None):
            return [Piece(self.policy, self.pure_policy)]
        pures: dict[str | None, list[RecordPolicy]] = {}
        for term in getattr(self.pure_columns or self.pure_policy, "terms", ()):
            pures.setdefault(term[0], []).append(RecordPolicy((term,)))
        return [
            Piece(RecordPolicy((term,)), pures[term[0]].pop(0) if pures.get(term[0]) else None, mechanism, use)
            for term, mechanism, use in zip(self.policy.terms, self.mechanisms or repeat(None), self.uses, strict=False)
        ]


def _terms_in(facts: Mapping[str, Any], terms: tuple[Term, ...]) -> tuple[tuple[str | None, Use], ...]:
    """Return the mechanism of each term of a policy, as JSON, and its use; () if facts do not describe all of them.

    Tables and columns are in any order, so each term is found in the policies of the drawn tables. A term without a
    column is that of the one column that no term names, in which every record counts as 1, or that of quantiles.
    """
    known: dict[str, list[tuple[str | None, Use]]] = {}
    try:
        for table in [table for table in facts["tables"].values() if table.get("rollup") is None]:
            described = _column_terms(table.get("policy") or facts["policy"])
            columns = dict(table.get("columns") or {})
            unnamed = set(columns) - {term["column"] for term in described}
            for term in described:
                name = next(iter(unnamed), None) if term["column"] is None else term["column"]
                mechanism = columns[name]["mechanism"] if columns else None
                text = None if mechanism is None else json.dumps(mechanism, sort_keys=True)
                use = Use.of(table, name if columns else None, facts.get("protect") is not None)
                known.setdefault(json.dumps(term, sort_keys=True), []).append((text, use))
        found = tuple(known[json.dumps(term, sort_keys=True)].pop(0) for term in _column_terms(facts["policy"]))
    except (KeyError, IndexError, TypeError, AttributeError):  # facts are whatever was charged with them
        return ()
    return found if len(found) == len(terms) else ()


def _column_terms(description: Any) -> list[Any]:
    return [term for term in description if "filtered" not in term]


def check_facts(facts: Any) -> None:
    """Raise unless facts have a policy that can be written to a ledger."""
    if not isinstance(facts, Mapping):
        raise ParameterTypeError("facts", allowed='a mapping with a "policy"', given=facts)
    if facts.get("policy") is None:
        raise ParameterError(
            "facts",
            "must have a policy that can be written to a ledger: one with a user-given function cannot",
            code="not-written",
            remedy="declare a registered mechanism for it, or release without a ledger",
        )


# The exposure of a record: parts with independent noise, each with the number of its releases.
Pieces = tuple[tuple[Piece, int], ...]


@dataclass(frozen=True)
class Spent(RecordPolicy):
    """The total loss of a record through all releases so far. Call it on a record, or print it.

    Attributes
    ----------
    releases
        The number of releases.
    protects
        The column that identifies the entity of a record, or None if single records are protected.
    pure_policy
        The same loss as PRDP, or None if a release has no pure guarantee.
    pieces
        The pieces that the total consists of, for each combination of parts that a record may be in. Empty if there are
        too many combinations, or if the pieces are not known.
    tables
        The number of tables with independent noise, which may be larger than that of releases: one release may be of a
        set of tables.
    charges, times
        The charges that the total is the sum of, and the factor of the band.
    largest
        The largest values, by column, up to which losses are shown: no release so far allowed larger ones.
    """

    releases: int = 0
    protects: str | None = None
    pure_policy: RecordPolicy | None = None
    pieces: tuple[Pieces, ...] = ()
    tables: int = 0
    charges: tuple[Charge, ...] = field(default=(), compare=False, repr=False)
    times: float = field(default=BAND, compare=False, repr=False)
    largest: Mapping[str, Value] = field(default_factory=dict, hash=False)

    def band_policy(self, times: float | None = None) -> RecordPolicy:
        """Return the total loss between a record's values and others within a factor: all released values.

        The factor is that of the ledger, unless another one is given.
        """
        band = self._band(times)
        # A label that may change with the values does not tell the part that a record is in.
        charges = [replace(one, by="") if one.by and band.touches([folded(one.by)]) else one for one in self.charges]
        return _composed([(charge, charge.band_policy(band)) for charge in charges])

    def _band(self, times: float | None) -> Band:
        uses = [use for charge in self.charges for use in charge.uses]
        return Band.of(self.times if times is None else times, uses)

    def entity(self, cells: Sequence[Record]) -> float:
        """Return the loss of an entity through one release; several releases may have different cells."""
        if self.releases > 1:
            raise ParameterError(
                "cells",
                allowed="those of one release",
                given=Shown(f"{self.releases} releases"),
                remedy="add up release.policy.entity(cells) over the releases, each with its cells",
            )
        if self.tables > 1:
            raise ParameterError(
                "cells",
                allowed="those of one table",
                given=Shown(f"{self.tables} drawn tables"),
                remedy='use release.entity({"table": cells, …}), each table with its cells',
            )
        return super().entity(cells)

    def __str__(self) -> str:
        return self.describe()

    def _repr_html_(self) -> str:
        return html_text(str(self))

    def describe(self, sizes: SizesLike = (), width: int | None = None) -> str:
        """Return as text what records of these sizes may have lost. The default sizes are powers of ten.

        Parameters
        ----------
        sizes
            Example records, as in `Release.report`: {"median firm": {"emp": 12}, "largest firm": 4e10}, or numbers such
            as [100, 1e6].
        width
            The most letters in a line of the table, where it has several columns.
        """
        stated = read_sizes(sizes) if len(sizes) else ()
        if not self.releases:
            return "No release has been charged to this account yet."
        thing = "record" if self.protects is None else self.protects
        size = "its size" if self.protects is None else "its total in a cell, and adds up over its cells"
        amounts = [column for column in self.columns if column != COUNT]
        bounds = {column: value_of(self.largest, column) for column in self.columns}
        derived = default_sizes([(self.column(column), None) for column in amounts], bounds)
        shown = stated or (derived if amounts or not self.columns else NUMBERS_OF_RECORDS)
        lines = [
            f"{self.releases} {'release' if self.releases == 1 else 'releases'} so far.",
            f"The total loss of a {thing} depends on {size}. In PRzCDP, column by column:"
            if self.columns
            else f"Every {thing} may have lost the same.",
        ]
        for column in self.columns:
            policy = self.column(column)
            losses = [
                f"{at_most(policy(value))} at {one.describe(column)}"
                for one in sizes_in(column, shown)
                if (value := one.value(column)) is not None
            ]
            lines.append(f"  {column}: {', '.join(losses) or 'no size is stated'}")
        counts = self.column(None)(0)
        if counts:
            how = "being counted or ranked" if self.column(None).by_rank else "being counted"
            lines.append(f"  {how}: {at_most(counts)} for every record")
        known = [(one.name, found) for one in shown if (found := self.explain(one)) is not None]
        if known:
            named = known if self.columns else [("every record", known[0][1])]
            lines += ["All columns together:", *as_lines(named, thing, self.protects is not None, self.times, width)]
        else:
            lines.append("No size has a value for every column, so totals over the columns are not shown.")
        lines += assumed_count(self.protects, self.columns, shown)
        if amounts and all(bounds[column] is not None for column in amounts):
            lines.append(f"Releases refused larger values: {in_words(self.largest)}.")
        elif self.columns and not stated:
            lines.append("These sizes follow from the policies, not from the records: the largest may be larger.")
        if self.pure_policy is not None:
            lines.append(f"There is also a pure guarantee (PRDP): {self.pure_policy}")
        return "\n".join(lines)

    def explain(self, size: RecordSize, times: float | None = None) -> Explanation | None:
        """Return the total loss of an example record and its meaning, or None if a column has no value.

        If some releases are about parts of the records, it is the worst case over the parts that a record may be in.
        The band has the factor `times`, or that of the ledger.
        """
        record = size.record(self.columns)
        if record is None:
            return None
        band = self._band(times)
        with np.errstate(all="ignore"):
            pieces = self.pieces or (((Piece(self, self.pure_policy), 1),),)
            return worst(
                [
                    explain(
                        [piece.loss(record, count) for piece, count in some],
                        [piece.between(record, band, count) for piece, count in some],
                    )
                    for some in pieces
                ]
            )


MOST_COMBINATIONS = 16  # of parts that a record may be in, for which pieces are kept apart


def total_of(charges: list[Charge], times: float = BAND, largest: Mapping[str, Value] | None = None) -> Spent:
    """Return the total loss of a record through all charges, for bands with a factor and up to the largest values."""
    pures = [(charge, charge.pure_policy) for charge in charges if charge.pure_policy is not None]
    pure = _composed(pures) if charges and len(pures) == len(charges) else None
    total = _composed([(charge, charge.policy) for charge in charges])
    protects = charges[0].protects if charges else None
    tables = sum(charge.tables for charge in charges)
    return Spent(
        total.terms,
        total.parallel,
        total.filtered,
        releases=len(charges),
        protects=protects,
        pure_policy=pure,
        pieces=_pieces(charges),
        tables=tables,
        charges=tuple(charges),
        times=times,
        largest=_largest_of_all(total.columns, charges, largest or {}),
    )


def _largest_of_all(
    columns: Sequence[str], charges: Sequence[Charge], largest: Mapping[str, Value]
) -> dict[str, Value]:
    """Return the largest value that is allowed now, or was allowed in a charge, by column, if there always was one."""
    found: dict[str, Value] = {}
    for column in columns:
        allowed = [charge.largest for charge in charges if column in charge.policy.columns]
        values = [value_of(one, column) for one in (largest, *allowed)]
        if (known := [value for value in values if value is not None]) and len(known) == len(values):
            found[column] = max(known, key=exact)
    return found


def _composed(charges: list[tuple[Charge, RecordPolicy]]) -> RecordPolicy:
    """Return the policy of all charges: those about labels of a column compose in parallel, the rest in sequence."""

    def in_sequence(policies: list[RecordPolicy], parallel: Sequence[Parallel] = ()) -> RecordPolicy:
        terms = tuple(term for policy in policies for term in policy.terms)
        inner = tuple(one for policy in policies for one in policy.parallel)
        return RecordPolicy(terms, (*inner, *parallel), any(policy.filtered for policy in policies))

    parts: dict[str, dict[Any, list[RecordPolicy]]] = {}
    for charge, policy in charges:
        for label in charge.labels:
            parts.setdefault(charge.by or "", {}).setdefault(label, []).append(policy)
    parallel = [
        Parallel(by, tuple((label, in_sequence(policies)) for label, policies in found.items()))
        for by, found in parts.items()
    ]
    total = in_sequence([policy for charge, policy in charges if charge.by is None], parallel)
    bands = {policy.band for _, policy in charges} or {None}
    return replace(total, filtered=any(policy.filtered for _, policy in charges), band=bands.pop())


def _pieces(charges: list[Charge]) -> tuple[Pieces, ...]:
    """Return the exposure of a record, for each combination of parts; () if there are too many."""
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
