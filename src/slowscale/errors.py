"""The errors slowscale raises. Each names the argument, what was given and what is allowed."""


class SlowscaleError(Exception):
    """The base of every error that slowscale raises on purpose."""


class ParameterError(SlowscaleError, ValueError):
    """A value outside what is allowed."""


class ParameterTypeError(SlowscaleError, TypeError):
    """A value of the wrong type, or an argument that is missing or unknown."""


class CalibrationError(ParameterError):
    """A target that no value of the free parameter meets."""


class DataError(SlowscaleError, ValueError):
    """Data that cannot be released as it is. It names the column and what is wrong, and quotes no record."""


class EngineError(SlowscaleError, RuntimeError):
    """A file that cannot be read, a database that cannot be reached, or a query that the engine gave up on."""


class UnitWarning(UserWarning):
    """A unit that is coarser than the noise, so that rounding to it biases the results."""


class ConfidentialWarning(UserWarning):
    """Something the curator should know about the data, and nobody else."""


class CapError(SlowscaleError):
    """A charge that would exceed a cap. Nothing was charged."""

    def __init__(
        self,
        column: str,
        influence: float,
        spent: float,
        cap: float,
        close: bool = False,
        until: float | None = None,
        example: float | None = None,
    ) -> None:
        self.column, self.influence, self.spent, self.cap = column, influence, spent, cap
        if close:
            words = f"the total of {column!r} is too close to its cap to tell, for a record of size {influence:.6g}"
            super().__init__(f"{words}: {spent:.9g} of {cap:.9g}")
            return
        size = f"{influence if example is None else example:.6g}"
        if until is None:
            where = f"first for a record of size {size}: it"
        elif until < float("inf"):
            where = f"for records smaller than about {until:.3g}: one of size {size}"
        else:
            where = f"for records of any size: one of size {size}"
        more = f"{spent - cap:.3g} more than the cap of {cap:.6g}"
        super().__init__(f"the cap on {column!r} would be exceeded, {where} would have lost {spent:.6g}, {more}")


class LedgerError(SlowscaleError):
    """A ledger that cannot be opened, read or written, or that was changed from outside."""


class PlanError(SlowscaleError, ValueError):
    """A plan file with a mistake. Each line names the file, the line, the field and what is allowed."""
