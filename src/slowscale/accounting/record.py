"""Record policies: what a whole record may lose by a release of several columns.

Each column's release is a mechanism of its own, so by sequential composition (Lemma PRzCDP-seq) the losses add: the
policy of a record is a sum of one-column policies at the record's influence on that column, which for a sum is the
absolute value. A count adds a constant: every record counts as 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from slowscale.errors import ParameterError, ParameterTypeError
from slowscale.parameters import as_array
from slowscale.policy import ConstantPolicy, Policy


@dataclass(frozen=True)
class RecordPolicy:
    """A sum of one-column policies, called on a record: a mapping of columns to values, or to arrays of values.

    >>> from slowscale import Gaussian
    >>> P = RecordPolicy((("emp", Gaussian(10).policy), ("payann", Gaussian(1000).policy)))
    >>> P({"emp": 20, "payann": 3000})
    6.5
    >>> print(P)
    emp² / (2·10²) + payann² / (2·1000²)
    """

    terms: tuple[tuple[str | None, Policy], ...]

    def __post_init__(self) -> None:
        terms = tuple((column, policy) for column, policy in self.terms)
        object.__setattr__(self, "terms", terms)
        for column, policy in terms:
            if not isinstance(policy, Policy) or not (column is None or isinstance(column, str)):
                raise ParameterTypeError(f"terms must be pairs of a column and a policy, got {(column, policy)!r}")
            if column is None and not isinstance(policy, ConstantPolicy):
                raise ParameterTypeError(f"a term without a column must be constant, got {policy!r}")
        if len({policy.notion for _, policy in terms}) > 1:
            raise ParameterError("PRDP and PRzCDP policies do not combine: turn the PRDP ones with .to_zcdp() first")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the loss depends on."""
        return tuple(dict.fromkeys(column for column, _ in self.terms if column is not None))

    def __call__(self, record: Mapping[str, Any]) -> Any:
        """Return the loss of a record with these values, or of several given as arrays of one length."""
        if not isinstance(record, Mapping):
            raise ParameterTypeError(f"record must be a mapping of columns to values, got {type(record).__name__}")
        missing = [column for column in self.columns if column not in record]
        if missing:
            raise ParameterError(f"record must have a value for {', '.join(missing)}")
        total: Any = 0.0
        values = {column: np.abs(as_array(column, record[column])) for column in self.columns}
        if len({value.shape for value in values.values() if value.ndim}) > 1:
            raise ParameterError("record must have values of one length for every column")
        for column, policy in self.terms:
            total = total + policy(values[column] if column is not None else 0)
        return total if np.ndim(total) else float(total)

    def __add__(self, other: object) -> "RecordPolicy":
        return RecordPolicy(self.terms + other.terms) if isinstance(other, RecordPolicy) else NotImplemented

    def __str__(self) -> str:
        texts = [policy._text(column or "") for column, policy in self.terms]
        bracketed = [f"({text})" if " with " in text and len(texts) > 1 else text for text in texts]
        return " + ".join(bracketed) or "0"

    def to_dict(self) -> list[dict[str, Any]]:
        """Return a description that `from_dict` turns back, and JSON can hold."""
        return [{"column": column, "policy": policy.to_dict()} for column, policy in self.terms]

    @staticmethod
    def from_dict(description: Any, functions: Any = None) -> "RecordPolicy":
        """Return the record policy that `to_dict` described."""
        try:
            return RecordPolicy(
                tuple((term["column"], Policy.from_dict(term["policy"], functions)) for term in description)
            )
        except (TypeError, KeyError) as error:
            raise ParameterError(f"no description of a record policy: {error}") from None
