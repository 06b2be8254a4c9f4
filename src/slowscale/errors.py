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
