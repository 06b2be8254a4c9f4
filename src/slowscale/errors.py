"""The errors slowscale raises. Each names the argument, what was given and what is allowed."""


class SlowscaleError(Exception):
    """The base of every error that slowscale raises on purpose."""


class ParameterError(SlowscaleError, ValueError):
    """A value outside what is allowed."""


class ParameterTypeError(SlowscaleError, TypeError):
    """A value of the wrong type, or an argument that is missing or unknown."""


class CalibrationError(ParameterError):
    """A target that no value of the free parameter meets."""
