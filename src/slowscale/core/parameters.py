"""Parameters declare their domain once. The declaration checks values, words errors and feeds the property tests.

A class mixes in `Declared` and gives each field a domain with `real` or `whole`:

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Scale(Declared):
...     sigma: float = real(above=0, typical=(0.1, 10))
>>> Scale(3)
Scale(sigma=3.0)
>>> Scale(-1)
Traceback (most recent call last):
    ...
slowscale.core.errors.ParameterError: sigma must be a finite number > 0, got -1
"""

import math
import numbers
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, field, fields
from decimal import Decimal
from functools import wraps
from inspect import signature
from typing import Any, Generic, ParamSpec, Self, TypeVar

import numpy as np
import numpy.typing as npt

from slowscale.core.errors import ParameterError, ParameterTypeError, Shown, similar

T = TypeVar("T")
Taken = ParamSpec("Taken")
Given = TypeVar("Given")
Array = npt.NDArray[np.float64]

# Arrays are processed in pieces of this many numbers, which fit in the cache of the processor.
CHUNK = 8192


@dataclass(frozen=True)
class Domain:
    """An interval of numbers, and the part of it that is typical in practice, from which tests draw.

    A value above `most_usual`, if declared, is allowed but reported: it is probably a mistake.
    """

    low: float
    high: float
    low_open: bool
    high_open: bool
    integer: bool
    typical: tuple[float, float]
    optional: bool = False
    doc: str = ""
    most_usual: float = math.inf

    def __str__(self) -> str:
        kind = "a whole number" if self.integer else "a finite number"
        bounds = []
        if self.low > -math.inf:
            bounds.append(f"{'>' if self.low_open else '>='} {self.low:g}")
        if self.high < math.inf:
            bounds.append(f"{'<' if self.high_open else '<='} {self.high:g}")
        return " ".join([kind, " and ".join(bounds)]).strip()

    def __contains__(self, value: float) -> bool:
        above = value > self.low if self.low_open else value >= self.low
        below = value < self.high if self.high_open else value <= self.high
        return math.isfinite(value) and above and below

    def check(self, name: str, value: object) -> float | int:
        """Return `value` as a float or, for whole numbers, as an int; or raise an error that names it."""
        number = as_number(name, value, self)
        if number not in self or (self.integer and not number.is_integer()):
            raise ParameterError(name, allowed=str(self), given=value)
        return int(number) if self.integer else number


def as_number(name: str, value: object, allowed: object = "a finite number") -> float:
    """Return one real number as a float. Text, booleans and containers raise an error."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real | Decimal):
        raise ParameterTypeError(name, allowed=str(allowed), given=value)
    try:
        return float(value)
    except OverflowError:
        raise ParameterError(name, allowed=str(allowed), given=Shown("a number too large for a float")) from None
    except ValueError:  # a signalling NaN
        raise ParameterError(name, allowed=str(allowed), given=value) from None


def real(
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    typical: tuple[float, float],
    default: Any = MISSING,
    optional: bool = False,
    doc: str = "",
    most_usual: float = math.inf,
) -> Any:
    """Declare a real parameter of a dataclass. An optional one is None until the class fills it in.

    `doc` describes the parameter in plan files and their schema. Larger values than `most_usual` are reported.
    """
    low = above if above is not None else at_least
    high = below if below is not None else at_most
    domain = Domain(
        low=-math.inf if low is None else low,
        high=math.inf if high is None else high,
        low_open=above is not None,
        high_open=below is not None,
        integer=False,
        typical=typical,
        optional=optional,
        doc=doc,
        most_usual=most_usual,
    )
    return field(default=None if optional else default, metadata={"domain": domain})


def whole(
    *, at_least: int, at_most: float = math.inf, typical: tuple[int, int], default: Any = MISSING, doc: str = ""
) -> Any:
    """Declare a whole-number parameter of a dataclass."""
    domain = Domain(at_least, at_most, low_open=False, high_open=False, integer=True, typical=typical, doc=doc)
    return field(default=default, metadata={"domain": domain})


@dataclass(frozen=True)
class Pairs:
    """A parameter that may be written as a table of pairs of numbers, under this name in plan files."""

    name: str
    doc: str


def pairs(name: str, doc: str) -> Any:
    """Declare a parameter of a dataclass that may be given as pairs of numbers; the class itself checks them."""
    return field(metadata={"pairs": Pairs(name, doc)})


def tables(cls: type) -> dict[str, Pairs]:
    """Return the parameters of a class that may be given as pairs of numbers, by parameter name."""
    return {f.name: f.metadata["pairs"] for f in fields(cls) if "pairs" in f.metadata}


def domains(cls: type) -> dict[str, Domain]:
    """Return the declared domains of a class, by parameter name."""
    return {f.name: f.metadata["domain"] for f in fields(cls) if "domain" in f.metadata}


class lazy(Generic[T]):  # noqa: N801 - it is used like `property`
    """A property that is computed once for each object.

    Unlike `functools.cached_property` of Python 3.11 it takes no lock: a child process that was forked while another
    thread held that lock would wait forever.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        if instance is None:
            return self  # type: ignore[return-value]
        value = instance.__dict__[self._name] = self._function(instance)
        return value


