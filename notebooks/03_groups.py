# %% [markdown]
# # Many users: groups
#
# A platform has thousands of users, each with a few comparisons and separate scores. Each user is a
# group: groups are fitted independently under a shared law and prior, in one call.

# %%
import jax
import numpy as np

import gbt_jax as gbt
from gbt_jax import laws, simulate

jax.config.update("jax_enable_x64", True)

# %% [markdown]
# ## A population
#
# Numbers of comparisons are heavy tailed: the median is about ten, and some users make thousands.

# %%
model = gbt.Model(laws.Uniform(), prior_std=2.0)
people = simulate.population(model, 1000, num_items=300, key=jax.random.key(0))
comparisons = people.comparisons
user = np.asarray(comparisons.group)[np.asarray(comparisons.a)]  # the group of each comparison
counts = np.bincount(user)
print(comparisons)
print("comparisons per user: median", np.median(counts), "largest", counts.max())

# %% [markdown]
# ## One call

# %%
fit = gbt.fit(model, comparisons)
print(fit, "failures:", fit.failures())
print("largest error bound:", fit.error_bound.max())

# %% [markdown]
# `fit[label]` is the fit of one user. Most functions of a fit take all groups at once.

# %%
busiest = int(np.argmax(counts))
one = fit[fit.groups[busiest].item()]
print("busiest user:", one.scores.size, "items, error bound", one.error_bound)
deviation = np.asarray(gbt.std(fit))
errors = (fit.scores - people.scores) / deviation
print(f"{np.mean(np.abs(errors) < 1.96):.1%} of the true scores lie within 1.96 deviations")

# %% [markdown]
# ## From a table
#
# `frames.fit_table` does the same for data frames and files: `by` names the group columns.

# %%
import pyarrow as pa  # noqa: E402

from gbt_jax import frames  # noqa: E402

table = pa.table(
    {
        "user": ["ada", "ada", "ada", "bob", "bob"],
        "left": ["tea", "milk", "tea", "juice", "tea"],
        "right": ["milk", "juice", "juice", "milk", "juice"],
        "slider": [5, -2, 8, 1, 9],
    }
)
ranking = frames.fit_table(
    table,
    a="left",
    b="right",
    value="slider",
    by="user",
    positive_favours="a",
    max_value=10,
    law="knary:21",
)
for row in ranking.table.to_pylist():
    print(row["user"], row["rank"], row["item"], f"{row['score']:+.2f} ± {row['std']:.2f}")
