"""NumPy and SciPy by hand: optimisers of scipy.optimize and Newton's method, dense and sparse.

scipy.optimize and the dense Newton go user by user; the sparse Newton takes all users as one
problem. Uncertainties and the Jacobian come from the dense inverse of the Hessian. Methods with
"float32" in their name get values and initial scores in float32; what NumPy and SciPy convert to
float64 (sums by item, the state of L-BFGS-B) stays in float64.
"""

from collections.abc import Callable

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse
from losses import SINHC, SINHC_SLOPE, polynomial
from protocol import Method, Problem, Solve, serve

Pair = tuple[np.ndarray, np.ndarray]
posv, potrf, potri = scipy.linalg.get_lapack_funcs(("posv", "potrf", "potri"))


def uniform(t: np.ndarray, bend: bool) -> Pair:
    """Φ', and Φ'' or else Φ, for speed: absolute errors of 1e-14, one exponential."""
    x = np.abs(t)
    y = np.maximum(x, 0.1)
    tail = np.exp(-2 * y)
    gap, inverse = 1 - tail, 1 / y
    mean = (1 + tail) / gap - inverse
    other = inverse**2 - 4 * tail / gap**2 if bend else y + np.log(0.5 * gap * inverse)
    near = np.flatnonzero(x < 0.1)
    if near.size:
        x = x[near]
        excess = polynomial(SINHC[:5], x * x)
        sinhc = 1 + x * x * excess
        mean[near] = x * polynomial(SINHC_SLOPE[:5], x * x) / sinhc
        other[near] = excess * (1 + sinhc) / sinhc**2 if bend else np.log(sinhc)
    return np.copysign(mean, t), other


def bradley_terry(t: np.ndarray, bend: bool) -> Pair:
    """Φ', and Φ'' or else Φ."""
    x = np.abs(t)
    tail = np.exp(-x)
    inverse = 1 / (1 + tail)
    mean = np.copysign(0.5 * (1 - tail) * inverse, t)
    return mean, tail * inverse * inverse if bend else 0.5 * x - np.log(2 * inverse)


def dot(u: np.ndarray, v: np.ndarray) -> float:
    """Without BLAS, whose threads take milliseconds to meet when the cores have other work."""
    return float(np.einsum("i,i", u, v))


CURVES = {"uniform": uniform, "bradley-terry": bradley_terry}


class Objective:
    """L of one problem with its derivatives."""

    def __init__(self, problem: Problem) -> None:
        self.a, self.b, self.value = problem.a, problem.b, problem.value
        self.n, self.curve = problem.num_items, CURVES[problem.law]
        self.precision = problem.prior_std**-2
        self.at, self.weights = np.full(self.n, np.nan), np.empty(0)

    def sums(self, of_rows: np.ndarray) -> np.ndarray:
        """Bᵀ times a value per row, B the incidence matrix."""
        return np.bincount(self.a, of_rows, self.n) - np.bincount(self.b, of_rows, self.n)

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss and its gradient."""
        t = x[self.a] - x[self.b]
        mean, potential = self.curve(t, False)
        loss = 0.5 * self.precision * dot(x, x) + np.sum(potential - self.value * t)
        return loss, self.precision * x + self.sums(mean - self.value)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """The gradient, and on the way the weights of the Hessian here."""
        mean, self.weights = self.curve(x[self.a] - x[self.b], True)
        self.at = x.copy()
        return self.precision * x + self.sums(mean - self.value)

    def product(self, x: np.ndarray, v: np.ndarray) -> np.ndarray:
        """The Hessian at x times v."""
        if not np.array_equal(x, self.at):
            self.gradient(x)
        return self.precision * v + self.sums(self.weights * (v[self.a] - v[self.b]))

    def degrees(self) -> np.ndarray:
        """The Hessian's diagonal, at the last gradient."""
        both = np.bincount(self.a, self.weights, self.n) + np.bincount(self.b, self.weights, self.n)
        return self.precision + both

    def dense(self) -> np.ndarray:
        """The Hessian at the last gradient, plus a multiple of 11ᵀ when there is no prior."""
        pairs = np.bincount(self.a * self.n + self.b, self.weights, self.n**2)
        pairs = pairs.reshape(self.n, self.n)
        hessian = -pairs - pairs.T
        np.fill_diagonal(hessian, self.degrees())
        if not self.precision:  # along 1 the loss is flat: no gradient and no B has a part there
            hessian += hessian.trace() / self.n**2
        return hessian


def newton(
    objective: Objective, direction: Callable[[np.ndarray, float], np.ndarray], tolerance: float
) -> np.ndarray:
    """Until no gradient is above the tolerance; `direction` of a gradient and a relative error."""
    x = np.zeros(objective.n)
    gradient = objective.gradient(x)
    start = np.abs(gradient).max()
    for _ in range(100):
        size = np.abs(gradient).max()
        if size <= tolerance:
            break
        # Errors that fall with the gradient make convergence quadratic; none is better than needed.
        step = direction(gradient, max(min(0.1, size / start), 0.3 * tolerance / size))
        slope, length = dot(gradient, step), 1.0
        if slope >= 0:  # rounding is all that is left
            break
        gradient = objective.gradient(x + step)
        # L is convex: past its minimum along the step the slope is positive, so shorten by secants.
        while (ahead := dot(gradient, step)) > -0.1 * slope:
            length *= slope / (slope - ahead)
            gradient = objective.gradient(x + length * step)
        x = x + length * step
    return x


