"""Charges: what one release costs, as one value that accounts, ledgers and refusals take."""

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
    """What one release costs: its policies, which records it is about, and what is known of it.

    Attributes
    ----------
    policy, pure_policy
        What a record may lose, as PRzCDP and (or None) as PRDP.
    by, labels, kind
        Where a release is about the records with some labels of a column only: that column, the labels, and what they
        are (text, whole numbers…).
    protects
        The column that tells which records belong to one entity, or None where single records are protected.
    facts
        What a ledger writes down: the facts of the release. None for those that follow from the charge.
    pure_columns
        The PRDP policies of those columns that have one, where every column has noise of its own, independent of that
        of the others: then each column may be taken as pure or not. None where that is not known.

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

    def __post_init__(self) -> None:
        if not self.policy.terms and not self.policy.parallel:
            raise ParameterError("a charge must have a policy with at least one term")
        if self.policy.notion != ZCDP:
            raise ParameterError("a charge must have a PRzCDP policy: turn it with .to_zcdp()")
        if (self.by is None) != (not self.labels) or not all(isinstance(label, str | int) for label in self.labels):
            raise ParameterError(
                "a charge about some records must name the column and its labels: text or whole numbers"
            )
        pure = self.pure_columns
        if pure is not None and (pure.notion != PURE or pure.parallel or not _covers(pure, self.policy)):
            raise ParameterError(
                "the pure columns of a charge must have PRDP policies, as many for a column as the policy has for it"
            )
        if self.facts is not None and self.facts.get("protect") != self.protects:
            raise ParameterError(
                f'the facts of a charge must name what it protects, {self.protects!r}, as "protect"; they have '
                f"{self.facts.get('protect')!r}"
            )

    @staticmethod
    def from_facts(
        facts: Mapping[str, Any],
        by: str | None = None,
        labels: tuple[Any, ...] = (),
        kind: str | None = None,
        functions: Functions | None = None,
    ) -> "Charge":
        """Return the charge of a release with these facts, among them its "policy" and "pure_policy".

        Parameters
        ----------
        facts
            What is asked: the facts of a release.
        by, labels, kind
            As in a charge.
        functions
            User-given transformations by name, where policies use any.
        """
        check_facts(facts)
        policies, columns = read_policies(facts, functions), read_pure_columns(facts, functions)
        return Charge(*policies, by, tuple(labels), kind, facts.get("protect"), facts, columns)

    @property
    def written(self) -> dict[str, Any]:
        """The facts that a ledger writes down."""
        if self.facts is not None:
            check_facts(self.facts)
            return dict(self.facts)
        pure = None if self.pure_policy is None else self.pure_policy.to_dict()
        facts = {"policy": self.policy.to_dict(), "pure_policy": pure, "protect": self.protects}
        return facts if self.pure_columns is None else {**facts, "pure_columns": self.pure_columns.to_dict()}


def check_facts(facts: Any) -> None:
    """Raise unless facts have a policy that can be written down."""
    if not isinstance(facts, Mapping) or "policy" not in facts:
        raise ParameterTypeError('facts must be a mapping with a "policy"')
    if facts["policy"] is None:
        raise ParameterError("a nested function or lambda cannot be written to a ledger: use a module's function")


def _covers(pure: RecordPolicy, policy: RecordPolicy) -> bool:
    """Whether every column of a pure policy is one of the policy, with as many terms: none is left out of the bound."""
    found, wanted = (Counter(column for column, _ in one.terms) for one in (pure, policy))
    return all(wanted[column] == count for column, count in found.items())
