"""The pages, in the order of the path from data to a report."""

from typing import NamedTuple

from slowscale.workbench.pages import cost, data, inspect, noise, release, report, tables

PAGES = (data, tables, noise, cost, inspect, release, report)


class Step(NamedTuple):
    """A page as the navigation shows it."""

    path: str
    title: str


STEPS = tuple(Step(page.PATH, page.TITLE) for page in PAGES)
ROUTES = [route for page in PAGES for route in page.ROUTES]
