"""`advise`: a mechanism with all its parameters, from record sizes and limits on errors and losses, and the reasons."""

import math
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import signature
from itertools import pairwise
from typing import Any

import numpy as np

from slowscale.accounting.largest import Value, check_value, proven_to
from slowscale.accounting.sizes import LARGEST_ALLOWED, RecordSize, check_largest, names_the_largest
from slowscale.advice.answers import Advice, Candidate, ColumnAdvice, relative_error
from slowscale.advice.searching import (
    LARGE,
    LARGE_WEIGHT,
    SMALL,
    SMALL_LOSS,
    Goal,
    Search,
    efficient,
    ranks,
    regrets,
    trade_off,
)
from slowscale.advice.shapes import Accuracy, Moves
from slowscale.core.errors import (
    CalibrationError,
    ParameterError,
    ParameterTypeError,
    ScaleWarning,
    Shown,
    band_in_words,
    located,
    similar,
)
from slowscale.core.numbers import format_number, percent
from slowscale.core.parameters import as_number, called_as, level_quantile
from slowscale.core.typing import UnitLike
from slowscale.mechanisms import Mechanism
from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.mechanisms.calibration import LEVEL
from slowscale.mechanisms.grid import as_unit
from slowscale.policy.bounded import BAND, check_band

LARGEST_ERROR = 1e150
LARGE_SUM = 100.0  # a large sum is at least this many times the wanted error of small sums
MOST_NAMED_RECORDS = 8
# The largest ratio of rare errors to those at 95 %, unless another one is given. That of a Gaussian is 1.7.
RARE_RATIO = 5.0
# A standard deviation is absurd if it is this many times the largest record.
ABSURD = 1e12
# The losses of the largest record's value for which the price in the accuracy of large sums is shown.
SHOWN_VALUE_LOSSES = (5.0, 2.0, 1.0, 0.5, 0.2)
# Losses that differ by less than this factor are not worth a sentence.
SEEN = 1.05
# Rows of the front are shown if their losses differ by this factor.
APART = 1.3


