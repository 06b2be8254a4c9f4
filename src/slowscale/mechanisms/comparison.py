"""Mechanisms side by side: their losses, their errors, and the record sizes at which one overtakes another."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from slowscale.core.errors import ParameterError, ParameterTypeError
from slowscale.core.markup import html_text
from slowscale.core.numbers import format_number
from slowscale.core.parameters import Array, as_array, as_number, check_range
from slowscale.mechanisms.base import REGISTRY, Mechanism
from slowscale.mechanisms.calibration import ACCOUNTING, CLOSED, WIDEST, check_accounting
from slowscale.mechanisms.charged import charged_policy
from slowscale.mechanisms.crossovers import Crossover, default_span, find_crossovers, least_losses

if TYPE_CHECKING:
    import pandas as pd

# How many crossovers are printed: where a policy jumps there can be thousands.
CROSSOVERS_SHOWN = 30


@dataclass(frozen=True, eq=False)
class Comparison:
    """The result of `compare`.

    Attributes
    ----------
    influences, labels
        The record sizes of the table of losses, and their names ("" for a size without a name).
    losses
        The PRzCDP losses by the accounting: one row per mechanism, one column per influence.
    stds
        The standard deviations: one row per mechanism, one column per query.
    crossovers
        The crossovers of all pairs of mechanisms, ordered by record size.
    best
        Stretches of record sizes (start, end), each with the name of the mechanism of least loss.
    searched
        The smallest and the largest record size of the search, both included.
    complete
        Whether the policies were compared at each of their jumps. If False, only the first 10,000 jumps were.
    accounting
        Which policies were compared: "tight" or "closed".
    """

    names: tuple[str, ...]
    influences: tuple[float, ...]
    labels: tuple[str, ...]
    queries: tuple[float, ...]
    losses: Array
    stds: Array
    crossovers: tuple[Crossover, ...]
    best: tuple[tuple[float, float, str], ...]
    searched: tuple[float, float]
    complete: bool = True
    accounting: str = ACCOUNTING

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row per mechanism, with columns ("loss", name of the size or the size) and ("std", query)."""
        import pandas as pd

        sizes = [label or x for label, x in zip(self.labels, self.influences, strict=True)]
        columns = [*(("loss", size) for size in sizes), *(("std", q) for q in self.queries)]
        index = pd.Index(self.names, name="mechanism")
        table = np.concatenate([self.losses, self.stds], axis=1)
        return pd.DataFrame(table, index=index, columns=pd.MultiIndex.from_tuples(columns, names=["what", "at"]))

    def _repr_html_(self) -> str:
        return html_text(str(self))

    def __str__(self) -> str:
        blocks = []
        if self.influences:
            title = f"PRzCDP loss{' (closed form)' if self.accounting == CLOSED else ''} of a record of size"
            blocks.append(_table(title, self.labels, self.influences, self.names, self.losses))
        if self.queries:
            title = "standard deviation for a sum of"
            blocks.append(_table(title, [""] * len(self.queries), self.queries, self.names, self.stds))
        low, high = map(format_number, self.searched)
        best = [f"Least loss for records of size (from {low} to {high})"]
        best += [f"  {format_number(start):>11} to {format_number(end):>11}  {name}" for start, end, name in self.best]
        lines = ["Crossovers: from this record size on, the first loses less than the second"]
        width = max(map(len, self.names))
        lines += [
            f"  {format_number(c.influence):>11}  {c.above:<{width}}  {c.below:<{width}}  loss {format_number(c.loss)}"
            for c in self.crossovers[:CROSSOVERS_SHOWN]
        ]
        if len(self.crossovers) > CROSSOVERS_SHOWN:
            lines.append(f"  … and {len(self.crossovers) - CROSSOVERS_SHOWN:,} more: see .crossovers")
        if not self.complete:
            lines.append("  Not all jumps of unit splitting were compared: pass a narrower within=(low, high).")
        return "\n\n".join([*blocks, "\n".join(best), *(["\n".join(lines)] if len(lines) > 1 else [])])


def compare(
    mechanisms: Sequence[Mechanism] | Mapping[str, Mechanism],
    influences: Iterable[float] | Mapping[str, float] = (),
    queries: Iterable[float] = (),
    within: tuple[float, float] | None = None,
    accounting: str = ACCOUNTING,
) -> Comparison:
    """Compare mechanisms: losses at record sizes, standard deviations at sums, and crossovers of the policies.

    Losses that differ by less than a relative 1e-12 count as equal, and so do losses that are both too small or both
    too large for a float. A crossover is a record size at which the order changes; policies that only touch do not
    cross. Where two policies are equal over a stretch of sizes in between, the crossover is at the end of that stretch.
    Two crossovers of the same pair may be missed if they are within 0.5 % of each other.

    Parameters
    ----------
    mechanisms
        The mechanisms: a list, or a mapping from the names to show.
    influences
        Record sizes (numbers > 0) at which to give the PRzCDP loss: a list, or a mapping from the names to show.
    queries
        Sums at which to give the standard deviation.
    within
        The smallest and the largest record size to search for crossovers. By default the search goes from a hundredth
        of the smallest influence to a hundred times the largest one. Without `influences` it starts where the losses
        rise above 0.0001, and goes on until all of them reach 100 and one of them reaches 1,000,000.
    accounting
        Which policies are compared: "tight" for the smallest ones that are known, which may take some seconds for a new
        shape of noise, or "closed" for the closed forms.

    Examples
    --------
    >>> import slowscale as ss
    >>> mechanisms = {"Gaussian": ss.Gaussian(sigma=1), "square root": ss.Root(k=2, sigma=1)}
    >>> found = ss.compare(mechanisms, influences={"small": 0.5})
    >>> found.crossovers
    (Crossover(influence=1.0, loss=0.5, below='Gaussian', above='square root'),)
    """
    check_accounting(accounting)
    named = _by_name(mechanisms)
    labels, sizes = _named_sizes(influences)
    sums = _query_values(queries)
    policies = {name: charged_policy(m, accounting) for name, m in named.items()}
    low, high = default_span(sizes, policies.values()) if within is None else _checked_span(within)
    crossovers, complete = find_crossovers(policies, low, high)
    return Comparison(
        names=tuple(named),
        influences=tuple(sizes.tolist()),
        labels=labels,
        queries=tuple(sums.tolist()),
        losses=np.array([p(sizes) for p in policies.values()]),
        stds=np.array([np.broadcast_to(m.std(sums), sums.shape) for m in named.values()]),
        crossovers=tuple(crossovers),
        best=tuple(least_losses(policies, low, high, crossovers)),
        searched=(low, high),
        complete=complete,
        accounting=accounting,
    )


