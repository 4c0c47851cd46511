"""Synthetic comparisons: graphs, scores, outcomes, tournaments and populations of users."""

from ._graphs import Pairs as Pairs
from ._graphs import bipartite as bipartite
from ._graphs import chain as chain
from ._graphs import complete as complete
from ._graphs import erdos_renyi as erdos_renyi
from ._graphs import power_law as power_law
from ._graphs import random_pairs as random_pairs
from ._outcomes import comparisons as comparisons
from ._outcomes import scores as scores
from ._population import Population as Population
from ._population import population as population
from ._swiss import swiss as swiss
