"""Tight curves kept for the next time: in memory, in one file of the package and in the user's cache folder.

A curve takes about a second to compute and depends only on the shape of the noise and on the precision. Curves of the
package come first. Their file has only knots and is bound to this version by a SHA-256 digest; tests prove its curves.
The cache folder is that of the operating system, or the one that the environment variable SLOWSCALE_CACHE names. A
curve decides what a record loses, so a file of the cache is used only if nobody but the user and root can have written
it: the file, the folder and the folders above belong to them, and others cannot write to them. Besides, its checksum
must be right, its bounds must prove its curve, and some of them, chosen at random, are computed again. This finds
damaged files.
"""

import hashlib
import json
import os
import stat
import threading
import warnings
from contextlib import suppress
from dataclasses import astuple
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from slowscale.core.errors import CacheWarning, EngineError
from slowscale.core.files import write_files
from slowscale.core.formulas import tanh_bound
from slowscale.core.markup import progress_bar
from slowscale.core.parameters import Array
from slowscale.noise.arsinh_normal import ArsinhNormalNoise
from slowscale.noise.divergence import TightLoss, far_end, tight_loss
from slowscale.noise.exponential_polylog import ExponentialPolylogNoise
from slowscale.noise.gaussian import GeneralizedGaussianNoise
from slowscale.noise.symmetric import SymmetricNoise
from slowscale.noise.tight_curve import TightCurve, build_curve

# Changes whenever the computation changes, so that files of earlier versions are not used.
VERSION = 3
# The curves of usual shapes: `python -m slowscale.noise.stored_curves` writes the file and prints its digest.
PACKAGE_FILE = Path(__file__).with_name("curves.json")
PACKAGE_DIGEST = "6e3c13e364c0def608639ccba2860841dc70bee5bec18dac5afd00438346e060"
# How many bounds of a file are computed again before it is used.
RECOMPUTED = 3
_CURVES: dict[tuple[SymmetricNoise, float], TightCurve] = {}
_CURVES_LOCK = threading.Lock()


def _new_curves_lock() -> None:
    """Replace the lock in a forked child: a thread that does not exist in the child may hold the inherited one."""
    global _CURVES_LOCK
    _CURVES_LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_new_curves_lock)


def tight_curve(noise: SymmetricNoise, precision: float) -> TightCurve:
    """Return the tight curve of a noise of scale 1, from memory or from a file, or else compute and keep it."""
    key = (noise, precision)
    with _CURVES_LOCK:  # so that threads do not compute the same curve
        if key not in _CURVES:
            _CURVES[key] = _find(noise, precision)
        return _CURVES[key]


def _find(noise: SymmetricNoise, precision: float) -> TightCurve:
    if (curve := package_curves().get((noise, precision))) is not None:
        return curve
    folder = cache_folder()
    trusted = _is_trusted(folder / curve_file(noise, precision))
    if trusted and (curve := read_curve(folder, noise, precision)) is not None:
        return curve
    curve = compute_curve(noise, precision)
    if trusted:
        with suppress(OSError, EngineError):  # if it cannot be kept, it is computed again next time
            write_curve(folder, noise, curve)
    return curve


@lru_cache(maxsize=1)
def package_curves() -> dict[tuple[SymmetricNoise, float], TightCurve]:
    """Return the curves of the package by noise and precision, or raise if their file is not that of this version."""
    data = PACKAGE_FILE.read_bytes() if PACKAGE_FILE.exists() else b""
    if hashlib.sha256(data).hexdigest() != PACKAGE_DIGEST:
        raise EngineError(
            PACKAGE_FILE,
            "is not the file of this version, so that stated losses could be wrong",
            code="damaged",
            remedy="install slowscale again",
        )
    return {
        (SymmetricNoise.from_dict(one["noise"]), one["precision"]): TightCurve.of(one["knots"], one["precision"])
        for one in json.loads(data)
    }