@called_as('advise({"median": 12, "largest": 4e10}, interval=100_000)')
def advise(
    records: Mapping[str, float],
    *,
    interval: float | None = None,
    std: float | None = None,
    relative: float | None = None,
    presence: Mapping[str, float] | None = None,
    bands: Mapping[str, float] | None = None,
    times: float = BAND,
    level: float = LEVEL,
    at: float | None = None,
    large: float | None = None,
    rare: float = RARE_RATIO,
    unit: UnitLike = 1,
    largest: float | None = None,
) -> Advice:
    """Recommend a mechanism, from record sizes that are publicly known or assumed and limits on errors and losses.

    Every limit that is given is kept; the rest shall be least. With limits on errors (`interval` or `std` for small
    sums, `relative` for large ones), losses shall be least: the largest ratio to the least loss that a candidate has
    at the same size is as small as possible. In other words, no candidate is better by more than that factor at any
    size. Losses below 0.01 count as 0.01, and losses that have a limit do not count. With limits on the losses of
    `presence` and not on the error of small sums, that error shall be least. With limits on `bands`, which hide values,
    and not on the error of large sums, that error counts beside the losses, by its tenth power; or, if the error of
    small sums has no limit either, the product of the two errors shall be least.

    All families are searched with all their parameters: additive noise, and, if `bands`, `relative` or `at` is given,
    roots and logs with Gaussian and Laplace noise and any offset `a`. Noise that is made from the limits (`FromPolicy`)
    is tried if the error shall be least.

    Parameters
    ----------
    records
        Names and sizes of records, such as {"median": 268_689, "largest": 39e9}. State what is public or assumed, or
        private quantiles (`session.quantiles`), never a size that was looked up in the records.
    interval
        The largest half-width of the interval around a small sum that contains the result with probability `level`.
    std
        The largest standard deviation for a small sum, in place of an interval.
    relative
        The largest half-width for a large sum, as a share of it: 0.05 for ±5 %.
    presence
        The largest tight losses (PRzCDP) of the presence of some of the named records.
    bands
        The largest tight losses between the values of some of the named records and others within the band.
    times
        The factor of the band: 1.1 for values that are 10 % more or less.
    level
        The level of the intervals.
    at
        The small sum that `interval` or `std` is for; by default 0. The error of roots and logs grows with the sum.
    large
        The large sum that `relative` is for, and all larger ones; by default the second-largest of the sizes, or the
        largest of less than three, and at least 100 times the wanted error of small sums.
    rare
        How large rare errors may be: the half-width of the 99.9 % interval, and the standard deviation, are at most
        this many times the half-width of the 95 % interval. Noise with heavier tails is not considered.
    unit
        The unit that results are rounded to, for the plan.
    largest
        The largest value that a release accepts, as public knowledge (`largest` of a session or a plan). No size may be
        above it. It is one of the sizes, with the name "largest allowed", unless one of them is named the largest, and
        the plan declares it.

    Examples
    --------
    >>> import slowscale as ss
    >>> advice = ss.advise({"median": 106, "largest": 1_550_000}, interval=150)
    >>> round(advice.best.prediction_interval(0, 0.95)[1])
    150
    >>> hidden = ss.advise({"median": 106, "largest": 1_550_000}, interval=150, bands={"largest": 1})
    >>> hidden.table[0].bands[-1] <= 1
    True
    """
    bound = None if largest is None else check_value(largest, "largest")
    sizes = _sizes(records, bound)
    wanted = {} if presence is None else _losses("presence", presence, sizes)
    hidden = {} if bands is None else _losses("bands", bands, sizes)
    if interval is not None and std is not None:
        problem = "must be `interval` or `std`"
        raise ParameterTypeError("the error of small sums", problem, code="conflict", given=Shown("interval and std"))
    target = "interval" if interval is not None else "std" if std is not None else None
    if target is None and relative is None and not wanted:
        problem = "must be an accuracy (`interval`, `std` or `relative`), or losses of `presence`, or both"
        given = Shown("`bands` only" if hidden else "none")
        raise ParameterTypeError("the goal", problem, code="missing", given=given)
    level_quantile(level)  # raises unless it is a level
    ratio = as_number("rare", rare, "a number of at least 2")
    if not ratio >= 2:
        raise ParameterError("rare", allowed="a number of at least 2 (the Gaussian has 1.7)", given=rare)
    as_unit(unit)
    factor = check_band(times, "times")
    small = math.inf if target is None else _positive(target, interval if std is None else std)
    usual = usual_large(list(sizes.values()), None if small == math.inf else small)
    accuracy = Accuracy(
        float(level),
        0.0 if at is None else _positive("at", at),
        usual if large is None else _positive("large", large),
        ratio,
        by_std=std is not None,
    )
    if relative is not None and not 0 < as_number("relative", relative, "a number") <= 1:
        remedy = f"{relative:g} % is {relative / 100:g}" if 1 < relative < 100 else None
        raise ParameterError("relative", allowed="a share from 0 to 1, without 0", given=relative, remedy=remedy)
    most = math.inf if relative is None else _positive("relative", relative) * accuracy.large
    for name, error in ((target, small), (None if relative is None else "relative", most)):
        if name is not None:
            _check_error(name, error, unit)
    transform = at is not None or relative is not None or bool(hidden)
    values = np.array(list(sizes.values()))
    moves = [Moves.of(values), Moves.of(values, factor)]
    limits = [given.get(name, math.inf) for given in (wanted, hidden) for name in sizes]
    # Which errors have no limit, and shall be least. Without such errors, losses shall be.
    open_small, open_large = bool(target is None and wanted), bool(hidden and relative is None)
    # Losses that have a limit need not be less. Values count if nothing is said about them.
    counted = np.isinf(limits) & np.repeat([True, transform and not hidden], len(sizes))
    goal = Goal(
        accuracy,
        (small, most),
        Moves(*(np.concatenate(parts) for parts in zip(*moves, strict=True))),
        np.array(limits),
        counted if counted.any() or open_large else np.repeat([True, transform], len(sizes)),
        ((SMALL,) + (LARGE,) * open_large) * open_small,
        open_large,
        not open_small,
        transform,
    )
    return _Question(sizes, goal, wanted, hidden, factor, unit, bound).answer()


