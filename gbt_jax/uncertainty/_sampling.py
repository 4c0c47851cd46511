"""Draws from the exact posterior, where its normal approximation at the optimum is not enough.

The posterior's density is exp(−L(θ)) up to a constant. `curvature` splits its inverse Hessian at
the optimum as N = R + Σ_c u_c u_cᵀ/p_c, u_c the constant unit vector of a component whose items
have one prior precision p_c (`_curvature`). The likelihood does not depend on the levels u_cᵀθ, and
the prior is normal, so for every law

    θ = θ* + C z + Σ_c u_c ξ_c/√p_c,    C Cᵀ = R,    C of full column rank,

with ξ_c standard normal, independent of each other and of z. Levels are drawn from this law
directly. The rest has density exp(−L(θ* + C z)), close to a standard normal near z = 0. It is
sampled by the no-U-turn sampler of blackjax with the identity metric, so that only a step size is
adapted.

Without a prior the posterior is improper, along the levels alone. Then each component has mean
zero, as in θ*: differences within a component have the same distribution either way.
"""

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from .._curvature import AbstractCurvature, DenseCurvature, curvature_of
from .._data._comparisons import Comparisons
from .._inference._fit import Fit, refuse_groups
from .._inference._objective import negative_log_posterior
from .._inference._validity import refuse_outside
from .._model import Model
from .._util._arrays import ArrayLike, floating, is_concrete, whole_number
from ._diagnostics import diagnostics

_OVERDISPERSION = 2.0  # standard deviations of the starts, so that R-hat detects poor mixing
_ACCEPTED_R_HAT = 1.01  # Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021)


@final
class PosteriorSamples(eqx.Module):
    """Draws of all scores, with convergence diagnostics.

    - `scores`: chains × draws × items; `flat` has the draws of all chains together.
    - `r_hat`: rank-normalised split R-hat of each item, 1 where the chains agree.
    - `effective_sample_size`: bulk effective sample size of each item, the number of independent
      draws that would be as precise.
    - `num_divergences`: number of divergent transitions; 0 unless the posterior has corners.
    - `acceptance_rate`, `leapfrog_steps`: means over all draws.
    - `step_size`: the adapted step size, in units of posterior standard deviations.

    R-hat and the effective sample size are NaN for an item whose score is fixed: one without
    comparisons and without a prior.
    """

    scores: Float[Array, "chains draws items"]
    r_hat: Float[Array, " items"]
    effective_sample_size: Float[Array, " items"]
    num_divergences: int
    acceptance_rate: float
    leapfrog_steps: float
    step_size: float

    @property
    def flat(self) -> Float[Array, "all_draws items"]:
        """The draws of all chains, one after the other."""
        return self.scores.reshape(-1, self.scores.shape[-1])


def log_posterior(
    model: Model, comparisons: Comparisons
) -> Callable[[ArrayLike], Float[Array, ""]]:
    """The function θ ↦ −L(θ): the logarithm of the posterior density of scores, up to a constant.

    It is for samplers and variational methods: pure, and it can be jitted, differentiated and
    vmapped. It is also a pytree, so it can be an argument of a jitted function.

    **Arguments:**

    - `model`: the law and the prior. With `prior_std=inf` the function is the log-likelihood, which
      is not a density: it does not change with the level of a component.
    - `comparisons`: the data. A value outside the law's support is an error that names the row.

    **Returns:** a function of one score per item.
    """
    if not isinstance(model, Model):
        raise TypeError(f"log_posterior takes a Model first, not {type(model).__name__}")
    if not isinstance(comparisons, Comparisons):
        raise TypeError(f"log_posterior takes Comparisons second, not {type(comparisons).__name__}")
    model.check_prior(comparisons)
    model.check_rows(len(comparisons))
    if is_concrete(model, comparisons):
        refuse_outside(model.law, comparisons)
    return jax.tree_util.Partial(_log_density, model, comparisons)


def _log_density(model: Model, comparisons: Comparisons, scores: ArrayLike) -> Array:
    theta = floating(scores)
    if theta.shape != (comparisons.num_items,):
        raise ValueError(
            f"scores must hold one number per item, {comparisons.num_items}, not {theta.shape}"
        )
    return -negative_log_posterior(model, comparisons, theta)


