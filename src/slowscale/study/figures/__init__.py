"""The charts of the paper's study: functions from a table of numbers to an Altair chart, and their files.

Tables are `pyarrow.Table`s in long form: one row per point, box or bar. Every function names the columns that it reads.
Each mechanism has the same colour and the same dash in every chart (`LOOKS`). The packages of the extra `plots` are
imported when a chart is drawn.
"""

from slowscale.study.figures.accuracy import gains, stds, transformation_stds, variances
from slowscale.study.figures.chart_style import LOOKS, Look
from slowscale.study.figures.losses import densities, loss_cdfs, neighbour_policies, policies
from slowscale.study.figures.saving import save
from slowscale.study.figures.spreads import distributions, histogram, relative_errors

__all__ = [
    "LOOKS",
    "Look",
    "densities",
    "distributions",
    "gains",
    "histogram",
    "loss_cdfs",
    "neighbour_policies",
    "policies",
    "relative_errors",
    "save",
    "stds",
    "transformation_stds",
    "variances",
]
