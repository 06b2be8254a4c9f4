"""Time to import the mechanisms, compared with importing numpy and scipy.special (target: at most 1.5 times)."""

import subprocess
import sys
from functools import partial

from measure import report, seconds


def main() -> None:
    imports = {
        "numpy, scipy.special": "import numpy, scipy.special",
        "slowscale": "import slowscale; slowscale.Gaussian",
    }
    candidates = {
        name: partial(subprocess.run, [sys.executable, "-c", code], check=True) for name, code in imports.items()
    }
    report("Import", seconds(candidates, rounds=15), "numpy, scipy.special", target=1.5)


if __name__ == "__main__":
    main()
