"""The mechanisms of the paper's experiments, with the same error (Table experiment-params)."""

from slowscale.mechanisms import ExponentialPolylog, Gaussian, GeneralizedGaussian, Log, Mechanism, Root


def same_error(std: float, at: float) -> dict[str, Mechanism]:
    """Return mechanisms of one standard deviation, by name; for the transformations it is that of a sum of `at`.

    >>> {name: round(m.std(106)) for name, m in same_error(std=75, at=106).items()}["log"]
    75
    """
    return {
        "Gaussian": Gaussian.calibrate(std=std),
        "generalized Gaussian 1/2": GeneralizedGaussian.calibrate(std=std, p=0.5),
        "exponential polylog 2": ExponentialPolylog.calibrate(std=std, p=2),
        "fourth root": Root.calibrate(std=std, at=at, k=4),
        "log": Log.calibrate(std=std, at=at),
    }
