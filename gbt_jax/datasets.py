"""Small tables of published comparisons, with the estimates their sources report."""

from typing import NamedTuple

import numpy as np

from ._data._comparisons import Comparisons


class PublishedTable(NamedTuple):
    """Counts of wins between labelled items, and the published Bradley-Terry estimates."""

    labels: tuple[str, ...]
    wins: np.ndarray  # wins[i, j]: how often i beat j
    estimates: np.ndarray  # maximum likelihood, BradleyTerry law, up to a common constant
    source: str

    def comparisons(self) -> Comparisons:
        """One row per ordered pair: a win of +½ with the count as its weight."""
        winner, loser = np.nonzero(self.wins)
        return Comparisons(
            winner,
            loser,
            np.full(winner.size, 0.5),
            self.wins[winner, loser].astype(float),
            num_items=len(self.labels),
        )


def journal_citations() -> PublishedTable:
    """Citations among four statistics journals: being cited by another journal is a win.

    **Returns:** a `PublishedTable` of 4 items.
    """
    cited_by = [[0, 730, 498, 221], [33, 0, 68, 17], [320, 813, 0, 142], [284, 276, 325, 0]]
    return PublishedTable(
        labels=("Biometrika", "Comm. Statist.", "JASA", "JRSS-B"),
        wins=np.array(cited_by),
        estimates=np.array([0.0, -2.9491, -0.4796, 0.2690]),
        source=(
            "Stigler (1994), Citation patterns in the journals of statistics and probability, "
            "Statistical Science 9, 94-108; estimates in Agresti (2002), Categorical Data "
            "Analysis, 2nd ed."
        ),
    )


def american_league_1987() -> PublishedTable:
    """Baseball games of the American League's eastern division in 1987.

    **Returns:** a `PublishedTable` of 7 items.
    """
    wins = [
        [0, 7, 9, 7, 7, 9, 11],
        [6, 0, 7, 5, 11, 9, 9],
        [4, 6, 0, 7, 7, 8, 12],
        [6, 8, 6, 0, 6, 7, 10],
        [6, 2, 6, 7, 0, 7, 12],
        [4, 4, 5, 6, 6, 0, 6],
        [2, 4, 1, 3, 1, 7, 0],
    ]
    return PublishedTable(
        labels=("Milwaukee", "Detroit", "Toronto", "New York", "Boston", "Cleveland", "Baltimore"),
        wins=np.array(wins),
        estimates=np.array([1.5814, 1.4364, 1.2945, 1.2476, 1.1077, 0.6839, 0.0]),
        source=(
            "Agresti (1990), Categorical Data Analysis; the estimates are those of the R package "
            "BradleyTerry2 (Turner and Firth 2012, Journal of Statistical Software 48(9))"
        ),
    )
