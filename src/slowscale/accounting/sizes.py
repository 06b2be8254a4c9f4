"""Sizes: named example records, for which reports and the command state the losses.

The curator gives them: a name such as "median firm", and a value for each column. They are published, so they must be
public knowledge and never looked up in the records. Without them, powers of ten that follow from the policies and units
are used.

>>> sizes = read_sizes({"median firm": {"emp": 12, "pay": 400}, "largest firm": {"emp": 9e4, "pay": 4e9}})
>>> sizes[1].value("pay")
4000000000.0
>>> [size.name for size in read_sizes("100,1e6,4e10")]
['100', '1,000,000', '40,000,000,000']

If entities such as firms are protected, an example is an entity in one cell. It has a total in each column and a number
of records, "count". A number that stands for all columns does not stand for the count: an entity whose number of
records is not stated is assumed to have one, and whoever shows its losses says so (`assumed_count`).

>>> read_sizes([1e6])[0].value("emp"), read_sizes([1e6])[0].value("count")
(1000000.0, 1.0)
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from slowscale.core.errors import ParameterError, ParameterTypeError, Shown, similar
from slowscale.core.numbers import format_number, power_of_ten
from slowscale.core.parameters import as_number
from slowscale.policy import Policy

if TYPE_CHECKING:
    from slowscale.accounting.record import RecordPolicy

COUNT = "count"
LARGEST_WORD = re.compile(r"\blargest\b", re.IGNORECASE)
MOST_SIZES, LONGEST_NAME = 8, 60  # the number of sizes, and the letters of a name, that fit in a table
LARGEST_SIZE = 1e30
LEAST_SIZE = 1e-300  # of those above 0: a tenth of it, and powers of ten near it, are still normal floats
ASSUMED_COUNT = 1.0  # the number of records of an entity in a cell, where it is not stated
EXAMPLE_SIZES = '{"median firm": 12, "largest firm": {"emp": 150_000, "payann": 4e10}}'
LARGEST_ALLOWED = "largest allowed"  # the name of the size with the largest values
SMALL_LOSS, LARGE_LOSS = 0.01, 50.0  # default sizes have losses from about the first to about the second
# At most: the powers of ten between the unit and the largest default size, and the number of default sizes.
DEFAULT_SPAN, DEFAULT_COUNT = 15, 7


@dataclass(frozen=True)
class RecordSize:
    """An example record: a name, and a value for each column. Or an example entity, with its totals in one cell.

    Attributes
    ----------
    name
        The name; if none was given, the value as text.
    values
        The value in each column. The number of records of an entity is the value of "count".
    everywhere
        The value in every column except "count", if one number was given for all of them.
    named
        Whether the curator gave the name.
    """

    name: str
    values: tuple[tuple[str, float], ...] = ()
    everywhere: float | None = None
    named: bool = True

    def value(self, column: str) -> float | None:
        """Return the value in a column, or None; case and surrounding whitespace of the name are ignored."""
        found = dict(self.values)
        if column in found:
            return found[column]
        spelled = {name.strip().casefold(): value for name, value in self.values}
        return spelled.get(column.strip().casefold(), ASSUMED_COUNT if column == COUNT else self.everywhere)

    def record(self, columns: Iterable[str]) -> dict[str, float] | None:
        """Return the value in each of some columns, or None if one of them has no value."""
        values = {column: self.value(column) for column in columns}
        known = {column: value for column, value in values.items() if value is not None}
        return known if len(known) == len(values) else None

    def loss(self, policy: "RecordPolicy") -> float | None:
        """Return the loss by a policy, or None if a column that the policy depends on has no value."""
        record = self.record(policy.columns)
        with np.errstate(all="ignore"):
            return None if record is None else float(policy(record))

    @property
    def states_count(self) -> bool:
        """Whether the number of records of an entity is stated, and not assumed."""
        return any(name.strip().casefold() == COUNT for name, _ in self.values)

    def describe(self, column: str) -> str:
        """Return the value in a column, followed by the name if one was given: "12 (median firm)"."""
        value = self.value(column)
        text = "not stated" if value is None else counted(value) if column == COUNT else format_number(value)
        return f"{text} ({self.name})" if self.named else text if column == COUNT else self.name

    @property
    def is_largest(self) -> bool:
        """Whether the name says that this is the largest record."""
        return self.named and LARGEST_WORD.search(self.name) is not None


def counted(number: float) -> str:
    """Return a number of records in words.

    >>> counted(1.0), counted(1000.0)
    ('1 record', '1,000 records')
    """
    return f"{format_number(number)} {'record' if number == 1 else 'records'}"


# Example entities of which only the number of records is known.
NUMBERS_OF_RECORDS = tuple(
    RecordSize(counted(number), ((COUNT, number),), named=False) for number in (1.0, 10.0, 100.0, 1000.0)
)


def sizes_in(column: str, sizes: Sequence[RecordSize]) -> tuple[RecordSize, ...]:
    """Return the sizes at which the losses through one column are listed: those that have a value in it.

    The loss through the number of records of an entity is listed at 1 to 1,000 records, if no size states a number.
    """
    if column == COUNT and not any(size.states_count for size in sizes):
        return NUMBERS_OF_RECORDS
    found = [size for size in sizes if size.value(column) is not None]
    # Unnamed sizes have one record each, if no number is stated.
    return tuple({size.describe(column): size for size in found}.values()) if column == COUNT else tuple(found)


def assumed_count(entity: str | None, columns: Iterable[str], sizes: Sequence[RecordSize]) -> list[str]:
    """Return a sentence on the assumed number of records of entities; none if it is stated or makes no difference.

    Parameters
    ----------
    entity
        The column whose entities are protected, or None if single records are.
    columns
        The columns that losses depend on.
    sizes
        The example entities.
    """
    if entity is None or COUNT not in columns or all(size.states_count for size in sizes):
        return []
    return [
        f"Where no number of records is stated, one {entity} is assumed to have {counted(ASSUMED_COUNT)} in a cell. "
        "With more records it loses more."
    ]


# The forms in which sizes may be given; see `read_sizes`.
SizesLike = (
    str
    | Mapping[str, float | Mapping[str, float]]
    | Sequence[float | RecordSize | Mapping[str, Any]]
    | npt.NDArray[np.floating[Any] | np.integer[Any]]
)


def read_sizes(
    sizes: SizesLike | None, columns: Sequence[str] = (), others: Sequence[str] | None = None, argument: str = "sizes"
) -> tuple[RecordSize, ...]:
    """Return sizes that are given in any of several forms, after checking them.

    Parameters
    ----------
    sizes
        A mapping of names to a number (the value in every column) or to a mapping of columns to values; a list of
        mappings with `name` and either `size` or a value for each column, as in plans; a list of numbers; or text such
        as "median=12,largest=4e10" or "100,1e6", as on the command line. None gives no sizes. For entities, `count` is
        the number of records, also beside `size`.
    columns
        The columns for which every size must have a value.
    others
        Further columns for which a size may have a value; None allows any column.
    argument
        The name of the sizes in errors.
    """
    if sizes is None:
        return ()
    if isinstance(sizes, str):
        sizes = _parse_text(sizes, argument)
    found = tuple(_each_size(sizes, argument))
    if not 1 <= len(found) <= MOST_SIZES:
        raise ParameterError(argument, allowed=f"from 1 to {MOST_SIZES} sizes", given=len(found))
    if len({size.named for size in found}) > 1:
        raise ParameterError(argument, "must all have names, or all be plain numbers", code="mixed")
    names = [size.name.casefold() for size in found]
    for name, size in zip(names, found, strict=True):
        if names.count(name) > 1:
            raise ParameterError(
                argument, f"has {size.name!r} twice", code="duplicate", remedy="give each size another name"
            )
    for size in found:
        _check_columns(size, columns, others, argument)
    if found[0].named:
        largest = [size.name for size in found if size.is_largest]
        if len(largest) != 1:
            raise ParameterError(
                argument,
                "must have exactly one size whose name contains the word 'largest': the largest record loses most, so "
                "readers must see what it loses",
                code="largest",
                given=Shown(" and ".join(map(repr, largest)) or "none"),
                remedy="name it 'largest firm', for example",
            )
        check_largest(found, columns, argument)
    return found


def _parse_text(text: str, argument: str) -> Any:
    """Return the sizes in text from the command line: numbers, or names with numbers."""
    parts = [part.strip() for part in text.split(",")]
    if len({"=" in part for part in parts}) == 2:
        raise ParameterError(argument, "must have a name for every size, or for none", code="mixed", given=text)
    try:
        if not any("=" in part for part in parts):
            return [float(part) for part in parts]
        pairs = [part.rpartition("=") for part in parts]
        return [{"name": name.strip(), "size": float(number)} for name, _, number in pairs]
    except ValueError:
        raise ParameterError(
            argument,
            allowed="numbers separated by commas such as 100,1e6, or names with numbers such as median firm=12,largest "
            "firm=4e10",
            given=text,
        ) from None


def _each_size(sizes: Any, argument: str) -> Iterable[RecordSize]:
    """Yield the sizes, each of them checked by itself."""
    if isinstance(sizes, Mapping):
        for name, value in sizes.items():
            yield _named_size(name, value, argument)
        return
    if isinstance(sizes, np.ndarray):
        sizes = sizes.tolist()
    if not isinstance(sizes, list | tuple):
        raise ParameterTypeError(argument, allowed=f"a mapping such as {EXAMPLE_SIZES}", given=type(sizes))
    for item in sizes:
        if isinstance(item, RecordSize):
            yield item
        elif isinstance(item, Mapping):
            yield _from_entry(item, argument)
        else:
            value = _size_number(argument, item)
            yield RecordSize(format_number(value), everywhere=value, named=False)


def _from_entry(item: Mapping[Any, Any], argument: str) -> RecordSize:
    """Return the size that an entry of a plan describes: a mapping with the name and the values."""
    if "name" not in item:
        example = '{ name = "largest firm", emp = 12 }'
        raise ParameterError(argument, f"must have a name for each size, such as {example}", code="missing")
    rest = {key: value for key, value in item.items() if key != "name"}
    everywhere = rest.pop("size", None)
    if everywhere is None:
        return _named_size(item["name"], rest, argument)
    if set(rest) - {COUNT}:
        raise ParameterError(
            f"{argument}: {item['name']!r:.60}",
            "has size, which is the value in every column, and values of columns too",
            code="conflict",
            remedy="give one or the other",
        )
    found = _named_size(item["name"], everywhere, argument)
    return replace(found, values=_named_size(item["name"], rest, argument).values)


def _named_size(name: Any, value: Any, argument: str) -> RecordSize:
    if not isinstance(name, str):
        raise ParameterTypeError(argument, allowed="named by text such as 'largest firm'", given=name)
    name = " ".join(name.split())
    if not 1 <= len(name) <= LONGEST_NAME:
        raise ParameterError(f"{argument}: a name", allowed=f"text of 1 to {LONGEST_NAME} letters", given=name)
    label = f"{argument}: {name!r}"
    if not isinstance(value, Mapping):
        return RecordSize(name, everywhere=_size_number(label, value))
    for column in value:
        if not isinstance(column, str):
            raise ParameterTypeError(f"{label}: a column", allowed="text", given=column)
    values = {column: _size_number(f"{label}, {column}", one) for column, one in value.items()}
    check_count(values, label)
    return RecordSize(name, tuple(values.items()))


def check_count(values: Mapping[str, float], label: str) -> None:
    """Raise if the number of records of an entity is among the values, but is not a number of records."""
    count = values.get(COUNT, 1)
    if count < 1 or count != int(count):
        raise ParameterError(f"{label}, {COUNT}", allowed="a number of records, a whole number from 1 on", given=count)


def _size_number(label: str, value: Any) -> float:
    allowed = f"a number from 0 to {LARGEST_SIZE:g}: the size of a value, without its sign"
    number = as_number(label, value, allowed)
    if not 0 <= number <= LARGEST_SIZE:
        raise ParameterError(label, allowed=allowed, given=value)
    if 0 < number < LEAST_SIZE:
        raise ParameterError(label, allowed=f"0, or at least {LEAST_SIZE:g}", given=value)
    return number


def _misspelled(missing: Sequence[str], given: Sequence[str]) -> str | None:
    """Return the remedy for a missing column, if a given one is similar: the name may be wrong in either place."""
    found = [(column, near) for column in missing if (near := similar(column, given)) is not None]
    return f"it has {found[0][1]!r}: correct the name here, or {found[0][0]!r} elsewhere" if found else None


def _check_columns(size: RecordSize, columns: Sequence[str], others: Sequence[str] | None, argument: str) -> None:
    given = [column for column, _ in size.values]
    if columns and COUNT in given and COUNT not in (*columns, *(others or ())):
        raise ParameterError(
            f"{argument}: {size.name!r}",
            "has a count, but no number of records is released",
            code="unknown-column",
            remedy="leave it out",
        )
    if size.everywhere is not None:
        return
    missing = [column for column in columns if column not in given]
    unknown = [] if others is None else [column for column in given if column not in (*columns, *others)]
    if missing or not given:
        also = f", and {unknown[0]!r} is not released" if unknown else ""
        needed, lacks = ", ".join(columns) or "the columns", ", ".join(missing) or "every value"
        raise ParameterError(
            f"{argument}: {size.name!r}",
            f"must have a value for each of {needed}, but {lacks} is missing{also}",
            code="missing",
            remedy=_misspelled(missing, [column for column in given if column not in columns]),
        )
    if unknown:
        raise ParameterError(
            f"{argument}: {size.name!r}",
            f"has a value for {unknown[0]!r}, which is not released",
            code="unknown-column",
            remedy=f"the released columns are {', '.join(columns) or 'counts only'}",
        )


def check_largest(found: Sequence[RecordSize], columns: Sequence[str] = (), argument: str = "sizes") -> None:
    """Raise if a size is named the largest and is not: the loss of the largest record would be understated."""
    places = dict.fromkeys([*columns, *(column for size in found for column, _ in size.values), ""])
    for largest, column, size in product([size for size in found if size.is_largest], places, found):
        if column == COUNT and COUNT not in columns and not largest.states_count:
            continue  # whether there is a count is not known here
        most, value = largest.value(column), size.value(column)
        if value is not None and most is not None and value > most:
            where = f" in {column}" if column else ""
            raise ParameterError(
                f"{argument}: {largest.name!r}",
                f"must be at least as large as every other size, but {size.name!r} is larger{where}: "
                f"{format_number(value)}, not {format_number(most)}",
                code="not-largest",
                remedy="correct the value of one of the two",
            )


def names_the_largest(sizes: Mapping[str, float]) -> bool:
    """Return whether the name of the largest of some named sizes says that it is the largest record.

    >>> names_the_largest({"p90": 5e6, "largest firm": 4e10}), names_the_largest({"p50": 3e5, "p90": 5e6})
    (True, False)
    """
    most = max(sizes.values())
    return any(size == most and LARGEST_WORD.search(name) is not None for name, size in sizes.items())


def default_sizes(
    policies: Sequence[tuple[Policy, float | None]], largest: Mapping[str, float | None] | None = None
) -> tuple[RecordSize, ...]:
    """Return powers of ten from sizes with a very small loss to sizes with a very large one, in every column.

    They depend on public facts only: the policies, each with its unit (or None), and the largest value of each column
    (or None). In a column with a largest value, sizes end there; the last one is called the largest allowed.
    """
    low, high = default_span(policies)
    bounds = {column: value for column, value in (largest or {}).items() if value is not None}
    amounts = [value for column, value in (largest or {}).items() if column != COUNT]
    most = max((math.inf if value is None else value for value in amounts), default=math.inf)
    high = high if most == math.inf else max(low, math.ceil(math.log10(most) - 1e-9) - 1)
    step = max(1, math.ceil((high - low) / (DEFAULT_COUNT - 1)))
    powers = list(range(low, high + 1, step))
    if powers[-1] < high and most == math.inf:
        powers.append(powers[-1] + step)
    found = []
    for power in (power for power in powers if 10.0**power < most):
        size = RecordSize(power_of_ten(power), everywhere=10.0**power, named=False)
        if any(10.0**power > value for column, value in bounds.items() if column != COUNT):
            within = [column for column in largest or () if column != COUNT and 10.0**power <= bounds.get(column, most)]
            size = replace(size, values=tuple((column, 10.0**power) for column in within), everywhere=None)
        found.append(size)
    return (*found, RecordSize(LARGEST_ALLOWED, tuple(bounds.items()))) if bounds else tuple(found)


def default_span(policies: Sequence[tuple[Policy, float | None]]) -> tuple[int, int]:
    """Return the smallest and largest power of ten for losses from about 0.01 to about 50 in all columns."""
    powers = np.arange(-30, 31)
    lows, highs = [], []
    for policy, unit in policies:
        with np.errstate(all="ignore"):
            losses = np.asarray(policy(10.0**powers))
        high = int(powers[-1]) if losses[-1] < LARGE_LOSS else int(powers[np.argmax(losses >= LARGE_LOSS)])
        low = int(powers[-1]) if losses[-1] < SMALL_LOSS else int(powers[np.argmax(losses >= SMALL_LOSS)]) - 1
        if unit is not None:
            start = math.floor(math.log10(unit) + 1e-9)
        else:  # from 1, unless the loss of such a record is already large
            start = 0 if float(policy(1.0)) < LARGE_LOSS else max(high - 3, int(powers[0]))
        lows.append(min(max(low, start), start + DEFAULT_SPAN - 3))
        highs.append(min(max(high, start), start + DEFAULT_SPAN))
    low = min(lows, default=0)
    return low, max([*highs, low + 3])
