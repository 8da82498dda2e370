"""One self-contained HTML page about a model and a table: `aem report`."""

from aem.report.build import BuiltReport, build
from aem.report.limits import Limits
from aem.report.page import render

__all__ = ["BuiltReport", "Limits", "build", "render"]
