"""arena-rank, of LMArena: L-BFGS of optax on the loss in float64, which it switches on by itself.

Law "bradley-terry" without a prior only: its loss has no penalty (`hessian_reg` is added to the
Hessian of the intervals alone), so a finite σ cannot be matched and is refused. It minimises the
mean loss of the comparisons, over distinct rows with their counts, so `gtol` is on derivatives
divided by their number. Ratings are kept as log-odds and reported as R = 1000 + 400/log(10) θ, so
θ = (R − 1000) log(10)/400; scores are shifted to mean 0.

Each fit compiles its loop again; the library cannot avoid this, so the time includes it.
"""

from functools import partial

import numpy as np
import pandas as pd
from arena_rank.models.bradley_terry import BradleyTerry
from arena_rank.utils.data_utils import PairDataset
from protocol import Problem, Solve, serve

# No bound on the change of the loss, which stops changing in float64 well before the derivatives.
TIGHTEST = {"ftol": 0.0, "gtol": 1e-14, "max_iter": 10_000}


def data_of(problem: Problem) -> list[tuple[int, PairDataset]]:
    """Of each user, the number of items and the rows; competitors are sorted item numbers."""
    if problem.law != "bradley-terry":
        raise ValueError(f"law {problem.law}: arena-rank has the Bradley-Terry law only")
    if np.isfinite(problem.prior_std):
        raise ValueError(f"prior_std {problem.prior_std}: arena-rank has no prior")
    users = []
    for user in problem.by_user():
        winner = np.where(user.value > 0, "model_a", "model_b")
        frame = pd.DataFrame({"model_a": user.a, "model_b": user.b, "winner": winner})
        users.append((user.num_items, PairDataset.from_pandas(frame)))
    return users


def fit(problem: Problem, **settings: float) -> Solve:
    users = data_of(problem)

    def solve_user(num_items: int, data: PairDataset) -> np.ndarray:
        model = BradleyTerry(data.n_competitors, **settings)  # a used one continues where it ended
        ratings = np.asarray(model.fit(data).params["ratings"])
        found = np.zeros(num_items)
        found[data.competitors] = ratings - ratings.mean()
        return found

    return lambda: np.concatenate([solve_user(*user) for user in users])


def with_intervals(problem: Problem) -> Solve:
    """Rows: score, and the ends of its 95% interval by the sandwich estimate, its default."""
    users = data_of(problem)

    def solve_user(num_items: int, data: PairDataset) -> np.ndarray:
        model = BradleyTerry(data.n_competitors)
        answer = model.compute_ratings_and_cis(data)
        columns = [answer[name] for name in ("ratings", "rating_lower", "rating_upper")]
        scores = (np.stack(columns) - model.init_rating) / model.alpha
        found = np.zeros((3, num_items))
        found[:, data.competitors] = scores - scores[0].mean()
        return found

    return lambda: np.concatenate([solve_user(*user) for user in users], axis=1)


if __name__ == "__main__":
    serve(
        {
            "BradleyTerry": fit,
            "BradleyTerry, tightest": partial(fit, **TIGHTEST),
            "BradleyTerry with intervals": with_intervals,
        }
    )
