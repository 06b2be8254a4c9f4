"""The answers of `advise`: candidates, the recommended one against Gaussian noise, and what it costs to hide values."""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slowscale.accounting.explanation import Explanation, Loss, explain
from slowscale.accounting.largest import Value
from slowscale.advice.shapes import COMMON, RARE, TYPICAL, Accuracy, error_within, half_widths
from slowscale.core.errors import band_in_words
from slowscale.core.markup import html_text
from slowscale.core.numbers import format_number
from slowscale.core.parameters import lazy
from slowscale.core.typing import UnitLike
from slowscale.mechanisms import Gaussian, Mechanism
from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.policy import PointsPolicy

if TYPE_CHECKING:
    import pandas as pd

    from slowscale.publish.charts import Chart

MOST_LINES = 5  # of the chart
# The note below the losses.
CHARGED = (
    "Losses are tight, and certified within 0.1 %. A release charges them from a curve, which is up to 1 % higher, and "
    "never above the closed form."
)
SAME_ERROR, SAME_MEDIAN = "Gaussian with the same 95 % error", "Gaussian with the same median error"
ERRORS = ("50 %", "95 %", "99.9 %", "std")


def value_loss(mechanism: Mechanism, size: float, times: float) -> float:
    """Return the tight loss between a record's value and any value within a factor; see `Mechanism.band_policy`."""
    if isinstance(mechanism, AdditiveMechanism):
        return float(mechanism.tight_loss((times - 1) * size))
    return float(mechanism.band_policy(times=times)(size))


@dataclass(frozen=True)
class Candidate:
    """A mechanism with its losses at the named sizes and its errors.

    Attributes
    ----------
    mechanism
        The mechanism.
    closed, tight
        The PRzCDP losses of the presence of records of the named sizes: by the closed form, and tight ones
        (`Mechanism.tight_loss`). The tight policy that is charged is read from a curve, which is up to 1 % higher, and
        never above the closed form.
    bands
        The tight losses between their values and others within the band.
    typical, common, rare
        What 50 %, at least 95 % and 99.9 % of the errors of a small sum are within. As in the goal, the second one is
        the farther end of a prediction interval.
    std
        The standard deviation for a small sum.
    large
        The half-width of the 95 % interval for a large sum, as a share of the sum.
    efficient
        Whether no other candidate has smaller losses at all sizes.
    regret
        The largest ratio of a loss to the least one that a candidate has at that size.
    """

    mechanism: Mechanism
    closed: tuple[float, ...]
    tight: tuple[float, ...]
    bands: tuple[float, ...]
    typical: float
    common: float
    rare: float
    std: float
    large: float
    efficient: bool = True
    regret: float = 1.0

    @classmethod
    def of(cls, mechanism: Mechanism, sizes: Sequence[float], accuracy: Accuracy, times: float) -> "Candidate":
        """Return a mechanism with its losses and errors."""
        closed = mechanism.policy.upper or mechanism.policy
        return cls(
            mechanism,
            tuple(float(closed(x)) for x in sizes),
            tuple(float(mechanism.tight_loss(x)) for x in sizes),
            tuple(value_loss(mechanism, x, times) for x in sizes),
            typical=error_within(mechanism, TYPICAL, accuracy.at),
            common=half_widths(mechanism, COMMON, (accuracy.at,))[0],
            rare=error_within(mechanism, RARE, accuracy.at),
            std=float(mechanism.std(accuracy.at)),
            large=half_widths(mechanism, COMMON, (accuracy.large,))[0] / accuracy.large,
        )

    @property
    def name(self) -> str:
        """The mechanism with the parameters that were chosen for it, in a few digits."""
        promise = getattr(self.mechanism, "promise", None)
        points = promise.points if isinstance(promise, PointsPolicy) else ()
        shown = [f"{format_number(size)}: {format_number(loss)}" for size, loss in points]
        p = getattr(self.mechanism, "p", None)
        usual = math.nan if p is None else math.exp(p - 1)  # the offset of a polylog, unless another one is chosen
        given = self.mechanism.to_dict()
        shown += [
            f"{name}={format_number(value)}"
            for name, value in given.items()
            if not isinstance(value, str | Mapping) and not (name == "a" and math.isclose(value, usual, rel_tol=1e-9))
        ]
        shown += [f"noise={given['noise']!r}"] if "noise" in given else []
        return f"{type(self.mechanism).__name__}({', '.join(shown)})".replace("\u00a0", "")

    def to_dict(self, names: Sequence[str]) -> dict[str, Any]:
        """Return everything as values that JSON can represent."""
        return {
            "mechanism": self.mechanism.to_dict(),
            "losses": dict(zip(names, self.closed, strict=True)),
            "tight_losses": dict(zip(names, self.tight, strict=True)),
            "band_losses": dict(zip(names, self.bands, strict=True)),
            "errors": dict(zip(ERRORS, (self.typical, self.common, self.rare, self.std), strict=True)),
            "large_error": self.large,
            "efficient": self.efficient,
            "regret": self.regret,
        }


