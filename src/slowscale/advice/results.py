"""The answer of the advisor: candidates with certified losses and their errors, the recommendation, and its reason."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slowscale.advice.accuracy import COMMON, RARE, TYPICAL, half_width
from slowscale.core.markup import html_text
from slowscale.core.numbers import format_number
from slowscale.mechanisms import Mechanism
from slowscale.policy import PointsPolicy

if TYPE_CHECKING:
    import pandas as pd

    from slowscale.core.typing import UnitLike
    from slowscale.publish.charts import Chart

MOST_LINES = 5  # of the chart
# What is said below the tight losses.
CHARGED = (
    "These are certified within 0.1 %. The tight policy that a release charges is read from a curve: it is up to 1 % "
    "higher, and never above the closed form."
)
BAR_WIDTH = 32  # the characters of the longest bar
LEAST_BAR = 1e-3  # the loss of a bar without length


@dataclass(frozen=True)
class Candidate:
    """A mechanism with its losses at the named sizes and its errors.

    Attributes
    ----------
    mechanism
        The mechanism.
    closed, tight
        The PRzCDP losses of records of the named sizes: by the closed form, and tight ones (`Mechanism.tight_loss`).
        The tight policy that is charged is read from a curve, which is up to 1 % higher, and never above the closed
        form.
    typical, common, rare
        The half-widths of the intervals around the true sum that contain 50 %, 95 % and 99.9 % of the results.
    std
        The standard deviation.
    efficient
        Whether no other candidate has smaller tight losses at all sizes.
    regret
        The largest ratio of a tight loss to the least one that a candidate has at that size.
    """

    mechanism: Mechanism
    closed: tuple[float, ...]
    tight: tuple[float, ...]
    typical: float
    common: float
    rare: float
    std: float
    efficient: bool = True
    regret: float = 1.0

    @classmethod
    def of(cls, mechanism: Mechanism, sizes: Sequence[float], at: float | None) -> "Candidate":
        """Return a mechanism with its losses and errors."""
        closed = mechanism.policy.upper or mechanism.policy
        return cls(
            mechanism,
            tuple(float(closed(x)) for x in sizes),
            tuple(float(mechanism.tight_loss(x)) for x in sizes),
            typical=half_width(mechanism, TYPICAL, at),
            common=half_width(mechanism, COMMON, at),
            rare=half_width(mechanism, RARE, at),
            std=float(mechanism.std(0.0 if at is None else at)),
        )

    @property
    def name(self) -> str:
        """The mechanism with the parameters that were chosen for it, in a few digits."""
        promise = getattr(self.mechanism, "promise", None)
        points = promise.points if isinstance(promise, PointsPolicy) else ()
        shown = [f"{format_number(size)}: {format_number(loss)}" for size, loss in points]
        shown += [
            f"{name}={format_number(value)}"
            for name, value in self.mechanism.to_dict().items()
            if not isinstance(value, str | Mapping) and not (name == "a" and _usual_offset(self.mechanism, value))
        ]
        return f"{type(self.mechanism).__name__}({', '.join(shown)})".replace("\u00a0", "")

    def to_dict(self, names: Sequence[str]) -> dict[str, Any]:
        """Return everything as values that JSON can represent."""
        return {
            "mechanism": self.mechanism.to_dict(),
            "losses": dict(zip(names, self.closed, strict=True)),
            "tight_losses": dict(zip(names, self.tight, strict=True)),
            "errors": {"50 %": self.typical, "95 %": self.common, "99.9 %": self.rare, "std": self.std},
            "efficient": self.efficient,
            "regret": self.regret,
        }


def _usual_offset(mechanism: Mechanism, a: float) -> bool:
    p = getattr(mechanism, "p", None)
    return p is not None and math.isclose(a, math.exp(p - 1), rel_tol=1e-9)


@dataclass(frozen=True, eq=False)
class Advice:
    """The result of `advise`; print it to see the candidates and the recommendation.

    Attributes
    ----------
    records
        The named record sizes.
    best
        The recommended mechanism.
    table
        The candidates, the recommended one first.
    goal
        What the candidates have in common, in words.
    reason
        Why the first candidate is recommended, in words.
    wanted
        The wanted losses by name, if these were given.
    unit
        The unit that results are rounded to.
    """

    records: Mapping[str, float]
    table: tuple[Candidate, ...]
    goal: str
    reason: str
    wanted: Mapping[str, float] | None = None
    unit: "UnitLike" = 1

    @property
    def best(self) -> Mechanism:
        """The recommended mechanism."""
        return self.table[0].mechanism

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row per candidate, with columns ("tight loss", name), ("loss", name) and ("error", level)."""
        import pandas as pd

        rows = [[*row.tight, *row.closed, row.typical, row.common, row.rare, row.std] for row in self.table]
        columns = [
            *(("tight loss", name) for name in self.records),
            *(("loss", name) for name in self.records),
            *(("error", level) for level in ("50 %", "95 %", "99.9 %", "std")),
        ]
        index = pd.Index([row.name for row in self.table], name="mechanism")
        return pd.DataFrame(rows, index=index, columns=pd.MultiIndex.from_tuples(columns, names=["what", "at"]))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as values that JSON can represent."""
        return {
            "records": dict(self.records),
            **({} if self.wanted is None else {"wanted": dict(self.wanted)}),
            "goal": self.goal,
            "reason": self.reason,
            "best": self.best.to_dict(),
            "candidates": [row.to_dict(tuple(self.records)) for row in self.table],
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

        return write_advised_plan(Path(path), self, None if data is None else os.fspath(data), column, overwrite)

    def bars(self) -> str:
        """Return a small chart as text: the recommended mechanism's loss at each size, on a logarithmic scale."""
        losses = self.table[0].tight
        top = max(math.log(max(*losses, 1.0) / LEAST_BAR), 1.0)
        width = max(map(len, self.records))
        lines = []
        for name, loss in zip(self.records, losses, strict=True):
            length = round(8 * BAR_WIDTH * max(math.log(max(loss, LEAST_BAR) / LEAST_BAR), 0.0) / top)
            bar = "█" * (length // 8) + ("", *"▏▎▍▌▋▊▉")[length % 8]
            lines.append(f"  {name:<{width}}  {bar or '▏'} {format_number(loss)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html_text(str(self))

    def __str__(self) -> str:
        names = [row.name for row in self.table]
        sizes = list(map(format_number, self.records.values()))
        tight = [list(map(format_number, row.tight)) for row in self.table]
        closed = [list(map(format_number, row.closed)) for row in self.table]
        errors = [
            [*(f"±{format_number(x)}" for x in (row.typical, row.common, row.rare)), self._note(row)]
            for row in self.table
        ]
        blocks = [
            f"All candidates have {self.goal}." if self.wanted is None else f"All candidates keep {self.goal}.",
            _aligned("tight loss of a record of size", [list(self.records), sizes], names, tight) + f"\n{CHARGED}",
            _aligned("loss by the closed form", [list(self.records)], names, closed),
            _aligned("errors of the results", [["50 %", "95 %", "99.9 %", ""]], names, errors),
            self.reason,
        ]
        return "\n\n".join(blocks)

    def _note(self, row: Candidate) -> str:
        return "recommended" if row is self.table[0] else "" if row.efficient else "dominated"


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
