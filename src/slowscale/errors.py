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


class ConfidentialWarning(UserWarning):
    """Something the curator should know about the data, and nobody else."""


class CapError(SlowscaleError):
    """A charge that would exceed a cap. Nothing was charged."""

    def __init__(
        self, column: str, influence: float, spent: float, cap: float, close: bool = False, smallest: bool = False
    ) -> None:
        self.column, self.influence, self.spent, self.cap = column, influence, spent, cap
        size = "the smallest records (the numbers are for size 1)" if smallest else f"a record of size {influence:.6g}"
        if close:
            words = f"the total of {column!r} is too close to its cap to tell for {size}: {spent:.9g} of {cap:.9g}"
        else:
            words = (
                f"the cap on {column!r} would be exceeded, first for {size}: "
                f"it would have lost {spent:.6g}, {spent - cap:.3g} more than the cap of {cap:.6g}"
            )
        super().__init__(words)


class LedgerError(SlowscaleError):
    """A ledger that cannot be opened, read or written, or that was changed from outside."""
