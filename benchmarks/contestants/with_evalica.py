"""evalica: Newman's iterations in Rust, without ties (`bradley_terry`) and with them (`newman`).

Law "bradley-terry" without a prior only, since it has none. Its scores are the strengths p of
P(a wins) = p_a / (p_a + p_b), so the scores of `Problem` are their logarithms, shifted to mean 0.
There are no ties in a `Problem`: the tie parameter of `newman` is 0 from its second iteration on.
"""

from functools import partial

import evalica
import numpy as np
import pandas as pd
from protocol import Problem, Solve, serve

# Tolerances are on the norm of the change of all strengths, so they depend on scale. If
# rounding errors exceed the tolerance, iterations stop at the limit without a warning.
TIGHTEST = {"tolerance": 1e-12, "limit": 10_000}


def strengths(name: str, problem: Problem, **settings: float) -> Solve:
    if problem.law != "bradley-terry":
        raise ValueError(f"law {problem.law}: evalica has the Bradley-Terry law only")
    if np.isfinite(problem.prior_std):
        raise ValueError(f"prior_std {problem.prior_std}: evalica has no prior")
    function = getattr(evalica, name)
    users = []
    for user in problem.by_user():
        winners = [evalica.Winner.X if r > 0 else evalica.Winner.Y for r in user.value]
        users.append((user.a.tolist(), user.b.tolist(), winners, pd.RangeIndex(user.num_items)))

    def solve() -> np.ndarray:
        found = []
        for *data, index in users:
            ranked = function(*data, index=index, **settings).scores  # from best to worst
            scores = np.log(ranked.reindex(index).to_numpy())
            found.append(scores - scores.mean())
        return np.concatenate(found)

    return solve


if __name__ == "__main__":
    serve(
        {
            "bradley_terry": partial(strengths, "bradley_terry"),
            "bradley_terry, tightest": partial(strengths, "bradley_terry", **TIGHTEST),
            "newman": partial(strengths, "newman"),
            "newman, tightest": partial(strengths, "newman", **TIGHTEST),
        }
    )
