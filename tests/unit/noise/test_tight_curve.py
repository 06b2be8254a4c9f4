"""A tight curve lies above the tight loss, by no more than its precision; its files are used only if they are right."""

import dataclasses
import math
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from helpers.errors import refused

import slowscale as ss
from slowscale.noise import (
    ExponentialPolylogNoise,
    GeneralizedGaussianNoise,
    PointsNoise,
    stored_curves,
)
from slowscale.noise.divergence import TightLoss, far_end, tight_loss, tight_losses
from slowscale.noise.stored_curves import closed_bound, package_curves, tight_curve
from slowscale.noise.tight_curve import (
    BOUND_SHARE,
    TightCurve,
    _Bounds,
    _by_group_privacy,
    _corners,
    build_curve,
    merged,
    prove,
)

ROUGH = 0.2  # curves of this precision are quick to compute
NOISE = ExponentialPolylogNoise(d=0.5)


@pytest.fixture(scope="module")
def curve():
    return tight_curve(NOISE, ROUGH)


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """An empty cache folder, and an empty memory."""
    monkeypatch.setenv("SLOWSCALE_CACHE", str(tmp_path / "curves"))
    monkeypatch.setattr(stored_curves, "_CURVES", {})
    return tmp_path / "curves"


@pytest.mark.parametrize(
    ("noise", "precision"),
    [(NOISE, ROUGH), (GeneralizedGaussianNoise(sigma=1, p=0.5), ROUGH), (GeneralizedGaussianNoise(sigma=1, p=1), ROUGH),
     (ExponentialPolylogNoise(d=4, p=1), 0.1)],
)  # fmt: skip
def test_a_curve_is_above_the_loss_by_at_most_its_precision(noise, precision):
    curve = tight_curve(noise, precision)
    last = far_end(noise)
    sizes = np.exp(np.random.default_rng(5).uniform(math.log(1e-9), math.log(1e15), 40))
    read = np.minimum(curve(sizes), closed_bound(noise, sizes))
    for size, loss in zip(sizes, read, strict=True):
        found = tight_loss(noise, float(size), last=last)
        assert found.lower <= loss <= found.upper * (1 + precision)


def test_a_curve_is_read_between_and_beyond_its_knots(curve):
    sizes, losses = np.exp(curve.log_sizes), np.exp(curve.log_losses)
    assert curve(sizes[1:-1]) == pytest.approx(losses[1:-1], rel=1e-9)
    middles = np.exp((curve.log_sizes[1:] + curve.log_sizes[:-1]) / 2)
    assert curve(middles) == pytest.approx(np.sqrt(losses[1:] * losses[:-1]), rel=1e-9)
    assert curve(np.array([1e-300, 1e-12])).tolist() == pytest.approx([losses[0]] * 2)
    assert curve(np.array([sizes[-1] * 1.001, 1e300])).tolist() == [math.inf, math.inf]
    assert (np.diff(curve(np.geomspace(1e-12, sizes[-1], 10_000))) >= 0).all()


def test_a_curve_can_be_verified(curve):
    proof = prove(NOISE, dataclasses.replace(curve, bounds=()))
    assert curve.lies_above(proof)
    assert not prove(dataclasses.replace(NOISE, d=0.6), curve)  # a larger d has a larger loss
    assert not prove(NOISE, dataclasses.replace(curve, log_losses=curve.log_losses - 0.2))


@pytest.mark.parametrize("noise", [NOISE, PointsNoise([(1.0, 0.5), (100.0, 5.0), (1e4, 12.0)])], ids=str)
def test_losses_that_are_computed_together_are_those_computed_alone(noise):
    """They differ by no more than the gaps between the bounds, and all bounds hold."""
    for first in (1e-9, 1e-3, 1.0, 99.5, 3e7):
        influences = first * np.exp(0.0065 * np.arange(15))
        for found in tight_losses(noise, influences, 5e-4):
            alone = tight_loss(noise, found.influence)
            assert max(found.lower, alone.lower) <= min(found.upper, alone.upper)
            assert found.upper <= found.lower * 1.001


