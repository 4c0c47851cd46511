"""kickscore: approximate Bayesian inference, by expectation propagation (EP) or variational (KL).

Its scores are Gaussian processes in time. Here everything is observed at time 0 and every item has
a `Constant` kernel of variance σ², so scores are independent N(0, σ²) as in `Problem`, and logit
observations have P(a wins) = 1/(1 + e^−t): law "bradley-terry", σ finite.

The answer is the mean of its approximate posterior, in which items are independent, and not the
mode that `Problem` asks for. They differ most for items that always win or always lose. The
tolerance is its default of 1e-3: 1e-9 was not reached in 1000 iterations.

A fit continues from the previous one, so the model is rebuilt every time; this is timed.
"""

from functools import partial

import numpy as np
from kickscore import BinaryModel
from kickscore.kernel import Constant
from protocol import Problem, Solve, serve

# With the default step of 1, EP has not converged after its 100 iterations, and KL diverges. 0.3 is
# the default of its function for one observation.
EP, KL = {"method": "ep", "lr": 0.5}, {"method": "kl", "lr": 0.3}


def fit(problem: Problem, **settings: float | str) -> Solve:
    if problem.law != "bradley-terry":
        raise ValueError(f"law {problem.law}: kickscore has Bradley-Terry, not this law")
    if not np.isfinite(problem.prior_std):
        raise ValueError("prior_std inf: kickscore needs a prior")
    users = []
    for user in problem.by_user():
        winners = np.where(user.value > 0, user.a, user.b).astype(str).tolist()
        losers = np.where(user.value > 0, user.b, user.a).astype(str).tolist()
        users.append((user.num_items, list(zip(winners, losers, strict=True))))

    def solve_user(num_items: int, pairs: list[tuple[str, str]]) -> list[float]:
        model = BinaryModel("logit")
        for item in range(num_items):
            model.add_item(str(item), Constant(problem.prior_std**2))
        for winner, loser in pairs:
            model.observe([winner], [loser], t=0.0)
        if not model.fit(**settings):
            raise RuntimeError("no convergence")
        means = [model.item[str(item)].scores[1] for item in range(num_items)]
        return [mean[0] if mean.size else 0.0 for mean in means]  # one per observation, all equal

    return lambda: np.concatenate([solve_user(*user) for user in users])


if __name__ == "__main__":
    serve(
        {
            "BinaryModel, EP": partial(fit, **EP),
            "BinaryModel, KL": partial(fit, **KL),
        }
    )
