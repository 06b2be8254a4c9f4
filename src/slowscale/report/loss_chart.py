"""A chart of the losses of several mechanisms by record size, as a .png, .svg or .html file."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from slowscale.errors import ParameterError
from slowscale.files import write_files
from slowscale.mechanisms import Mechanism
from slowscale.report.charts import INK, Axis, render, spec, tools

POINTS = 241  # per line


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
    if path.suffix not in (".png", ".svg", ".html"):
        raise ParameterError(f"chart must be a .png, .svg or .html file, got {path}")
    shown = [*span, *sizes]
    x = np.union1d(np.geomspace(min(shown), max(shown), POINTS), shown)
    described = spec(Axis("size of the record"), Axis("loss (PRzCDP)"), _lines(mechanisms, x))
    described = json.loads(json.dumps(described, default=float).replace(INK, "black").replace("transparent", "white"))
    described["config"]["legend"]["labelLimit"] = 400
    _, vl_convert = tools()
    if path.suffix == ".png":
        content = vl_convert.svg_to_png(render(described), scale=2)
    elif path.suffix == ".svg":
        content = render(described).encode()
    else:
        content = vl_convert.vegalite_to_html(described, bundle=True).encode()
    return write_files({path: lambda place: place.write_bytes(content)}, overwrite=overwrite)


def _lines(mechanisms: Mapping[str, Mechanism], x: np.ndarray) -> dict[str, list[tuple[float, float]]]:
    """Return the points of each line that logarithmic axes can show."""
    lines = {}
    for name, mechanism in mechanisms.items():
        losses = mechanism.policy(x)
        points = zip(x.tolist(), losses.tolist(), strict=True)
        lines[name] = [(size, loss) for size, loss in points if 0 < loss < np.inf]
    if not any(lines.values()):
        raise ParameterError(
            f"the losses of all records of size {x[0]:g} to {x[-1]:g} are too small or too large for a chart: "
            "give other sizes"
        )
    return lines
