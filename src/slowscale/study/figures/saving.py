"""Write a chart as SVG and PNG, without network access and without a browser."""

import os
import re
from html import escape
from pathlib import Path
from typing import Any

from slowscale.core.errors import ParameterTypeError
from slowscale.core.files import check_output_path, write_files
from slowscale.publish.charts import render, to_png, tools


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
        raise ParameterTypeError("chart", allowed="an Altair chart", given=type(chart))
    if not isinstance(stem, str | os.PathLike):
        raise ParameterTypeError("stem", allowed="text or os.PathLike", given=type(stem))
    svg, png = (check_output_path(f"{os.fspath(stem)}{ending}", ending, overwrite) for ending in (".svg", ".png"))
    with alt.theme.enable("none"):  # independent of the theme that is enabled in the session
        described = chart.to_dict()
    drawn = render(described)
    drawing, pixels = _with_texts(drawn, described), to_png(drawn)
    write_files(
        {
            svg: lambda path: path.write_text(drawing, encoding="utf-8"),
            png: lambda path: path.write_bytes(pixels),
        },
        overwrite=overwrite,
        confidential=confidential,
    )
    return svg, png


def _with_texts(drawn: str, described: dict[str, Any]) -> str:
    """Return the SVG with its title and description as elements that screen readers read."""
    title = described.get("title", "")
    words = title.get("text", "") if isinstance(title, dict) else title
    opening = re.match(r"<svg[^>]*?>", drawn)
    assert opening is not None
    start = opening[0].removesuffix(">")
    about = f"<title>{escape(str(words))}</title><desc>{escape(described.get('description', ''))}</desc>"
    return f'{start} role="img">{about}{drawn[opening.end() :]}'
