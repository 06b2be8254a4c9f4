"""Private quantiles of record sizes: the exponential mechanism on a public grid of sizes.

Wanted is a size c such that a share q of the records is smaller. With B(c) records below c, out of n, the distance of c
from the wanted rank is |t(c)| with t(c) = B(c) − q·n. A size of the grid is drawn with probability proportional to
exp(−λ·|t(c)|). Only the drawn size is published: neither n nor any count.

**What a record loses** (unbounded neighbours: the record is there, or it is not). Let D' be D with one more record, of
size x. For c <= x, the record is not below c, so t falls by q. For c > x, t rises by 1 − q. Let d(c) be the change of
|t(c)|. t does not decrease in c. So

- if t(c) > 0 for some c <= x, then t > 0 for all c > x, where d = 1 − q; for c <= x, d is between −q and q;
- if t(c) <= 0 for all c <= x, then d = q there; for c > x, d is between −(1 − q) and 1 − q.

In both cases d takes values in an interval of length at most w = 2·max(q, 1 − q). The logarithm of P'(c)/P(c) is
−λ·d(c) minus a constant, so it lies in an interval of length η = λ·w: the mechanism has *bounded range* η. This implies
(Cesar and Rogers 2021, "Bounding, Concentrating, and Truncating")

- PRDP with loss η: the interval contains 0, because both are probabilities;
- PRzCDP with loss η²/8. Let L be that logarithm and K(s) = ln E[exp(s·L)] under P. Then K(0) = K(1) = 0, and K''(s) is
  the variance of L under a tilted distribution, at most η²/4 (Popoviciu). The error of linear interpolation gives
  K(s) <= η²/8·s·(s − 1) for s > 1, and the Rényi divergence of order s is K(s)/(s − 1) <= s·η²/8. The same holds with P
  and P' exchanged.

So a quantile with loss ρ has λ = √(8ρ)/w = √(2ρ)/max(q, 1 − q). The size of a record does not
matter: the policy is constant.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from slowscale.accounting import RecordPolicy
from slowscale.errors import ParameterError, ParameterTypeError
from slowscale.facts import Facts, QuantilesFacts
from slowscale.figures import figure, percent
from slowscale.markup import html_table
from slowscale.parameters import as_number
from slowscale.policy import PURE, RankPolicy
from slowscale.sampling import SECRET, BitSource
from slowscale.sampling.choice import Choice
from slowscale.typing import Scalar

MOST_GRID_SIZES, MOST_QUANTILES = 1000, 99
SMALLEST_LOSS, LARGEST_LOSS = 1e-12, 1e4
SIZES_PER_DECADE, MOST_PER_DECADE = 20, 100
SIZE_DIGITS = 3  # significant digits of the sizes of a geometric grid
USUAL_ENDS = (1.0, 1e12)


def size_grid(
    low: float = USUAL_ENDS[0], high: float = USUAL_ENDS[1], per_decade: int = SIZES_PER_DECADE
) -> tuple[float, ...]:
    """Return a geometric grid of public sizes from `low` to `high`, for `Session.quantiles`.

    The sizes have three significant digits. The default has 20 sizes per factor of ten, so that neighbours differ by
    12 %, and goes from 1 to 10¹². Choose the ends by public knowledge, not by the records.

    >>> size_grid(1, 100, 4)
    (1, 1.78, 3.16, 5.62, 10, 17.8, 31.6, 56.2, 100)
    """
    ends = [as_number(name, value) for name, value in (("low", low), ("high", high))]
    if not 0 < ends[0] < ends[1] < math.inf:
        raise ParameterError(f"low and high must be finite numbers with 0 < low < high, got {low} and {high}")
    steps = as_number("per_decade", per_decade)
    if not steps.is_integer() or not 1 <= steps <= MOST_PER_DECADE:
        raise ParameterError(f"per_decade must be a whole number from 1 to {MOST_PER_DECADE}, got {per_decade}")
    count = math.ceil(steps * math.log10(ends[1] / ends[0]) - 1e-9)
    if count + 1 > MOST_GRID_SIZES:
        raise ParameterError(
            f"a grid must have at most {MOST_GRID_SIZES} sizes, but this one has {count + 1:,}; choose a larger low, a "
            "smaller high or fewer per_decade"
        )
    inner = [float(f"{ends[0] * 10 ** (step / steps):.{SIZE_DIGITS}g}") for step in range(1, count)]
    inner = [size for size in inner if ends[0] < size < ends[1]]
    return tuple(map(_plain, (ends[0], *dict.fromkeys(inner), ends[1])))


def _plain(number: float) -> float:
    """Return a whole number as an int, as it is written."""
    return int(number) if float(number).is_integer() and abs(number) < 2**53 else float(number)


def _exact(name: str, value: Scalar) -> Fraction:
    """Return a number as it is written: the float 0.1 is one tenth."""
    number = as_number(name, value)
    if not math.isfinite(number):
        raise ParameterError(f"{name} must be finite numbers, got {value}")
    return Fraction(value) if isinstance(value, int | Decimal | Fraction) else Fraction(repr(number))


def _sequence(name: str, values: Any, example: str) -> list[Any]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise ParameterTypeError(f"{name} must be a list of numbers such as {example}, got {values!r:.60}")
    return list(values)


@dataclass(frozen=True)
class QuantilesQuery:
    """Which quantiles of the sizes of the records are wanted, on which grid, at which total loss.

    Attributes
    ----------
    column
        The column whose absolute values are the sizes.
    at
        The share of smaller records that each quantile aims at.
    loss
        The total PRzCDP loss of all the quantiles together. It is split evenly.
    grid
        The public sizes, in increasing order.
    """

    column: str
    at: tuple[Fraction, ...]
    loss: float
    grid: tuple[Fraction, ...]

    @staticmethod
    def of(column: str, at: Any, loss: Scalar, grid: Any = None) -> "QuantilesQuery":
        """Return the query with these arguments of `Session.quantiles`, or raise an error that says what is wrong."""
        if not isinstance(column, str) or not column:
            raise ParameterTypeError(f"column must be the name of a column, got {column!r:.60}")
        shares = [_exact("at", share) for share in _sequence("at", at, "[0.1, 0.5, 0.9]")]
        if not 1 <= len(shares) <= MOST_QUANTILES or not _increases([Fraction(0), *shares, Fraction(1)]):
            raise ParameterError(
                f"at must be 1 to {MOST_QUANTILES} increasing numbers between 0 and 1, such as [0.1, 0.5, 0.9], got "
                f"{list(map(float, shares))!r:.80}; 0.5 is the median"
            )
        names = [quantile_name(share) for share in shares]
        if len(set(names)) < len(names) or not {"p0", "p100"}.isdisjoint(names):
            raise ParameterError(
                f"at must have shares that differ in their first 12 digits, from 0 and from 1 too, got {names!r:.80}"
            )
        total = as_number("loss", loss)
        if not SMALLEST_LOSS <= total <= LARGEST_LOSS:
            raise ParameterError(
                f"loss must be a number from {SMALLEST_LOSS:g} to {LARGEST_LOSS:g}, got {loss}; it is the PRzCDP loss "
                "of all quantiles together, for instance 0.01"
            )
        sizes = [
            _exact("grid", size) for size in _sequence("grid", size_grid() if grid is None else grid, "[1, 10, 100]")
        ]
        if not 2 <= len(sizes) <= MOST_GRID_SIZES or not _increases([Fraction(0), *sizes]):
            raise ParameterError(
                f"grid must be 2 to {MOST_GRID_SIZES} increasing numbers > 0, got {len(sizes):,} numbers"
                f"{'' if _increases([Fraction(0), *sizes]) else ' that do not increase from above 0'}; "
                "ss.size_grid(1, 1e9) makes one"
            )
        return QuantilesQuery(column, tuple(shares), total, tuple(sizes))

    @property
    def rates(self) -> tuple[float, ...]:
        """λ of each quantile: the largest float for which its loss is at most its part of the total, exactly."""
        return tuple(_rate(Fraction(self.loss) / len(self.at), share) for share in self.at)

    @property
    def policy(self) -> RecordPolicy:
        """What every record loses, as PRzCDP."""
        return RecordPolicy(((None, RankPolicy(self.loss)),))

    @property
    def pure_policy(self) -> RecordPolicy:
        """What every record loses, as PRDP: the sum of the ranges η."""
        ranges = [2 * Fraction(rate) * max(share, 1 - share) for rate, share in zip(self.rates, self.at, strict=True)]
        return RecordPolicy(((None, RankPolicy(_float_above(sum(ranges, Fraction(0))), PURE)),))

    def costs(self, below: Sequence[int], rows: int) -> list[list[Fraction]]:
        """Return λ·|t(c)| for each quantile and each size of the grid. CONFIDENTIAL."""
        return [
            [Fraction(rate) * abs(count - share * rows) for count in below]
            for rate, share in zip(self.rates, self.at, strict=True)
        ]

    def draw(self, below: Sequence[int], rows: int, bits: BitSource | None = None) -> tuple[Fraction, ...]:
        """Draw each quantile, and return the drawn sizes in increasing order.

        Parameters
        ----------
        below, rows
            The number of records that are smaller than each size of the grid, and of all records.
        bits
            The source of bits; the secret one by default.
        """
        source = SECRET if bits is None else bits
        return tuple(sorted(self.grid[Choice(costs).draw(source)] for costs in self.costs(below, rows)))

    def rank_error(self, level: float = 0.95) -> float:
        """Return by how many ranks the quantiles may miss, all together with probability `level`.

        One size of the grid is nearest to a wanted rank, with weight exp(−λ·best). The other m − 1 sizes have together
        at most (m − 1)·exp(−λ·(best + k)) as far as they are k ranks farther off. So a quantile misses by more than
        best + k with probability at most r/(1 + r), where r = (m − 1)·exp(−λ·k). The probabilities of all quantiles
        add up. Sorting the results does not increase the largest miss.
        """
        chance = as_number("level", level)
        if not 0 < chance < 1:
            raise ParameterError(f"level must be a number between 0 and 1, got {level}; 0.95 is usual")
        miss = (1 - chance) / len(self.at)
        if miss >= 1:
            return 0.0
        odds = math.log((len(self.grid) - 1) * (1 - miss) / miss)
        return max(odds, 0.0) / min(self.rates)

    def facts(self, nulls: str) -> QuantilesFacts:
        """Return the public facts of the query."""
        at, grid = (tuple(_plain(float(number)) for number in numbers) for numbers in (self.at, self.grid))
        return QuantilesFacts(self.column, at, grid, self.rates, nulls)


def _increases(numbers: Sequence[Fraction]) -> bool:
    return all(first < second for first, second in pairwise(numbers))


def _rate(loss: Fraction, share: Fraction) -> float:
    """Return the largest float λ with λ²·max(q, 1 − q)²/2 <= loss, or one just below it."""
    most = max(share, 1 - share)
    rate = math.sqrt(2 * loss) / float(most)
    while (Fraction(rate) * most) ** 2 > 2 * loss:
        rate = math.nextafter(rate, 0.0)
    return rate


def _float_above(number: Fraction) -> float:
    found = float(number)
    return found if Fraction(found) >= number else math.nextafter(found, math.inf)


def ranks_in_words(error: float) -> str:
    """Return an error of rank as a number of records, rounded up: "1 record", "102 records"."""
    ranks = math.ceil(error)
    return "1 record" if ranks == 1 else f"{ranks:,} records"


def quantile_name(share: float | Fraction) -> str:
    """Return the name of a quantile: "p10" for 0.1, "p99.9" for 0.999."""
    return f"p{100 * float(share):.12g}"


@dataclass(frozen=True, repr=False)
class PrivateQuantiles(Mapping[str, float]):
    """Quantiles of record sizes that may be published: a mapping of names such as "p50" to sizes of the grid.

    It goes wherever named record sizes are asked for. Each size is about as large as a share `at` of the records are
    small, and `rank_error` says how near it is.

    Attributes
    ----------
    column
        The column whose absolute values are the sizes.
    at
        The share of smaller records that each quantile aims at.
    sizes
        The quantiles.
    grid
        The public grid that the sizes are on.
    loss, pure_loss
        What every record loses by all of them together, as PRzCDP and as PRDP.
    level, rank_error
        With probability `level`, every size misses its rank by at most `rank_error` records more than the grid makes
        necessary: even the best size of a grid has some rank, not exactly the wanted one. The number follows from the
        loss and the grid, not from the records.
    facts
        Everything that is public about the release.
    """

    column: str
    at: tuple[float, ...]
    sizes: tuple[float, ...]
    grid: tuple[float, ...]
    loss: float
    pure_loss: float
    level: float
    rank_error: float
    facts: Facts = field(compare=False)

    @staticmethod
    def of(query: QuantilesQuery, sizes: Sequence[Fraction], level: float, facts: Facts) -> "PrivateQuantiles":
        """Return the drawn sizes of a query as a result."""
        public = facts.quantiles
        assert public is not None
        drawn = tuple(_plain(float(size)) for size in sizes)
        pure = query.pure_policy({})
        return PrivateQuantiles(
            query.column, public.at, drawn, public.grid, query.loss, pure, level, query.rank_error(level), facts
        )

    def __getitem__(self, name: str) -> float:
        return self._named[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._named)

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def _named(self) -> dict[str, float]:
        return {quantile_name(share): size for share, size in zip(self.at, self.sizes, strict=True)}

    @property
    def note(self) -> str:
        """How accurate the quantiles are, and what a record loses by them, in words."""
        words = (
            f"With probability {percent(self.level)}, every size misses its rank by at most "
            f"{ranks_in_words(self.rank_error)} more than "
            f"a grid of {len(self.grid):,} sizes makes necessary. Every record loses {figure(self.loss)} (PRzCDP) "
            f"by all of them together."
        )
        return words if self.facts.private else f"{words} NOT PRIVATE: the bits were not secret."

    def __repr__(self) -> str:
        lines = [f"Quantiles of the sizes of {self.column}"]
        lines += [f"  {name}: {_written(size)}" for name, size in self.items()]
        return "\n".join([*lines, self.note])

    def _repr_html_(self) -> str:
        rows = [(name, _written(size)) for name, size in self.items()]
        return html_table(f"Quantiles of the sizes of {self.column}", ("quantile", "size"), rows, self.note)

    def to_dict(self) -> dict[str, Any]:
        """Return the quantiles and their facts as values that `json.dumps` accepts."""
        return {
            "column": self.column,
            "quantiles": dict(self),
            "at": list(self.at),
            "loss": self.loss,
            "pure_loss": self.pure_loss,
            "level": self.level,
            "rank_error": self.rank_error,
            "facts": self.facts.to_dict(),
        }


def _written(size: float) -> str:
    """Write a size of a grid with all its digits."""
    return (
        f"{size:,}"
        if isinstance(size, int)
        else np.format_float_positional(size, trim="-")
        if size < 1e16
        else f"{size:g}"
    )
