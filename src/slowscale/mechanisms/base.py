"""What every mechanism answers: its policies, its error, its intervals, and the parameters that meet a target."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import fields
from fractions import Fraction
from typing import Any, ClassVar, Self, overload

from slowscale.bounded import BoundedPolicy
from slowscale.errors import ParameterError, UnitWarning
from slowscale.figures import figure, grid
from slowscale.mechanisms import calibration
from slowscale.mechanisms.noisy import Noisy
from slowscale.parameters import Array, Declared, check_flag, domains
from slowscale.policy import Policy, function_name, number
from slowscale.sampling import BitSource
from slowscale.typing import ArrayLike, Functions, NumberArray, Scalar, UnitLike

ESTIMATORS = ("mean", "median")  # of transformations, by name
# All mechanisms by their kind, in the order in which they were defined. Whatever lists mechanisms is derived from this.
REGISTRY: dict[str, type["Mechanism"]] = {}


class Mechanism(Declared, ABC):
    """A way to publish a sum q: a frozen value with parameters, policies and error."""

    # What plans and the command call it, and what it does, in words. A class with a kind is registered.
    kind: ClassVar[str]
    words: ClassVar[str]
    # Under which names, and with which parameters fixed, it is set beside others of the same error.
    compared: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    # The parameters that `calibrate` may solve for, the usual one first.
    _free: ClassVar[tuple[str, ...]]
    # Whether the error depends on the sum.
    _error_grows: ClassVar[bool]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kind" in cls.__dict__:
            known = REGISTRY.get(cls.kind, cls)
            if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
                raise ParameterError(f"kind must be a new name, but {known.__name__} has {cls.kind!r} already")
            REGISTRY[cls.kind] = cls

    @property
    @abstractmethod
    def policy(self) -> Policy:
        """The PRzCDP policy: the best closed form known."""

    @property
    @abstractmethod
    def pure_policy(self) -> Policy | None:
        """The PRDP policy, or None where the mechanism has none."""

    @overload
    def variance(self, q: Scalar, unit: UnitLike | None = None) -> float: ...

    @overload
    def variance(self, q: ArrayLike, unit: UnitLike | None = None) -> Array: ...

    @abstractmethod
    def variance(self, q: Scalar | ArrayLike, unit: UnitLike | None = None) -> float | Array:
        """Return the variance when the sum is q: of the ideal output, or of what a `unit` makes of it."""

    @overload
    def std(self, q: Scalar, unit: UnitLike | None = None) -> float: ...

    @overload
    def std(self, q: ArrayLike, unit: UnitLike | None = None) -> Array: ...

    @abstractmethod
    def std(self, q: Scalar | ArrayLike, unit: UnitLike | None = None) -> float | Array:
        """Return the standard deviation when the sum is q: of the ideal output, or of what a `unit` makes of it."""

    @overload
    def bias(self, q: Scalar, unit: UnitLike | None = None) -> float: ...

    @overload
    def bias(self, q: ArrayLike, unit: UnitLike | None = None) -> Array: ...

    @abstractmethod
    def bias(self, q: Scalar | ArrayLike, unit: UnitLike | None = None) -> float | Array:
        """Return E[output] − q: for the ideal output, or for what is published with a `unit`."""

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
        """Return the ends of an interval that the output lies in with probability `level` or more.

        It is about the ideal output; with a `unit`, about what is published, rounded to that unit.
        """

    @overload
    def coverage(self, q: Scalar, level: float = 0.95, unit: UnitLike | None = None) -> float: ...

    @overload
    def coverage(self, q: ArrayLike, level: float = 0.95, unit: UnitLike | None = None) -> Array: ...

    @abstractmethod
    def coverage(self, q: Scalar | ArrayLike, level: float = 0.95, unit: UnitLike | None = None) -> float | Array:
        """Return the exact probability that the output lies in `prediction_interval(q, level, unit)`."""

    @abstractmethod
    def release(
        self, q: Scalar | ArrayLike, unit: UnitLike = 1, level: float = 0.95, bits: BitSource | None = None
    ) -> Noisy:
        """Draw secret noise and return what may be published of the sum q, or of an array of sums.

        Parameters
        ----------
        q
            The exact sum: an int, Decimal or Fraction of any size, a float (taken as its exact binary value), or an
            array of integers, floats or Python numbers.
        unit
            The public grid that the result is rounded to: an int, a Decimal, a Fraction or text such as "0.01".
        level
            The level of the interval released beside the value.
        bits
            A source of bits for tests. A result drawn from one that is not secret says NOT PRIVATE.
        """

    @abstractmethod
    def _release(self, q: Any, unit: Any, level: float, bits: BitSource | None) -> Noisy:
        """Do what `release` does, without its warnings."""

    def _rounding_bias(self, unit: Fraction, on_grid: bool) -> float:
        """Return the largest bias that rounding to the unit adds, where sums may be off the grid."""
        return 0.0

    def _unit_warning(self, unit: Fraction, on_grid: bool) -> str | None:
        """Return what to say where the unit is so coarse that rounding biases the results, else None."""
        return None

    def _coarse(self, unit: Fraction, bias: float) -> str:
        return (
            f"unit {grid(unit)} is coarser than the noise of {self}: rounding biases results by up to {figure(bias)}. "
            "Take a finer unit, or more noise"
        )

    def _warn_of_unit(self, noisy: Noisy) -> Noisy:
        """Warn, where the unit is too coarse; for the caller of `release`."""
        warning = self._unit_warning(noisy.unit, noisy.on_grid)
        if warning is not None:
            warnings.warn(warning, UnitWarning, stacklevel=3)
        return noisy

    @abstractmethod
    def _error_at(self, q: Any, unit: Fraction, on_grid: bool) -> Any:
        """Return the standard error for a true sum of q, rounding included; published is that at an estimate."""

    @abstractmethod
    def _standard_error(self, noisy: Noisy) -> Any:
        """Return the standard error of a release, from what was released."""

    @abstractmethod
    def _confidence_interval(self, noisy: Noisy) -> tuple[Any, Any]:
        """Return the ends of an interval for the true sum, from what was released, in whole numbers of units."""

    @abstractmethod
    def _variance_from(self, transformed: Any, unit: Fraction, on_grid: bool) -> Any:
        """Return an unbiased estimate of the variance of what was released; the largest one for additive noise."""

    def bounded_policy(
        self, *, add: float | None = None, times: float | None = None, pure: bool = False, loose: bool = False
    ) -> BoundedPolicy:
        """Return the policy for bounded neighbours: what a record loses whose presence is known.

        Parameters
        ----------
        add, times
            The other value: r + add, or times·r. With neither, the policy takes both values.
        pure
            Whether to give the PRDP loss instead of the PRzCDP one (additive mechanisms only).
        loose
            Whether to give the simpler bounds that the paper's Table metric-mechSummaryNew prints.
        """
        check_flag("pure", pure)
        policy = self.pure_policy if pure else self.policy
        if policy is None:
            raise ParameterError(f"pure must be False: {type(self).__name__} has no PRDP policy")
        return BoundedPolicy(policy, add, times, loose)

    @classmethod
    def calibrate(
        cls,
        *,
        std: float | None = None,
        loss: float | None = None,
        at: float | None = None,
        pure: bool = False,
        free: str | None = None,
        **fixed: float | str | Callable[..., Any] | None,
    ) -> Self:
        """Return the mechanism of this type that meets a target, solving for one parameter.

        Parameters
        ----------
        std
            The standard deviation to have; for a transformation, when the sum is `at`.
        loss
            The loss that a record of value `at` is to have: PRzCDP, or PRDP with `pure=True`.
        free
            The parameter to solve for; when not given, the usual one that is not fixed.
        fixed
            The other parameters, where they have no default.

        Raises
        ------
        CalibrationError
            When no value of the free parameter meets the target; it says what can be met.
        """
        return calibration.calibrate(cls, std, loss, at, pure, free, fixed)

    @classmethod
    def _range(cls, name: str, fixed: dict[str, Any]) -> tuple[float, float]:
        """Return the ends between which a parameter may lie, given the other ones."""
        domain = domains(cls)[name]
        return domain.low, domain.high

    def to_dict(self) -> dict[str, Any]:
        """Return the type and the parameters, as JSON can hold them; functions by their names."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        named = {name: function_name(value) if callable(value) else value for name, value in values.items()}
        return {"type": type(self).__name__, **named}

    @staticmethod
    def from_dict(description: Mapping[str, Any], functions: Functions | None = None) -> "Mechanism":
        """Return the mechanism that `to_dict` described.

        Parameters
        ----------
        description
            What `to_dict` returned, perhaps by way of JSON.
        functions
            User-given functions by their name ("module.function"): a description names them, and never runs code.
        """
        kinds = {cls.__name__: cls for cls in REGISTRY.values()}
        if not isinstance(description, Mapping) or description.get("type") not in kinds:
            raise ParameterError(
                f"description must be a mapping with a type among {', '.join(sorted(kinds))}, got {description!r:.80}"
            )
        cls: Any = kinds[description["type"]]
        given = {name: value for name, value in description.items() if name != "type"}
        known = [f.name for f in fields(cls)]
        if set(given) != set(known):
            raise ParameterError(f"a {cls.__name__} has the entries {', '.join(known)}, got {', '.join(given)}")
        for name, value in given.items():
            if isinstance(value, str) and value not in ESTIMATORS:
                if value not in (functions or {}):
                    raise ParameterError(
                        f"the {cls.__name__} uses the function {value!r}: pass it, functions={{{value!r}: function}}"
                    )
                given[name] = (functions or {})[value]
        made: Mechanism = cls(**given)
        return made

    def __str__(self) -> str:
        parts = []
        for f in fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            text = number(value) if isinstance(value, float) else getattr(value, "__name__", str(value))
            parts.append(f"{f.name}={text}")
        return f"{type(self).__name__}({', '.join(parts)})"
