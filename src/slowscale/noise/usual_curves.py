"""Write the tight curves of usual shapes, which are part of the package: `python -m slowscale.noise.usual_curves`.

Run it whenever the computation changes, and write the digest that it prints into `stored_curves`. It takes ten seconds.
"""

import hashlib
import json

from slowscale.noise.arsinh_normal import ArsinhNormalNoise
from slowscale.noise.exponential_polylog import ExponentialPolylogNoise
from slowscale.noise.generalized_gaussian import GeneralizedGaussianNoise
from slowscale.noise.stored_curves import PACKAGE_FILE, compute_curve
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
    """Write the file, one curve per line, and print its digest."""
    lines = [
        json.dumps({"noise": noise.to_dict(), "precision": PRECISION, "knots": compute_curve(noise, PRECISION).knots})
        for noise in USUAL
    ]
    data = ("[\n" + ",\n".join(lines) + "\n]\n").encode()
    PACKAGE_FILE.write_bytes(data)
    print(f'PACKAGE_DIGEST = "{hashlib.sha256(data).hexdigest()}"')


if __name__ == "__main__":
    main()
