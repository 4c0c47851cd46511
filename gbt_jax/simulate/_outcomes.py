"""Scores from a prior, and values of comparisons from a law."""

from collections.abc import Callable

import jax
import numpy as np
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from .._data._comparisons import Comparisons
from .._model import Model
from .._util._arrays import ArrayLike, floating, whole_number
from ..laws import AbstractRootLaw

# A law's program is compiled for each size. So values are drawn in blocks of a few sizes, powers of
# two between these. Larger blocks are not faster.
_SMALLEST_BLOCK, _LARGEST_BLOCK = 2**10, 2**16


def scores(
    model: Model,
    num_items: int,
    *,
    sampler: Callable[..., Array] = jax.random.normal,
    key: PRNGKeyArray,
) -> Float[Array, " items"]:
    """True scores drawn from the model's prior: mean + σ·z, with z standard normal.

    **Arguments:**

    - `model`: the prior of the scores; `prior_std` must be finite.
    - `num_items`: how many items.
    - `sampler`: draws z for another prior, as a function `sampler(key, shape, dtype)` such as
      `jax.random.laplace`.
    - `key`: a key of `jax.random`.

    **Returns:** one score per item.
    """
    num_items = whole_number("num_items", num_items, at_least=0)
    none = np.zeros(0, int)
    model.check_prior(Comparisons(none, none, np.zeros(0), num_items=num_items))
    mean, std = prior_of(model)
    drawn = np.asarray(sampler(key, (num_items,), mean.dtype), mean.dtype)
    if drawn.shape != (num_items,):
        raise ValueError(f"sampler must return an array of shape {(num_items,)}, not {drawn.shape}")
    return floating(mean + std * drawn)


def comparisons(
    law: AbstractRootLaw,
    scores: ArrayLike,
    pairs: tuple[ArrayLike, ArrayLike],
    *,
    key: PRNGKeyArray,
) -> Comparisons:
    """One comparison of each pair (a, b), drawn from the law at θ_a − θ_b given the scores θ.

    **Arguments:**

    - `law`: a root law; its parameters are one number, or one per pair.
    - `scores`: the true scores θ.
    - `pairs`: columns a and b, such as the graphs of this module.
    - `key`: a key of `jax.random`.

    **Returns:** `Comparisons`, independent given the scores, with values of the scores' dtype. A
    positive value says that a is better.
    """
    true = finite_scores(scores)
    a, b = pairs
    rows = Comparisons(a, b, np.zeros(np.shape(a), true.dtype), num_items=true.size)
    a, b = np.asarray(rows.a), np.asarray(rows.b)
    return rows.with_values(drawn_values(law, true[a] - true[b], key=key))


def finite_scores(scores: ArrayLike) -> np.ndarray:
    """A vector of finite scores, in the dtype that JAX gives it."""
    array = np.asarray(floating(scores))
    if array.ndim != 1:
        raise ValueError(f"scores must be a vector, not an array of shape {array.shape}")
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise ValueError(f"scores[{bad[0]}] is {array[bad[0]]}: every score must be finite")
    return array


def prior_of(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """(mean, standard deviation) of the model's prior, of one dtype; raise unless finite."""
    mean, std = np.asarray(model.prior_mean), np.asarray(model.prior_std)
    if not np.isfinite(std).all():
        raise ValueError(
            f"prior_std is {std[~np.isfinite(std)].flat[0]}, but scores are drawn from the prior: "
            "pass a finite prior_std"
        )
    dtype = np.promote_types(mean.dtype, std.dtype)
    return mean.astype(dtype), std.astype(dtype)


def drawn_values(law: AbstractRootLaw, difference: np.ndarray, *, key: PRNGKeyArray) -> np.ndarray:
    """A draw of the law at each score difference."""
    if not isinstance(law, AbstractRootLaw):
        raise TypeError(f"law must be a root law of gbt_jax.laws, not {type(law).__name__}")
    if law.num_rows not in (None, difference.size):
        raise ValueError(
            f"law has parameters for {law.num_rows} comparisons, and there are {difference.size}"
        )
    size = min(max(2 ** (difference.size - 1).bit_length(), _SMALLEST_BLOCK), _LARGEST_BLOCK)
    num_blocks = -(-difference.size // size)
    padded = np.zeros((num_blocks, size), difference.dtype)
    padded.flat[: difference.size] = difference
    row = np.resize(np.arange(difference.size), padded.shape)  # padding has any row's parameters
    blocks = [
        _block(law.at_rows(own), t, key, number)
        for number, (own, t) in enumerate(zip(row, padded, strict=True))
    ]
    return np.concatenate([padded[:0].ravel(), *blocks])[: difference.size]


@jax.jit
def _block(law: AbstractRootLaw, t: Array, key: PRNGKeyArray, number: Array | int) -> Array:
    return law.sample(t, key=jax.random.fold_in(key, number))
