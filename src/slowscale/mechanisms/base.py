"""The interface of all mechanisms: policies, error, intervals, calibration of the parameters to a target; and `Noisy`.

`Noisy` is the result of `Mechanism.release`: the noisy value with its standard error and interval.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar, Self, overload

import numpy as np

from slowscale.core.errors import ParameterError, ScaleWarning, UnitWarning
from slowscale.core.numbers import format_number, grid, rounded
from slowscale.core.parameters import Array, Declared, check_entries, check_flag, domains, lazy
from slowscale.core.typing import ArrayLike, NumberArray, Scalar, UnitLike
from slowscale.mechanisms import calibration
from slowscale.mechanisms.grid import elementwise, floats, values
from slowscale.policy import Certificate, Policy, number
from slowscale.policy.base import to_plain
from slowscale.policy.bounded import BandPolicy, BoundedPolicy
from slowscale.sampling import Bits, BitSource
from slowscale.sampling.exact import Integers


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


ESTIMATORS = ("mean", "median")  # the named estimators of transformation mechanisms
# All mechanisms by kind, in order of definition. Everything that lists mechanisms is derived from this.
REGISTRY: dict[str, type["Mechanism"]] = {}


class Mechanism(Declared, ABC):
    """A way to publish a sum q: a frozen value with parameters, policies and errors."""

    # Its name in plans and on the command line, and a sentence that says what it does. A class with a kind is
    # registered.
    kind: ClassVar[str]
    words: ClassVar[str]  # how noise is added, with {total} for "sum" or "count"
    # The names under which `same_error` lists it, each with the parameters that are fixed.
    compared: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    # The parameters that `calibrate` may solve for, the usual one first.
    _free: ClassVar[tuple[str, ...]]
    # The parameters that can make it less precise, the scale of the noise first; True if raising it does so.
    _coarser: ClassVar[Mapping[str, bool]] = {"sigma": True}
    # Whether the sums must not be negative.
    _needs_nonnegative: ClassVar[bool] = False
    # Whether the error grows with the sum.
    _error_grows: ClassVar[bool]
    # Whether `policy` is a closed form. If not, `policy` is the tight one, and calibration reads `tight_loss` instead.
    _closed_form: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kind" in cls.__dict__:
            known = REGISTRY.get(cls.kind, cls)
            if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
                problem = f"is already that of {known.__name__}"
                raise ParameterError("kind", problem, code="duplicate", given=cls.kind, remedy="choose another name")
            REGISTRY[cls.kind] = cls

    def __post_init__(self) -> None:
        """Check and convert the parameters, and report unusual ones."""
        super().__post_init__()
        calibration.report_unusual(self, stacklevel=3)

    @property
    @abstractmethod
    def policy(self) -> Policy:
        """The PRzCDP policy, in the best known closed form."""

    @property
    @abstractmethod
    def pure_policy(self) -> Policy | None:
        """The PRDP policy, or None if the mechanism has none."""

    @property
    def _missing_moments(self) -> str:
        """Which moments the noise does not have, in words: its mean, its variance, or none."""
        return ""

    @property
    def tight_policy(self) -> Policy:
        """The smallest known PRzCDP policy: for transformations and Gaussian noise, `policy` itself."""
        return self.policy

    def tight_loss(self, influence: float) -> float:
        """Return the tight loss of one record size, with more digits than `tight_policy` has."""
        return self.tight_policy(influence)

    def tight_certificate(self) -> Certificate:
        """Return what proves the tight policy, if it is not exact in closed form."""
        problem = "has a policy that is exact in closed form and needs no proof"
        raise ParameterError(type(self).__name__, problem, code="unsupported")

    @overload
    def variance(self, q: Scalar, unit: UnitLike | None = None) -> float: ...

    @overload
    def variance(self, q: ArrayLike, unit: UnitLike | None = None) -> Array: ...

    @abstractmethod
    def variance(self, q: Scalar | ArrayLike, unit: UnitLike | None = None) -> float | Array:
        """Return the variance when the sum is q: of the ideal output, or with a `unit`, as published."""

    @overload
    def std(self, q: Scalar, unit: UnitLike | None = None) -> float: ...

    @overload
    def std(self, q: ArrayLike, unit: UnitLike | None = None) -> Array: ...

    @abstractmethod
    def std(self, q: Scalar | ArrayLike, unit: UnitLike | None = None) -> float | Array:
        """Return the standard deviation when the sum is q: of the ideal output, or with a `unit`, as published."""

    @overload
    def bias(self, q: Scalar, unit: UnitLike | None = None) -> float: ...

    @overload
    def bias(self, q: ArrayLike, unit: UnitLike | None = None) -> Array: ...

    @abstractmethod
    def bias(self, q: Scalar | ArrayLike, unit: UnitLike | None = None) -> float | Array:
        """Return E[output] − q: for the ideal output, or with a `unit`, for the published value."""

    @overload
    def prediction_interval(
        self, q: Scalar, level: float = 0.95, unit: UnitLike | None = None
    ) -> tuple[float, float]: ...

    @overload
    def prediction_interval(
        self, q: ArrayLike, level: float = 0.95, unit: UnitLike | None = None
    ) -> tuple[NumberArray, NumberArray]: ...

    @abstractmethod
    def prediction_interval(
        self, q: Scalar | ArrayLike, level: float = 0.95, unit: UnitLike | None = None
    ) -> tuple[float | NumberArray, float | NumberArray]:
        """Return the ends of an interval that contains the output with probability `level` or more.

        Without a `unit` this is the ideal output; with one, it is the published value, which is rounded to the unit.
        """

    @overload
    def coverage(self, q: Scalar, level: float = 0.95, unit: UnitLike | None = None) -> float: ...

    @overload
    def coverage(self, q: ArrayLike, level: float = 0.95, unit: UnitLike | None = None) -> Array: ...

    @abstractmethod
    def coverage(self, q: Scalar | ArrayLike, level: float = 0.95, unit: UnitLike | None = None) -> float | Array:
        """Return the exact probability that the output lies in `prediction_interval(q, level, unit)`."""

    @abstractmethod
    def _probability_within(self, q: Array, low: Array, high: Array) -> Array:
        """Return P(low < output − q < high) for the ideal output, one per sum."""

    @abstractmethod
    def release(
        self, q: Scalar | ArrayLike, unit: UnitLike = 1, level: float = 0.95, bits: BitSource | None = None
    ) -> Noisy:
        """Draw secret noise and return the publishable result for the sum q, or for an array of sums.

        Parameters
        ----------
        q
            The exact sum: an int, Decimal or Fraction of any size, a float (taken as its exact binary value), or an
            array of integers, floats or Python numbers.
        unit
            The public grid step to which the result is rounded: an int, a Decimal, a Fraction or text such as "0.01".
        level
            The confidence level of the interval that is released with the value.
        bits
            A source of random bits, for tests. If it is not secret, the result is marked NOT PRIVATE.
        """

    @abstractmethod
    def _release(self, q: Any, unit: Any, level: float, bits: BitSource | Bits | None) -> Noisy:
        """Return the result of `release`, without warnings."""

    @abstractmethod
    def _half_width_at(self, q: float, level: float) -> float:
        """Return half the length of the interval for a sum q, from the ideal output in the middle of its noise."""

    @abstractmethod
    def _rounding_bias(self, unit: Fraction, on_grid: bool) -> float:
        """Return the largest bias that rounding to the unit adds; `on_grid` if all sums are whole numbers of units."""

    @abstractmethod
    def _unit_warning(self, unit: Fraction, on_grid: bool) -> str | None:
        """Return a warning if the unit is so coarse that rounding biases the results, otherwise None."""

    def _coarse_unit_text(self, unit: Fraction, bias: float) -> str:
        return (
            f"unit {grid(unit)} is coarser than the noise of {self}: rounding biases results by up to "
            f"{format_number(bias)}. Take a finer unit, or more noise"
        )

    def _warn_of_unit(self, noisy: Noisy) -> Noisy:
        """Warn the caller of `release` if the unit is too coarse."""
        warning = self._unit_warning(noisy.unit, noisy.on_grid)
        if warning is not None:
            warnings.warn(warning, UnitWarning, stacklevel=3)
        return noisy

    @abstractmethod
    def _error_at(self, q: Any, unit: Fraction, on_grid: bool) -> Any:
        """Return the standard error when the true sum is q, rounding included. Releases state it at an estimate."""

    @abstractmethod
    def _standard_error(self, noisy: Noisy) -> Any:
        """Return the standard error of a release, computed from the released values."""

    @abstractmethod
    def _confidence_interval(self, noisy: Noisy) -> tuple[Any, Any]:
        """Return the ends of an interval for the true sum, in whole units, computed from the released values."""

    @abstractmethod
    def _variance_from(self, transformed: Any, unit: Fraction, on_grid: bool) -> Any:
        """Return an unbiased estimate of the variance of a released value; for additive noise the largest variance."""

    def bounded_policy(self, *, add: float | None = None, pure: bool = False, loose: bool = False) -> BoundedPolicy:
        """Return the policy for bounded neighbours: the loss between two values of a record that is present.

        Parameters
        ----------
        add
            The other value of a record r is r + add. Without it, the policy takes both values.
        pure
            Return the PRDP policy instead of the PRzCDP one.
        loose
            Return the simpler bounds of the paper's Table metric-mechSummaryNew.
        """
        return BoundedPolicy(self._policy_of_values(pure), add, loose)

    def band_policy(self, *, times: float, pure: bool = False, loose: bool = False) -> BandPolicy:
        """Return the largest loss between a record's value r and any value from r/times to times·r.

        Parameters
        ----------
        times
            The factor, above 1: 1.1 for 10 % more or less.
        pure, loose
            As for `bounded_policy`.

        >>> import slowscale as ss
        >>> P = ss.Log(sigma=0.05, a=1000, noise="laplace").band_policy(times=1.1)
        >>> P([100, 1e6, 1e12]).round(4).tolist()
        [0.0154, 1.0533, 1.0548]
        """
        return BandPolicy(self._policy_of_values(pure), times, loose=loose)

    def _policy_of_values(self, pure: bool) -> Policy:
        """Return the policy that losses between values are computed from."""
        check_flag("pure", pure)
        policy = self.pure_policy if pure else self.tight_policy
        if policy is None:
            problem = f"must be False, because {type(self).__name__} has no PRDP policy"
            raise ParameterError("pure", problem, code="unsupported")
        return policy

    @classmethod
    def calibrate(
        cls,
        *,
        std: float | None = None,
        interval: float | None = None,
        level: float = calibration.LEVEL,
        loss: float | None = None,
        at: float | None = None,
        pure: bool = False,
        accounting: str = calibration.ACCOUNTING,
        free: str | None = None,
        **fixed: float | str | Callable[..., Any] | None,
    ) -> Self:
        """Return the mechanism of this class that meets a target, by solving for one parameter.

        Parameters
        ----------
        std
            The target standard deviation; for a transformation mechanism, when the sum is `at`.
        interval
            The target half-width of the prediction interval at `level`. For additive noise it is the half-width of the
            interval around 0. For a transformation mechanism it is half the length of `prediction_interval(at, level)`,
            whose ends are not equally far from `at`.
        level
            The probability with which the interval contains the output.
        loss
            The target loss of a record of value `at`: PRzCDP, or PRDP with `pure=True`.
        accounting
            Which policy is to have the loss: "tight" for `tight_policy`, or "closed" for `policy`, which needs more
            noise. With "tight", `tight_policy(at)` is at most `loss`, and up to 1.3 % less. Where the closed form is
            exact, both have the same result.
        free
            The parameter to solve for. By default it is the usual one, or the next one if that is fixed.
        at
            The sum that `std` or `interval` is for, or the record value that `loss` is for. With additive noise the
            error is the same for every sum, so `at` may be left out; for the exponential polylog with `std` or
            `interval`, it is the scale sigma, unless that is given. Without both, sigma is 1, and a target of more
            than 10,000 is refused.
        fixed
            The values of the other parameters; those with a default may be left out.

        Warns
        -----
        ScaleWarning
            If the result is probably not the mechanism you intended: the polylog's scale was not given and half of the
            noise is within 1 % of the target, the noise is more than 10¹² times as large as `at`, the interval of a
            transformation does not contain `at`, or a parameter is far from usual values.

        Raises
        ------
        CalibrationError
            If no value of the free parameter meets the target. The message states which targets can be met.
        """
        target = calibration.Target.of(
            cls, std=std, interval=interval, level=level, loss=loss, at=at, pure=pure, accounting=accounting
        )
        found = calibration.calibrate(cls, target, free, {**cls._implied(target, free, fixed), **fixed})
        for warning in calibration.calibration_warnings(found, target, free, fixed):
            warnings.warn(warning, ScaleWarning, stacklevel=2)
        return found

    @classmethod
    def _implied(cls, target: calibration.Target, free: str | None, fixed: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters that are neither given nor solved for, and that follow from the target."""
        return {}

    @classmethod
    def _scale_source(
        cls, fixed: Mapping[str, Any], target: calibration.Target | None = None, free: str | None = None
    ) -> str | None:
        """Return where the scale comes from, in words; None if it has no default, so that it is given or solved for."""
        return None

    def _scale_words(self, fixed: Mapping[str, Any], target: str | None = None, at: float | None = None) -> str | None:
        """Return the scale and where it comes from: "sigma = 5,000, from at"; None where `_scale_source` is None.

        `target` is the name of what was solved for, or None if all parameters were stated.
        """
        source = self._scale_source(fixed, None if target is None else calibration.Target(target, 1.0, at))
        return None if source is None else f"sigma = {format_number(float(getattr(self, 'sigma', 1.0)))}, {source}"

    @classmethod
    def _range(cls, name: str, fixed: dict[str, Any]) -> tuple[float, float]:
        """Return the smallest and the largest value of a parameter, given the fixed ones."""
        domain = domains(cls)[name]
        return domain.low, domain.high

    def to_dict(self) -> dict[str, Any]:
        """Return the type and the parameters as values that JSON can represent."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return {"type": type(self).__name__, **{name: to_plain(value) for name, value in values.items()}}

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> "Mechanism":
        """Return the mechanism that a dictionary from `to_dict` describes; it may have been stored as JSON."""
        kinds = {cls.__name__: cls for cls in REGISTRY.values()}
        if not isinstance(description, Mapping) or description.get("type") not in list(kinds):
            raise ParameterError(
                "description", allowed=f"a mapping with a type among {', '.join(sorted(kinds))}", given=description
            )
        cls: Any = kinds[description["type"]]
        given = {name: value for name, value in description.items() if name != "type"}
        known = [f.name for f in fields(cls)]
        check_entries(cls.__name__, given, known)
        for name, value in given.items():
            if isinstance(value, Mapping):
                given[name] = Mechanism.from_dict(value) if "type" in value else Policy.from_dict(value)
        with calibration.without_warnings():
            made: Mechanism = cls(**given)
        return made

    def __str__(self) -> str:
        parts = []
        for f in fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            text = number(value) if isinstance(value, float) else getattr(value, "__name__", str(value))
            parts.append(f"{f.name}={text}")
        return f"{type(self).__name__}({', '.join(parts)})"
