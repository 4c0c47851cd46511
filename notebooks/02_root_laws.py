# %% [markdown]
# # Root laws: how two equally good alternatives compare
#
# A generalized Bradley-Terry model tilts a symmetric *root law* f by the score difference t:
#
#     p(r | t) = f(r) exp(r t − Φ(t)),   Φ(t) = log E_f[exp(t r)],   E[r] = Φ'(t),   Var[r] = Φ''(t).
#
# Everything follows from Φ. This notebook shows a few laws, fits the same data with several, and
# defines a new one.

# %%
import jax
import jax.numpy as jnp
import numpy as np

import gbt_jax as gbt
from gbt_jax import laws, plots, simulate

jax.config.update("jax_enable_x64", True)

# %% [markdown]
# ## Expected comparison and its variance
#
# Bounded laws saturate: however large the score difference, a slider ends at 1. Goal differences do
# not.

# %%
t = jnp.array([0.0, 0.5, 1.0, 2.0, 5.0])
named = {
    "Binary": laws.Binary(),
    "KNary(5)": laws.KNary(5),
    "Uniform": laws.Uniform(),
    "Beta(3)": laws.Beta(3.0),
    "Skellam(2.7)": laws.Skellam(2.7),
}
print("E[r]".ljust(14), *(f"t={x:<6g}" for x in t.tolist()))
for name, law in named.items():
    print(name.ljust(14), *(f"{x:<8.3f}" for x in law.mean(t).tolist()))

# %%
plots.law(named, what="mean")

# %% [markdown]
# ## One set of grades, several laws
#
# The same five-point grades are fitted as grades, as sliders, and as wins (the sign alone, with
# ties left out). Scores of different laws have different units; the order hardly differs.

# %%
truth = simulate.scores(gbt.Model(laws.KNary(5)), 12, key=jax.random.key(0))
pairs = simulate.random_pairs(12, 300, key=jax.random.key(1))
graded = simulate.comparisons(laws.KNary(5), truth, pairs, key=jax.random.key(2))
wins = graded.with_values(jnp.sign(graded.value)).with_weights(jnp.abs(jnp.sign(graded.value)))
won = wins.with_values(jnp.where(wins.value == 0, 1.0, wins.value))  # weight 0: they do not count
for name, law, rows in (
    ("KNary(5)", laws.KNary(5), graded),
    ("Uniform", laws.Uniform(), graded),
    ("Binary", laws.Binary(), won),
):
    scores = gbt.fit(gbt.Model(law), rows).scores
    print(f"{name:10} correlation with the truth {np.corrcoef(scores, truth)[0, 1]:.3f}")

# %% [markdown]
# ## A law of your own
#
# Φ alone is enough. Here: no difference half of the time, otherwise a standard normal one. `check`
# raises an error that says why, if Φ does not belong to a root law.

# %%


class Undecided(laws.AbstractRootLaw):
    """No difference half of the time, otherwise a standard normal one."""

    def cgf(self, t):
        """Φ(t) = log((1 + exp(t²/2))/2)."""
        return jnp.logaddexp(0.0, t * t / 2) - jnp.log(2.0)


laws.check(Undecided())
print(gbt.fit(gbt.Model(Undecided()), graded).scores[:3])


class Laplace(laws.AbstractRootLaw):
    """Its exponential moments are infinite from t = 1 on."""

    def cgf(self, t):
        """Φ(t) = −log(1 − t²), for |t| < 1."""
        return -jnp.log1p(-(t * t))


try:
    laws.check(Laplace())
except ValueError as error:
    print("invalid law:", error)
