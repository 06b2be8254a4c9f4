"""Record policies: what a whole record may lose, over several columns and several releases.

Each column is released by its own mechanism, so the losses add by sequential composition (Lemma PRzCDP-seq): the policy
of a record is a sum of one-column policies, each at the record's influence on its column. For a sum, the influence is
the absolute value of the record. A count adds a constant, because every record counts as 1. Releases about disjoint
sets of records compose in parallel (Lemma PRzCDP-par): a record loses only through the releases that it is part of.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from typing import Any, overload

import numpy as np

from slowscale.core.errors import ParameterError, ParameterTypeError, Shown
from slowscale.core.markup import html_text
from slowscale.core.parameters import Array, as_array, check_flag
from slowscale.core.typing import ArrayLike, Label, Record, Scalar, TableLike
from slowscale.policy import ZCDP, ConstantPolicy, MaxPolicy, Policy, SumPolicy
from slowscale.policy.bounded import BoundedPolicy, check_band
from slowscale.policy.tree import Disjoint, Formula, Number, Sum, Symbol
from slowscale.policy.writing import text

Term = tuple[str | None, Policy]
COUNT = "count"  # the name of the number of records
ANY = "*"  # the name of the cap on all columns without a separate cap
# Invisible characters outside Unicode's category of format characters (Cf): fillers and variation selectors.
INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")


def folded(name: str) -> str:
    """Return the form of a column's name that accounts compare: " EMP" and "emp" share one cap and one total.

    Case, surrounding whitespace, invisible characters and Unicode's compatibility forms (NFKC) make no difference.
    Similar letters of different scripts stay different.
    """
    compatible = unicodedata.normalize("NFKC", name)
    visible = "".join(letter for letter in compatible if unicodedata.category(letter) != "Cf")
    # Case folding and the removal of characters can separate a letter from its accent, so normalize again.
    return unicodedata.normalize("NFKC", INVISIBLE.sub("", visible).casefold()).strip()


def check_column_name(name: str) -> None:
    """Raise if the name of a summed column is reserved: "count" for the number of records, "*" for a cap."""
    reserved = {COUNT: "the number of records", ANY: "all columns without a separate cap"}
    meaning = reserved.get(folded(name))
    if meaning is not None:
        raise ParameterError(
            f"column {name!r}",
            f"cannot be summed: the name {folded(name)!r} stands for {meaning} (case, surrounding whitespace and "
            "invisible characters are ignored)",
            code="reserved",
            remedy="derive a column with another name",
        )


@dataclass(frozen=True)
class Parallel:
    """Policies of releases about disjoint sets of records, which are identified by the value of the column `by`."""

    by: str
    parts: tuple[tuple[Any, "RecordPolicy"], ...]


@dataclass(frozen=True)
class RecordPolicy:
    """A sum of one-column policies. Call it on a record: a mapping of columns to values, or to arrays of values.

    >>> from slowscale import Gaussian
    >>> P = RecordPolicy((("emp", Gaussian(sigma=10).policy), ("payann", Gaussian(sigma=1000).policy)))
    >>> P({"emp": 20, "payann": 3000})
    6.5
    >>> print(P)
    emp² / (2·10²) + payann² / (2·1000²)

    Attributes
    ----------
    terms
        Pairs of a column and its policy; the column is None for the number of records.
    parallel
        Releases about disjoint sets of records.
    filtered
        Whether a release has a filter, so that a change of value may move a record into or out of the release.
    band
        The factor of the band, if the losses are those between values within a band. None: those of presence.
    """

    terms: tuple[Term, ...]
    parallel: tuple[Parallel, ...] = ()
    filtered: bool = False
    band: float | None = None

    def __post_init__(self) -> None:
        try:
            terms = tuple((column, policy) for column, policy in self.terms)
        except (TypeError, ValueError):
            raise ParameterTypeError("terms", allowed="pairs of a column and a policy", given=self.terms) from None
        object.__setattr__(self, "terms", terms)
        check_flag("filtered", self.filtered)
        for column, policy in terms:
            if not isinstance(policy, Policy) or not (column is None or isinstance(column, str)):
                raise ParameterTypeError("terms", allowed="pairs of a column and a policy", given=(column, policy))
            if column is None and not policy.constant:
                raise ParameterTypeError("a term without a column", allowed="a constant policy", given=policy)
        if len({policy.notion for _, policy in terms} | {part.notion for part in self._parts()} - {""}) > 1:
            raise ParameterError(
                "terms",
                allowed="policies of one notion",
                given=Shown("PRDP and PRzCDP"),
                remedy="convert the PRDP policies with .to_zcdp()",
            )

    def _parts(self) -> list["RecordPolicy"]:
        return [part for parallel in self.parallel for _, part in parallel.parts]

    @property
    def notion(self) -> str:
        """The privacy notion of the losses, or "" if nothing was released."""
        return next((policy.notion for _, policy in self.terms), next((part.notion for part in self._parts()), ""))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the loss depends on."""
        named = [column for column, _ in self.terms if column is not None]
        return tuple(dict.fromkeys(named + [column for part in self._parts() for column in part.columns]))

    @overload
    def __call__(self, record: Record) -> float: ...

    @overload
    def __call__(self, record: Mapping[str, Scalar | Label | ArrayLike] | TableLike) -> float | Array: ...

    def __call__(self, record: Mapping[str, Scalar | Label | ArrayLike] | TableLike) -> float | Array:
        """Return the loss of a record with these values, or of several records given as arrays or as a table.

        If releases were made in parallel, the loss is that of the record's own part if the label is given, and
        otherwise the largest of all parts.
        """
        values = _influences(record, self.columns)
        total: Any = 0.0
        for column, policy in self.terms:
            total = total + policy(values[column] if column is not None else 0)
        for parallel in self.parallel:
            losses: list[Any] = [part(record) for part in _possible_parts(parallel, record)]
            total = total + (np.max(losses, axis=0) if losses else 0.0)
        return total if np.ndim(total) else float(total)

    def column(self, name: str | None) -> Policy:
        """Return the loss of a record through one column (None: counts), as a function of its influence."""
        if name is not None and name not in self.columns:
            raise ParameterError(
                "name",
                "is not a column that the loss depends on",
                code="unknown-column",
                given=name,
                remedy=f"give one of {', '.join((*self.columns, 'None'))}; None stands for counts",
            )
        return self._column(name)

    def _column(self, name: str | None) -> Policy:
        """Return the loss of a record through one column: 0 through a column that is not released."""
        policies = [policy for column, policy in self.terms if column == name]
        for parallel in self.parallel:
            parts = [part._column(name) for _, part in parallel.parts]
            policies.append(MaxPolicy(tuple(parts)) if len(parts) > 1 else parts[0])
        if not policies:
            return ConstantPolicy(0.0, self.notion or ZCDP)
        merged = [times * policy for policy, times in Counter(policies).items()]
        return merged[0] if len(merged) == 1 else SumPolicy(tuple(merged))

    def bounded(self, record: Record, other: Record, same_cell: bool = False) -> float:
        """Return the loss between two sets of values that a record may have, if its presence is known.

        Parameters
        ----------
        record, other
            The value of each column, and the alternative values. Both may have the label of a partition, too.
        same_cell
            Whether both surely fall in the same cell of every table. If not, the record may leave one cell and enter
            another. The noise of the cells is independent, so their losses add. If the labels of a partition differ,
            the cells do, whatever is given here.

        Notes
        -----
        Under a filter, the record may be part of the release with only one of the two sets of values. That amounts to
        removing the record: term by term, and for counts, the loss is then at least the loss of either set.
        """
        check_flag("same_cell", same_cell)
        if not same_cell or self._in_different_parts(record, other):
            # Quantiles have one noise for all records, so that their losses do not just add.
            return float(self(record) + self(other)) + self._change_of_ranks()
        return self._bounded(record, other, self.filtered)

    def _in_different_parts(self, record: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        """Whether two records have different labels in a column that splits the records into parts."""
        labels = [[plain_label(one[by.by]) for one in (record, other) if by.by in one] for by in self.parallel]
        return any(len(both) == 2 and both[0] != both[1] for both in labels) or any(
            part._in_different_parts(record, other) for part in self._parts()
        )

    def _change_of_ranks(self) -> float:
        """Return by how much a change of value costs more than twice the loss, through all quantiles."""
        ranks = [policy for _, policy in self.terms if policy.by_rank]
        own = sum(max(0.0, float(BoundedPolicy(policy)(0.0, 0.0)) - 2 * float(policy(0))) for policy in ranks)
        return own + sum(max(part._change_of_ranks() for _, part in one.parts) for one in self.parallel)

    def _bounded(self, record: Mapping[str, Any], other: Mapping[str, Any], filtered: bool) -> float:
        both = [_influences(values, self.columns, signed=True) for values in (record, other)]
        if any(value.ndim for values in both for value in values.values()):
            raise ParameterTypeError(
                "the values of `record` and `other`", allowed="one value for each column", given=Shown("arrays")
            )
        total = 0.0
        for column, policy in self.terms:
            first, second = (0.0 if column is None else float(values[column]) for values in both)
            # While the record stays in the release, a count does not change.
            unseen = column is None and not policy.by_rank
            loss = 0.0 if unseen else float(BoundedPolicy(policy)(first, second))
            total += max(loss, policy(abs(first)), policy(abs(second))) if filtered else loss
        for one in self.parallel:
            # If only one of the two has a label, the other one has the same: they are in the same cell.
            parts = _possible_parts(one, {**other, **record})
            total += max((part._bounded(record, other, filtered or part.filtered) for part in parts), default=0.0)
        return total

    def entity(self, cells: Sequence[Record]) -> float:
        """Return the loss of an entity with several records, from its total in each cell of the published table.

        Removing the entity shifts each cell by the entity's total there. Cells have independent noise, so the losses
        add over cells. Each cell is a mapping of columns to totals, with the number of records as "count".
        """
        is_list = isinstance(cells, Iterable) and not isinstance(cells, Mapping)
        if not is_list or not all(isinstance(cell, Mapping) for cell in cells):
            raise ParameterTypeError(
                "cells", allowed="a list of mappings, one per cell that the entity is in", given=cells
            )
        total = float(sum(self._in_cell(cell) for cell in cells))
        # Quantiles have one noise for all records, so that all records of the entity shift a rank together.
        count = sum(_count_of(cell) for cell in cells) if any(policy.by_rank for _, policy in self.terms) else 0
        ranked = (policy for _, policy in self.terms if policy.by_rank)
        return total + sum(policy(0) * (count**2 if policy.notion == ZCDP else count) for policy in ranked)

    def _in_cell(self, cell: Mapping[str, Any]) -> float:
        values = _influences(cell, self.columns)
        for name, value in values.items():
            if value.ndim:
                raise ParameterTypeError(f"{name!r} in `cells`", allowed="one number", given=cell[name])
        total = 0.0
        for column, policy in self.terms:
            if column is not None:
                total += policy(float(values[column]))
                continue
            if policy.by_rank:
                continue
            count = _count_of(cell)
            # Removing n records shifts a count by n: the loss is at most n² times that of one record, n times for PRDP.
            total += policy(0) * (count**2 if policy.notion == ZCDP else count)
        return total + sum(max(part._in_cell(cell) for _, part in one.parts) for one in self.parallel)

    def __add__(self, other: object) -> "RecordPolicy":
        if not isinstance(other, RecordPolicy):
            return NotImplemented
        band = self._common_band(other)
        return RecordPolicy(
            self.terms + other.terms, self.parallel + other.parallel, self.filtered or other.filtered, band
        )

    def _common_band(self, other: "RecordPolicy") -> float | None:
        """Return the factor of both bands, or None; losses of presence and of a band do not add up."""
        if self.band != other.band:
            raise ParameterError(
                "policies",
                "of presence, of a band and of another band do not combine",
                code="mismatch",
                remedy="combine policies of presence, or those of one band",
            )
        return self.band

    def __or__(self, other: object) -> "RecordPolicy":
        """Return the policy of two releases about disjoint sets of records."""
        if not isinstance(other, RecordPolicy):
            return NotImplemented
        parts = Parallel("", ((0, self), (1, other)))
        return RecordPolicy((), (parts,), self.filtered or other.filtered, self._common_band(other))

    def renamed(self, names: Mapping[str, str]) -> "RecordPolicy":
        """Return the policy with other names for some columns."""
        parallel = tuple(
            Parallel(names.get(one.by, one.by), tuple((label, part.renamed(names)) for label, part in one.parts))
            for one in self.parallel
        )
        terms = tuple((column and names.get(column, column), policy) for column, policy in self.terms)
        return RecordPolicy(terms, parallel, self.filtered, self.band)

    def __str__(self) -> str:
        return text(self.formula())

    def _repr_html_(self) -> str:
        return html_text(str(self))

    def formula(self) -> Formula:
        """Return the loss of a record as a tree, in which the names of the columns stand for its values."""
        merged = [(column, times * policy) for (column, policy), times in Counter(self.terms).items()]
        terms = [policy.formula(Symbol(column or "")) for column, policy in merged]
        terms += [Disjoint(tuple(part.formula() for _, part in one.parts), one.by) for one in self.parallel]
        if not terms:
            return Number(0)
        return terms[0] if len(terms) == 1 else Sum(tuple(terms))

    def to_dict(self) -> list[dict[str, Any]]:
        """Return a description that JSON can represent and `from_dict` can read."""
        terms: list[dict[str, Any]] = [{"column": column, "policy": policy.to_dict()} for column, policy in self.terms]
        for parallel in self.parallel:
            parts = [{"label": label, "policy": part.to_dict()} for label, part in parallel.parts]
            terms.append({"by": parallel.by, "parts": parts})
        terms += [{"filtered": True}] if self.filtered else []
        return [*terms, {"band": self.band}] if self.band is not None else terms

    @staticmethod
    def from_dict(description: Iterable[Mapping[str, Any]]) -> "RecordPolicy":
        """Return the record policy that `to_dict` described."""
        terms, parallel, filtered, band = [], [], False, None
        try:
            for term in description:
                if "filtered" in term:
                    filtered = term["filtered"]
                    if filtered is False:  # it is written only if there is a filter
                        raise ParameterError('"filtered"', allowed="true where it is written", given=False)
                elif "band" in term:
                    band = check_band(term["band"])
                elif "by" in term:
                    parts = [(part["label"], RecordPolicy.from_dict(part["policy"])) for part in term["parts"]]
                    parallel.append(Parallel(term["by"], tuple(parts)))
                else:
                    terms.append((term["column"], Policy.from_dict(term["policy"])))
        except (TypeError, KeyError) as error:
            raise ParameterError(
                "description", allowed="one that RecordPolicy.to_dict returned", given=Shown(type(error).__name__)
            ) from None
        return RecordPolicy(tuple(terms), tuple(parallel), filtered, band)


def _count_of(cell: Mapping[str, Any]) -> int:
    """Return the number of records that an entity has in a cell."""
    count = cell.get(COUNT)
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ParameterError('the "count" of `cells`', allowed="a number of records, a whole number", given=count)
    return count


def read_policies(facts: Mapping[str, Any]) -> tuple[RecordPolicy, RecordPolicy | None]:
    """Return the policy and the pure policy (or None) that the facts of a release describe."""
    return RecordPolicy.from_dict(facts["policy"]), read_if_any(facts, "pure_policy")


def read_if_any(facts: Mapping[str, Any], name: str) -> RecordPolicy | None:
    """Return a policy that the facts of a release describe, or None if they have none of this name."""
    described = facts.get(name)
    return None if described is None else RecordPolicy.from_dict(described)


def plain_label(label: Any) -> str | int | bool:
    """Return a label as it is written to a ledger; dates become text."""
    if isinstance(label, np.datetime64):
        label = label.astype("datetime64[us]")
    label = label.item() if isinstance(label, np.generic) else label
    if isinstance(label, datetime) and label.time() == time() and label.tzinfo is None:
        label = label.date()
    return label if isinstance(label, str | int) else str(label)


def _influences(record: Any, columns: Sequence[str], signed: bool = False) -> dict[str, Any]:
    """Return the influences of a record, or of a table's records, on each column."""
    if hasattr(record, "column_names"):  # an Arrow table
        record = {name: record[name].to_numpy() for name in record.column_names if name in columns}
    elif hasattr(record, "columns") and hasattr(record, "__getitem__"):  # a pandas or polars frame
        record = {name: record[name].to_numpy() for name in record.columns if name in columns}
    if not isinstance(record, Mapping):
        raise ParameterTypeError("record", allowed="a mapping of columns to values, or a table", given=type(record))
    missing = [column for column in columns if column not in record]
    if missing:
        raise ParameterError(
            "record",
            f"must have a value for {', '.join(missing)}",
            code="missing",
            given=Shown(f"values for {', '.join(map(str, record)) or 'none'}"),
        )
    values = {column: as_array(column, record[column]) for column in columns}
    if not signed:
        values = {column: np.abs(value) for column, value in values.items()}
    if len({value.shape for value in values.values() if value.ndim}) > 1:
        raise ParameterError("record", "must have the same number of values for every column", code="mismatch")
    return values


def _possible_parts(parallel: Parallel, record: Any) -> list[RecordPolicy]:
    """Return the parts that a record may be in: the one that its label names or, without a label, all of them."""
    label = record.get(parallel.by) if isinstance(record, Mapping) else None
    if label is not None and np.ndim(label) == 0:
        own = plain_label(label)
        found = [part for name, part in parallel.parts if type(name) is type(own) and name == own]
        known = not isinstance(label, datetime | np.datetime64)  # a time of day is not a label: it may be any
        if found or (known and any(type(name) is type(own) for name, _ in parallel.parts)):
            return found
    return [part for _, part in parallel.parts]
