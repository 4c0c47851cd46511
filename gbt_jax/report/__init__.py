"""A ranking as one page of HTML that stands alone: nothing in it is loaded from anywhere.

Needs the extra `frames` (narwhals and PyArrow): `pip install "gbt-jax[frames]"`.
"""

from ._page import ReportOptions as ReportOptions
from ._page import report_html as report_html
from ._page import write_report as write_report