@pytest.mark.parametrize("place", [0, 3, -1])
def test_a_knot_that_is_too_low_is_noticed(curve, place):
    losses = curve.log_losses.copy()
    losses[place] -= 0.3
    assert curve.lies_above(curve.bounds)
    assert not dataclasses.replace(curve, log_losses=losses).lies_above(curve.bounds)


@pytest.mark.parametrize("cut", [slice(1, None), slice(0, -40), slice(0, 3)])
def test_bounds_that_do_not_reach_the_ends_prove_nothing(curve, cut):
    bounds = sorted(curve.bounds, key=lambda bound: bound.influence)[cut]
    assert not curve.lies_above(bounds)


@pytest.mark.parametrize(("lowered", "proved"), [(0.0, True), (1e-6, False), (1e-8, False)])
def test_group_privacy_proves_no_more_than_it_says(lowered, proved):
    """For Δ between k·x and (k + 1)·x, a loss is at most (k + 1)² times that at x, so at most (Δ/x + 1)² times it."""
    seed = TightLoss(influence=0.1, upper=3.0, lower=3.0, order=2.0, cells=1, orders=1)
    logs = np.linspace(0, math.log(10), 2000)
    losses = np.log((np.exp(logs) / 0.1 + 1) ** 2 * 3.0)
    curve = TightCurve(logs, losses - lowered, 0.01)
    assert curve._follows_from(seed, 1.0, math.exp(losses[-1] - lowered)) == proved
    bounds = [seed, *(dataclasses.replace(seed, influence=at, upper=1e9) for at in (1.0, 10.0))]
    assert curve.lies_above(bounds) == proved


@pytest.mark.parametrize("precision", [0.01, ROUGH])
def test_group_privacy_is_used_as_long_as_it_is_precise(precision):
    """Its last bound is close to the loss there, and that at a size 50 % larger is not."""
    bounds = _Bounds(NOISE, BOUND_SHARE * precision)
    logs, upper, slope = _by_group_privacy(bounds, precision)
    assert len(bounds.seen) < 20
    assert slope == 2
    last = math.exp(logs[-1])
    assert upper[0] == pytest.approx(tight_loss(NOISE, math.exp(logs[0])).upper, rel=0.05 * precision + 5e-4)
    assert upper[-1] <= tight_loss(NOISE, last).lower * (1 + 0.2 * precision + 1e-3)
    assert upper[-1] * 1.5**2 > tight_loss(NOISE, 1.5 * last).upper * (1 + 0.1 * precision + 4e-4)
    assert (np.diff(upper) >= 0).all()


def test_without_group_privacy_the_first_steps_follow_from_the_slope():
    """The loss of this noise grows with a power of 2p, below 2, of a small influence."""
    bounds = _Bounds(GeneralizedGaussianNoise(sigma=1, p=0.3), BOUND_SHARE * ROUGH)
    logs, upper, slope = _by_group_privacy(bounds, ROUGH)
    assert logs.size == upper.size == 1
    assert slope == pytest.approx(0.6, abs=0.1)


def test_a_curve_is_made_from_few_bounds():
    """From group privacy for small sizes, and from about one bound for each step elsewhere."""
    curve = build_curve(NOISE, lambda x: closed_bound(NOISE, x), ROUGH)
    at = np.array([bound.influence for bound in curve.bounds])
    assert (at < 0.1).sum() < 20
    assert at.size < 300
    sizes = np.geomspace(1e-3, 1e3, 25)
    exact = np.array([tight_loss(NOISE, size).lower for size in sizes.tolist()])
    ratios = np.minimum(curve(sizes), closed_bound(NOISE, sizes)) / exact
    assert ratios.min() >= 1
    assert ratios.max() <= 1 + ROUGH


def test_knots_out_of_order_are_noticed(curve):
    assert not dataclasses.replace(curve, log_sizes=curve.log_sizes[::-1]).lies_above(curve.bounds)
    nan = np.where(np.arange(curve.log_losses.size) == 2, np.nan, curve.log_losses)
    assert not dataclasses.replace(curve, log_losses=nan).lies_above(curve.bounds)


def test_corners_are_bounds_up_to_the_next_node():
    assert np.exp(_corners(np.array([1.0, 3.0, 2.0, 5.0]))).tolist() == pytest.approx([2.0, 2.0, 5.0, 5.0])


