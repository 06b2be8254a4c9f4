"""Compare mechanisms of the same error in the paper's annual-payroll setting (Table experiment-params).

The median establishment pays 106 thousand dollars per year. Every mechanism is calibrated to a standard deviation of 75
for a sum of that size; Laplace noise on the log scale, which also hides large values, for an empty cell. The mechanisms
differ in how fast the loss grows with the size of a record.
"""

import slowscale as ss
from slowscale.mechanisms import same_error

MEDIAN, STD = 106, 75


def main() -> None:
    """Print the comparison."""
    mechanisms = same_error(STD, MEDIAN) | {
        "unit splitting": ss.UnitSplitting.calibrate(std=STD, threshold=MEDIAN),
        "log, Laplace noise": ss.Log.calibrate(std=STD, at=0, free="a", sigma=0.05, noise="laplace"),
    }
    print(f"Annual payroll: every mechanism has a standard deviation of {STD} for a sum of {MEDIAN}.\n")
    for name, mechanism in mechanisms.items():
        print(f"  {name:<25} P(Δ) = {mechanism.tight_policy}")
    print()
    print(ss.compare(mechanisms, influences=[30, MEDIAN, 388, 10_000, 1_550_000], queries=[MEDIAN, 10_000, 1_000_000]))


if __name__ == "__main__":
    main()