def advise_columns(
    columns: Mapping[str, Mapping[str, Any]], **common: Mapping[str, float] | UnitLike | None
) -> ColumnAdvice:
    """Recommend a mechanism for each of several columns, to be released together by one plan.

    Parameters
    ----------
    columns
        For each column the arguments of `advise`, with `records` for the sizes.
    common
        Arguments for all columns, where a column does not have its own.

    Examples
    --------
    >>> import slowscale as ss
    >>> asked = {
    ...     "pay": {"records": {"median": 106, "largest": 1_550_000}, "interval": 150},
    ...     "emp": {"records": {"median": 4, "largest": 9_000}, "interval": 10},
    ... }
    >>> advice = ss.advise_columns(asked, rare=4)
    >>> list(advice.best)
    ['pay', 'emp']
    """
    if not isinstance(columns, Mapping) or not columns or not all(isinstance(one, Mapping) for one in columns.values()):
        allowed = 'columns with arguments of `advise`, such as {"pay": {"records": {"largest": 4e10}, "interval": 1e6}}'
        raise ParameterTypeError("columns", allowed=allowed, given=columns)
    known = list(signature(advise).parameters)
    found = {}
    for column, given in columns.items():
        asked: dict[str, Any] = {**common, **given}
        for name in asked:
            if name not in known:
                problem = "is not an argument of `advise`"
                near = similar(str(name), known)
                remedy = f"did you mean {near!r}?" if near else f"choose among {', '.join(sorted(known))}"
                raise ParameterTypeError(
                    str(name), problem, code="unknown-name", path=("columns", str(column)), remedy=remedy
                )
        if "records" not in asked:
            remedy = 'give names with sizes, such as records={"median": 12, "largest": 4e10}'
            raise ParameterTypeError(
                "records", "is missing", code="missing", path=("columns", str(column)), remedy=remedy
            )
        with located("columns", str(column)):
            found[str(column)] = advise(**asked)
    return ColumnAdvice(found)


def _check_error(name: str, error: float, unit: UnitLike) -> None:
    """Raise if an error is too large to compute with, or smaller than the unit."""
    if error > LARGEST_ERROR:
        problem = f"asks for an error above {LARGEST_ERROR:g}, which is too large to compute with"
        raise ParameterError(name, problem, code="too-large", remedy="ask for a smaller error")
    if error < float(as_unit(unit)) / 2:
        raise ParameterError(
            "unit",
            allowed=f"finer than the wanted error of {format_number(error)}",
            given=unit,
            remedy="results are rounded to the unit",
        )


def usual_large(sizes: Sequence[float], small: float | None) -> float:
    """Return the large sum that `relative` is for by default, given the wanted error of small sums, if there is one."""
    return max(sizes[-2 if len(sizes) > 2 else -1], LARGE_SUM * (small or 0.0))


