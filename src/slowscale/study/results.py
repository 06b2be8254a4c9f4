"""The study itself: all experiments on all attributes, and what they found."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np

import slowscale as ss
from slowscale.core.parameters import Array
from slowscale.study.attributes import Attribute
from slowscale.study.errors import PERCENTILES, Experiment, Integers, Store, percentiles
from slowscale.study.gains import (
    Contender,
    SizeClass,
    contenders,
    experiments_by_size,
    gain_experiments,
    size_classes,
)
from slowscale.study.losses import LossDistribution
from slowscale.study.parameters import experiment_mechanisms

Advance = Callable[[int], object]


@dataclass(frozen=True, eq=False)
class Gains:
    """Errors by size of cell where the largest record has a given loss.

    Attributes
    ----------
    medians
        The median relative error: by contender, one number per size class.
    clipped_by_size
        The median relative error of clipping with the best threshold for each size class.
    """

    loss: float
    classes: list[SizeClass]
    contenders: list[Contender]
    medians: dict[str, Array]
    clipped_by_size: Array


@dataclass(frozen=True, eq=False)
class Subject:
    """An attribute with all that was found about it.

    Attributes
    ----------
    errors
        Percentiles of the absolute relative error, by mechanism: one row per quintile of the cells.
    without_error
        How many cells have the sum 0, and so no relative error.
    """

    attribute: Attribute
    mechanisms: dict[str, ss.Mechanism]
    errors: dict[str, Array]
    gains: list[Gains]
    without_error: int

    @property
    def name(self) -> str:
        """The name of the attribute."""
        return self.attribute.name

    @property
    def std(self) -> float:
        """The standard deviation of all additive mechanisms, and of the others when the sum is the median record."""
        return self.mechanisms["Gaussian"].std(0.0)

    @cached_property
    def losses(self) -> dict[str, LossDistribution]:
        """The losses of all records, by mechanism."""
        return {name: LossDistribution.of(m, self.attribute.values) for name, m in self.mechanisms.items()}

    def percentile(self, mechanism: str, wanted: int) -> Array:
        """Return a percentile of the absolute relative error in each quintile."""
        return self.errors[mechanism][:, PERCENTILES.index(wanted)]


@dataclass(frozen=True, eq=False)
class GainPlan:
    """The experiments at one loss of the largest record."""

    loss: float
    contenders: list[Contender]
    experiments: dict[str, Experiment]
    by_size: list[Experiment]


@dataclass(frozen=True, eq=False)
class Plan:
    """The experiments on one attribute, before they are run."""

    attribute: Attribute
    mechanisms: dict[str, ss.Mechanism]
    errors: dict[str, Experiment]
    gains: list[GainPlan]

    @property
    def draws(self) -> int:
        """How many values are released in all experiments."""
        gains = [one for gain in self.gains for one in (*gain.experiments.values(), *gain.by_size)]
        return sum(one.draws for one in (*self.errors.values(), *gains))


def plan_experiments(attribute: Attribute, repetitions: int, losses: Sequence[float]) -> Plan:
    """Return the experiments on an attribute."""
    sums = attribute.sums[attribute.sums > 0]
    quintiles: Integers = np.arange(len(sums)) * 5 // len(sums)
    mechanisms = experiment_mechanisms(attribute)
    errors = {name: Experiment(m, sums, quintiles, repetitions) for name, m in mechanisms.items()}
    gains = []
    for loss in losses:
        found = contenders(attribute, loss)
        experiments = gain_experiments(attribute, found, repetitions)
        gains.append(GainPlan(loss, found, experiments, experiments_by_size(attribute, loss, repetitions)))
    return Plan(attribute, mechanisms, errors, gains)


def carry_out(plan: Plan, store: Store, advance: Advance) -> Subject:
    """Run the experiments of a plan; those in the store are not run again."""

    def counts(experiment: Experiment) -> Integers:
        found = store.counts(experiment)
        advance(experiment.draws)
        return found

    def median(experiment: Experiment) -> Array:
        return percentiles(counts(experiment), (50,))[:, 0]

    sums = plan.attribute.sums
    errors = {name: percentiles(counts(experiment)) for name, experiment in plan.errors.items()}
    classes, _ = size_classes(sums[sums > 0])
    gains = [
        Gains(
            one.loss,
            classes,
            one.contenders,
            {name: median(experiment) for name, experiment in one.experiments.items()},
            np.concatenate([median(experiment) for experiment in one.by_size]),
        )
        for one in plan.gains
    ]
    return Subject(plan.attribute, plan.mechanisms, errors, gains, int((sums == 0).sum()))


@contextmanager
def progress(total: int) -> Iterator[Advance]:
    """Show a progress bar on a terminal; yields the function that moves it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("releasing", total=total)
        yield lambda draws: bar.advance(task, draws)