def _by_name(mechanisms: Any) -> dict[str, Mechanism]:
    if isinstance(mechanisms, Mapping):
        named = [(str(name), m) for name, m in mechanisms.items()]
    elif isinstance(mechanisms, Iterable):
        named = [(str(m), m) for m in mechanisms]
    else:
        raise ParameterTypeError("mechanisms", allowed="a list or a mapping of mechanisms", given=mechanisms)
    if not named:
        raise ParameterError("mechanisms", "must hold at least one mechanism", code="empty")
    for _, m in named:
        if not isinstance(m, Mechanism):
            raise ParameterTypeError("mechanisms", allowed="mechanisms", given=m)
    unique: dict[str, Mechanism] = {}
    for name, m in named:  # mechanisms with the same name are all shown, with a number added
        alike = sum(name == other or other.startswith(f"{name} (") for other in unique)
        unique[f"{name} ({alike + 1})" if alike else name] = m
    return unique


def _named_sizes(influences: Any) -> tuple[tuple[str, ...], Array]:
    """Return the names of record sizes, and the sizes."""
    if isinstance(influences, Mapping):
        if not influences:
            remedy = 'give at least one size, such as {"median firm": 12}'
            raise ParameterError("influences", "must not be empty", code="empty", remedy=remedy)
        labels = tuple(_label(name, size) for name, size in influences.items())
        sizes = np.array([as_number(f"influences[{name!r}]", size) for name, size in influences.items()])
    else:
        sizes = np.atleast_1d(as_array("influences", influences)).ravel()
        labels = ("",) * sizes.size
    wrong = ~((sizes > 0) & np.isfinite(sizes))
    if wrong.any():
        name = next(label for label, bad in zip(labels, wrong, strict=True) if bad)
        subject = f"influences[{name!r}]" if name else "influences"
        raise ParameterError(subject, allowed="finite and > 0", given=sizes[wrong][0])
    return labels, sizes


def _label(name: Any, size: Any) -> str:
    """Return the name of a size, or "" if the name merely repeats the number."""
    try:
        return "" if float(name) == size else str(name)
    except (TypeError, ValueError):
        return str(name)


def _query_values(queries: Iterable[float]) -> Array:
    array = np.atleast_1d(as_array("queries", queries)).ravel()
    check_range("queries", array, 0)
    return array


def _checked_span(within: tuple[float, float]) -> tuple[float, float]:
    ends = as_array("within", within).ravel().tolist()
    if len(ends) != 2 or not 0 < ends[0] < ends[1] < math.inf:
        raise ParameterError("within", allowed="two finite numbers 0 < low < high", given=within)
    return ends[0], ends[1]


def _table(title: str, labels: Sequence[str], at: Sequence[float], names: Sequence[str], values: Array) -> str:
    first = max(len(title), *(len(name) for name in names))
    rows = [[format_number(value) for value in row] for row in values]
    heads = [list(map(format_number, at))]
    if any(labels):
        heads.insert(0, list(labels))
    widths = [max(9, *map(len, column)) for column in zip(*heads, *rows, strict=True)]
    lines = [
        f"{name:<{first}}  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        for name, row in zip([*[""] * (len(heads) - 1), title, *names], [*heads, *rows], strict=True)
    ]
    lines.insert(len(heads), "-" * len(lines[0]))
    return "\n".join(lines)


def same_error(std: float, at: float, sigma: float | None = None) -> dict[str, Mechanism]:
    """Return those of the paper's experiments and the arsinh-normal, by name, all with the same standard deviation.

    For a transformation mechanism it is the standard deviation when the sum is `at` (Table experiment-params). The
    scale of the polylog is `sigma`; if that is None, it is 1, as in the paper, and `at` where the standard deviation is
    too large for a scale of 1.

    >>> {name: round(m.std(106)) for name, m in same_error(std=75, at=106).items()}["log"]
    75
    """
    found: dict[str, Mechanism] = {}
    for cls in REGISTRY.values():
        scaled = cls._scale_source({}) is not None  # it has a default scale
        place = at if cls._error_grows or (scaled and std > WIDEST) else None
        given: dict[str, Any] = {"sigma": sigma} if scaled and sigma is not None else {}
        for name, fixed in cls.compared.items():
            found[name] = cls.calibrate(std=std, at=place, **given, **fixed)
    return found