class _Question:
    """What `advise` was asked, and how it answers."""

    def __init__(
        self,
        sizes: dict[str, float],
        goal: Goal,
        presence: dict[str, float],
        bands: dict[str, float],
        times: float,
        unit: UnitLike,
        largest: Value | None,
    ) -> None:
        self._sizes, self._goal, self._presence, self._bands = sizes, goal, presence, bands
        self._times, self._unit, self._largest = times, unit, largest

    def answer(self) -> Advice:
        goal = self._goal
        found = self._search(goal)
        rows = [self._candidate(mechanism) for mechanism in found]
        losses = np.array([(*row.tight, *row.bands) for row in rows])
        if losses.min() < sys.float_info.min:
            name, size = next(iter(self._sizes.items()))
            raise ParameterError(
                "the error",
                f"is so large, {format_number(rows[0].common)} for records of {format_number(size)} ({name}), that "
                "losses are smaller than floats can represent",
                code="too-large",
                remedy="ask for a smaller error, or for larger losses",
            )
        values = np.array(
            [goal.values(all_, goal.accuracy.of(row.mechanism)) for row, all_ in zip(rows, losses, strict=True)]
        )
        front, ratios = efficient(values), regrets(values, goal.floor)
        rows = [replace(row, efficient=bool(e), regret=float(r)) for row, e, r in zip(rows, front, ratios, strict=True)]
        if not goal.least:
            order = ranks(values)
            rows = [rows[i] for i in np.argsort(np.where(front, order, order + 1e9), kind="stable")]
            rows = [rows[0], *sorted(rows[1:], key=lambda row: (not row.efficient, row.tight[-1]))]
        self._warn_if_absurd(rows[0])
        reason = self._reason(goal, rows)
        return Advice(
            self._sizes,
            tuple(rows),
            self._in_words(),
            reason,
            goal.accuracy,
            self._times,
            self._presence,
            self._bands,
            self._unit,
            self._largest,
            lambda: self._front(rows),
        )

    def _search(self, goal: Goal) -> list[Mechanism]:
        search = Search(goal)
        found = search.search()
        if found:
            small = goal.accuracy.of(found[0])[SMALL]
            if goal.least and small < float(as_unit(self._unit)) / 2:
                raise ParameterError(
                    "presence",
                    f"has losses so large that an error of {format_number(small)} would be enough, less than half of "
                    f"the unit {self._unit}: they hardly limit what can be learned",
                    code="too-large",
                    remedy="ask for smaller losses, or give a finer unit",
                )
            return found
        nearest = search.nearest()
        remedy = "raise the losses of the largest records, or `rare`"
        if nearest is not None and nearest.misses:
            row = self._candidate(nearest.shape.with_scale(nearest.scale))
            above = [
                f"{format_number(loss)} at {name} ({what}), where {format_number(given[name])} is wanted"
                for what, given, losses in (("presence", self._presence, row.tight), ("value", self._bands, row.bands))
                for name, loss in zip(self._sizes, losses, strict=True)
                if loss > given.get(name, math.inf)
            ]
            remedy = f"the nearest with the wanted errors, {row.name}, loses {', '.join(above)}; allow this, or more"
            if not above:
                remedy = f"the nearest with the wanted losses, {row.name}, has {self._describe(row)}; allow this error"
        raise CalibrationError(
            "the goal", "cannot be reached by any mechanism that was tried", code="unreachable", remedy=remedy
        )

    def _candidate(self, mechanism: Mechanism) -> Candidate:
        return Candidate.of(mechanism, list(self._sizes.values()), self._goal.accuracy, self._times)

    def _front(self, rows: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Return mechanisms with the best one's error of small sums, the most accurate for large sums first."""
        goal = self._goal
        small = min(goal.accuracy.of(rows[0].mechanism)[SMALL], goal.errors[SMALL])
        additive = [row for row in rows if isinstance(row.mechanism, AdditiveMechanism)]
        kept = [row for row in additive if goal.accuracy.of(row.mechanism)[SMALL] <= 1.001 * small][:1]
        known = [*kept, *([] if rows[0] in kept else [rows[0]])]
        most = max((row.bands[-1] for row in kept), default=math.inf)
        asked = replace(goal, errors=(small, math.inf), transform=True)
        made = trade_off(asked, 2 * len(self._sizes) - 1, [loss for loss in SHOWN_VALUE_LOSSES if loss < most / APART])
        for mechanism in made:
            row = self._candidate(mechanism)
            if all(max(row.bands[-1] / one.bands[-1], one.bands[-1] / row.bands[-1]) > APART for one in known):
                known.append(row)
        return tuple(sorted(known, key=lambda row: -row.bands[-1])) if len(known) > 1 else ()

    def _in_words(self) -> str:
        """Return the limits in words."""
        goal, accuracy = self._goal, self._goal.accuracy
        parts = [] if math.isinf(goal.errors[SMALL]) else [_describe_error(accuracy, goal.errors[SMALL])]
        if math.isfinite(goal.errors[LARGE]):
            share = format_number(float(f"{100 * goal.errors[LARGE] / accuracy.large:.3g}"))
            parts.append(
                f"{percent(accuracy.level)} within ±{share} % for sums of {format_number(accuracy.large)} or more"
            )
        near = f" ({band_in_words(self._times)} more or less)"
        for what, given in (("presence", self._presence), (f"the value{near}", self._bands)):
            if given:
                losses = ", ".join(f"{format_number(loss)} at {name}" for name, loss in given.items())
                parts.append(f"tight losses of {what} of at most {losses}")
        return "; ".join(parts)

    def _reason(self, goal: Goal, table: Sequence[Candidate]) -> str:
        """Return why the first candidate is recommended, and what it gives up."""
        best, names = table[0], list(self._sizes)
        parts = [f"Recommended: {best.name}."]
        if goal.least:
            parts += self._least_errors(goal, table)
        elif len(names) > 1:
            values = " of presence and values" if goal.counted[len(names) :].any() else ""
            weighed = f" 10 % more error of large sums counts like {1.1**LARGE_WEIGHT:.2g} times the loss."
            factor = format_number(best.regret, 1)
            parts.append(
                "No other candidate loses less at any size."
                if best.regret == 1
                else "It is the best compromise: at each size, it loses at most "
                f"{factor} times as much as the candidate that loses least there, and no other candidate has a smaller "
                "such factor."
            )
            parts.append(f"(Losses{values} below {SMALL_LOSS} count as {SMALL_LOSS}.{weighed * goal.weighs_large})")
            # The trade of the smallest record does not matter if it loses next to nothing.
            first = next((i for i, loss in enumerate(best.tight) if loss > SMALL_LOSS), len(names) - 1)
            parts += list(dict.fromkeys(_given_up(table, names, i) for i in (first, len(names) - 1)))
        parts.append(_errors(best, goal.accuracy))
        parts.append(_beyond(self._sizes))
        return " ".join(part for part in parts if part)

    def _describe(self, row: Candidate, errors: Sequence[int] = (SMALL, LARGE)) -> str:
        """Return errors of a candidate in words."""
        accuracy = self._goal.accuracy
        found = accuracy.of(row.mechanism)
        words = [_describe_error(accuracy, found[SMALL])] if SMALL in errors else []
        if LARGE in errors:
            share = relative_error(found[LARGE] / accuracy.large)
            words.append(f"results within {share} for sums of {format_number(accuracy.large)} or more")
        return " and ".join(words)

    def _least_errors(self, goal: Goal, table: Sequence[Candidate]) -> list[str]:
        """Return which errors are least, what the next best has, and which limit decides."""
        best = table[0]
        parts = [f"No candidate that keeps the limits has a smaller error: {self._describe(best, goal.least)}."]
        if goal.least == (SMALL, LARGE):
            parts = [
                f"No candidate that keeps the limits has a smaller product of the two errors: {self._describe(best)}."
            ]
        if len(table) > 1:
            parts.append(f"The next best, {table[1].name}, has {self._describe(table[1], goal.least)}.")
        limits = [
            (loss / given[name], name, what)
            for what, given, losses in (("presence", self._presence, best.tight), ("value", self._bands, best.bands))
            for name, loss in zip(self._sizes, losses, strict=True)
            if name in given
        ]
        _, name, what = max(limits)
        parts.append(f"The loss of {what} at {name} decides: a larger one would allow a smaller error.")
        return parts

    def _warn_if_absurd(self, best: Candidate) -> None:
        largest = max(self._sizes.values())
        if best.std > ABSURD * largest:
            remedy = "Ask for a smaller error" if math.isfinite(min(self._goal.errors)) else "Allow larger losses"
            warnings.warn(
                f"the recommended mechanism has a standard deviation of {format_number(best.std)}, more than 10¹² "
                f"times the largest record ({format_number(largest)}): its results are useless. {remedy}",
                ScaleWarning,
                stacklevel=5,
            )


def _describe_error(accuracy: Accuracy, value: float) -> str:
    """Return the error of a small sum in words: "95 % of the results within ±1,900,000 of the true sum"."""
    where = f" for a sum of {format_number(accuracy.at)}" if accuracy.at else ""
    if accuracy.by_std:
        return f"a standard deviation of {format_number(value)}{where}"
    return f"{percent(accuracy.level)} of the results within ±{format_number(value)} of the true sum{where}"


def _given_up(table: Sequence[Candidate], names: Sequence[str], i: int) -> str:
    """Return which other candidate loses least at a size, and what it would cost to choose it; or nothing."""
    best, least = table[0], min(table, key=lambda row: row.tight[i])
    if best.tight[i] < SEEN * least.tight[i]:
        return ""
    dearer = [max(one, SMALL_LOSS) / max(two, SMALL_LOSS) for one, two in zip(least.tight, best.tight, strict=True)]
    worst = dearer.index(max(dearer))
    here, there = (" instead of ".join(format_number(row.tight[j]) for row in (least, best)) for j in (i, worst))
    costs = [f"at {names[worst]} it loses {there}"] if dearer[worst] > SEEN else []
    costs += [f"large sums get {relative_error(least.large)}"] if least.large > SEEN * best.large else []
    price = f", but {' and '.join(costs)}" if costs else ""
    return f"The trade: at {names[i]}, {least.name} loses least, {here}{price}."


def _errors(best: Candidate, accuracy: Accuracy) -> str:
    half, most, nearly_all = map(format_number, (best.typical, best.common, best.rare))
    where = f" for a sum of {format_number(accuracy.at)}" if accuracy.at else " for small sums"
    grows = best.mechanism._error_grows
    text = (
        f"Half of the results are within ±{half} of the true sum"
        f"{where if grows else ''}, 95 % within ±{most}; 1 in 1,000 is off by more than {nearly_all}."
    )
    if max(best.rare, best.std) > 0.9 * accuracy.rare * best.common:
        text += (
            f" Rare errors are as large as rare={format_number(accuracy.rare)} allows; with a smaller limit they are "
            "smaller, and losses are larger."
        )
    if grows:
        text += (
            f" The error grows with the sum: for sums of {format_number(accuracy.large)} or more, 95 % of the results "
            f"are within {relative_error(best.large)}."
        )
    return text


def _beyond(sizes: Mapping[str, float]) -> str:
    """Return a warning for the reason if no size is named the largest: there may be larger records, which lose more."""
    if names_the_largest(sizes):
        return ""
    last = max(sizes, key=lambda name: sizes[name])
    return (
        f"No size is named the largest: records larger than {last} ({format_number(sizes[last])}) lose more than is "
        'shown here. Name one, such as "largest", by public knowledge or assumption, to see how much.'
    )


def _sizes(records: Any, largest: Value | None) -> dict[str, float]:
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
    if largest is not None:
        most = proven_to(largest)
        if above := [name for name, size in sizes.items() if size > most]:
            problem = f"has a size above `largest`, {format_number(most)}, which releases refuse"
            raise ParameterError("records", problem, code="too-large", path=("records", above[0]))
        if not names_the_largest(sizes):
            sizes[LARGEST_ALLOWED] = most
    return dict(sorted(sizes.items(), key=lambda pair: pair[1]))


def _losses(argument: str, losses: Any, sizes: dict[str, float]) -> dict[str, float]:
    if not isinstance(losses, Mapping) or not losses:
        raise ParameterTypeError(argument, allowed='names with losses, such as {"median": 0.5}', given=losses)
    for name in losses:
        if name not in sizes:
            raise ParameterError(
                argument,
                "has a name that is not in `records`",
                code="unknown-name",
                given=name,
                remedy=f"the names are {', '.join(sizes)}",
            )
    wanted = {name: _positive(argument, losses[name], name) for name in sizes if name in losses}
    for one, two in pairwise(wanted):
        if wanted[one] > wanted[two]:
            raise ParameterError(
                argument,
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
