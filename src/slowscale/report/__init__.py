"""Reports: an HTML file about a release for all of its readers, and a confidential one for the curator only.

A report opens offline: it loads no script, font or image, and its content security policy forbids it. The public report
is generated from a release alone, which contains public facts only.
"""

from slowscale.report.charts import check_tools
from slowscale.report.confidential import write_confidential_report
from slowscale.report.public import write_report
from slowscale.report.sets import set_report_text, write_set_report

__all__ = ["check_tools", "set_report_text", "write_confidential_report", "write_report", "write_set_report"]
