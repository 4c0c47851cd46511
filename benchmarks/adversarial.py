"""Generate hard problems from integer seeds, for the tests and for `torture.py`.

`problem(seed)` builds a `Problem` of NumPy arrays. Seeds come in blocks of `BLOCK` consecutive
numbers: problems of a block share the law, the shape, the dtype and the form of the prior, so that
JAX compiles once per block. `make(setting, seed)` builds a problem with a given `Setting`.

Problems are padded with rows of weight 0 to the few shapes of `SHAPES`.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

import gbt_jax as gbt
from gbt_jax import laws

BLOCK = 50
LARGE = 10**9  # seeds from here on are large problems, in blocks of LARGE_BLOCK
LARGE_BLOCK = 4
SHAPES = ((6, 24), (12, 64), (60, 512))
LARGE_SHAPES = ((300, 4096), (300, 4096), (2000, 20000))
GRAPHS = (
    "hub",
    "star",
    "chain",
    "grid",
    "bipartite",
    "near-separable",
    "separable",
    "disconnected",
    "dense",
    "repeated",
)
ORDERS = ("shuffled", "sorted", "reversed", "first below second")
FINITE_VALUES = (-2.0, -0.5, 0.0, 0.5, 2.0)
FINITE_MASSES = (1.0, 3.0, 8.0, 3.0, 1.0)  # their sum is 16, so that normalising is exact

Floats = Any  # a NumPy scalar or array of a floating dtype


@dataclasses.dataclass(frozen=True)
class LawSpec:
    """A root law as data: class name and parameters (numbers, arrays per row, or other laws)."""

    name: str
    parameters: tuple = ()

    def build(self) -> laws.AbstractRootLaw:
        """The law of `gbt_jax`."""
        if self.name == "Density":
            return _density_law(self.parameters[0])
        if self.name == "Finite":
            dtype = self.parameters[0]
            return laws.Finite(np.array(FINITE_VALUES, dtype), np.array(FINITE_MASSES, dtype))
        parameters = [x.build() if isinstance(x, LawSpec) else x for x in self.parameters]
        return getattr(laws, self.name)(*parameters)

    @property
    def top(self) -> Floats:
        """sup of the support: a number, or one per row."""
        if self.name in ("Gaussian", "Skellam", "SymmetrizedPoisson"):
            return np.inf
        if self.name == "Scaled":
            return self.parameters[1] * np.asarray(self.parameters[0].top, self.parameters[1].dtype)
        if self.name == "Sum":
            return self.parameters[0].top + self.parameters[1].top
        return {"BradleyTerry": 0.5, "Finite": 2.0}.get(self.name, 1.0)

    @property
    def is_continuous(self) -> bool:
        """Whether the support is an interval."""
        if self.name in ("Scaled", "Sum"):
            return any(x.is_continuous for x in self.parameters if isinstance(x, LawSpec))
        return self.name in ("Uniform", "Beta", "Density", "Gaussian")

    def __str__(self) -> str:
        shown = [str(x) if np.ndim(x) == 0 else "per row" for x in self.parameters]
        return f"{self.name}({', '.join(shown)})"


def minus_four_squares(r):
    """The logarithm of the density of the `Density` law used here."""
    return -4 * r * r


@functools.cache
def _density_law(dtype: str) -> laws.Density:
    return laws.Density(minus_four_squares, max_value=jnp.ones((), dtype))


@dataclasses.dataclass(frozen=True)
class Setting:
    """What the problems of a block share: everything that determines compilation."""

    law: str  # a key of VARIETIES
    shape: tuple[int, int]
    dtype: str
    has_item_prior: bool  # prior_std and prior_mean one per item, instead of numbers
    block: int = 0  # sets the parameters of the law


@dataclasses.dataclass(frozen=True)
class Problem:
    """A model and comparisons as NumPy arrays, and their names in tables."""

    seed: int
    setting: Setting
    law: LawSpec
    a: np.ndarray
    b: np.ndarray
    value: np.ndarray
    weight: np.ndarray
    prior_std: np.ndarray
    prior_mean: np.ndarray
    graph: str
    kinds: tuple[str, ...]  # of values, weights, prior, mean and order

    @property
    def num_items(self) -> int:
        """The number of items."""
        return self.setting.shape[0]

    @property
    def has_prior(self) -> bool:
        """Whether the prior regularises every item."""
        return bool(np.isfinite(self.prior_std).all())

    @property
    def prior_kind(self) -> str:
        """The range of σ, for tables."""
        std = np.asarray(self.prior_std, float)
        if np.isinf(std).all():
            return "inf"
        if np.isinf(std).any():
            return "inf for some"
        low, high = std.min(), std.max()
        if high > 100 * low:
            return "per item"
        return "below 0.1" if high < 0.1 else "0.1 to 100" if high <= 100 else "above 100"

    def model(self) -> gbt.Model:
        """The model of `gbt_jax`."""
        return gbt.Model(self.law.build(), self.prior_std, self.prior_mean)

    def comparisons(self) -> gbt.Comparisons:
        """The comparisons of `gbt_jax`."""
        return gbt.Comparisons(self.a, self.b, self.value, self.weight, num_items=self.num_items)

    def __str__(self) -> str:
        std = np.asarray(self.prior_std)
        sigma = f"{float(std):.3g}" if std.ndim == 0 else f"{std.min():.2g}…{std.max():.2g}"
        items, rows = self.setting.shape
        used = int(np.count_nonzero(self.weight))
        return (
            f"seed {self.seed}: {self.graph}, {items} items, {used} of {rows} rows, {self.law}, "
            f"{self.setting.dtype}, σ = {sigma}, {', '.join(self.kinds)}"
        )


def _logarithmic(rng: np.random.Generator, low: float, high: float, size=None) -> Floats:
    return 10.0 ** rng.uniform(low, high, size)


def _per_row(rng: np.random.Generator, low: float, high: float, rows: int, dtype: str) -> Floats:
    return _logarithmic(rng, low, high, rows).astype(dtype)


def _number(rng: np.random.Generator, low: float, high: float, dtype: str) -> Floats:
    return np.asarray(_logarithmic(rng, low, high), dtype)


def _row_tie_masses_work() -> bool:
    try:
        laws.Davidson(np.ones(2))
    except ValueError:
        return False
    return True


# Name: (block's generator, problem's generator, rows, dtype) → LawSpec. Scalar parameters are
# drawn per block, so that groups of one call share them; parameters per row, per problem.
VARIETIES: dict[str, Callable[..., LawSpec]] = {
    "BradleyTerry": lambda block, own, rows, dtype: LawSpec("BradleyTerry"),
    "Uniform": lambda block, own, rows, dtype: LawSpec("Uniform"),
    "Davidson": lambda block, own, rows, dtype: LawSpec(
        "Davidson", (_number(block, -2, 2, dtype),)
    ),
    "Gaussian per row": lambda block, own, rows, dtype: LawSpec(
        "Gaussian", (_per_row(own, -1, 1, rows, dtype),)
    ),
    "Binary": lambda block, own, rows, dtype: LawSpec("Binary"),
    "KNary": lambda block, own, rows, dtype: LawSpec("KNary", (int(block.choice([3, 5, 21])),)),
    "Skellam": lambda block, own, rows, dtype: LawSpec(
        "Skellam", (_number(block, -1.5, 1.5, dtype),)
    ),
    "Scaled per row": lambda block, own, rows, dtype: LawSpec(
        "Scaled", (LawSpec("Uniform"), _per_row(own, -1, 1, rows, dtype))
    ),
    "Binomial": lambda block, own, rows, dtype: LawSpec("Binomial", (4,)),
    "Finite": lambda block, own, rows, dtype: LawSpec("Finite", (dtype,)),
    "Beta": lambda block, own, rows, dtype: LawSpec("Beta", (_number(block, -1, 1, dtype),)),
    "Density": lambda block, own, rows, dtype: LawSpec("Density", (dtype,)),
    "Gaussian": lambda block, own, rows, dtype: LawSpec(
        "Gaussian", (_number(block, -2, 2, dtype),)
    ),
    "SymmetrizedPoisson": lambda block, own, rows, dtype: LawSpec(
        "SymmetrizedPoisson", (_number(block, -1, 1, dtype),)
    ),
    "Scaled": lambda block, own, rows, dtype: LawSpec(
        "Scaled", (LawSpec("KNary", (5,)), _number(block, -1, 1, dtype))
    ),
    "Sum": lambda block, own, rows, dtype: LawSpec("Sum", (LawSpec("Uniform"), LawSpec("Binary"))),
    "Skellam per row": lambda block, own, rows, dtype: LawSpec(
        "Skellam", (_per_row(own, -1, 1, rows, dtype),)
    ),
    "SymmetrizedPoisson per row": lambda block, own, rows, dtype: LawSpec(
        "SymmetrizedPoisson", (_per_row(own, -1, 1, rows, dtype),)
    ),
    "Beta per row": lambda block, own, rows, dtype: LawSpec(
        "Beta", (_per_row(own, -0.7, 1, rows, dtype),)
    ),
}
if _row_tie_masses_work():
    VARIETIES["Davidson per row"] = lambda block, own, rows, dtype: LawSpec(
        "Davidson", (_per_row(own, -2, 2, rows, dtype),)
    )


def setting_of(seed: int) -> Setting:
    """The setting of the seed's block."""
    is_large = seed >= LARGE
    block = (seed - LARGE) // LARGE_BLOCK if is_large else seed // BLOCK
    rng = np.random.default_rng([block, int(is_large), 7])
    names = [name for name in VARIETIES if not (is_large and name in ("Density", "KNary"))]
    shape = LARGE_SHAPES[block % 3] if is_large else SHAPES[rng.choice(3, p=[0.45, 0.35, 0.2])]
    law = names[block % len(names)]
    if law == "Density" and shape == SHAPES[-1]:
        shape = SHAPES[1]  # the reference is too slow with 720 points per row
    dtype = "float64" if rng.random() < 0.6 else "float32"
    return Setting(law, shape, dtype, bool(rng.random() < 0.3), block)


