"""torch.optim.LBFGS on the loss of `Problem`, by automatic differentiation.

"torch L-BFGS" is the method of the paper's authors, rewritten from their notebook (code.ipynb of
github.com/sadeghfarhadkhani/GBT; the paper itself names no optimiser): torch's defaults, so no line
search, from N(0, 1) scores, 3 calls of `step` with 20 iterations each. "strong Wolfe" adds torch's
line search to it. "tightest" iterates until every partial derivative is below 1e-12, or for 2000
iterations: without the line search, since with it they stay near 1e-7.

Φ and L are those of `Problem`, so nothing has to be converted; without a prior, scores are shifted
to mean 0. All tensors are in float64, unless a method has "float32" in its name.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from protocol import Problem, Solve, serve

# The loss stops changing in float64 well before the derivatives are as small as they can get, hence
# no bound on changes.
TIGHTEST = {"tolerance_grad": 1e-12, "tolerance_change": 0.0, "max_iter": 2000}


def uniform(t: torch.Tensor) -> torch.Tensor:
    """log(sinh(t)/t): by series up to 0.1, where the first term left out is below 3e-16."""
    near = t.abs() < 0.1
    x, s = torch.where(near, 1.0, t.abs()), torch.where(near, t, 0.0) ** 2
    far = x + torch.log(-torch.expm1(-2 * x) / (2 * x))
    return torch.where(near, s / 6 - s**2 / 180 + s**3 / 2835 - s**4 / 37800, far)


def bradley_terry(t: torch.Tensor) -> torch.Tensor:
    """log cosh(t/2)."""
    return torch.logaddexp(t / 2, -t / 2) - math.log(2)


LAWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "uniform": uniform,
    "bradley-terry": bradley_terry,
}


def lbfgs(
    problem: Problem, steps: int = 3, dtype: torch.dtype = torch.float64, **settings: float | str
) -> Solve:
    law, precision = LAWS[problem.law], problem.prior_std**-2
    users = [
        (
            user.num_items,
            *(torch.from_numpy(items) for items in (user.a, user.b)),
            torch.from_numpy(user.value).to(dtype),
        )
        for user in problem.by_user()
    ]
    generator = torch.Generator()

    def solve_user(
        num_items: int, a: torch.Tensor, b: torch.Tensor, value: torch.Tensor
    ) -> np.ndarray:
        start = torch.randn(num_items, dtype=dtype, generator=generator)
        scores = start.requires_grad_()
        optimizer = torch.optim.LBFGS([scores], **settings)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            t = scores[a] - scores[b]
            loss = precision / 2 * (scores**2).sum() + (law(t) - value * t).sum()
            loss.backward()
            return loss

        for _ in range(steps):
            optimizer.step(closure)
        found = scores.detach().numpy()
        return found if precision else found - found.mean()

    def solve() -> np.ndarray:
        generator.manual_seed(0)
        return np.concatenate([solve_user(*user) for user in users])

    return solve


if __name__ == "__main__":
    serve(
        {
            "torch L-BFGS": lbfgs,
            "torch L-BFGS, strong Wolfe": partial(lbfgs, line_search_fn="strong_wolfe"),
            "torch L-BFGS, tightest": partial(lbfgs, steps=1, **TIGHTEST),
            "torch L-BFGS, float32": partial(lbfgs, dtype=torch.float32),
            "torch L-BFGS, tightest, float32": partial(
                lbfgs, steps=1, dtype=torch.float32, **TIGHTEST
            ),
        }
    )
