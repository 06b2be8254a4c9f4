"""Write a chart as SVG and PNG, without network access and without a browser."""

import os
import re
from html import escape
from pathlib import Path
from typing import Any

from slowscale.errors import ParameterTypeError
from slowscale.files import free_target, write_files
from slowscale.report.charts import render, tools

PIXELS = 2  # per unit of length in a PNG, so that it is sharp on screens of high resolution


def save(
    chart: Any, stem: str | os.PathLike[str], *, overwrite: bool = False, confidential: bool = False
) -> tuple[Path, Path]:
    """Write a chart to `stem`.svg and `stem`.png, and return these two paths.

    Either both files are written or none. The title and the description of the chart are in the SVG for screen readers.

    Parameters
    ----------
    chart
        A chart that a function of `slowscale.study.figures` has returned.
    stem
        The path without its ending. The folder must exist.
    overwrite
        Whether to replace existing files.
    confidential
        Whether only the owner may read the files.
    """
    alt, _ = tools()
    if not isinstance(chart, alt.TopLevelMixin):
        raise ParameterTypeError(f"chart must be an Altair chart, got {type(chart).__name__}")
    if not isinstance(stem, str | os.PathLike):
        raise ParameterTypeError(f"stem must be text or os.PathLike, got {type(stem).__name__}")
    svg, png = (free_target(f"{os.fspath(stem)}{ending}", ending, overwrite) for ending in (".svg", ".png"))
    with alt.theme.enable("none"):  # independent of the theme that is enabled in the session
        described = chart.to_dict()
    drawing, pixels = _svg(described), _png(described)
    write_files(
        {
            svg: lambda path: path.write_text(drawing, encoding="utf-8"),
            png: lambda path: path.write_bytes(pixels),
        },
        overwrite=overwrite,
        confidential=confidential,
    )
    return svg, png


def _svg(described: dict[str, Any]) -> str:
    """Return the chart as SVG, with its title and description as elements that screen readers read."""
    drawn = render(described)
    title = described.get("title", "")
    words = title.get("text", "") if isinstance(title, dict) else title
    opening = re.match(r"<svg[^>]*?>", drawn)
    assert opening is not None
    start = opening[0].removesuffix(">")
    about = f"<title>{escape(str(words))}</title><desc>{escape(described.get('description', ''))}</desc>"
    return f'{start} role="img">{about}{drawn[opening.end() :]}'


def _png(described: dict[str, Any]) -> bytes:
    alt, vl_convert = tools()
    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    return bytes(vl_convert.vegalite_to_png(described, vl_version=version, scale=PIXELS, allowed_base_urls=[]))
