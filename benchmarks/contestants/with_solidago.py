"""solidago, Tournesol's library: coordinate descent in numba, and L-BFGS in torch.

`comparison_learning` answers with scores and uncertainties, which cannot be switched off. The
methods that have "with uncertainties" in their name call it; the others do only its first half:
`UniformGBT` by its own `coordinate_descent`, and `LBFGSUniformGBT` by minimising its own `loss`
with the optimiser and the settings that it uses. Uncertainties are how far a score moves to the
left and to the right before the loss of the comparisons, without the prior, rises by 1. They are
found to 0.01 (coordinate descent) or 0.1 (L-BFGS), and cut at 1000, which items without comparisons
get.

Its model is the one of `Problem` with law "uniform": comparison / comparison_max is in [−1, 1], so
comparison_max = 1, but it is positive where b is better, so comparison = −r; prior_std_dev = σ.

The order of the coordinates and the start of L-BFGS are random, from the global generator of NumPy,
which is seeded here so that answers can be repeated.
"""

from functools import partial

import numpy as np
import pandas as pd
import torch
from protocol import Problem, Solve, serve
from solidago.preference_learning import UniformGBT
from solidago.preference_learning.lbfgs_generalized_bradley_terry import LBFGSUniformGBT
from solidago.solvers.optimize import coordinate_descent

# Bounds on a change of score (coordinate descent) and of score or loss (L-BFGS). On small problems,
# coordinate descent ended with 1e-14 and not with 1e-15; 1e-13 leaves room for larger scores.
# L-BFGS ends when its loss no longer changes, or before: its bound of 1e-7 on derivatives is fixed.
TIGHTEST = {"convergence_error": 1e-13}
TIGHTEST_LBFGS = {"convergence_error": 1e-15, "max_iter": 10_000}


def frames_of(problem: Problem) -> list[tuple[int, pd.DataFrame]]:
    """Of each user, the number of items and the comparisons."""
    if problem.law != "uniform":
        raise ValueError(f"law {problem.law}: solidago has the uniform law only")
    return [
        (
            user.num_items,
            pd.DataFrame(
                {
                    "entity_a": user.a,
                    "entity_b": user.b,
                    "comparison": -user.value,
                    "comparison_max": np.ones(user.a.size),
                }
            ),
        )
        for user in problem.by_user()
    ]


def seed() -> None:
    np.random.seed(0)  # noqa: NPY002  the generator that solidago draws from


def scores(problem: Problem, **settings: float) -> Solve:
    """The first half of `UniformGBT.comparison_learning`."""
    model = UniformGBT(prior_std_dev=problem.prior_std, **settings)
    frames = frames_of(problem)

    def solve_user(num_items: int, frame: pd.DataFrame) -> np.ndarray:
        compared = np.union1d(frame["entity_a"], frame["entity_b"])
        place = {item: coordinate for coordinate, item in enumerate(compared)}
        rows = model.comparisons_dict(frame, place)
        found = np.zeros(num_items)
        found[compared] = coordinate_descent(
            model.update_coordinate_function,
            get_args=lambda item, now: (now[rows[item][0]], rows[item][1]),
            initialization=np.zeros(compared.size),
            updated_coordinates=[],
            error=model.convergence_error,
        )
        return found

    def solve() -> np.ndarray:
        seed()
        return np.concatenate([solve_user(*user) for user in frames])

    return solve


def scores_lbfgs(problem: Problem, **settings: float) -> Solve:
    """The first half of `LBFGSUniformGBT.comparison_learning`."""
    model = LBFGSUniformGBT(prior_std_dev=problem.prior_std, **settings)
    frames = frames_of(problem)

    def solve_user(num_items: int, frame: pd.DataFrame) -> np.ndarray:
        a, b = frame["entity_a"].to_numpy(), frame["entity_b"].to_numpy()
        compared, place = np.unique(np.concatenate([a, b]), return_inverse=True)
        rows = (place[: a.size], place[a.size :], frame["comparison"].to_numpy())
        start = np.random.normal(size=compared.size)  # noqa: NPY002  as it starts
        now = torch.tensor(start, requires_grad=True, device=model.device)
        optimizer = torch.optim.LBFGS(
            [now],
            max_iter=model.max_iter,
            tolerance_change=model.convergence_error,
            line_search_fn="strong_wolfe",
        )

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = model.loss(now, rows)
            loss.backward()
            return loss

        optimizer.step(closure)
        if optimizer.state[now]["n_iter"] >= model.max_iter:  # where the library raises, too
            raise RuntimeError(f"no convergence in {model.max_iter} iterations")
        found = np.zeros(num_items)
        found[compared] = now.detach().cpu().numpy()
        return found

    def solve() -> np.ndarray:
        seed()
        return np.concatenate([solve_user(*user) for user in frames])

    return solve


def with_uncertainties(kind: type[UniformGBT] | type[LBFGSUniformGBT], problem: Problem) -> Solve:
    """Rows: score, uncertainty to the left, uncertainty to the right."""
    model = kind(prior_std_dev=problem.prior_std)
    frames = frames_of(problem)

    def solve_user(num_items: int, frame: pd.DataFrame) -> np.ndarray:
        found = np.full((3, num_items), model.MAX_UNCERTAINTY)
        found[0] = 0.0
        for item, values in model.comparison_learning(frame).iter_entities():
            found[:, item] = values
        return found

    def solve() -> np.ndarray:
        seed()
        return np.concatenate([solve_user(*user) for user in frames], axis=1)

    return solve


if __name__ == "__main__":
    serve(
        {
            "UniformGBT": scores,
            "UniformGBT, tightest": partial(scores, **TIGHTEST),
            "UniformGBT with uncertainties": partial(with_uncertainties, UniformGBT),
            "LBFGSUniformGBT": scores_lbfgs,
            "LBFGSUniformGBT, tightest": partial(scores_lbfgs, **TIGHTEST_LBFGS),
            "LBFGSUniformGBT with uncertainties": partial(with_uncertainties, LBFGSUniformGBT),
        }
    )