def sample_posterior(
    fit: Fit,
    num: int,
    *,
    key: PRNGKeyArray,
    chains: int = 4,
    warmup: int = 500,
    target_acceptance: float = 0.8,
    max_doublings: int = 10,
    using: AbstractCurvature | None = None,
) -> PosteriorSamples:
    """Draws from the posterior of the scores by the no-U-turn sampler, started around the optimum.

    Needs blackjax: `pip install "gbt-jax[nuts]"`. Without a prior, draws are under the constraint
    that the mean of each connected component is zero. Warns if R-hat exceeds 1.01 or a draw
    diverged. Needs one factorisation of a matrix of items × items, and a product with it per step.

    **Arguments:**

    - `num`: how many draws of each chain, at least 4.
    - `key`: a key of `jax.random`.
    - `chains`: how many chains, vectorised, each from its own start.
    - `warmup`: how many draws before these, which adapt the step size and are discarded.
    - `target_acceptance`: the acceptance rate to which the step size is adapted, between 0 and 1.
      A higher one is slower and diverges less.
    - `max_doublings`: a trajectory takes up to 2 to this power steps.
    - `using`: the fit's dense `curvature`, if it has been made already.

    **Returns:** `PosteriorSamples`.
    """
    refuse_groups(fit, "sample_posterior", "chains run for one group at a time")
    _require_blackjax()
    sizes = {
        "num": whole_number("num", num, at_least=4),
        "chains": whole_number("chains", chains, at_least=1),
        "warmup": whole_number("warmup", warmup, at_least=1),
        "max_doublings": whole_number("max_doublings", max_doublings, at_least=1),
    }
    if not 0 < target_acceptance < 1:
        raise ValueError(f"target_acceptance must lie between 0 and 1, not {target_acceptance}")
    made = curvature_of(fit, using)
    if not isinstance(made, DenseCurvature):
        raise ValueError(
            f"sampling needs the curvature as a matrix of {made.num_items} × {made.num_items} "
            "entries: pass using=curvature(fit, dense=True) if there is memory for it"
        )
    factor = whitening(made)
    walk_key, level_key = jax.random.split(key)
    # blackjax computes in JAX's default float, and so does everything here until the end.
    working = jnp.result_type(float)
    inputs = (fit.scores.astype(working), jnp.asarray(factor, working), walk_key)
    if factor.shape[1]:
        walk = _walk(fit.model, fit.comparisons, *inputs, target_acceptance, **sizes)
    else:
        walk = _no_walk(sizes["chains"], sizes["num"], working)
    levels = jnp.sqrt(made.null_space.share * made.null_space.variance).astype(working)
    noise = jax.random.normal(level_key, (chains, num, levels.size), working)
    moved = walk.position @ inputs[1].T + levels * noise[..., made.null_space.component]
    scores = np.asarray((inputs[0] + moved).astype(fit.scores.dtype))
    is_fixed = ~np.any(factor, axis=1) & (np.asarray(levels) == 0)
    return _diagnose(scores, walk, is_fixed)


class _Walk(NamedTuple):
    """The output of the sampler, chains × draws."""

    position: Array
    is_divergent: Array
    acceptance_rate: Array
    leapfrog_steps: Array
    step_size: Array


def whitening(made: DenseCurvature) -> np.ndarray:
    """C with C Cᵀ = R, items × dimensions of the posterior without its levels.

    R is scaled to a unit diagonal, so that items of very different precision keep their digits.
    Its null vectors, the levels, are known: their eigenvalues are shifted below all others, which
    lie between 0 and the number of items, and left out.
    """
    share, component = (np.asarray(x) for x in (made.null_space.share, made.null_space.component))
    inner = np.flatnonzero(share < 1)  # an item alone in its component is only a level
    reduced = np.asarray(made.reduced, float)[np.ix_(inner, inner)]
    scale = np.sqrt(np.diagonal(reduced))
    split = np.unique(component[inner[share[inner] > 0]])
    levels = scale[:, None] * (component[inner][:, None] == split)
    levels /= np.linalg.norm(levels, axis=0)
    shifted = reduced / np.outer(scale, scale) - 2 * max(inner.size, 1) * (levels @ levels.T)
    variance, direction = np.linalg.eigh(shifted)
    variance, direction = variance[split.size :], direction[:, split.size :]
    smallest = np.finfo(made.reduced.dtype).eps * np.max(variance, initial=0)
    factor = np.zeros((share.size, variance.size))
    factor[inner] = scale[:, None] * direction * np.sqrt(np.maximum(variance, smallest))
    return factor


