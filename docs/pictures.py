"""Draw pictures for the pages: `.venv/bin/python docs/pictures.py` writes docs/images/*.svg.

The setting is that of examples/compare_mechanisms.py: annual payroll, where every mechanism has a standard deviation of
75 for a sum of 106. The script needs altair and vl-convert-python, but neither a network nor a browser.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import pyarrow.compute as pc

import slowscale as ss
from slowscale.mechanisms import ExponentialPolylog, same_error
from slowscale.study import figures, tables
from slowscale.study.attributes import paper_attributes
from slowscale.study.experiments import AS_ACCURATE, Store, carry_out, plan_experiments

FOLDER = Path(__file__).parent / "images"
MEDIAN, STD = 106, 75
ALIKE = "all additive mechanisms"
# The colours of Okabe and Ito, which people with any colour vision can distinguish; dashes for printing in grey.
LOOKS = {
    "Gaussian": ("#000000", [1, 0]),
    "generalized Gaussian 1/2": ("#E69F00", [8, 3]),
    "exponential polylog 2": ("#0072B2", [1, 0]),
    "fourth root": ("#009E73", [2, 2]),
    "log": ("#D55E00", [8, 3, 2, 3]),
    ALIKE: ("#000000", [1, 0]),
    "polylog, closed form": ("#0072B2", [8, 3]),
    "polylog, tight policy": ("#0072B2", [1, 0]),
    "arsinh-normal, tight policy": ("#D55E00", [1, 0]),
}
MECHANISMS = {name: mechanism for name, mechanism in same_error(STD, MEDIAN).items() if name in LOOKS}
TEXT = {name: "#A06E00" if colour == "#E69F00" else colour for name, (colour, _) in LOOKS.items()}  # legible on white


def picture(curves: dict[str, Any], across: alt.X, along: alt.Y, about: str, apart: float = 0.6) -> alt.LayerChart:
    """Return a chart with one line per name, labelled at its right end.

    Parameters
    ----------
    curves
        The y values at `SIZES`, by name.
    across, along
        The x axis and the y axis.
    about
        The description for readers who cannot see the picture.
    apart
        The smallest vertical distance between labels, in powers of ten.
    """
    names = list(curves)
    rows = pd.concat(pd.DataFrame({"x": SIZES, "y": values, "name": name}) for name, values in curves.items())
    heights = sorted((float(np.log10(values[-1])), name) for name, values in curves.items())
    places: list[float] = []
    for height, _ in heights:
        places.append(max(height, places[-1] + apart) if places else height)
    ends = pd.DataFrame({"x": SIZES[-1], "y": 10.0 ** np.array(places), "name": [name for _, name in heights]})

    def scale(values: list[Any]) -> alt.Scale:
        return alt.Scale(domain=names, range=values)

    colour = alt.Color("name:N", legend=None, scale=scale([LOOKS[name][0] for name in names]))
    dash = alt.StrokeDash("name:N", legend=None, scale=scale([LOOKS[name][1] for name in names]))
    inks = alt.Color("name:N", legend=None, scale=scale([TEXT[name] for name in names]))
    drawn = alt.Chart(rows).mark_line(strokeWidth=2.5).encode(across, along, colour, dash)
    named = alt.Chart(ends).mark_text(align="left", dx=6, fontSize=14, fontWeight="bold")
    middle = alt.Chart(pd.DataFrame({"x": [MEDIAN], "words": [f"the median: {MEDIAN}"]})).encode(x="x:Q")
    chart = alt.layer(
        middle.mark_rule(color="#777777", strokeDash=[3, 3]),
        middle.mark_text(align="left", dx=5, dy=9, fontSize=13, color="#555555").encode(y=alt.value(0), text="words:N"),
        drawn,
        named.encode(across, along, inks, text="name:N"),
    ).resolve_scale(color="independent")
    chart = chart.properties(width=540, height=360, background="white", padding=14, description=about)
    return chart.configure_view(stroke=None).configure_axis(
        labelFontSize=13, titleFontSize=14, titleFontWeight="normal", gridColor="#e4e4e4"
    )


def axis(title: str, low: int, high: int, every: int = 1) -> dict[str, Any]:
    """Return a logarithmic axis whose tick labels are plain numbers."""
    words = "datum.value < 1000000 ? format(datum.value, ',') : format(datum.value / 1000000, ',') + ' million'"
    return {
        "scale": alt.Scale(type="log", domain=[10.0**low, 10.0**high], nice=False),
        "axis": alt.Axis(title=title, values=[10.0**power for power in range(low, high + 1, every)], labelExpr=words),
    }


SIZES = np.geomspace(1, 1e6, 241)


def policies() -> alt.LayerChart:
    """Return the chart of the loss by the size of the record."""
    curves = {name: m.policy(SIZES) for name, m in MECHANISMS.items()}
    last = {name: f"{values[-1]:,.0f}" for name, values in curves.items()}
    about = "PRzCDP loss against record size, both on log axes. At a size of one million the losses are: "
    about += "; ".join(f"{name} {loss}" for name, loss in last.items())
    x = alt.X("x:Q", **axis("size of the record (thousand dollars of annual payroll)", 0, 6))
    return picture(curves, x, alt.Y("y:Q", **axis("PRzCDP loss", -4, 8, 2)), about)


def tight() -> alt.LayerChart:
    """Return the chart of the tight policies of two noises beside a closed form."""
    polylog = MECHANISMS["exponential polylog 2"]
    curves = {
        "polylog, closed form": polylog.policy(SIZES),
        "polylog, tight policy": polylog.tight_policy(SIZES),
        "arsinh-normal, tight policy": ss.ArsinhNormal.calibrate(std=STD, shape=1.6).policy(SIZES),
    }
    about = "PRzCDP loss against record size, both on log axes, of noises with a standard deviation of 75. "
    about += "At a size of 10 the losses are: "
    about += "; ".join(f"{name} {np.interp(10, SIZES, values):.2g}" for name, values in curves.items())
    x = alt.X("x:Q", **axis("size of the record (thousand dollars of annual payroll)", 0, 6))
    return picture(curves, x, alt.Y("y:Q", **axis("PRzCDP loss", -3, 2)), about, apart=0.22)


def errors() -> alt.LayerChart:
    """Return the chart of the standard deviation by the value of the sum."""
    curves = {ALIKE: np.full(SIZES.shape, MECHANISMS["Gaussian"].std(1))}
    curves |= {name: MECHANISMS[name].std(SIZES) for name in ("fourth root", "log")}
    last = {name: f"{values[-1]:,.0f}" for name, values in curves.items()}
    about = "Standard deviation against the sum, both on log axes. At a sum of one million they are: "
    about += "; ".join(f"{name} {std}" for name, std in last.items())
    x = alt.X("x:Q", **axis("the sum (thousand dollars of annual payroll)", 0, 6))
    return picture(curves, x, alt.Y("y:Q", **axis("standard deviation of what is published", -1, 6)), about)


def gains() -> alt.LayerChart:
    """Return the chart of errors by size of cell, for annual payroll and a loss of 50 of the largest record."""
    payroll = next(one for one in paper_attributes() if one.name == "PAYANN")
    plan = plan_experiments(payroll, repetitions=1000, losses=(50.0,))
    with TemporaryDirectory() as folder:
        subject = carry_out(plan, Store(Path(folder)), lambda draws: None)
    table = tables.gains(subject, subject.gains[0])
    table = table.filter(pc.field("mechanism") != AS_ACCURATE)  # which has the errors of another one
    return figures.gains(table, units={"PAYANN": "thousand dollars"}, note="The largest record loses 50.")


def scales() -> alt.LayerChart:
    """Return the chart of what the scale of the polylog does: losses at one standard deviation of a million."""
    sizes = np.geomspace(1, 1e9, 181)
    looks = {1.0: ("#D55E00", [8, 3]), 1e3: ("#009E73", [2, 2]), 1e5: ("#0072B2", [1, 0])}
    rows, ends = [], []
    for scale, (colour, dash) in looks.items():
        mechanism = ExponentialPolylog.calibrate(std=1e6, sigma=scale)
        loss, half = mechanism.policy(sizes), mechanism.prediction_interval(0, 0.5)[1]
        words = f"σ = {scale:,.0f}: half of the noise within ±{half:,.0f}"
        rows.append(pd.DataFrame({"x": sizes, "y": loss, "name": words}))
        ends.append((words, colour, dash))
    names, colours, dashes = zip(*ends, strict=True)
    legend = alt.Legend(
        orient="bottom", direction="vertical", title=None, labelFontSize=13, labelLimit=500, symbolSize=500
    )
    colour = alt.Color("name:N", legend=legend, scale=alt.Scale(domain=names, range=colours))
    dash = alt.StrokeDash("name:N", legend=legend, scale=alt.Scale(domain=names, range=dashes))
    x = alt.X("x:Q", **axis("size of the record", 0, 9, 3))
    y = alt.Y("y:Q", **axis("PRzCDP loss", -6, 2, 2))
    about = (
        "PRzCDP loss against record size, both on log axes, for the exponential polylog with a standard deviation of "
    )
    about += "one million and three scales: " + "; ".join(names)
    kept = pd.concat(rows).query("y >= 1e-6")
    chart = alt.layer(alt.Chart(kept).mark_line(strokeWidth=2.5).encode(x, y, colour, dash))
    chart = chart.properties(width=540, height=320, background="white", padding=14, description=about)
    return chart.configure_view(stroke=None).configure_axis(
        labelFontSize=13, titleFontSize=14, titleFontWeight="normal", gridColor="#e4e4e4"
    )


def values() -> alt.LayerChart:
    """Return the chart of how closely a value can be known: the demonstration's noise beside Gaussian noise."""
    advised = ss.Log(sigma=0.037, a=13_000, noise="laplace")
    gaussian = ss.Gaussian.calibrate(interval=advised.prediction_interval(0)[1])
    sizes = np.geomspace(1_000, 1e6, 121)
    rows = []
    for name, mechanism in {"advised: log, Laplace noise": advised, "Gaussian noise": gaussian}.items():
        low, high = mechanism.prediction_interval(sizes)
        rows.append(pd.DataFrame({"x": sizes, "y": 50 * (high - low) / sizes, "name": name}))
    ends = pd.concat(one.iloc[[-1]] for one in rows)
    about = "How closely a payroll can be known, by its size, both on log axes. At one million: "
    about += "; ".join(f"{end.name} ±{end.y:.2g} %" for end in ends.itertuples(index=False))
    colour = alt.Color("name:N", legend=None, scale=alt.Scale(range=["#0072B2", "#D55E00"], domain=list(ends["name"])))
    x = alt.X("x:Q", **axis("annual payroll of the establishment (thousand dollars)", 3, 6))
    y = alt.Y("y:Q", **axis("known to within ± %, all else known", -1, 2))
    drawn = alt.Chart(pd.concat(rows)).mark_line(strokeWidth=2.5, clip=True).encode(x, y, colour)
    places = pd.concat([rows[0].iloc[[-1]].assign(y=lambda end: 1.6 * end["y"]), rows[1].iloc[[84]]])
    named = alt.Chart(places).mark_text(align="right", dx=-14, fontSize=14, fontWeight="bold")
    chart = alt.layer(drawn, named.encode(x, y, colour, text="name:N"))
    chart = chart.properties(width=620, height=240, background="white", padding=14, description=about)
    return chart.configure_view(stroke=None).configure_axis(
        labelFontSize=13, titleFontSize=14, titleFontWeight="normal", gridColor="#e4e4e4"
    )


def main() -> None:
    """Write the pictures."""
    FOLDER.mkdir(exist_ok=True)
    charts = {
        "policies": policies(),
        "tight": tight(),
        "errors": errors(),
        "scales": scales(),
        "gains": gains(),
        "values": values(),
    }
    for name, chart in charts.items():
        chart.save(FOLDER / f"{name}.svg")
        print(f"wrote docs/images/{name}.svg")


if __name__ == "__main__":
    main()
