"""The pages, in the order of the path from data to a report."""

from slowscale.workbench.pages import cost, data, inspect, noise, release, report, tables

PAGES = (data.page, tables.page, noise.page, cost.page, inspect.page, release.page, report.page)
