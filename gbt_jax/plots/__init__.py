"""Plots of fits, laws and calibrations with matplotlib: `pip install "gbt-jax[plots]"`.

Each function draws into `ax`, or into a new figure of a suitable size, and returns the `Axes`. None
of them shows or saves a figure or changes matplotlib's settings. `labels` names the items; by
default they have the labels of the comparisons. Long names are shortened in the middle.
"""

from ._calibration import calibration as calibration
from ._graph import comparison_graph as comparison_graph
from ._influence import influence as influence
from ._law import law as law
from ._ranking import ranking as ranking
from ._sensitivity import sensitivity as sensitivity
