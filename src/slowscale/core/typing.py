"""The types of arguments that accept several kinds of values, for type checkers and readers.

A function that works elementwise takes a `Scalar` and returns a float, or takes an `ArrayLike` and returns an array.
An array without dimensions, such as `np.array(5.0)`, is one number at run time: the result is a float. The types of
numpy do not tell such arrays from others, so a type checker takes the result for an array.
"""

import os
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

# One number. Decimals and Fractions are exact; floats are taken as their exact binary value.
Scalar = float | Decimal | Fraction | np.integer[Any] | np.floating[Any]
# Several numbers: a numpy array, a pandas or polars series, or (nested) sequences.
ArrayLike = npt.ArrayLike | Sequence[Decimal | Fraction]
# Numbers in the type that holds them: floats, 64-bit integers or Python integers.
NumberArray = npt.NDArray[Any]
# A label of a public key.
Label = str | int | bool | date
# One record: a value for each column, and labels where the loss depends on them.
Record = Mapping[str, Scalar | Label]
# The step of a grid: an exact number, or text such as "0.01".
UnitLike = int | float | Decimal | Fraction | str


class TableLike(Protocol):
    """A table of any library: pandas, polars, pyarrow, Ibis or Spark. All of them have columns."""

    @property
    def columns(self) -> Any:
        """The columns, or their names."""


class HasTable(Protocol):
    """An object that holds the table it works on, such as a session."""

    @property
    def table(self) -> Any:
        """The Ibis table."""


PathLike = str | os.PathLike[str]
# Whatever holds records: paths of files, the address of a database table, or a table of any library.
DataLike = PathLike | Sequence[PathLike] | TableLike
