"""choix: iterative Luce spectral ranking, minorisation-maximisation, and Newton-CG of SciPy.

Law "bradley-terry" only: the data are pairs of a winner and a loser, and scores are log-odds as in
`Problem`. `opt_pairwise` minimises α Σ θ² + Σ log(1 + e^(θ_loser − θ_winner)), so α = 1/(2σ²) (its
documentation says that the variance is 1/α, which is twice what the code does). The other two have
no Gaussian prior: α = 0, and they take problems without a prior only. Without a prior, scores are
shifted to mean 0.
"""

from functools import partial

import choix
import numpy as np
from protocol import Problem, Solve, serve

Pairs = list[tuple[int, int]]

# Bounds on the mean change of a score in one iteration, above the rounding errors of the first two,
# which raise at `max_iter`. `opt_pairwise` ends in any case: when its line search gets no further.
TIGHTEST = {"tol": 1e-13, "max_iter": 100_000}
TIGHTEST_OPT = {"tol": 1e-15}


def pairs_of(problem: Problem) -> list[tuple[int, Pairs]]:
    """Of each user, the number of items and the pairs of a winner and a loser."""
    if problem.law != "bradley-terry":
        raise ValueError(f"law {problem.law}: choix has the Bradley-Terry law only")
    users = []
    for user in problem.by_user():
        winner = np.where(user.value > 0, user.a, user.b).tolist()
        loser = np.where(user.value > 0, user.b, user.a).tolist()
        users.append((user.num_items, list(zip(winner, loser, strict=True))))
    return users


def without_prior(name: str, problem: Problem, **settings: float) -> Solve:
    if np.isfinite(problem.prior_std):
        raise ValueError(f"prior_std {problem.prior_std}: {name} has no Gaussian prior")
    users, function = pairs_of(problem), getattr(choix, name)

    def solve() -> np.ndarray:
        found = [function(n, pairs, alpha=0.0, **settings) for n, pairs in users]
        return np.concatenate([scores - scores.mean() for scores in found])

    return solve


def opt_pairwise(problem: Problem, **settings: float) -> Solve:
    users, alpha = pairs_of(problem), 0.5 * problem.prior_std**-2

    def solve() -> np.ndarray:
        found = [choix.opt_pairwise(n, pairs, alpha=alpha, **settings) for n, pairs in users]
        return np.concatenate([x if alpha else x - x.mean() for x in found])

    return solve


if __name__ == "__main__":
    serve(
        {
            "ilsr_pairwise": partial(without_prior, "ilsr_pairwise"),
            "ilsr_pairwise, tightest": partial(without_prior, "ilsr_pairwise", **TIGHTEST),
            "mm_pairwise": partial(without_prior, "mm_pairwise"),
            "mm_pairwise, tightest": partial(without_prior, "mm_pairwise", **TIGHTEST),
            "opt_pairwise": opt_pairwise,
            "opt_pairwise, tightest": partial(opt_pairwise, **TIGHTEST_OPT),
        }
    )