def test_merged_lines_lie_above_the_corners():
    logs = np.linspace(0, 20, 4001)
    corners = np.log(1 + np.exp(logs)) + 0.3 * np.sin(logs / 3)
    corners = np.maximum.accumulate(corners)
    sizes, losses = merged(logs, corners, 0.01)
    excess = np.interp(logs, sizes, losses) - corners
    assert excess.min() >= -1e-12
    assert excess.max() <= 0.01 + 1e-12
    assert sizes.size < 200
    assert (np.diff(losses) >= 0).all()


def test_progress_is_reported():
    shares = []
    build_curve(NOISE, lambda x: closed_bound(NOISE, x), ROUGH, shares.append)
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] <= 1


def test_a_curve_is_kept_in_a_file(folder, monkeypatch):
    first = tight_curve(NOISE, ROUGH)
    (path,) = folder.glob("*.npz")
    assert tight_curve(NOISE, ROUGH) is first
    stored_curves._CURVES.clear()
    monkeypatch.setattr(stored_curves, "build_curve", None)  # so that computing it again would fail
    again = tight_curve(NOISE, ROUGH)
    assert again is not first
    assert (again.log_losses == first.log_losses).all()
    assert again.bounds == first.bounds
    assert path.stat().st_mode & 0o022 == 0


@pytest.fixture
def computed(monkeypatch, curve):
    """Count how often a curve is computed; each time it is the same one."""
    calls = []
    monkeypatch.setattr(stored_curves, "build_curve", lambda *given: calls.append(given) or curve)
    return calls


def change(path, **arrays):
    with np.load(path) as file:
        kept = dict(file)
    np.savez_compressed(path, **(kept | arrays))


def test_a_damaged_or_changed_file_is_not_used(folder, computed):
    curve = tight_curve(NOISE, ROUGH)
    (path,) = folder.glob("*.npz")
    low = dataclasses.replace(curve, log_losses=curve.log_losses - 1)
    bounds = np.array([dataclasses.astuple(bound) for bound in curve.bounds])
    lower = bounds.copy()
    lower[:, 1] *= 0.9
    description, checksum = stored_curves._description(NOISE, ROUGH), stored_curves._checksum

    def signed(sizes, losses, facts):
        change(
            path,
            log_sizes=sizes,
            log_losses=losses,
            bounds=facts,
            checksum=checksum(description, sizes, losses, facts),
        )

    damages = [
        lambda: path.write_bytes(b"no file"),
        lambda: path.write_bytes(path.read_bytes()[:-100]),
        lambda: change(path, log_losses=low.log_losses),  # the checksum is wrong
        lambda: signed(curve.log_sizes, low.log_losses, bounds),  # the curve is below its bounds
        lambda: signed(curve.log_sizes, low.log_losses, lower),  # so are the bounds, by less
        lambda: signed(curve.log_sizes, curve.log_losses + math.log(0.9), lower),  # so are the bounds, as much
        lambda: change(path, description="other"),
        lambda: change(path, log_losses=curve.log_losses + 0.01),  # it is right, but the checksum is not
        lambda: change(
            path, description="other", checksum=checksum("other", curve.log_sizes, curve.log_losses, bounds)
        ),
    ]
    for damage in damages:
        stored_curves._CURVES.clear()
        before = len(computed)
        damage()
        tight_curve(NOISE, ROUGH)
        assert len(computed) == before + 1, "the file was used"


