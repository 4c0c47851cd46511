# %% [markdown]
# # Quick start: from sliders to scores
#
# Eight videos were compared two at a time, with a slider from −1 (the second is much better) to 1
# (the first is much better). We want one score per video, with its uncertainty.
#
# This file is a notebook in the py:percent format: open it in Jupyter (with jupytext) or in an
# editor with cells, or run it as a script.

# %%
import jax
import jax.numpy as jnp

import gbt_jax as gbt
from gbt_jax import plots, simulate

jax.config.update("jax_enable_x64", True)  # 16 digits instead of 7

# %% [markdown]
# ## Data
#
# A comparison is a row: item `a` against item `b`, with a value. **A positive value says that a is
# better.** Here we simulate the sliders, so that we know the scores behind them.

# %%
law = gbt.laws.Uniform()  # two equally good videos: all positions of the slider are equally likely
model = gbt.Model(law, prior_std=2.0)  # scores are of the order of 2
score_key, pair_key, value_key = jax.random.split(jax.random.key(1), 3)
truth = simulate.scores(model, 8, key=score_key)
pairs = simulate.random_pairs(8, 200, key=pair_key)
comparisons = simulate.comparisons(law, truth, pairs, key=value_key)
print(comparisons.a[:3], comparisons.b[:3], comparisons.value[:3])

# %% [markdown]
# ## Fit
#
# The scores minimise a strictly convex loss, so there is one optimum. `error_bound` certifies how
# far the scores are from it.

# %%
fit = gbt.fit(model, comparisons)
print(fit.result.name, "error bound", fit.error_bound)

# %% [markdown]
# ## Uncertainty

# %%
_, lower, upper = gbt.intervals(fit, level=0.95)
ranks = gbt.rank_intervals(fit, key=jax.random.key(0))
print("video  score   95% interval    ranks  truth")
for i in jnp.argsort(-fit.scores).tolist():
    print(
        f"{i:5}  {fit.scores[i]:+.2f}  {lower[i]:+.2f} to {upper[i]:+.2f}  "
        f"{ranks.lower[i]:.0f}–{ranks.upper[i]:.0f}  {truth[i]:+.2f}"
    )
print("P(0 is better than 1) =", gbt.prob_better(fit, 0, 1))

# %%
plots.ranking(fit)

# %% [markdown]
# ## The next comparison

# %%
coming = gbt.predict(fit, 0, 1)
print(f"0 against 1: expect {coming.mean:+.2f} ± {coming.std:.2f}")