TARGETS = ("std", "interval", "loss", "level")


def called_as(example: str) -> Callable[[Callable[Taken, Given]], Callable[Taken, Given]]:
    """Let a function name an example of a call, in place of Python's own error, where its arguments do not fit.

    >>> @called_as("half(8)")
    ... def half(number):
    ...     return number / 2
    >>> half(of=8)
    Traceback (most recent call last):
    slowscale.core.errors.ParameterTypeError: half cannot be called like this: missing a required argument: 'number'; \
write half(8)
    """

    def decorated(function: Callable[Taken, Given]) -> Callable[Taken, Given]:
        parameters = signature(function)

        @wraps(function)
        def called(*args: Taken.args, **kwargs: Taken.kwargs) -> Given:
            try:
                parameters.bind(*args, **kwargs)
            except TypeError as error:
                problem, remedy = f"cannot be called like this: {error}", f"write {example}"
                name = function.__qualname__
                raise ParameterTypeError(name, problem, code="arguments", remedy=remedy) from None
            return function(*args, **kwargs)

        return called

    return decorated


class Declared:
    """A frozen dataclass whose fields are checked against their declared domains."""

    def __new__(cls, *positional: object, **given: object) -> Self:
        """Raise if parameters are given by position, or by names that the class does not have."""
        if positional or given:
            known = [one.name for one in fields(cls) if one.init]  # type: ignore[arg-type]
            if positional and all(one.kw_only for one in fields(cls)):  # type: ignore[arg-type]
                raise ParameterTypeError(
                    cls.__name__,
                    f"takes its parameters by name ({', '.join(known)})",
                    code="positional",
                    given=positional[0],
                    remedy=f"write {cls.__name__}({known[0]}={positional[0]!r:.20})",
                )
            for name in given:
                if name not in known:
                    near = similar(name, known)
                    remedy = f"did you mean {near!r}?" if near else f"it has {', '.join(known)}"
                    if name in TARGETS and hasattr(cls, "calibrate"):
                        remedy = f"to solve for a parameter, write {cls.__name__}.calibrate({name}=…)"
                    raise ParameterTypeError(
                        name, f"is not a parameter of {cls.__name__}", code="unknown-name", remedy=remedy
                    )
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Check and convert every declared field, then check conditions between fields."""
        for name, domain in domains(type(self)).items():
            value = getattr(self, name)
            if not (value is None and domain.optional):
                self._set(name, domain.check(name, value))
        self._check()

    def _check(self) -> None:
        """Check conditions that the domain of a single field cannot express."""

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def __getstate__(self) -> dict[str, object]:
        # Cached properties are left out: they may hold functions, which cannot be pickled.
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]


def check_whole(name: str, value: object, at_least: int) -> int:
    """Return a whole number of any size as an int, or raise an error that names it."""
    allowed = f"a whole number >= {at_least}"
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise ParameterTypeError(name, allowed=allowed, given=value)
    if value < at_least:
        raise ParameterError(name, allowed=allowed, given=value)
    return int(value)


def check_entries(kind: str, given: Iterable[str], names: Iterable[str]) -> None:
    """Raise unless the description of an object, as `to_dict` returns it, has exactly these entries."""
    if set(given) != set(names):
        found = Shown(f"{', '.join(map(str, given)):.100}")
        raise ParameterError("description", allowed=f"of a {kind}, with the entries {', '.join(names)}", given=found)


def check_flag(name: str, value: object) -> None:
    """Raise unless a value is True or False."""
    if not isinstance(value, bool):
        raise ParameterTypeError(name, allowed="True or False", given=value)


def level_quantile(level: float) -> float:
    """Check a confidence level and return the probability left in each tail, (1 - level)/2."""
    number = as_number("level", level, "a number between 0 and 1")
    if not 0 < number < 1:
        remedy = f"{number:g} % is {number / 100:g}" if 1 < number < 100 else None
        raise ParameterError("level", allowed="between 0 and 1, both excluded", given=level, remedy=remedy)
    return (1 - number) / 2


def as_array(name: str, values: object) -> Array:
    """Return numbers of any shape as a float array; Decimals, Fractions and huge integers are allowed."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ParameterTypeError(name, "must not hold masked values", code="nulls")
    try:
        raw = np.asarray(values)
    except ValueError as error:
        raise ParameterTypeError(name, allowed="a number, or an array whose rows have equal length") from error
    if raw.dtype.kind == "O":
        for item in raw.flat:
            as_number(name, item)
    elif raw.dtype.kind not in "iuf":
        raise ParameterTypeError(name, allowed="numbers", given=Shown(f"{raw.dtype} ({values!r:.60})"))
    try:
        return raw.astype(np.float64, copy=False)
    except OverflowError:
        raise ParameterError(name, "holds a number too large for a float", code="too-large") from None


