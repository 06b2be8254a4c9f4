"""A chart of the losses of several mechanisms by record size, as a .png, .svg or .html file."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slowscale.errors import ParameterError
from slowscale.files import write_files
from slowscale.mechanisms import Mechanism
from slowscale.parameters import Array
from slowscale.report.charts import INK, Axis, render, spec, tools

POINTS = 241  # per line
TIGHT_POINTS = 25  # per line of tight losses, each of which takes milliseconds

LONG_NAME = 30  # with longer names, the legend has two columns


@dataclass(frozen=True)
class LossChart:
    """A chart, which notebooks show; `save` writes it to a file."""

    description: dict[str, Any]

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Write the chart to a .png, .svg or .html file, and return its path."""
        place = Path(path)
        _check_ending(place)
        _, vl_convert = tools()
        if place.suffix == ".png":
            content = vl_convert.svg_to_png(self.svg, scale=2)
        elif place.suffix == ".svg":
            content = self.svg.encode()
        else:
            content = vl_convert.vegalite_to_html(self.description, bundle=True).encode()
        return write_files({place: lambda target: target.write_bytes(content)}, overwrite=overwrite)

    @property
    def svg(self) -> str:
        """The chart as SVG."""
        return render(self.description)

    def _repr_svg_(self) -> str:
        return self.svg


def write_chart(
    mechanisms: Mapping[str, Mechanism],
    path: Path,
    span: tuple[float, float],
    sizes: Iterable[float] = (),
    overwrite: bool = False,
) -> Path:
    """Draw the loss of a record against its size, with one line per mechanism.

    Parameters
    ----------
    mechanisms
        The mechanisms by name.
    path
        The file to write, with the ending .png, .svg or .html.
    span
        The smallest and the largest record size to show.
    sizes
        Further record sizes; the chart is widened so that it shows them all.
    overwrite
        Whether to replace an existing file.
    """
    _check_ending(path)
    shown = [*span, *sizes]
    x = np.union1d(np.geomspace(min(shown), max(shown), POINTS), shown)
    lines = _lines({name: mechanism.policy for name, mechanism in mechanisms.items()}, x)
    return _chart(lines, "loss (PRzCDP)").save(path, overwrite)


def tight_loss_chart(mechanisms: Mapping[str, Mechanism], sizes: Sequence[float]) -> LossChart:
    """Return a chart of the tight losses of records of these sizes and all between, with one line per mechanism.

    The losses are computed one by one. The certified curves of the tight policies would take seconds for each line.
    """
    low, high = min(sizes), max(sizes)
    x = np.union1d(np.geomspace(low / 2, 2 * high, TIGHT_POINTS), sizes)

    def losses(mechanism: Mechanism) -> Callable[[Array], Array]:
        return lambda x: np.array([mechanism.tight_loss(size) for size in x.tolist()])

    return _chart(_lines({name: losses(found) for name, found in mechanisms.items()}, x), "tight loss (PRzCDP)")


def _check_ending(path: Path) -> None:
    if path.suffix not in (".png", ".svg", ".html"):
        raise ParameterError(f"chart must be a .png, .svg or .html file, got {path}")


def _chart(lines: Mapping[str, Sequence[tuple[float, float]]], title: str) -> LossChart:
    described = spec(Axis("size of the record"), Axis(title), lines)
    described = json.loads(json.dumps(described, default=float).replace(INK, "black").replace("transparent", "white"))
    described["config"]["legend"]["labelLimit"] = 600
    if any(len(name) > LONG_NAME for name in lines):
        for channel in ("color", "strokeDash"):
            described["encoding"][channel]["legend"]["columns"] = 2
    return LossChart(described)


def _lines(policies: Mapping[str, Callable[[Array], Array]], x: Array) -> dict[str, list[tuple[float, float]]]:
    """Return the points of each line that logarithmic axes can show."""
    lines = {}
    for name, policy in policies.items():
        losses = policy(x)
        points = zip(x.tolist(), losses.tolist(), strict=True)
        lines[name] = [(size, loss) for size, loss in points if 0 < loss < np.inf]
    if not any(lines.values()):
        raise ParameterError(
            f"the losses of all records of size {x[0]:g} to {x[-1]:g} are too small or too large for a chart: "
            "give other sizes"
        )
    return lines
