"""scikit-learn: logistic regression without intercept on the incidence matrix of comparisons.

Bradley-Terry only, where Φ(t) − r t = log(1 + e^∓t) − log 2 for r = ±½. scikit-learn minimises
‖θ‖²/2 + C Σ_rows log(1 + e^∓t), so C = σ². Its `tol` bounds the gradient of the mean over rows of
the same, which is L's divided by their number. Many users are one problem, whose matrix is sparse;
newton-cholesky, whose Hessian is dense, goes user by user, and without a prior it finds the Hessian
singular and falls back on lbfgs. Methods with "float32" in their name get their matrix in float32.
"""

import warnings

import numpy as np
import scipy.sparse
from protocol import Method, Problem, Solve, serve
from scipy.linalg import LinAlgWarning
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

TIGHTEST = 1e-14
MOST_ITEMS_DENSE = 2000


def incidence_of(problem: Problem, dtype: type) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    """Rows ±(e_a − e_b) and the outcome, signs such that outcomes alternate: a fit needs both."""
    sign = np.where(np.arange(problem.a.size) % 2, -1.0, 1.0) * np.sign(problem.value)
    rows = np.repeat(np.arange(problem.a.size), 2)
    columns = np.stack([problem.a, problem.b], 1).ravel()
    values = np.stack([sign, -sign], 1).ravel().astype(dtype)
    shape = (problem.a.size, problem.num_items)
    return scipy.sparse.csr_array((values, (rows, columns)), shape), np.arange(sign.size) % 2 == 0


def logistic(solver: str, dtype: type = np.float64, **options: float) -> Method:
    def method(problem: Problem) -> Solve:
        if problem.law != "bradley-terry" or not np.all(np.abs(problem.value) == 0.5):
            raise ValueError("logistic regression is the Bradley-Terry model with r = ±1/2 alone")
        dense = solver == "newton-cholesky"
        parts = list(problem.by_user()) if dense else [problem]
        if dense and max(part.num_items for part in parts) > MOST_ITEMS_DENSE:
            raise ValueError(f"newton-cholesky is for at most {MOST_ITEMS_DENSE} items")
        tables = [incidence_of(part, dtype) for part in parts]
        model = LogisticRegression(
            C=problem.prior_std**2, fit_intercept=False, solver=solver, **options
        )

        def solve() -> np.ndarray:
            with warnings.catch_warnings():
                # Unreachable tolerances end in a failed line search, at the best point found.
                warnings.simplefilter("ignore", ConvergenceWarning)
                warnings.simplefilter("ignore", LinAlgWarning)
                return np.concatenate([model.fit(*table).coef_[0] for table in tables])

        return solve

    return method


if __name__ == "__main__":
    serve(
        {
            "newton-cg": logistic("newton-cg"),
            "newton-cg, tol 1e-10": logistic("newton-cg", tol=1e-10, max_iter=10_000),
            "lbfgs": logistic("lbfgs"),
            "lbfgs, tightest": logistic("lbfgs", tol=TIGHTEST, max_iter=100_000),
            "newton-cg, float32": logistic("newton-cg", np.float32),
            "newton-cg, tol 1e-10, float32": logistic(
                "newton-cg", np.float32, tol=1e-10, max_iter=10_000
            ),
            "lbfgs, float32": logistic("lbfgs", np.float32),
            "lbfgs, tightest, float32": logistic(
                "lbfgs", np.float32, tol=TIGHTEST, max_iter=100_000
            ),
            "newton-cholesky": logistic("newton-cholesky"),
            "newton-cholesky, tightest": logistic("newton-cholesky", tol=TIGHTEST),
        }
    )
