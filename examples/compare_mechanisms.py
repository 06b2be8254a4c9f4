"""The paper's annual-payroll setting (Table experiment-params): six mechanisms with the same error, side by side.

The median establishment pays 106 (thousand dollars) a year. Every mechanism is calibrated to a standard deviation of
75 for a sum of that size; what differs is how much a record loses as it grows.
"""

import slowscale as ss

MEDIAN, STD = 106, 75


def main() -> None:
    """Print the comparison."""
    mechanisms = {
        "Gaussian": ss.Gaussian.calibrate(std=STD),
        "generalized Gaussian 1/2": ss.GeneralizedGaussian.calibrate(std=STD, p=0.5),
        "exponential polylog 2": ss.ExponentialPolylog.calibrate(std=STD, p=2),
        "fourth root": ss.Root.calibrate(std=STD, at=MEDIAN, k=4),
        "log": ss.Log.calibrate(std=STD, at=MEDIAN),
        "unit splitting": ss.UnitSplitting.calibrate(std=STD, threshold=MEDIAN),
    }
    print(f"Annual payroll: every mechanism has a standard deviation of {STD} for a sum of {MEDIAN}.\n")
    for name, mechanism in mechanisms.items():
        print(f"  {name:<25} P(Δ) = {mechanism.policy}")
    print()
    print(ss.compare(mechanisms, influences=[30, MEDIAN, 388, 10_000, 1_550_000], queries=[MEDIAN, 10_000, 1_000_000]))


if __name__ == "__main__":
    main()
