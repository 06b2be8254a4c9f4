"""The policies of several mechanisms in one picture, as a file: .png, .svg or .html."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from slowscale.errors import ParameterError
from slowscale.files import write_files
from slowscale.mechanisms import Mechanism
from slowscale.report.charts import INK, Axis, render, spec, tools

SIZES = np.geomspace(1, 1e7, 141)


def write_chart(mechanisms: Mapping[str, Mechanism], path: Path, overwrite: bool = False) -> Path:
    """Draw what a record loses against its size, one line per mechanism."""
    if path.suffix not in (".png", ".svg", ".html"):
        raise ParameterError(f"chart must be a .png, .svg or .html file, got {path}")
    lines = {name: list(zip(SIZES, mechanism.policy(SIZES), strict=True)) for name, mechanism in mechanisms.items()}
    described = spec(Axis("size of the record"), Axis("loss (PRzCDP)"), lines)
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
