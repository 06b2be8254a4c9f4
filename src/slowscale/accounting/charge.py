"""Charges: what one release costs, as one value that accounts, ledgers and refusals use."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slowscale.accounting.record import RecordPolicy, folded, read_if_any, read_policies
from slowscale.core.errors import ParameterError, ParameterTypeError
from slowscale.policy import PURE, ZCDP


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
    derived
        How each column that is not stored is computed, in a normal form. All charges of an account must agree on it.

    >>> from slowscale import Gaussian
    >>> charge = Charge(RecordPolicy((("emp", Gaussian(sigma=10).policy),)))
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
    derived: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not self.policy.terms and not self.policy.parallel:
            raise ParameterError("a charge must have a policy with at least one term, got an empty one")
        if self.policy.notion != ZCDP:
            raise ParameterError(
                f"a charge must have a PRzCDP policy, got a {self.policy.notion} policy; convert it with .to_zcdp()"
            )
        texts = {"by": self.by, "kind": self.kind, "protects": self.protects}
        if wrong := [name for name, text in texts.items() if not isinstance(text, str | None)]:
            raise ParameterTypeError(f"{wrong[0]} must be text or None, got {type(texts[wrong[0]]).__name__}")
        spellings: dict[str, str] = {}
        for name in self.policy.columns:
            other = spellings.setdefault(folded(name), name)
            if other != name:
                raise ParameterError(
                    f"columns {other!r} and {name!r} have names that the ledger takes for one, so that their losses "
                    "would be confused; give one of them another name"
                )
        if (self.by is None) != (not self.labels) or not all(isinstance(label, str | int) for label in self.labels):
            raise ParameterError(
                "a charge about some of the records must have both `by`, a column, and `labels`, which are text or "
                f"whole numbers; got by={self.by!r} and {len(self.labels)} labels"
            )
        if not all(isinstance(text, str) for pair in self.derived.items() for text in pair):
            raise ParameterTypeError("derived must be a mapping of columns to text")
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
        derived: Mapping[str, str] | None = None,
    ) -> "Charge":
        """Return the charge of a release from its facts, which include its "policy" and "pure_policy".

        Parameters
        ----------
        facts
            The facts of a release.
        by, labels, kind
            As for a charge.
        derived
            As for a charge.
        """
        check_facts(facts)
        policies, columns = read_policies(facts), read_if_any(facts, "pure_columns")
        tables = _drawn_tables(facts)
        protect, derived = facts.get("protect"), {} if derived is None else derived
        return Charge(*policies, by, tuple(labels), kind, protect, facts, columns, tables, derived)

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
    if not isinstance(facts, Mapping):
        raise ParameterTypeError(f'facts must be a mapping with a "policy", got {facts!r:.60}')
    if facts.get("policy") is None:
        raise ParameterError(
            "facts must have a policy that can be written to a ledger: one with a user-given function cannot; declare "
            "a registered mechanism for it, or release without a ledger"
        )


def _drawn_tables(facts: Mapping[str, Any]) -> int:
    """Return the number of tables with independent noise that facts describe."""
    tables = facts.get("tables")
    if not isinstance(tables, Mapping):
        return 1
    return max(1, sum(table.get("rollup") is None for table in tables.values()))


def _covers(pure: RecordPolicy, policy: RecordPolicy) -> bool:
    """Whether a pure policy has, for each of its columns, as many terms as the policy: then no term is left out."""
    found, wanted = (Counter(column for column, _ in one.terms) for one in (pure, policy))
    return all(wanted[column] == count for column, count in found.items())
