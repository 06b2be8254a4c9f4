"""`advise`: a mechanism with all its parameters, from record sizes and a goal, and the reasons for it."""

import math
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from slowscale.accounting.sizes import RecordSize, check_largest, names_the_largest
from slowscale.advice.searching import SMALL_LOSS, LeastError, LeastLosses, efficient, ranks, regrets
from slowscale.advice.shapes import COMMON, RARE, TYPICAL, Accuracy, half_width
from slowscale.core.errors import CalibrationError, ParameterError, ParameterTypeError, ScaleWarning, Shown, located
from slowscale.core.markup import html_text
from slowscale.core.numbers import format_number
from slowscale.core.parameters import as_number, level_quantile
from slowscale.core.typing import UnitLike
from slowscale.mechanisms import Mechanism
from slowscale.mechanisms.calibration import LEVEL
from slowscale.mechanisms.grid import as_unit
from slowscale.policy import PointsPolicy

if TYPE_CHECKING:
    import pandas as pd

    from slowscale.core.typing import UnitLike
    from slowscale.publish.charts import Chart

MOST_LINES = 5  # of the chart
# The note below the tight losses.
CHARGED = (
    "These are certified within 0.1 %. The tight policy that a release charges is read from a curve: it is up to 1 % "
    "higher, and never above the closed form."
)
BAR_WIDTH = 32  # the characters of the longest bar
LARGEST_ERROR = 1e150
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
        p = getattr(self.mechanism, "p", None)
        usual = math.nan if p is None else math.exp(p - 1)  # the offset of a polylog, unless another one is chosen
        shown += [
            f"{name}={format_number(value)}"
            for name, value in self.mechanism.to_dict().items()
            if not isinstance(value, str | Mapping) and not (name == "a" and math.isclose(value, usual, rel_tol=1e-9))
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
        The common property of the candidates, in words.
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
        notes = ["recommended", *("" if row.efficient else "dominated" for row in self.table[1:])]
        errors = [
            [*(f"±{format_number(x)}" for x in (row.typical, row.common, row.rare)), note]
            for row, note in zip(self.table, notes, strict=True)
        ]
        blocks = [
            f"All candidates have {self.goal}." if self.wanted is None else f"All candidates keep {self.goal}.",
            _aligned("tight loss of a record of size", [list(self.records), sizes], names, tight) + f"\n{CHARGED}",
            _aligned("loss by the closed form", [list(self.records)], names, closed),
            _aligned("errors of the results", [["50 %", "95 %", "99.9 %", ""]], names, errors),
            self.reason,
        ]
        return "\n\n".join(blocks)


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


MOST_NAMED_RECORDS = 8
# The largest ratio of rare errors to those at 95 %, unless another one is given. That of a Gaussian is 1.7.
RARE_RATIO = 20.0
# A standard deviation is absurd if it is this many times the largest record.
ABSURD = 1e12


def advise(
    records: Mapping[str, float],
    *,
    interval: float | None = None,
    std: float | None = None,
    relative: float | None = None,
    losses: Mapping[str, float] | None = None,
    level: float = LEVEL,
    at: float | None = None,
    rare: float = RARE_RATIO,
    unit: UnitLike = 1,
) -> Advice:
    """Recommend a mechanism, from record sizes that are publicly known or assumed and a wanted accuracy or losses.

    All families are searched with all their parameters. Given an accuracy, every candidate meets it exactly, and the
    recommended one is chosen by its tight losses at the named sizes: the largest ratio to the least loss that a
    candidate has at the same size is as small as possible. In other words, no candidate is better by more than that
    factor at any size. Losses below 0.01 count as 0.01. Given losses, the recommended mechanism has the least error of
    those whose tight losses are at most these; noise that is made from the losses (`FromPolicy`) is tried as well.

    Parameters
    ----------
    records
        Names and sizes of records, such as {"median": 268_689, "largest": 39e9}. State what is public or assumed, or
        private quantiles (`session.quantiles`), never a size that was looked up in the records.
    interval
        The wanted half-width of the interval around the true sum that contains the result with probability `level`.
    std
        The wanted standard deviation, in place of an interval.
    relative
        The wanted half-width as a share of `at`, in place of an interval: 0.05 for ±5 %.
    losses
        The largest tight loss (PRzCDP) of some of the named records, in place of an accuracy.
    level
        The level of the interval.
    at
        A typical sum. Roots and logs, whose error grows with the sum, are tried only if it is given, and their error is
        the one for this sum.
    rare
        How large rare errors may be: the half-width of the 99.9 % interval, and the standard deviation, are at most
        this many times the half-width of the 95 % interval. Noise with heavier tails is not considered.
    unit
        The unit that results are rounded to, for the plan.

    Examples
    --------
    >>> import slowscale as ss
    >>> advice = ss.advise({"median": 106, "largest": 1_550_000}, interval=150)
    >>> round(advice.best.prediction_interval(0, 0.95)[1])
    150
    """
    sizes = _sizes(records)
    wanted = None if losses is None else _losses(losses, sizes)
    targets = [n for n, v in (("interval", interval), ("std", std), ("relative", relative)) if v is not None]
    if len(targets) + (wanted is not None) != 1:
        given = [*targets, *(["losses"] if wanted is not None else [])]
        raise ParameterTypeError(
            "the goal",
            "must be one accuracy (`interval`, `std` or `relative`), or `losses`",
            code="conflict" if given else "missing",
            given=Shown(" and ".join(given) or "none"),
        )
    level_quantile(level)  # raises unless it is a level
    place = None if at is None else _positive("at", at)
    ratio = as_number("rare", rare, "a number of at least 2")
    if not ratio >= 2:
        raise ParameterError("rare", allowed="a number of at least 2 (the Gaussian has 1.7)", given=rare)
    as_unit(unit)
    accuracy = Accuracy(None if std is not None else float(level), place, ratio)
    if wanted is not None:
        return _least_error(sizes, wanted, accuracy, unit)
    if relative is not None:
        if place is None:
            raise ParameterTypeError(
                "at", "is missing", code="missing", remedy="give the typical sum of which `relative` is a share"
            )
        error = _positive("relative", relative) * place
    else:
        error = _positive(targets[0], interval if std is None else std)
    if error > LARGEST_ERROR:
        problem = f"asks for an error above {LARGEST_ERROR:g}, which is too large to compute with"
        raise ParameterError(targets[0], problem, code="too-large", remedy="ask for a smaller error")
    if error < float(as_unit(unit)) / 2:
        raise ParameterError(
            "unit",
            allowed=f"finer than the wanted error of {format_number(error)}",
            given=unit,
            remedy="results are rounded to the unit",
        )
    return _least_losses(sizes, error, accuracy, unit, targets[0])


def _least_losses(sizes: dict[str, float], error: float, accuracy: Accuracy, unit: UnitLike, target: str) -> Advice:
    found = LeastLosses(np.array(list(sizes.values())), accuracy, error).search()
    rows = [Candidate.of(mechanism, list(sizes.values()), accuracy.at) for mechanism in found]
    losses = np.array([row.tight for row in rows])
    if losses.min() < sys.float_info.min:
        smallest = next(iter(sizes))
        raise ParameterError(
            target,
            f"is so large, an error of {format_number(error)} for records of {format_number(sizes[smallest])} "
            f"({smallest}), that losses are smaller than floats can represent",
            code="too-large",
            remedy="ask for a smaller error",
        )
    order = ranks(losses)
    front, ratios = efficient(losses), regrets(losses)
    rows = [replace(row, efficient=bool(e), regret=float(r)) for row, e, r in zip(rows, front, ratios, strict=True)]
    table = [rows[i] for i in np.argsort(np.where(front, order, order + 1e9), kind="stable")]
    table = [table[0], *sorted(table[1:], key=lambda row: (not row.efficient, row.tight[-1]))]
    _warn_if_absurd(table[0], sizes, "Ask for a smaller error")
    goal = accuracy.describe(error)
    reason = _trade(table, list(sizes), accuracy) + _beyond(sizes)
    return Advice(sizes, tuple(table), goal, reason, None, unit)


def _trade(table: Sequence[Candidate], names: Sequence[str], accuracy: Accuracy) -> str:
    """Return why the first candidate is recommended, and what it gives up."""
    best = table[0]
    parts = [f"Recommended: {best.name}."]
    if len(names) > 1:
        parts.append(
            f"At no size does another candidate lose less by more than a factor of {format_number(best.regret)}, which "
            f"is the smallest such factor. (Losses below {SMALL_LOSS} count as {SMALL_LOSS}.)"
        )
    # The trade of the smallest record does not matter if it loses next to nothing.
    first = next((i for i, loss in enumerate(best.tight) if loss > SMALL_LOSS), len(names) - 1)
    parts += list(dict.fromkeys(_given_up(table, names, i) for i in (first, len(names) - 1)))
    parts.append(_errors(best, accuracy))
    return " ".join(part for part in parts if part)


def _given_up(table: Sequence[Candidate], names: Sequence[str], i: int) -> str:
    """Return which other candidate loses least at a size, and what it would cost to choose it; or nothing."""
    best, least = table[0], min(table, key=lambda row: row.tight[i])
    if least is best:
        return ""
    dearer = [max(one, SMALL_LOSS) / max(two, SMALL_LOSS) for one, two in zip(least.tight, best.tight, strict=True)]
    worst = dearer.index(max(dearer))
    here, there = (" instead of ".join(format_number(row.tight[j]) for row in (least, best)) for j in (i, worst))
    return f"The trade: at {names[i]}, {least.name} loses least, {here}, but at {names[worst]} it loses {there}."


def _errors(best: Candidate, accuracy: Accuracy) -> str:
    half, most, nearly_all = map(format_number, (best.typical, best.common, best.rare))
    text = (
        f"Half of the results are within ±{half} of the true sum, 95 % within ±{most} and 99.9 % within ±{nearly_all}."
    )
    if max(best.rare, best.std) > 0.9 * accuracy.rare * best.common:
        text += (
            f" Rare errors are as large as rare={format_number(accuracy.rare)} allows; with a smaller limit they are "
            "smaller, and losses are larger."
        )
    if best.mechanism._error_grows:
        assert accuracy.at is not None
        text += f" This is for a sum of {format_number(accuracy.at)}; the error grows with the sum."
    return text


def _beyond(sizes: Mapping[str, float]) -> str:
    """Return a warning for the reason if no size is named the largest: there may be larger records, which lose more."""
    if names_the_largest(sizes):
        return ""
    last = max(sizes, key=lambda name: sizes[name])
    return (
        f" No size is named the largest: records larger than {last} ({format_number(sizes[last])}) lose more than is "
        'shown here. Name one, such as "largest", by public knowledge or assumption, to see how much.'
    )


def _least_error(sizes: dict[str, float], wanted: dict[str, float], accuracy: Accuracy, unit: UnitLike) -> Advice:
    limited = np.array([sizes[name] for name in wanted])
    found = LeastError(limited, accuracy, np.array(list(wanted.values()))).search()
    if not found:
        raise CalibrationError(
            "losses",
            "cannot be kept by any mechanism that was tried",
            code="unreachable",
            remedy="raise the losses of the largest records, or `rare`",
        )
    error = accuracy.of(found[0])
    if error < float(as_unit(unit)) / 2:
        raise ParameterError(
            "losses",
            f"are so large that an error of {format_number(error)} would be enough, less than half of the unit {unit}: "
            "they hardly limit what can be learned",
            code="too-large",
            remedy="ask for smaller losses, or give a finer unit",
        )
    rows = [Candidate.of(mechanism, list(sizes.values()), accuracy.at) for mechanism in found]
    front = efficient(np.array([row.tight for row in rows]))
    table = [replace(row, efficient=bool(e)) for row, e in zip(rows, front, strict=True)]
    best = table[0]
    _warn_if_absurd(best, sizes, "Allow larger losses")
    goal = "tight losses of at most " + ", ".join(f"{format_number(loss)} at {name}" for name, loss in wanted.items())
    second = (
        f" The next best, {table[1].name}, has an error of {format_number(accuracy.of(table[1].mechanism))}."
        if len(table) > 1
        else ""
    )
    ratios = {name: best.tight[list(sizes).index(name)] / loss for name, loss in wanted.items()}
    binding = max(ratios, key=lambda name: ratios[name])
    reason = (
        f"Recommended: {best.name}. No family has a smaller error: "
        f"{accuracy.describe(accuracy.of(best.mechanism))}.{second} The loss at {binding} "
        f"decides: a larger one would allow a smaller error. {_errors(best, accuracy)}{_beyond(sizes)}"
    )
    return Advice(sizes, tuple(table), goal, reason, wanted, unit)


def _warn_if_absurd(best: Candidate, sizes: dict[str, float], remedy: str) -> None:
    largest = max(sizes.values())
    if best.std > ABSURD * largest:
        warnings.warn(
            f"the recommended mechanism has a standard deviation of {format_number(best.std)}, more than 10¹² times "
            f"the largest record ({format_number(largest)}): its results are useless. {remedy}",
            ScaleWarning,
            stacklevel=4,
        )


def _sizes(records: Any) -> dict[str, float]:
    if not isinstance(records, Mapping):
        raise ParameterTypeError(
            "records", allowed='names with sizes, such as {"median": 12, "largest": 4e10}', given=records
        )
    if not 1 <= len(records) <= MOST_NAMED_RECORDS:
        raise ParameterError(
            "records",
            allowed=f'from 1 to {MOST_NAMED_RECORDS} sizes, such as {{"median": 12, "largest": 4e10}}',
            given=len(records),
        )
    sizes = {str(name): _positive("records", size, str(name)) for name, size in records.items()}
    check_largest([RecordSize(name, everywhere=size) for name, size in sizes.items()], argument="records")
    return dict(sorted(sizes.items(), key=lambda pair: pair[1]))


def _losses(losses: Any, sizes: dict[str, float]) -> dict[str, float]:
    if not isinstance(losses, Mapping) or not losses:
        raise ParameterTypeError("losses", allowed='names with losses, such as {"median": 0.5}', given=losses)
    for name in losses:
        if name not in sizes:
            raise ParameterError(
                "losses",
                "has a name that is not in `records`",
                code="unknown-name",
                given=name,
                remedy=f"the names are {', '.join(sizes)}",
            )
    wanted = {name: _positive("losses", losses[name], name) for name in sizes if name in losses}
    for one, two in pairwise(wanted):
        if wanted[one] > wanted[two]:
            raise ParameterError(
                "losses",
                f"must not fall with the size, because a larger record never loses less: {one!r} has "
                f"{format_number(wanted[one])}, and {two!r} has {format_number(wanted[two])}",
                code="falling",
                remedy="raise the second, or lower the first",
            )
    return wanted


def _positive(argument: str, value: Any, key: str | None = None) -> float:
    """Return an argument, or its value for a key, as a number > 0."""
    name = argument if key is None else f"{argument}[{key!r}]"
    with located(*(() if key is None else (argument, key))):
        number = as_number(name, value, "a finite number > 0")
        if not 0 < number < math.inf:
            raise ParameterError(name, allowed="a finite number > 0", given=value)
    return number
