"""The base class of all tables of a plan, the types of their fields, and how a validator reports a mistake."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, time
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from slowscale.core.errors import Place, SlowscaleError


class PlanPart(BaseModel):
    """A table of a plan: immutable, strictly typed ("1" is not 1), and without fields that it does not declare."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def mistake_at(field: Place, message: str) -> PydanticCustomError:
    """Return an error about one field, for a validator that checks the plan as a whole."""
    return PydanticCustomError("value_error", "{message}", {"message": message, "field": field})


@contextmanager
def as_mistakes(at: Callable[[Place], Place] | None = None) -> Iterator[None]:
    """Raise errors of the library as errors that pydantic collects.

    Parameters
    ----------
    at
        Returns the field of the plan that the path of an error stands for. Without it, the mistake is that of the table
        or field which is being validated.
    """
    try:
        yield
    except (SlowscaleError, OverflowError, ValueError) as error:
        if at is not None and isinstance(error, SlowscaleError):
            raise mistake_at(at(error.path), str(error)) from None
        raise ValueError(str(error)) from None


def given_words(value: Any) -> str:
    """Return what a plan gives: a number, boolean or date itself, and otherwise only its kind.

    Text is not shown, because it may be a password.
    """
    match value:
        case bool():
            return str(value).lower()
        case int() | float() | date() | time():
            return str(value)
        case str():
            return "text" if value.strip() else "an empty text"
        case list():
            return "a list"
        case dict():
            return "a table"
    return type(value).__name__


def check_local(path: str) -> str:
    """Return the path of a file on this machine, or raise."""
    if not path.strip():
        raise ValueError("must be the path of a file, got an empty text")
    if "://" in path:
        raise ValueError("must be a file on this machine, not an address")
    return path


def _check_types(types: dict[str, str]) -> dict[str, str]:
    if types:
        from slowscale.data.conversion import check_types

        with as_mistakes():
            check_types(types)
    return types


def _check_pairs(pairs: Any) -> Any:
    """Raise unless a value is a list of pairs of numbers."""
    wrong = (
        [pairs]
        if not isinstance(pairs, list | tuple)
        else [
            pair
            for pair in pairs
            if not isinstance(pair, list | tuple) or len(pair) != 2 or not all(map(_is_number, pair))
        ]
    )
    if wrong:
        raise ValueError(f"must be pairs of numbers such as [[100, 0.5], [10000, 5]], got {given_words(wrong[0])}")
    return pairs


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


FilePath = Annotated[str, AfterValidator(check_local)]
Types = Annotated[dict[str, str], AfterValidator(_check_types)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NumberPairs = Annotated[list[list[Finite]], BeforeValidator(_check_pairs)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Label = str | bool | int | date
