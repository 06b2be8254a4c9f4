"""Reports: an HTML file about a release for all of its readers, and confidential ones for the curator only.

A report opens offline: it loads no script, font or image, and its content security policy forbids it. The public report
is generated from a release alone, which contains public facts only. The modules compute texts and numbers; the markup
and the constant prose are in `templates`.
"""

from slowscale.publish.report.confidential import write_confidential_report, write_inspection
from slowscale.publish.report.public import write_report

__all__ = ["write_confidential_report", "write_inspection", "write_report"]