def _is_trusted(path: Path) -> bool:
    """Return whether only the user and root can have written a file, or can write it; warn if others can."""
    if not hasattr(os, "geteuid"):  # the modes of files say nothing on Windows
        return True
    for place in (path, *path.parents):
        try:
            found = os.lstat(place)
        except OSError:
            continue  # it is not there, or cannot be read
        # In a folder above with the sticky bit, such as /tmp, others cannot replace what is not theirs.
        shared = place not in (path, path.parent) and found.st_mode & stat.S_ISVTX
        if found.st_uid in (0, os.geteuid()) and (shared or not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
            continue
        warnings.warn(
            f"the curve cache {path.parent} is not used for this curve, because other users can change {place}, and so "
            "the losses that are stated. Let it belong to you and be writable for you only, or name another folder in "
            "the environment variable SLOWSCALE_CACHE",
            CacheWarning,
            stacklevel=2,
        )
        return False
    return True


def closed_bound(noise: SymmetricNoise, influence: Array) -> Array:
    """Return tanh(P/2)·P of the pure loss P, which bounds the tight loss."""
    return tanh_bound(noise._pure_loss(influence))


def compute_curve(noise: SymmetricNoise, precision: float) -> TightCurve:
    """Return a new curve; a progress bar is shown."""
    done = [0.0]
    with progress_bar("computing the tight policy (once for these parameters)", lambda: done[-1]):
        return build_curve(noise, lambda influence: closed_bound(noise, influence), precision, done.append)


def cache_folder() -> Path:
    """Return the folder for curves, without symbolic links."""
    import platformdirs

    given = os.environ.get("SLOWSCALE_CACHE")
    folder = Path(given).expanduser() if given else Path(platformdirs.user_cache_dir("slowscale", appauthor=False))
    return folder.resolve()


def _description(noise: SymmetricNoise, precision: float) -> str:
    return json.dumps({"version": VERSION, "precision": precision, **noise.to_dict()}, sort_keys=True)


def curve_file(noise: SymmetricNoise, precision: float) -> str:
    """Return the name of the file of a curve."""
    return f"tight-{hashlib.sha256(_description(noise, precision).encode()).hexdigest()[:32]}.npz"


def _checksum(description: str, *arrays: Array) -> str:
    return hashlib.sha256(description.encode() + b"".join(array.tobytes() for array in arrays)).hexdigest()


def write_curve(folder: Path, noise: SymmetricNoise, curve: TightCurve) -> None:
    """Keep a curve in a file of a folder."""
    bounds = np.array([astuple(bound) for bound in curve.bounds])
    description = _description(noise, curve.precision)
    arrays: dict[str, Any] = {"log_sizes": curve.log_sizes, "log_losses": curve.log_losses, "bounds": bounds}
    checksum = _checksum(description, *arrays.values())

    def write(place: Path) -> None:
        with open(place, "wb") as file:
            np.savez_compressed(file, description=description, checksum=checksum, **arrays)

    for place in reversed((folder, *folder.parents)):
        if not place.exists():
            place.mkdir(mode=0o700, exist_ok=True)
    # Whatever the umask is, others must not be able to write to the cache, or the file would not be used.
    write_files({folder / curve_file(noise, curve.precision): write}, overwrite=True, confidential=True)


def read_curve(folder: Path, noise: SymmetricNoise, precision: float) -> TightCurve | None:
    """Return the curve in a file of a folder, or None if there is no file, or one that cannot be used."""
    try:
        with np.load(folder / curve_file(noise, precision), allow_pickle=False) as file:
            arrays = [np.asarray(file[name], float) for name in ("log_sizes", "log_losses", "bounds")]
            description, checksum = str(file["description"]), str(file["checksum"])
    except Exception:  # numpy, zipfile and zlib raise many kinds of errors for damaged files
        return None
    if description != _description(noise, precision) or checksum != _checksum(description, *arrays):
        return None
    bounds = tuple(
        TightLoss(float(at), float(upper), float(lower), float(order), int(cells), int(orders))
        for at, upper, lower, order, cells, orders in arrays[2].reshape(-1, 6)
    )
    curve = TightCurve(arrays[0], arrays[1], precision, bounds)
    if not bounds or not curve.lies_above(bounds):
        return None
    places = np.random.default_rng().integers(len(bounds), size=RECOMPUTED)
    return curve if all(_may_hold(noise, bounds[i]) for i in places) else None


def _may_hold(noise: SymmetricNoise, bound: TightLoss) -> bool:
    """Return whether an upper bound is not below the loss, which is computed now to 0.02 %."""
    return bound.upper >= tight_loss(noise, bound.influence, last=far_end(noise)).lower


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