@dataclass(frozen=True, eq=False)
class Advice:
    """The result of `advise`; print it to see the recommendation, what it means, and the candidates.

    Attributes
    ----------
    records
        The named record sizes.
    best
        The recommended mechanism.
    table
        The candidates, the recommended one first.
    goal
        The limits that the candidates keep, in words.
    reason
        Why the first candidate is recommended, in words.
    accuracy
        The small and the large sum, and how errors are measured.
    times
        The factor of the band within which values are hidden.
    presence, bands
        The wanted losses by name.
    unit
        The unit that results are rounded to.
    largest
        The largest value that a release accepts, or None.
    """

    records: Mapping[str, float]
    table: tuple[Candidate, ...]
    goal: str
    reason: str
    accuracy: Accuracy
    times: float
    presence: Mapping[str, float]
    bands: Mapping[str, float]
    unit: UnitLike = 1
    largest: Value | None = None
    _find_front: Callable[[], tuple[Candidate, ...]] = tuple

    @property
    def best(self) -> Mechanism:
        """The recommended mechanism."""
        return self.table[0].mechanism

    @lazy
    def front(self) -> tuple[Candidate, ...]:
        """What it costs to hide the value of the largest named record.

        Mechanisms with the same error of a small sum, each with the least error of a large one among those with at most
        its loss of the value. It takes some seconds when it is first asked for.
        """
        return self._find_front()

    @lazy
    def meanings(self) -> dict[str, dict[str, Explanation]]:
        """What an attacker can do, by size: for the recommended mechanism, and Gaussian noise of the same accuracy."""
        first = self.table[0]
        compared: dict[str, Mechanism] = {first.name: first.mechanism}
        if not isinstance(first.mechanism, Gaussian):
            unit = Gaussian(sigma=1.0)
            for name, level, half in ((SAME_ERROR, COMMON, first.common), (SAME_MEDIAN, TYPICAL, first.typical)):
                compared[name] = Gaussian(sigma=half / half_widths(unit, level, (0.0,))[0])
        return {
            name: {record: self._meaning(one, size) for record, size in self.records.items()}
            for name, one in compared.items()
        }

    def _meaning(self, mechanism: Mechanism, size: float) -> Explanation:
        value = Loss(value_loss(mechanism, size, self.times), None, mechanism, size, other=self.times * size)
        return explain([Loss(float(mechanism.tight_loss(size)), None, mechanism, size)], [value])

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row per candidate.

        Its columns are ("tight loss", name), ("band loss", name), ("loss", name), ("error", level) and ("error",
        "large"), which is a share of the sum.
        """
        import pandas as pd

        rows = [
            [*row.tight, *row.bands, *row.closed, row.typical, row.common, row.rare, row.std, row.large]
            for row in self.table
        ]
        columns = [
            *((kind, name) for kind in ("tight loss", "band loss", "loss") for name in self.records),
            *(("error", level) for level in (*ERRORS, "large")),
        ]
        index = pd.Index([row.name for row in self.table], name="mechanism")
        return pd.DataFrame(rows, index=index, columns=pd.MultiIndex.from_tuples(columns, names=["what", "at"]))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as values that JSON can represent."""
        names = tuple(self.records)
        return {
            "records": dict(self.records),
            "wanted": {"presence": dict(self.presence), "bands": dict(self.bands)},
            "largest": self.largest,
            "band": self.times,
            "sums": {"small": self.accuracy.at, "large": self.accuracy.large},
            "goal": self.goal,
            "reason": self.reason,
            "best": self.best.to_dict(),
            "candidates": [row.to_dict(names) for row in self.table],
            "front": [row.to_dict(names) for row in self.front],
            "meanings": {
                name: {record: meaning.to_dict() for record, meaning in found.items()}
                for name, found in self.meanings.items()
            },
        }

    def chart(self) -> "Chart":
        """Return a chart of the tight losses by record size, for notebooks; its method `save` writes a file."""
        from slowscale.publish.charts import tight_loss_chart

        ends = [min(self.table, key=lambda row: row.tight[i]) for i in (0, -1)]
        rows = dict.fromkeys([self.table[0], *ends, *(row for row in self.table if row.efficient)])
        shown = {row.name: row.mechanism for row in list(rows)[:MOST_LINES]}
        return tight_loss_chart(shown, list(self.records.values()))

    def plan(
        self,
        path: str | os.PathLike[str],
        data: str | os.PathLike[str] | None = None,
        column: str = "amount",
        overwrite: bool = False,
    ) -> Path:
        """Write a plan file with the recommended mechanism, to be edited, and return its path.

        Parameters
        ----------
        path
            The plan file, ending in .toml.
        data
            The records: a file, or the address of a database table. If there is such a file, types are proposed for
            its columns, as by `guess_types`. By default, a file records.parquet beside the plan.
        column
            The column to sum.
        overwrite
            Whether to replace an existing file.
        """
        from slowscale.plan.starting import write_advised_plan

        return write_advised_plan(Path(path), {column: self}, None if data is None else os.fspath(data), overwrite)

    def _repr_html_(self) -> str:
        return html_text(str(self))

    def __str__(self) -> str:
        return "\n\n".join(
            [
                f"Wanted: {self.goal}.",
                self.reason,
                *self._compared(),
                *self._traded(),
                *self._candidates(),
            ]
        )

    @property
    def _band(self) -> str:
        return f"{band_in_words(self.times)} more or less"

    @property
    def _heads(self) -> list[list[str]]:
        """The names and the sizes of the records."""
        return [list(self.records), list(map(format_number, self.records.values()))]

    def _compared(self) -> Iterator[str]:
        """Yield the tables of what an attacker can do, for the recommended mechanism and Gaussian noise."""
        names = list(self.meanings)
        for title, field in (
            ("presence detected, with 1 false alarm in 20", "detected"),
            (f"value: best guess right, {self._band}", "recognised"),
            ("value known to within, all else known", "within"),
        ):
            rows = [[one.texts[field] for one in found.values()] for found in self.meanings.values()]
            yield _aligned(title, self._heads, names, rows)

    def _traded(self) -> Iterator[str]:
        """Yield the front between the accuracy of large sums and the protection of the largest value."""
        if not self.front:
            return
        top, size = list(self.records.items())[-1]
        found = [self._meaning(row.mechanism, size) for row in self.front]
        hidden = min(range(len(found)), key=lambda i: abs(math.log(self.front[i].bands[-1])))
        row, often = self.front[hidden], found[hidden].texts["recognised"]
        first = (
            f"The price of hiding values. To hide the value of {top} ({format_number(size)}) to {self._band}, so that "
            f"the best guess between two such values is right at most {often} of the time, sums of "
            f"{format_number(self.accuracy.large)} or more get {relative_error(row.large)}. All of these have the same "
            "error of small sums:"
        )
        heads = [
            ["large sums", f"{top}: value", "best guess", "value known", f"{top}: presence"],
            ["within", "loss", "right", "to within", "loss"],
        ]
        rows = [
            [relative_error(row.large), format_number(row.bands[-1]), one.texts["recognised"], one.texts["within"],
             format_number(row.tight[-1])]
            for row, one in zip(self.front, found, strict=True)
        ]  # fmt: skip
        yield first + "\n\n" + _aligned("the price of hiding values", heads, [row.name for row in self.front], rows)

    def _candidates(self) -> Iterator[str]:
        names = [row.name for row in self.table]
        tight = [list(map(format_number, row.tight)) for row in self.table]
        bands = [list(map(format_number, row.bands)) for row in self.table]
        notes = ["recommended", *("" if row.efficient else "dominated" for row in self.table[1:])]
        errors = [
            [*(f"±{format_number(x)}" for x in (row.typical, row.common, row.rare)), relative_error(row.large), note]
            for row, note in zip(self.table, notes, strict=True)
        ]
        heads = ["50 %", "95 %", "1 in 1,000", f"95 % at {format_number(self.accuracy.large)}", ""]
        yield _aligned("presence: loss of a record of size", self._heads, names, tight)
        yield _aligned(f"value: loss, {self._band}", self._heads, names, bands) + f"\n{CHARGED}"
        yield _aligned("errors of small sums, and of a large one", [heads], names, errors)


