"""Reports: one HTML file about a release, for everyone who reads it; and another one for the curator only.

A report opens offline: no script, no font and no picture is fetched, and its content policy forbids it. The public one
is made of a release alone, which holds public facts only.
"""

from slowscale.report.charts import check_tools
from slowscale.report.confidential import write_confidential_report
from slowscale.report.public import write_report

__all__ = ["check_tools", "write_confidential_report", "write_report"]
