"""Rankings from data frames and files; labels are kept as they are.

Needs the extra `frames` (narwhals and PyArrow): `pip install "gbt-jax[frames]"`.
"""

try:
    import pyarrow as _pyarrow  # noqa: F401
except ImportError as error:
    raise ImportError(
        f'tables need {error.name}: pip install "gbt-jax[frames]"', name=error.name
    ) from error

from ._data_check import Finding as Finding
from ._data_check import Findings as Findings
from ._data_check import check as check
from ._files import TableError as TableError
from ._files import read_table as read_table
from ._files import write_table as write_table
from ._law_names import law_named as law_named
from ._presets import PRESETS as PRESETS
from ._presets import Preset as Preset
from ._ranking import Ranking as Ranking
from ._ranking import fit_table as fit_table
from ._votes import VoteOptions as VoteOptions
from ._votes import Votes as Votes
from ._votes import read_votes as read_votes
