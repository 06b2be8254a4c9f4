"""The result of `Mechanism.release`: the noisy value with its standard error and interval."""

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from slowscale.core.numbers import rounded
from slowscale.core.parameters import lazy
from slowscale.mechanisms.grid import elementwise, floats, values
from slowscale.sampling.exact import Integers

if TYPE_CHECKING:
    from slowscale.mechanisms.base import Mechanism


@dataclass(frozen=True, eq=False)
class Noisy:
    """A released sum, or an array of released sums, with standard errors and intervals.

    Attributes
    ----------
    units
        The exact result: whole numbers of `unit` (int64 if they fit, otherwise Python integers).
    unit
        The public grid step.
    transformed
        The noisy transformed value of a transformation mechanism, on its own fine grid; None for other mechanisms.
    level
        The confidence level of the interval from `low` to `high`.
    private
        Whether the noise was drawn from secret bits. If not, this is a test result that must not be published.
    on_grid
        Whether the type of the true sums implies that they are whole units, such as counts with a unit of 1.
    """

    mechanism: "Mechanism"
    units: Any
    unit: Fraction
    transformed: Any
    level: float
    private: bool
    on_grid: bool = False
    _fine: Integers | None = None  # the transformed values in whole steps of their grid

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Noisy):
            return NotImplemented
        known = [(n.mechanism, n.unit, n.level, n.private, n.on_grid, n.single) for n in (self, other)]
        arrays = [(self.units, other.units), (self.transformed, other.transformed)]
        return known[0] == known[1] and all(np.array_equal(one, two) for one, two in arrays)

    __hash__ = None  # type: ignore[assignment]

    @lazy
    def value(self) -> Any:
        """units × unit: integers if the unit is an integer, otherwise floats."""
        return values(self.units, self.unit)

    @property
    def single(self) -> bool:
        """Whether this is a single sum, not an array."""
        return not isinstance(self.units, np.ndarray)

    @lazy
    def floats(self) -> Any:
        """units × unit as floats, infinite where the value is too large for a float."""
        return elementwise(lambda units: floats(units, self.unit), self.units)

    @lazy
    def se(self) -> Any:
        """The standard error, rounding included.

        For additive noise it is the same for all sums. For a transformation it is the standard deviation at the median
        estimate of the sum, which is as likely too large as too small, and never below that of an empty cell.
        """
        return self.mechanism._standard_error(self)

    @lazy
    def ends(self) -> tuple[Any, Any]:
        """The ends of the interval in whole units; floats if any end is infinite."""
        return self.mechanism._confidence_interval(self)

    @lazy
    def low(self) -> Any:
        """The lower end of an interval that contains the true sum with probability `level` or more.

        Both ends lie on the grid, rounded outwards: integers if the unit is an integer, otherwise floats.
        """
        return values(self.ends[0], self.unit, -1)

    @lazy
    def high(self) -> Any:
        """The upper end of the interval that starts at `low`."""
        return values(self.ends[1], self.unit, 1)

    def __repr__(self) -> str:
        warning = "" if self.private else "NOT PRIVATE (drawn from test bits): "
        return f"<{warning}{self.value} ± {rounded(self.se, 4)} by {self.mechanism}>"