def conjugate_gradients(
    matrix: scipy.sparse.csr_array, b: np.ndarray, scale: np.ndarray, rtol: float
) -> np.ndarray:
    """Of `matrix` x = b, preconditioned by the diagonal, whose inverse is `scale`."""
    x, residual = np.zeros_like(b), b.copy()
    goal = rtol * np.abs(b).max()
    direction = scaled = scale * residual
    energy = dot(residual, scaled)
    for _ in range(10 * b.size):
        image = matrix @ direction
        length = energy / dot(direction, image)
        x += length * direction
        residual -= length * image
        if np.abs(residual).max() <= goal:
            break
        scaled = scale * residual
        before, energy = energy, dot(residual, scaled)
        direction = scaled + energy / before * direction
    return x


def sparse_newton(tolerance: float) -> Method:
    def solve(problem: Problem, objective: Objective) -> np.ndarray:
        n = problem.num_items
        low, high = np.minimum(problem.a, problem.b), np.maximum(problem.a, problem.b)
        codes, pair = np.unique(low * n + high, return_inverse=True)
        low, high, items = codes // n, codes % n, np.arange(n)
        # The pattern of the Hessian, and where each entry comes from: a pair, or the diagonal.
        rows, columns = np.concatenate([low, high, items]), np.concatenate([high, low, items])
        origin = np.concatenate([np.tile(np.arange(codes.size), 2), codes.size + items])
        pattern = scipy.sparse.csr_array((origin, (rows, columns)), (n, n))
        origin = np.asarray(pattern.data, int)
        hessian = scipy.sparse.csr_array((origin * 1.0, pattern.indices, pattern.indptr), (n, n))

        def direction(gradient: np.ndarray, rtol: float) -> np.ndarray:
            degrees = objective.degrees()
            pairs = np.bincount(pair, objective.weights, codes.size)
            hessian.data = np.concatenate([-pairs, degrees])[origin]
            return conjugate_gradients(hessian, -gradient, 1 / degrees, rtol)

        return newton(objective, direction, tolerance)

    def method(problem: Problem) -> Solve:
        objective = Objective(problem)
        return lambda: solve(problem, objective)

    return method


def by_cholesky(objective: Objective, tolerance: float = 1e-10) -> np.ndarray:
    """One user by Newton's method with the dense Hessian."""

    def direction(gradient: np.ndarray, rtol: float) -> np.ndarray:
        return posv(objective.dense(), -gradient, lower=1)[1]

    return newton(objective, direction, tolerance)


def dense_newton(problem: Problem) -> Solve:
    users = [Objective(user) for user in problem.by_user()]
    return lambda: np.concatenate([by_cholesky(user) for user in users])


def minimize(method: str, dtype: type = np.float64, **options: float) -> Method:
    """scipy.optimize, user by user."""

    def prepare(problem: Problem) -> Solve:
        problem = problem._replace(value=problem.value.astype(dtype))
        users = [Objective(user) for user in problem.by_user()]

        def solve(user: Objective) -> np.ndarray:
            hessp = user.product if method == "Newton-CG" else None
            start = np.zeros(user.n, dtype)
            return scipy.optimize.minimize(
                user, start, jac=True, hessp=hessp, method=method, options=options
            ).x

        return lambda: np.concatenate([solve(user) for user in users])

    return prepare


def solved(problem: Problem) -> Objective:
    """The objective, with the weights of the MAP."""
    objective = Objective(problem)
    objective.gradient(by_cholesky(objective))
    return objective


def inverse_hessian(objective: Objective) -> np.ndarray:
    """By Cholesky, both triangles."""
    inverse, _ = potri(potrf(objective.dense(), lower=1)[0], lower=1)
    return np.tril(inverse) + np.tril(inverse, -1).T


def jacobian(problem: Problem) -> Solve:
    """Of every score in every value, H⁻¹ Bᵀ, from the scores on."""
    objective = solved(problem)

    def solve() -> np.ndarray:
        inverse = inverse_hessian(objective)
        by_row = inverse[objective.a]
        by_row -= inverse[objective.b]
        return by_row.T

    return solve


def std(problem: Problem) -> Solve:
    """Square roots of the diagonal of H⁻¹, from the scores on."""
    objective = solved(problem)

    def solve() -> np.ndarray:
        inverse, _ = potri(potrf(objective.dense(), lower=1)[0], lower=1)
        variance = inverse.diagonal()
        if not objective.precision:  # remove the multiple of 11ᵀ
            variance = variance - 1 / objective.degrees().sum()
        return np.sqrt(variance)

    return solve


TIGHT = {"ftol": 0.0, "gtol": 1e-12, "maxiter": 100_000, "maxfun": 1_000_000, "maxcor": 20}

if __name__ == "__main__":
    serve(
        {
            "L-BFGS-B": minimize("L-BFGS-B"),
            "L-BFGS-B, tightest": minimize("L-BFGS-B", **TIGHT),
            "L-BFGS-B, float32": minimize("L-BFGS-B", np.float32),
            "L-BFGS-B, tightest, float32": minimize("L-BFGS-B", np.float32, **TIGHT),
            "Newton-CG": minimize("Newton-CG"),
            "Newton-CG, tightest": minimize("Newton-CG", xtol=1e-12, maxiter=10_000),
            "sparse Newton": sparse_newton(1e-5),
            "sparse Newton, tightest": sparse_newton(1e-10),
            "dense Newton": dense_newton,
            "jacobian": jacobian,
            "std": std,
        }
    )
