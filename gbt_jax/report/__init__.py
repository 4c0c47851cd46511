"""A ranking as one self-contained page of HTML.

Needs the extra `frames` (narwhals and PyArrow): `pip install "gbt-jax[frames]"`.
"""

from ._page import ReportOptions as ReportOptions
from ._page import report_html as report_html
from ._page import write_report as write_report