@functools.partial(jax.jit, static_argnames=("num", "chains", "warmup", "max_doublings"))
def _walk(
    model: Model,
    comparisons: Comparisons,
    centre: Array,
    factor: Array,
    key: PRNGKeyArray,
    target_acceptance: Any,  # a traced number
    *,
    num: int,
    chains: int,
    warmup: int,
    max_doublings: int,
) -> _Walk:
    """Chains in z, with one step size for all of them, by dual averaging during the warm-up."""
    import blackjax
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    def log_density(z: Array) -> Array:
        return -negative_log_posterior(model, comparisons, centre + factor @ z)

    dimensions, dtype = factor.shape[1], factor.dtype
    kernel, metric = blackjax.nuts.build_kernel(), jnp.ones(dimensions, dtype)
    begin, adapt, _ = dual_averaging_adaptation(target_acceptance)

    def advance(carry, given):
        states, adaptation = carry
        number, key = given
        is_warm = number >= warmup
        average, current = adaptation.log_step_size_avg, adaptation.log_step_size
        step_size = jnp.exp(jnp.where(is_warm, average, current))

        def move(key, state):
            return kernel(key, state, log_density, step_size, metric, max_doublings)

        states, info = jax.vmap(move)(jax.random.split(key, chains), states)
        adapted = adapt(adaptation, jnp.mean(info.acceptance_rate))
        adaptation = jax.tree.map(
            lambda old, new: jnp.where(is_warm, old, new), adaptation, adapted
        )
        output = _Walk(
            states.position,
            info.is_divergent,
            info.acceptance_rate,
            info.num_integration_steps,
            jnp.broadcast_to(step_size, chains),
        )
        return (states, adaptation), output

    start_key, walk_key = jax.random.split(key)
    start = _OVERDISPERSION * jax.random.normal(start_key, (chains, dimensions), dtype)
    states = jax.vmap(lambda z: blackjax.nuts.init(z, log_density))(start)
    # The best step for a standard normal falls with the fourth root of its dimension.
    adaptation = begin(jnp.asarray(dimensions**-0.25, dtype))
    steps = jnp.arange(warmup + num), jax.random.split(walk_key, warmup + num)
    # One scan for warm-up and draws: the sampler takes seconds to compile, and is compiled once.
    _, walk = jax.lax.scan(advance, (states, adaptation), steps)
    return jax.tree.map(lambda x: jnp.moveaxis(x[warmup:], 0, 1), walk)


def _no_walk(chains: int, num: int, dtype) -> _Walk:
    """An empty walk, for a posterior in closed form: all of its dimensions are null space."""
    zero, one = jnp.zeros((chains, num), dtype), jnp.ones((chains, num), dtype)
    return _Walk(zero[..., None][..., :0], zero > 0, one, zero, one)


def _diagnose(scores: np.ndarray, walk: _Walk, is_fixed: np.ndarray) -> PosteriorSamples:
    """The samples with their diagnostics; warn of divergences and of chains that do not agree."""
    r_hat, size = diagnostics(np.where(is_fixed, np.nan, scores))
    divergences = int(jnp.sum(walk.is_divergent))
    samples = PosteriorSamples(
        scores=jnp.asarray(scores),
        r_hat=jnp.asarray(r_hat, scores.dtype),
        effective_sample_size=jnp.asarray(size, scores.dtype),
        num_divergences=divergences,
        acceptance_rate=float(jnp.mean(walk.acceptance_rate)),
        leapfrog_steps=float(jnp.mean(walk.leapfrog_steps)),
        step_size=float(walk.step_size[0, 0]),
    )
    if divergences:
        warnings.warn(
            f"{divergences} of {walk.is_divergent.size} draws diverged, and the posterior near "
            "them is not explored: raise target_acceptance, to 0.95 for example",
            RuntimeWarning,
            stacklevel=3,
        )
    doubtful = np.flatnonzero(~(r_hat <= _ACCEPTED_R_HAT) & ~is_fixed)
    if doubtful.size:
        worst = doubtful[np.argmax(np.nan_to_num(r_hat[doubtful], nan=np.inf))]
        warnings.warn(
            f"the chains have not converged: R-hat of {doubtful.size} items exceeds "
            f"{_ACCEPTED_R_HAT}, and is {r_hat[worst]:.3f} for item {worst}. Take more draws "
            "(num) or a longer warmup",
            RuntimeWarning,
            stacklevel=3,
        )
    return samples


def _require_blackjax() -> None:
    try:
        import blackjax  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "sample_posterior draws with blackjax, which is not installed: pip install "
            '"gbt-jax[nuts]"'
        ) from error
