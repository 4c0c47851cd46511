# %% [markdown]
# # The paper's experiments at a small size
#
# Fageot, Farhadkhani, Hoang and Villemaud (AAAI 2024) simulate Uniform-GBT comparisons on random
# graphs and measure the error ‖θ* − θ†‖²/‖θ†‖². This notebook uses fewer items and seeds; `python
# benchmarks/paper_figures.py` reproduces the experiments at the paper's size.

# %%
import jax
import numpy as np

import gbt_jax as gbt
from gbt_jax import laws, simulate

jax.config.update("jax_enable_x64", True)
ITEMS, SEEDS = 100, range(1, 6)


def simulate_groups(density):
    """One group of comparisons for each seed, as columns (group, a, b, value), and true scores."""
    model, columns, truth = gbt.Model(laws.Uniform()), [], []
    for number, seed in enumerate(SEEDS):
        keys = jax.random.split(jax.random.key(seed), 3)
        scores = simulate.scores(model, ITEMS, key=keys[0])
        pairs = simulate.erdos_renyi(ITEMS, density, key=keys[1])
        rows = simulate.comparisons(model.law, scores, pairs, key=keys[2])
        value = np.asarray(rows.value)
        columns.append((np.full(value.size, number), pairs.a, pairs.b, value))
        truth.append(np.asarray(scores))
    return [np.concatenate(column) for column in zip(*columns, strict=True)], np.stack(truth)


def error(model, columns, truth):
    """The mean error over seeds."""
    seed, a, b, value = columns
    fit = gbt.fit(model, gbt.Comparisons(a, b, value, num_items=ITEMS, group=seed))
    found = np.zeros_like(truth)
    found[fit.group, fit.item] = fit.scores
    return np.mean(np.sum((found - truth) ** 2, axis=1) / np.sum(truth**2, axis=1))


# %% [markdown]
# ## 1. The error falls with the density of the graph

# %%
for density in (0.05, 0.2, 0.8):
    columns, truth = simulate_groups(density)
    print(f"density {density:4}: error {error(gbt.Model(laws.Uniform()), columns, truth):.4f}")

# %% [markdown]
# ## 2. The error falls with the number of answers, to that of the slider
#
# Comparisons are rounded to K answers, and fitted with the K-nary law.

# %%
columns, truth = simulate_groups(0.2)
for count in (2, 4, 20):
    steps = count - 1
    rounded = np.round((columns[3] + 1) / 2 * steps) / steps * 2 - 1
    model = gbt.Model(laws.KNary(count))
    print(f"K = {count:2}: error {error(model, [*columns[:3], rounded], truth):.4f}")
print(f"slider: error {error(gbt.Model(laws.Uniform()), columns, truth):.4f}")

# %% [markdown]
# ## 3. A prior lowers the error

# %%
for precision in (0.0, 0.5, 1.0, 3.0):
    std = np.inf if precision == 0 else precision**-0.5
    found = error(gbt.Model(laws.Uniform(), prior_std=std), columns, truth)
    print(f"1/σ² = {precision}: error {found:.4f}")