def problem(seed: int) -> Problem:
    """The problem of a seed."""
    return make(setting_of(seed), seed)


def make(setting: Setting, seed: int) -> Problem:
    """A problem of a setting; the same seed gives the same problem."""
    rng = np.random.default_rng([seed, 3])
    num_items, num_rows = setting.shape
    block = np.random.default_rng([setting.block, 11])
    law = VARIETIES[setting.law](block, rng, num_rows, setting.dtype)
    graph = str(rng.choice(GRAPHS))
    used = num_items if rng.random() < 0.8 else max(3, num_items // 2)
    count = int(rng.integers(min(used, num_rows), num_rows + 1))
    a, b = _GRAPHS[graph](rng, used, count)
    a, b, weight, order = _arrange(rng, a, b, num_rows)
    scores, value_kind = _true_scores(rng, law, graph, num_items)
    value = _values(rng, law, graph, scores, a, b, value_kind, setting)
    sizes, weight_kind = _weights(rng, num_rows)
    weight = (weight * sizes).astype(setting.dtype)
    std, mean, prior_kinds = _prior(rng, setting, law)
    kinds = (value_kind, weight_kind, *prior_kinds, order)
    return Problem(seed, setting, law, a, b, value, weight, std, mean, graph, kinds)


# --------------------------------------------------------------------------------------- graphs


def _random_pairs(rng, items: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    a = rng.integers(0, items, count)
    return a, (a + rng.integers(1, items, count)) % items


def _hub(rng, items, count):
    a, b = _random_pairs(rng, items, count)
    through_hub = (rng.random(count) < 0.8) & (b != 0)
    return np.where(through_hub, 0, a), b


def _star(rng, items, count):
    return np.zeros(count, int), 1 + np.arange(count) % (items - 1)


def _chain(rng, items, count):
    a = np.arange(count) % (items - 1)
    return a, a + 1


def _grid(rng, items, count):
    width = max(2, int(np.sqrt(items)))
    place = np.arange(items)
    right = place[(place % width < width - 1) & (place + 1 < items)]
    down = place[place + width < items]
    a, b = np.concatenate([right, down]), np.concatenate([right + 1, down + width])
    chosen = np.arange(count) % a.size
    return a[chosen], b[chosen]


def _bipartite(rng, items, count):
    half = items // 2
    return rng.integers(0, half, count), rng.integers(half, items, count)


def _disconnected(rng, items, count):
    parts = int(rng.integers(2, 4))
    size = max(2, items // parts)
    part = rng.integers(0, items // size, count)
    a, b = _random_pairs(rng, size, count)
    return a + part * size, b + part * size


def _repeated(rng, items, count):
    """Few distinct pairs; most rows repeat one of them."""
    a, b = _chain(rng, items, count)
    again = rng.random(count) < 0.9
    return np.where(again, 0, a), np.where(again, 1, b)


_GRAPHS = {
    "hub": _hub,
    "star": _star,
    "chain": _chain,
    "grid": _grid,
    "bipartite": _bipartite,
    "near-separable": _random_pairs,
    "separable": _random_pairs,
    "disconnected": _disconnected,
    "dense": _random_pairs,
    "repeated": _repeated,
}


def _arrange(rng, a, b, num_rows: int):
    """Flip, sort and pad rows: (a, b, weight 1 or 0 for padding, name of the order)."""
    flip = rng.random(a.size) < 0.5
    a, b = np.where(flip, b, a), np.where(flip, a, b)
    order = str(rng.choice(ORDERS))
    if order == "first below second":
        a, b = np.minimum(a, b), np.maximum(a, b)
    rows = rng.permutation(a.size) if order == "shuffled" else np.lexsort((b, a))
    if order == "reversed":
        rows = rows[::-1]
    a, b = (np.append(x[rows], np.zeros(num_rows - x.size, int)) for x in (a, b))
    weight = (np.arange(num_rows) < rows.size).astype(float)
    return a.astype(np.int32), b.astype(np.int32), weight, order


# --------------------------------------------------------------------------------------- values


def _true_scores(rng, law: LawSpec, graph: str, items: int) -> tuple[np.ndarray, str]:
    """True scores, and the kind of values."""
    kinds = ["plausible", "plausible", "hostile", "edge", "near edge", "flat"]
    kind = str(rng.choice(kinds))
    top = float(np.max(law.top))
    unit = 1 / top if np.isfinite(top) else 1.0
    if law.name == "Gaussian":
        unit = 1 / float(np.max(law.parameters[0]))
    scale = _logarithmic(rng, 0.5, 1.7) if kind == "hostile" else _logarithmic(rng, -0.7, 0.5)
    if not np.isfinite(top) and law.name != "Gaussian":
        scale = min(scale, 3.0)  # counts grow as exp(t)
    scores = unit * scale * rng.normal(size=items)
    if "separable" in graph:
        kind = "edge"
    return scores, kind


def _values(rng, law, graph, scores, a, b, kind, setting) -> np.ndarray:
    t = scores[a] - scores[b]
    top = np.broadcast_to(np.asarray(law.top, setting.dtype), a.shape)
    drawn = draw(law, 0 * t if kind == "flat" else t, rng)
    if "separable" in graph:
        drawn = _separable_values(rng, graph, law, scores, a, b, drawn)
    value = drawn.astype(setting.dtype)
    bounded = np.isfinite(top)
    if kind in ("edge", "near edge") and bounded.all():
        chosen = rng.random(a.size) < (0.3 if "separable" not in graph else 0.0)
        ends = np.where(rng.random(a.size) < 0.5, -top, top)
        if kind == "near edge" and law.is_continuous:
            ends = ends * np.asarray(1 - _logarithmic(rng, -5, -1), setting.dtype)
        value = np.where(chosen, ends, value)
    value = np.clip(value, -top, top) if bounded.all() else value
    return np.where(a == b, 0, value).astype(setting.dtype) if _has_zero(law) else value


def _has_zero(law: LawSpec) -> bool:
    return law.name not in ("Binary", "BradleyTerry") and not (
        law.name == "KNary" and law.parameters[0] % 2 == 0
    )


def _separable_values(rng, graph, law, scores, a, b, drawn) -> np.ndarray:
    """The upper half beats the lower half maximally; near-separable: except in one row."""
    upper = np.argsort(np.argsort(scores)) >= scores.size // 2
    sign = upper[a].astype(float) - upper[b]
    most = law.top if np.isfinite(np.max(law.top)) else 9.0
    value = np.where(sign != 0, sign * most, drawn)
    across = np.flatnonzero(sign)
    if graph == "near-separable" and across.size:
        row = rng.choice(across)
        value[row] = -value[row]
    return value


def draw(law: LawSpec, t: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Values drawn from the law at score differences t, accurate enough for a test problem."""
    if law.name == "Scaled":
        scale = np.asarray(law.parameters[1], float)
        return scale * draw(law.parameters[0], scale * t, rng)
    if law.name == "Sum":
        return draw(law.parameters[0], t, rng) + draw(law.parameters[1], t, rng)
    if law.name == "Gaussian":
        std = np.asarray(law.parameters[0], float)
        return std * std * t + std * rng.normal(size=t.size)
    if law.name in ("Skellam", "SymmetrizedPoisson"):
        rate, t = 0.5 * np.asarray(law.parameters[0], float), np.clip(t, -8, 8)
        return (rng.poisson(rate * np.exp(t)) - rng.poisson(rate * np.exp(-t))).astype(float)
    points, log_masses = _table(law, t.size)
    logits = log_masses + points * t[:, None]
    noise = rng.gumbel(size=logits.shape)
    return np.asarray(points)[np.argmax(logits + noise, axis=1)]


def _table(law: LawSpec, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """(points, log-masses that broadcast over rows); a fine grid for continuous laws."""
    if law.name in ("Binary", "BradleyTerry"):
        return float(law.top) * np.array([-1.0, 1.0]), np.zeros(2)
    if law.name == "Davidson":
        tie = np.broadcast_to(np.log(np.asarray(law.parameters[0], float)), (rows,))
        zero = np.zeros(rows)
        return np.array([-1.0, 0, 1]), np.stack([zero, tie, zero], axis=1)
    if law.name == "KNary":
        return np.linspace(-1, 1, law.parameters[0]), np.zeros(law.parameters[0])
    if law.name == "Binomial":
        return np.linspace(-1, 1, 5), np.log([1.0, 4, 6, 4, 1])
    if law.name == "Finite":
        return np.array(FINITE_VALUES), np.log(FINITE_MASSES)
    points = np.linspace(-1, 1, 203)[1:-1]
    if law.name == "Beta":
        beta = np.broadcast_to(np.asarray(law.parameters[0], float), (rows,))
        return points, (beta[:, None] - 1) * np.log1p(-points * points)
    return points, minus_four_squares(points) if law.name == "Density" else np.zeros(points.size)


# --------------------------------------------------------------------------- weights and priors


def _weights(rng, rows: int) -> tuple[np.ndarray, str]:
    kind = str(rng.choice(["weight 1"] * 4 + ["mild", "counts", "one heavy", "16 decades"]))
    if kind == "mild":
        return _logarithmic(rng, -1, 1, rows), "mild weights"
    if kind == "counts":
        return rng.integers(1, 10**6, rows).astype(float), "counts"
    if kind == "one heavy":
        heavy = np.arange(rows) == rng.integers(rows)
        return np.where(heavy, _logarithmic(rng, 3, 10), 1.0), "one heavy row"
    if kind == "16 decades":
        return _logarithmic(rng, -8, 8, rows), "weights over 16 decades"
    return np.ones(rows), kind


def _prior(rng, setting: Setting, law: LawSpec) -> tuple[np.ndarray, np.ndarray, tuple[str, str]]:
    kind = str(rng.choice(["usual", "usual", "none", "none", "any"]))
    items = setting.shape[0]
    size = items if setting.has_item_prior else None
    ranges = {"usual": (-1, 1), "any": (-6, 8), "none": (0, 0)}
    std = np.asarray(_logarithmic(rng, *ranges[kind], size))
    if setting.has_item_prior and kind == "any" and rng.random() < 0.5:
        std = np.full(items, _logarithmic(rng, -6, 8))
    if kind == "none":
        std = np.full_like(std, np.inf)
        if setting.has_item_prior and rng.random() < 0.5:  # some items have a prior
            std = np.where(rng.random(items) < 0.3, _logarithmic(rng, -1, 1, items), np.inf)
    mean_kind = str(rng.choice(["mean 0", "mean 0", "mean per item", "large mean"]))
    mean = np.zeros(items if setting.has_item_prior else ())
    if mean_kind == "mean per item" and setting.has_item_prior:
        mean = rng.normal(size=items)
    elif mean_kind == "large mean":
        mean = mean + _logarithmic(rng, 2, 7 if setting.dtype == "float64" else 4)
    else:
        mean_kind = "mean 0"
    return std.astype(setting.dtype), mean.astype(setting.dtype), (f"{kind} prior", mean_kind)