@dataclass(frozen=True, eq=False)
class ColumnAdvice(Mapping[str, Advice]):
    """The result of `advise_columns`: the advice for each column, and one plan for all of them."""

    columns: Mapping[str, Advice]

    def __getitem__(self, column: str) -> Advice:
        return self.columns[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def best(self) -> dict[str, Mechanism]:
        """The recommended mechanisms, by column."""
        return {name: advice.best for name, advice in self.items()}

    @property
    def totals(self) -> dict[str, tuple[float, float]]:
        """The losses of presence and of values through all columns, for records that are named in each of them."""
        common = [
            name for name in next(iter(self.values())).records if all(name in one.records for one in self.values())
        ]
        found = {}
        for name in common:
            rows = [(list(one.records).index(name), one.table[0]) for one in self.values()]
            found[name] = math.fsum(row.tight[i] for i, row in rows), math.fsum(row.bands[i] for i, row in rows)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return everything as values that JSON can represent."""
        totals = {name: {"tight_loss": one, "band_loss": two} for name, (one, two) in self.totals.items()}
        return {"columns": {name: advice.to_dict() for name, advice in self.items()}, "totals": totals}

    def plan(
        self, path: str | os.PathLike[str], data: str | os.PathLike[str] | None = None, overwrite: bool = False
    ) -> Path:
        """Write a plan file with the recommended mechanisms of all columns; see `Advice.plan`."""
        from slowscale.plan.starting import write_advised_plan

        return write_advised_plan(Path(path), self.columns, None if data is None else os.fspath(data), overwrite)

    def _repr_html_(self) -> str:
        return html_text(str(self))

    def __str__(self) -> str:
        blocks = [f"{name}\n{'=' * len(name)}\n{advice}" for name, advice in self.items()]
        if self.totals:
            heads = [["presence", "value"]]
            rows = [[format_number(one), format_number(two)] for one, two in self.totals.values()]
            blocks.append(_aligned("loss through all columns together", heads, list(self.totals), rows))
        return "\n\n".join(blocks)


def relative_error(x: float) -> str:
    """Write the half-width of an interval that is a share of its middle, with two digits.

    >>> relative_error(0.1234)
    '±12 %'
    """
    return f"±{format_number(float(f'{100 * x:.2g}'))} %"


def _aligned(title: str, heads: list[list[str]], names: list[str], rows: list[list[str]]) -> str:
    """Return a table as text, with the title above the names."""
    first = max(len(title), *map(len, names))
    widths = [max(map(len, column)) for column in zip(*heads, *rows, strict=True)]
    labels = [*[""] * (len(heads) - 1), title, *names]
    lines = [
        (
            f"{label:<{first}}  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        ).rstrip()
        for label, row in zip(labels, [*heads, *rows], strict=True)
    ]
    lines.insert(len(heads), "-" * max(map(len, lines)))
    return "\n".join(lines)
