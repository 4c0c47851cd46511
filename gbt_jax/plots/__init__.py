"""Pictures of fits, laws and calibrations, drawn with matplotlib: `pip install "gbt-jax[plots]"`.

Each function draws into `ax`, or into a new figure of a fitting size, and returns the `Axes`. None
shows or saves anything, or changes matplotlib's settings. `labels` names the items, which are
called by their numbers otherwise; long names are shortened in their middle.
"""

from ._calibration import calibration as calibration
from ._graph import comparison_graph as comparison_graph
from ._influence import influence as influence
from ._law import law as law
from ._ranking import ranking as ranking
from ._sensitivity import sensitivity as sensitivity
