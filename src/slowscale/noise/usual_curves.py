"""Write the tight curves of usual shapes, which are part of the package: `python -m slowscale.noise.usual_curves`.

Run it whenever `stored_curves.VERSION` changes. It takes a few minutes.
"""

from slowscale.noise.arsinh_normal import ArsinhNormalNoise
from slowscale.noise.exponential_polylog import ExponentialPolylogNoise
from slowscale.noise.generalized_gaussian import GeneralizedGaussianNoise
from slowscale.noise.stored_curves import PACKAGE_FOLDER, compute_curve, curve_file, read_curve, write_curve
from slowscale.noise.symmetric import SymmetricNoise

PRECISION = 0.01
# From noise with nearly normal tails to heavy tails: those that the workbench offers.
ARSINH_SHAPES = (0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.25, 1.6, 2.0, 2.5, 3.0, 4.0)
# The polylog is that of the examples: its standard deviation is 75.
USUAL: tuple[SymmetricNoise, ...] = (
    GeneralizedGaussianNoise(sigma=1, p=0.5),
    GeneralizedGaussianNoise(sigma=1, p=1),
    ExponentialPolylogNoise(d=0.23783644562980624),
    *(ArsinhNormalNoise(scale=1, shape=shape) for shape in ARSINH_SHAPES),
)


def main() -> None:
    """Write the curves that are missing, and remove the files of earlier versions."""
    kept = set()
    for noise in USUAL:
        if read_curve(PACKAGE_FOLDER, noise, PRECISION) is None:
            write_curve(PACKAGE_FOLDER, noise, compute_curve(noise, PRECISION))
        kept.add(curve_file(noise, PRECISION))
        print(f"{curve_file(noise, PRECISION)}: {noise}")
    for path in PACKAGE_FOLDER.glob("*.npz"):
        if path.name not in kept:
            path.unlink()


if __name__ == "__main__":
    main()