def evaluate(
    name: str, values: object, formula: Callable[[Array], Array], low: float = -math.inf, finite: bool = True
) -> float | Array:
    """Check values and apply an elementwise formula to them: a number gives a float, an array gives an array.

    An array without dimensions, such as `np.array(5.0)`, counts as a number.

    Values must be at least `low`, and finite unless `finite` is false. Large arrays are processed in pieces that fit in
    the cache of the processor.
    """
    array = as_array(name, values)
    flat = array.ravel()
    out = np.empty_like(flat)
    with np.errstate(over="ignore", under="ignore"):  # results too large for a float become inf, and too small ones 0
        for start in range(0, flat.size, CHUNK):
            piece = flat[start : start + CHUNK]
            check_range(name, piece, low, finite)
            out[start : start + CHUNK] = formula(piece)
    return out.reshape(array.shape) if array.ndim else float(out[0])


def apply(function: Callable[[Any], Any], x: Array) -> Array:
    """Apply a user-given function to an array, value by value if it takes no arrays; overflow gives inf."""
    name = getattr(function, "__name__", repr(function))

    def one_by_one(x: float) -> float:
        try:
            return float(function(x))
        except OverflowError:
            return math.inf

    with np.errstate(all="ignore"):
        try:
            try:
                result = np.asarray(function(x))
            except (TypeError, ValueError):
                result = np.asarray(np.vectorize(one_by_one, otypes=[float])(x))
        except Exception as error:
            problem = f"must take numbers and return numbers, and raised {type(error).__name__}"
            raise ParameterTypeError(name, problem, code="function") from error
    if result.dtype.kind not in "iuf" or result.shape != x.shape:
        raise ParameterTypeError(name, "must return one real number for each number it is given", code="result")
    return result.astype(np.float64, copy=False)


def check_range(name: str, array: Array, low: float = -math.inf, finite: bool = True) -> None:
    """Raise unless every value is a number, finite (unless `finite` is false) and at least `low`."""
    if array.size == 0:
        return
    least = array.min()
    if least >= low and (not finite or (least > -math.inf and array.max() < math.inf)):
        return
    wrong = array[~((array >= low) & (np.isfinite(array) | (not finite)))].flat[0]
    allowed = " and ".join(["finite"] * finite + [f">= {low:g}"] * (low > -math.inf)) or "a number"
    raise ParameterError(name, allowed=allowed, given=wrong)
