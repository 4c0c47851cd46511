"""Problems for the comparison with other packages, real and simulated."""

import csv
import os
import pathlib
from collections.abc import Callable

import numpy as np
from contestants.protocol import Problem

_BESIDE = pathlib.Path(__file__).resolve().parents[2] / "shared/data"
_DATA = pathlib.Path(os.environ.get("GBT_JAX_DATA") or _BESIDE)
TOURNESOL = _DATA / "tournesol/comparisons.csv"
LLMFAO = _DATA / "llmfao/crowd-comparisons.csv"


def drawn(law: str, t: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One value for each difference of scores, drawn from the law."""
    u = rng.random(t.size)
    if law == "bradley-terry":
        return np.where(u < 1 / (1 + np.exp(-t)), 0.5, -0.5)
    # Inverse distribution function of the density proportional to exp(t r) on [−1, 1].
    x = np.abs(t) + 1e-9
    value = 1 + np.log(u + (1 - u) * np.exp(-2 * x)) / x
    return np.clip(np.copysign(1.0, t) * value, -1, 1)


def random_pairs(num_items: int, num_rows: int, rng: np.random.Generator) -> np.ndarray:
    a = rng.integers(0, num_items, num_rows)
    return np.stack([a, (a + 1 + rng.integers(0, num_items - 1, num_rows)) % num_items])


def one(pairs: np.ndarray, num_items: int, law: str, std: float, seed: int = 0) -> Problem:
    """One user with standard normal scores."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=num_items)
    value = drawn(law, scores[pairs[0]] - scores[pairs[1]], rng)
    a, b = pairs
    return Problem(a, b, value, np.zeros(num_items, int), law, std)


def together(problems: list[Problem]) -> Problem:
    """Concatenate users into one problem."""
    sizes = [problem.num_items for problem in problems]
    shift = np.repeat(np.cumsum([0, *sizes[:-1]]), [problem.value.size for problem in problems])
    a, b, value = (
        np.concatenate([getattr(problem, name) for problem in problems])
        for name in ("a", "b", "value")
    )
    owner = np.repeat(np.arange(len(problems)), sizes)
    return Problem(a + shift, b + shift, value, owner, problems[0].law, problems[0].prior_std)


def tournesol() -> Problem:
    """Real comparisons; each pair of user and criterion is one user here."""
    groups: dict[tuple[str, str], list[dict[str, str]]] = {}
    with open(TOURNESOL, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            groups.setdefault((row["public_username"], row["criteria"]), []).append(row)
    problems = []
    for rows in groups.values():
        items: dict[str, int] = {}
        a = np.array([items.setdefault(row["video_a"], len(items)) for row in rows])
        b = np.array([items.setdefault(row["video_b"], len(items)) for row in rows])
        value = np.array([-float(row["score"]) / 10 for row in rows])
        problems.append(Problem(a, b, value, np.zeros(len(items), int), "uniform", 7.0))
    return together(problems)


def largest(problem: Problem) -> Problem:
    return max(problem.by_user(), key=lambda user: user.value.size)


def tournesol_like() -> Problem:
    """Simulated with Tournesol's sizes; videos are compared with earlier, mostly recent, ones."""
    rng = np.random.default_rng(0)
    problems = []
    sizes = [(273, 244), (502, 927), (1119, 2195), (1485, 3409), (3064, 6248), (3492, 8471)]
    for num_items, num_rows in sizes:
        later = np.append(
            np.arange(1, min(num_items, num_rows + 1)),
            rng.integers(1, num_items, max(num_rows - num_items + 1, 0)),
        )
        back = np.minimum(rng.geometric(0.02, later.size), later)
        pairs = np.stack([later, later - back])
        problems.append(one(pairs, num_items, "uniform", 7.0, seed=num_items))
    return together(problems)


def erdos_renyi() -> Problem:
    """A = 500, p = 0.2: every fifth pair is compared."""
    a, b = np.triu_indices(500, 1)
    kept = np.random.default_rng(0).random(a.size) < 0.2
    return one(np.stack([a[kept], b[kept]]), 500, "uniform", 1.0)


def many_users(num_users: int = 10_000) -> Problem:
    """Users with 5 to 60 items (log-uniform) and twice as many comparisons."""
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.uniform(np.log(5), np.log(61), num_users)).astype(int)
    return together(
        [
            one(random_pairs(size, 2 * size, rng), size, "uniform", 7.0, seed=number)
            for number, size in enumerate(sizes)
        ]
    )


def binary(num_items: int, num_rows: int, std: float) -> Callable[[], Problem]:
    def make() -> Problem:
        pairs = random_pairs(num_items, num_rows, np.random.default_rng(1))
        return one(pairs, num_items, "bradley-terry", std)

    return make


def undefeated() -> Problem:
    """Item 0 wins all its comparisons, and there is no prior: no finite optimum exists."""
    problem = binary(50, 2000, np.inf)()
    value = np.where(problem.a == 0, 0.5, np.where(problem.b == 0, -0.5, problem.value))
    return problem._replace(value=value)


def disconnected() -> Problem:
    """Two components and no prior: the offset between them is undetermined."""
    half = binary(25, 1000, np.inf)()
    problem = together([half, half])
    return problem._replace(owner=np.zeros(50, int))


def single_precision() -> Problem:
    """Binary comparisons with values in float32."""
    problem = binary(1000, 100_000, 1.0)()
    return problem._replace(value=problem.value.astype(np.float32))


def huge() -> Problem:
    """A chain in which each item beats the next a hundred times, with σ = 1000."""
    item = np.repeat(np.arange(49), 100)
    value = np.full(item.size, 0.5)
    return Problem(item, item + 1, value, np.zeros(50, int), "bradley-terry", 1000.0)