class Runs:
    """An object that makes a file when it is read by pickle."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_a_file_cannot_run_code(folder, computed, tmp_path):
    tight_curve(NOISE, ROUGH)
    (path,) = folder.glob("*.npz")
    change(path, log_sizes=np.array([Runs(tmp_path / "it_ran")], object))
    stored_curves._CURVES.clear()
    tight_curve(NOISE, ROUGH)
    assert len(computed) == 2
    assert not (tmp_path / "it_ran").exists()


def test_without_a_folder_the_curve_is_computed_each_time(monkeypatch, tmp_path, computed):
    monkeypatch.setattr(stored_curves, "_CURVES", {})
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("SLOWSCALE_CACHE", str(tmp_path / "file" / "curves"))
    assert isinstance(tight_curve(NOISE, ROUGH), TightCurve)


def packaged(noise):
    return package_curves()[noise, stored_curves.PRECISION]


def test_the_package_has_the_curves_of_the_usual_shapes():
    """If this fails, run `python -m slowscale.noise.stored_curves`."""
    assert list(package_curves()) == [(noise, stored_curves.PRECISION) for noise in stored_curves.USUAL]


@pytest.mark.parametrize("noise", stored_curves.USUAL, ids=str)
def test_the_curves_of_the_package_are_proved(noise):
    """Each lies above the tight loss, and by no more than its precision; beyond its end, so does the closed form."""
    curve = packaged(noise)
    proof = prove(noise, curve, SHORTEST)
    assert proof
    bounds = [bound for bound in proof if curve.log_sizes[0] <= math.log(bound.influence) <= curve.log_sizes[-1]]
    at, lower = (np.array([getattr(bound, name) for bound in bounds]) for name in ("influence", "lower"))
    losses = np.minimum(curve(at * (1 - 1e-12)), closed_bound(noise, at))
    assert (losses / lower).max() <= 1 + stored_curves.PRECISION
    end = math.exp(curve.log_sizes[-1]) * 1.001
    for size in np.geomspace(end, 1e15, 5) if end < 1e15 else []:
        closed = closed_bound(noise, np.array([size]))[0]
        assert closed <= tight_loss(noise, float(size)).lower * (1 + stored_curves.PRECISION)


# Curves of the package are proved by long steps, so that a proof notices also what only takes most of their room.
SHORTEST = 0.5
LOWERED = [stored_curves.USUAL[i] for i in (1, 2, 10)]


@pytest.mark.parametrize("noise", LOWERED, ids=str)
@pytest.mark.parametrize(("log_size", "share"), [(-15.0, 0.01), (-1.0, 0.005), (2.0, 0.005), (4.5, 0.005)])
def test_a_curve_of_the_package_that_is_half_a_per_cent_lower_somewhere_is_not_proved(noise, log_size, share):
    """There it has less room above the loss than a proof needs. By group privacy, for small sizes, it needs little."""
    curve = packaged(noise)
    sizes = np.union1d(np.linspace(*curve.log_sizes[[0, -1]], 2000), log_size + np.linspace(-0.1, 0.1, 50))
    losses = np.interp(sizes, curve.log_sizes, curve.log_losses)
    losses[np.abs(sizes - log_size) < 0.1] -= share
    lowered = TightCurve(sizes, np.maximum.accumulate(losses), curve.precision)
    at = np.exp(np.array([log_size]))
    assert lowered(at) == pytest.approx(curve(at) * math.exp(-share), rel=1e-9)
    assert not prove(noise, lowered, SHORTEST)


# Each place, with a noise for which refuting it is quick; and each noise.
@pytest.mark.parametrize(
    ("noise", "place"),
    [(LOWERED[0], 1), (LOWERED[2], 12), (LOWERED[0], -2), (LOWERED[2], -1), (LOWERED[1], -1)],
    ids=str,
)
def test_a_curve_of_the_package_with_a_knot_that_is_too_low_is_not_proved(noise, place):
    curve = packaged(noise)
    losses = curve.log_losses.copy()
    losses[place] -= 0.01
    assert not prove(noise, dataclasses.replace(curve, log_losses=losses))


def test_the_polylog_of_the_examples_is_usual():
    assert ss.ExponentialPolylog.calibrate(std=75).noise in stored_curves.USUAL


def test_the_curves_of_the_package_are_used_without_computing_anything(folder, monkeypatch):
    monkeypatch.setattr(stored_curves, "build_curve", None)
    monkeypatch.setattr(stored_curves, "tight_loss", None)
    assert tight_curve(GeneralizedGaussianNoise(sigma=1, p=0.5), 0.01).precision == 0.01
    assert not folder.exists()


@pytest.mark.parametrize("damage", [lambda data: data.replace(b"1", b"2", 1), lambda data: data[:-1], None])
def test_a_file_of_the_package_that_was_changed_is_an_error(folder, monkeypatch, tmp_path, damage):
    path = tmp_path / "curves.json"
    if damage is not None:
        path.write_bytes(damage(stored_curves.PACKAGE_FILE.read_bytes()))
    monkeypatch.setattr(stored_curves, "PACKAGE_FILE", path)
    package_curves.cache_clear()
    try:
        with refused(ss.EngineError, code="damaged"):
            tight_curve(NOISE, ROUGH)
    finally:
        package_curves.cache_clear()


def forged(noise, monkeypatch):
    """Write a curve that is much too low into the cache, and let its bounds pass as computed."""
    curve = build_curve(noise, lambda x: closed_bound(noise, x), ROUGH)
    bounds = tuple(dataclasses.replace(bound, upper=bound.upper / 3) for bound in curve.bounds)
    low = dataclasses.replace(curve, log_losses=curve.log_losses - 1, precision=0.01, bounds=bounds)
    stored_curves.write_curve(stored_curves.cache_folder(), noise, low)
    monkeypatch.setattr(stored_curves, "_may_hold", lambda *_: True)
    assert stored_curves.read_curve(stored_curves.cache_folder(), noise, 0.01) is not None


def test_curves_of_the_package_come_before_the_cache(folder, monkeypatch):
    noise = GeneralizedGaussianNoise(sigma=1, p=0.5)
    forged(noise, monkeypatch)
    assert tight_curve(noise, 0.01) is packaged(noise)


def give_away(place, monkeypatch):
    """Let a file or folder belong to another user than this one and root."""
    if os.geteuid() == 0:
        os.chown(place, 65_534, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12_345)


DISTRUSTED = {
    "a file that others can write": lambda path, _: path.chmod(0o606),
    "a file that a group can write": lambda path, _: path.chmod(0o660),
    "a folder that others can write": lambda path, _: path.parent.chmod(0o1777),
    "a folder above that others can write": lambda path, _: path.parent.parent.chmod(0o777),
    "a link": lambda path, _: path.rename(path.with_name("other")) and path.symlink_to("other"),
    "a file of another user": give_away,
    "a folder of another user": lambda path, monkeypatch: give_away(path.parent, monkeypatch),
}


@pytest.mark.parametrize("change", DISTRUSTED.values(), ids=DISTRUSTED)
def test_what_others_can_change_is_not_used(folder, computed, change, monkeypatch):
    tight_curve(NOISE, ROUGH)
    (path,) = folder.glob("*.npz")
    stored_curves._CURVES.clear()
    tight_curve(NOISE, ROUGH)
    assert len(computed) == 1, "the file was not used"
    before = path.read_bytes()
    change(path, monkeypatch)
    stored_curves._CURVES.clear()
    with pytest.warns(ss.CacheWarning, match=r"other users can change .*SLOWSCALE_CACHE"):
        tight_curve(NOISE, ROUGH)
    assert len(computed) == 2, "the file was used"
    assert path.read_bytes() == before


def test_nothing_is_written_where_others_can_write(folder, computed):
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.warns(ss.CacheWarning):
        tight_curve(NOISE, ROUGH)
    assert len(computed) == 1
    assert not list(folder.iterdir())


def test_files_of_root_are_trusted_by_every_user(monkeypatch):
    place = Path("/etc/passwd")
    monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    assert place.stat().st_uid == 0
    assert stored_curves._is_trusted(place)


def test_the_cache_is_used_whatever_the_umask_is(folder, computed, monkeypatch):
    monkeypatch.setenv("SLOWSCALE_CACHE", str(folder / "new" / "curves"))
    folder.parent.chmod(0o1777)  # a folder above with the sticky bit
    mask = os.umask(0o002)
    try:
        for _ in range(2):
            stored_curves._CURVES.clear()
            tight_curve(NOISE, ROUGH)
    finally:
        os.umask(mask)
    assert len(computed) == 1


def test_threads_compute_a_curve_once(folder, computed):
    with ThreadPoolExecutor(4) as pool:
        curves = list(pool.map(lambda _: tight_curve(NOISE, ROUGH), range(4)))
    assert len(computed) == 1
    assert all(curve is curves[0] for curve in curves)
