"""Private quantiles of sizes: the exponential mechanism on a public grid of sizes.

Wanted is a size c such that a share q of the records is smaller. With B(c) records below c, out of n, the distance of c
from the wanted rank is |t(c)| with t(c) = B(c) − q·n. A size of the grid is drawn with probability proportional to
exp(−λ·|t(c)|). Only the drawn size is published: neither n nor any count.

**The loss of a record** (unbounded neighbours: the record is there, or it is not). Let D' be D with one more record, of
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

**Entities.** If entities are protected, each entity counts once: its size is the absolute value of its total, the sum
of the values of its records. Adding or removing an entity with all its records adds or removes one size, and changes no
total of another entity, because totals are exact. So each B(c), and n, changes as by one record above, and an entity
loses the same, however many records it has.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa

from slowscale.accounting import RecordPolicy
from slowscale.core.errors import ParameterError
from slowscale.core.markup import html_table
from slowscale.core.numbers import format_number, percent
from slowscale.core.parameters import as_number
from slowscale.policy import PURE, RankPolicy
from slowscale.release.facts import QuantilesFacts
from slowscale.release.request import Quantiles, plain_number, quantile_name
from slowscale.release.table import ReleasedTable
from slowscale.sampling import Bits, BitSource
from slowscale.sampling.exact import Choice


@dataclass(frozen=True)
class Ranks:
    """The exponential mechanism on the ranks of sizes, for a requested table of quantiles."""

    table: Quantiles

    @property
    def rates(self) -> tuple[float, ...]:
        """λ of each quantile: nearly the largest float with λ²·max(q, 1 − q)²/2 <= its part of the loss."""
        loss, found = Fraction(self.table.loss) / len(self.table.shares), []
        for share in self.table.shares:
            most = max(share, 1 - share)
            rate = math.sqrt(2 * loss) / float(most)
            while (Fraction(rate) * most) ** 2 > 2 * loss:
                rate = math.nextafter(rate, 0.0)
            found.append(rate)
        return tuple(found)

    def policy(self, filtered: bool) -> RecordPolicy:
        """The loss of every record or entity, as PRzCDP."""
        return RecordPolicy(((None, RankPolicy(float(self.table.loss))),), filtered=filtered)

    def pure_policy(self, filtered: bool) -> RecordPolicy:
        """The loss of every record or entity, as PRDP: the sum of the ranges η."""
        ranges = [2 * Fraction(rate) * max(share, 1 - share) for rate, share in self._quantiles]
        exact = sum(ranges, Fraction(0))
        loss = float(exact)
        loss = loss if Fraction(loss) >= exact else math.nextafter(loss, math.inf)
        return RecordPolicy(((None, RankPolicy(loss, PURE)),), filtered=filtered)

    @property
    def _quantiles(self) -> list[tuple[float, Fraction]]:
        return list(zip(self.rates, self.table.shares, strict=True))

    def costs(self, below: Sequence[int], rows: int) -> list[list[Fraction]]:
        """Return λ·|t(c)| for each quantile and each size of the grid. CONFIDENTIAL."""
        return [[Fraction(rate) * abs(count - share * rows) for count in below] for rate, share in self._quantiles]

    def draw(self, below: Sequence[int], rows: int, bits: BitSource | Bits | None = None) -> pa.Table:
        """Draw each quantile, and return a table with the drawn sizes in increasing order.

        Parameters
        ----------
        below, rows
            The number of records or entities that are smaller than each size of the grid, and of all of them.
        bits
            The source of bits; the secret one by default.
        """
        bits, costs = Bits.of(bits), self.costs(below, rows)
        drawn = sorted(self.table.sizes[Choice(some).draw(bits, row)] for row, some in enumerate(costs))
        return pa.table(
            {
                "quantile": [quantile_name(share) for share in self.table.shares],
                "at": [float(share) for share in self.table.shares],
                "size": pa.array([float(size) for size in drawn], pa.float64()),
            }
        )

    def rank_error(self, level: float) -> float:
        """Return by how many ranks the quantiles may miss, all together with probability `level`."""
        return rank_error(self.rates, len(self.table.sizes), level)

    def facts(self, level: float, entity: str | None = None) -> QuantilesFacts:
        """Return the public facts of the quantiles: of records, or of the entities that a column identifies."""
        at, grid = (tuple(plain_number(float(one)) for one in some) for some in (self.table.shares, self.table.sizes))
        return QuantilesFacts(
            column=self.table.column,
            entity=entity,
            at=at,
            grid=grid,
            rates=self.rates,
            loss=float(self.table.loss),
            level=level,
            nulls=self.table.nulls,
        )


def rank_error(rates: Sequence[float], sizes: int, level: float) -> float:
    """Return by how many ranks quantiles on a grid may miss, all together with probability `level`.

    One size of the grid is nearest to a wanted rank, with weight exp(−λ·best). The other m − 1 sizes have together at
    most (m − 1)·exp(−λ·(best + k)) as far as they are k ranks farther off. So a quantile misses by more than best + k
    with probability at most r/(1 + r), where r = (m − 1)·exp(−λ·k). The probabilities of all quantiles add up. Sorting
    the results does not increase the largest miss.
    """
    chance = as_number("level", level)
    if not 0 < chance < 1:
        raise ParameterError("level", allowed="a number between 0 and 1", given=level, remedy="0.95 is usual")
    miss = (1 - chance) / len(rates)
    odds = math.log((sizes - 1) * (1 - miss) / miss)
    return max(odds, 0.0) / min(rates)


def ranks_in_words(error: float, entity: str | None = None) -> str:
    """Return an error of rank as a number of records, rounded up: "1 record", "102 records", "1 value of firm"."""
    ranks = math.ceil(error)
    noun = "record" if entity is None else "value"
    return f"{ranks:,} {noun}{'' if ranks == 1 else 's'}{'' if entity is None else f' of {entity}'}"


@dataclass(frozen=True, eq=False, repr=False)
class ReleasedQuantiles(ReleasedTable, Mapping[str, float]):
    """Public quantiles of sizes of records, or of totals of entities: a mapping of names such as "p50" to sizes.

    It is accepted wherever record sizes are. About a share `at` of the records are smaller than each size, within
    `rank_error`.
    """

    def __getitem__(self, name: str) -> float:
        return self._sizes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sizes)

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def _sizes(self) -> dict[str, float]:
        names, sizes = (self.table[name].to_pylist() for name in ("quantile", "size"))
        return dict(zip(names, map(plain_number, sizes), strict=True))

    @property
    def about(self) -> QuantilesFacts:
        """The public facts of the quantiles: shares, grid, rates and loss."""
        assert self.facts.quantiles is not None
        return self.facts.quantiles

    @property
    def column(self) -> str:
        """The column whose absolute values are the sizes."""
        return self.about.column

    @property
    def loss(self) -> float:
        """The loss of every record or entity by all of them together, as PRzCDP."""
        return self.about.loss

    @property
    def pure_loss(self) -> float:
        """The loss of every record or entity by all of them together, as PRDP."""
        return math.inf if self.pure_policy is None else self.pure_policy({})

    @property
    def rank_error(self) -> float:
        """By how many records or entities every size misses its rank at most, more than the grid makes necessary.

        Even the best size of a grid has some rank, not exactly the wanted one. The number follows from the loss and the
        grid, not from the records, and holds with the probability `about.level`.
        """
        return rank_error(self.about.rates, len(self.about.grid), self.about.level)

    @property
    def title(self) -> str:
        """The subject of the quantiles: sizes of records, or of totals of entities."""
        of = "" if self.about.entity is None else f", where the size of a {self.about.entity} is its total"
        return f"Quantiles of the sizes of {self.column}{of}"

    @property
    def note(self) -> str:
        """The accuracy of the quantiles and their cost, in words."""
        entity = self.about.entity
        words = (
            f"With probability {percent(self.about.level)}, every size misses its rank by at most "
            f"{ranks_in_words(self.rank_error, entity)} more than "
            f"a grid of {len(self.about.grid):,} sizes makes necessary. Every {entity or 'record'} loses "
            f"{format_number(self.loss)} (PRzCDP) by all of them together."
        )
        return words if self.whole.private else f"{words} NOT PRIVATE: the bits were not secret."

    @property
    def rows(self) -> list[tuple[str, str]]:
        """The name and the size of each quantile, as text. At the lowest size of the grid, it may be anything below."""
        found = []
        for name, size in self.items():
            words = f"{size:,}" if isinstance(size, int) else np.format_float_positional(size, trim="-")
            words = words if size < 1e16 else f"{size:g}"
            found.append((name, f"0 or below {words}, the lowest size" if size == self.about.grid[0] else words))
        return found

    def __repr__(self) -> str:
        return "\n".join([self.title, *(f"  {name}: {size}" for name, size in self.rows), self.note])

    def _repr_html_(self) -> str:
        return html_table(self.title, ("quantile", "size"), self.rows, self.note)

    def to_dict(self) -> dict[str, object]:
        """Return the quantiles and their facts as values that `json.dumps` accepts."""
        return {
            "column": self.column,
            **({} if self.about.entity is None else {"entity": self.about.entity}),
            "quantiles": dict(self),
            "at": list(self.about.at),
            "loss": self.loss,
            "pure_loss": self.pure_loss,
            "level": self.about.level,
            "rank_error": self.rank_error,
            "facts": self.whole.to_dict(),
        }
