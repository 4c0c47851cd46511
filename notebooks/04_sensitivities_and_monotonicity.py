# %% [markdown]
# # Sensitivities and monotonicity
#
# How does every score respond to every comparison? At the optimum the derivative is exact:
# ∂θ*/∂r_ab = N (e_a − e_b) w_ab, where N is the inverse of the Hessian. Monotonicity means that a
# better result never lowers the score of an item; it is the sign of two entries of this derivative.

# %%
import jax
import jax.numpy as jnp
import numpy as np

import gbt_jax as gbt
from gbt_jax import laws, plots, simulate

jax.config.update("jax_enable_x64", True)

# %%
model = gbt.Model(laws.Uniform(), prior_std=2.0)
truth = simulate.scores(model, 8, key=jax.random.key(0))
pairs = simulate.random_pairs(8, 40, key=jax.random.key(1))
comparisons = simulate.comparisons(model.law, truth, pairs, key=jax.random.key(2))
fit = gbt.fit(model, comparisons)
curvature = gbt.curvature(fit)  # factorised once, used by all below

# %% [markdown]
# ## All derivatives, three ways
#
# They are computed from the curvature, by JAX through the optimum, and by a finite difference of
# refits.

# %%
slopes = gbt.sensitivity(fit, using=curvature)  # items × comparisons
by_jax = jax.jacrev(lambda v: gbt.map_scores(model, comparisons.with_values(v)))(comparisons.value)
print("against jacrev:", jnp.max(jnp.abs(slopes - by_jax)))
step = 1e-5
raised = comparisons.with_values(comparisons.value.at[0].add(-step))
difference = (fit.scores - gbt.fit(model, raised).scores) / step
print("against a refit:", jnp.max(jnp.abs(slopes[:, 0] - difference)))

# %%
plots.sensitivity(fit)

# %% [markdown]
# ## Monotonicity and resilience
#
# Each function checks a guarantee on this fit, and names the closest case.

# %%
print(gbt.check_monotone(fit))
print(gbt.check_resilience(fit))

# %% [markdown]
# An average that drops outliers is not monotone: raising a comparison can turn it into an outlier.

# %%


def trimmed_mean(rows):
    """The mean value of each item, without values of more than 0.9."""
    ends = jnp.concatenate([rows.a, rows.b])
    value = jnp.concatenate([rows.value, -rows.value])
    counts = (jnp.abs(value) <= 0.9).astype(value.dtype)
    total = jnp.zeros(rows.num_items).at[ends].add(counts * value)
    return total / jnp.maximum(jnp.zeros(rows.num_items).at[ends].add(counts), 1)


print(gbt.check_monotone(trimmed_mean, comparisons, step=0.05))

# %% [markdown]
# ## What if a comparison had not been made?

# %%
changes = gbt.influence.leave_out(fit, using=curvature)
strongest = int(np.argmax(np.linalg.norm(changes, axis=0)))
print("the most influential comparison is row", strongest)
print(gbt.what_if(fit, removed=[strongest]).change)
print(gbt.influence.flip_set(fit, top=1))

# %%
plots.influence(fit)
