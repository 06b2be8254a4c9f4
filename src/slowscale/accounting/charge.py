"""Charges: what one release costs, as one value that accounts, ledgers and refusals use."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slowscale.accounting.record import RecordPolicy, read_policies, read_pure_columns
from slowscale.errors import ParameterError, ParameterTypeError
from slowscale.policy import PURE, ZCDP

Functions = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True)
class Charge:
    """What one release costs: its policies, the records that it is about, and its facts.

    Attributes
    ----------
    policy, pure_policy
        What a record may lose, as PRzCDP and as PRDP; the latter is None if the release has no pure guarantee.
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
        The number of tables with noise of their own. An entity may be in different cells of each.

    >>> from slowscale import Gaussian
    >>> charge = Charge(RecordPolicy((("emp", Gaussian(10).policy),)))
    >>> Charge.from_facts(charge.written) == charge
    True
    """

    policy: RecordPolicy
    pure_policy: RecordPolicy | None = None
    by: str | None = None
    labels: tuple[Any, ...] = ()
    kind: str | None = None
    protects: str | None = None
    facts: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    pure_columns: RecordPolicy | None = None
    tables: int = 1

    def __post_init__(self) -> None:
        if not self.policy.terms and not self.policy.parallel:
            raise ParameterError("a charge must have a policy with at least one term, got an empty one")
        if self.policy.notion != ZCDP:
            raise ParameterError(
                f"a charge must have a PRzCDP policy, got a {self.policy.notion} policy; convert it with .to_zcdp()"
            )
        if (self.by is None) != (not self.labels) or not all(isinstance(label, str | int) for label in self.labels):
            raise ParameterError(
                "a charge about some of the records must have both `by`, a column, and `labels`, which are text or "
                f"whole numbers; got by={self.by!r} and {len(self.labels)} labels"
            )
        pure = self.pure_columns
        if pure is not None and (pure.notion != PURE or pure.parallel or not _covers(pure, self.policy)):
            raise ParameterError(
                "pure_columns must have PRDP policies only, and for each of its columns as many terms as policy has"
            )
        if self.facts is not None and self.facts.get("protect") != self.protects:
            raise ParameterError(
                f"facts['protect'] must be the same as protects, {self.protects!r}, got {self.facts.get('protect')!r}"
            )

    @staticmethod
    def from_facts(
        facts: Mapping[str, Any],
        by: str | None = None,
        labels: tuple[Any, ...] = (),
        kind: str | None = None,
        functions: Functions | None = None,
    ) -> "Charge":
        """Return the charge of a release from its facts, which include its "policy" and "pure_policy".

        Parameters
        ----------
        facts
            The facts of a release.
        by, labels, kind
            As for a charge.
        functions
            User-given transformations by name, if the policies use any.
        """
        check_facts(facts)
        policies, columns = read_policies(facts, functions), read_pure_columns(facts, functions)
        tables = _drawn_tables(facts)
        return Charge(*policies, by, tuple(labels), kind, facts.get("protect"), facts, columns, tables)

    @property
    def written(self) -> dict[str, Any]:
        """The facts that a ledger writes."""
        if self.facts is not None:
            check_facts(self.facts)
            return dict(self.facts)
        pure = None if self.pure_policy is None else self.pure_policy.to_dict()
        facts = {"policy": self.policy.to_dict(), "pure_policy": pure, "protect": self.protects}
        return facts if self.pure_columns is None else {**facts, "pure_columns": self.pure_columns.to_dict()}


def check_facts(facts: Any) -> None:
    """Raise unless facts have a policy that can be written to a ledger."""
    if not isinstance(facts, Mapping) or "policy" not in facts:
        raise ParameterTypeError(f'facts must be a mapping with a "policy", got {facts!r:.60}')
    if facts["policy"] is None:
        raise ParameterError(
            "the policy uses a nested function or a lambda, which cannot be written to a ledger; use a function that "
            "is defined at the top level of a module"
        )


def _drawn_tables(facts: Mapping[str, Any]) -> int:
    """Return the number of tables with noise of their own that facts describe: several for a set of tables."""
    described = facts.get("table_set")
    if not isinstance(described, Mapping) or not isinstance(described.get("tables"), Mapping):
        return 1
    return max(1, sum(table.get("of") is None for table in described["tables"].values()))


def _covers(pure: RecordPolicy, policy: RecordPolicy) -> bool:
    """Whether a pure policy has, for each of its columns, as many terms as the policy: then no term is left out."""
    found, wanted = (Counter(column for column, _ in one.terms) for one in (pure, policy))
    return all(wanted[column] == count for column, count in found.items())
