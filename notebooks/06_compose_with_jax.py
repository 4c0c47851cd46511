# %% [markdown]
# # Inside a larger JAX model
#
# `map_scores` is the optimum as a function: jit it, vmap it, differentiate it. So a fit can be a
# layer of a larger model, trained by optax, with parameters in Equinox modules.

# %%
import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import gbt_jax as gbt
from gbt_jax import laws, simulate

jax.config.update("jax_enable_x64", True)

# %% [markdown]
# ## Learning the prior from held-out comparisons
#
# True scores have a standard deviation of 2. Starting from σ = 0.5, gradients of the held-out
# log-likelihood through the fit find a better σ, with forty training comparisons of twenty items.

# %%
law = laws.Uniform()
truth = simulate.scores(gbt.Model(law, prior_std=2.0), 20, key=jax.random.key(0))
pairs = simulate.random_pairs(20, 240, key=jax.random.key(1))
rows = simulate.comparisons(law, truth, pairs, key=jax.random.key(2))
is_train = jnp.arange(240) < 40
train = rows.with_weights(jnp.where(is_train, 1.0, 0.0))
held_out = rows.with_weights(jnp.where(is_train, 0.0, 1.0))


def held_out_loss(log_std):
    """Minus the log-likelihood of held-out comparisons, per comparison."""
    scores = gbt.map_scores(gbt.Model(law, prior_std=jnp.exp(log_std)), train)
    no_prior = gbt.Model(law, prior_std=jnp.inf)  # the likelihood alone
    return gbt.negative_log_posterior(no_prior, held_out, scores) / 200


optimiser = optax.adam(0.2)
log_std = jnp.log(0.5)
state = optimiser.init(log_std)
step = jax.jit(jax.value_and_grad(held_out_loss))
for i in range(30):
    loss, slope = step(log_std)
    if i % 10 == 0:
        print(f"σ = {jnp.exp(log_std):.2f}  held-out loss {loss:.4f}")
    updates, state = optimiser.update(slope, state)
    log_std = optax.apply_updates(log_std, updates)
print(f"σ = {jnp.exp(log_std):.2f}  held-out loss {held_out_loss(log_std):.4f}")

# %% [markdown]
# ## Scores explained by features
#
# The prior's mean may come from a network: the network predicts scores from features of the items,
# and comparisons correct the prediction. The network and σ are learned together.

# %%
features = jax.random.normal(jax.random.key(3), (20, 3), jnp.float64)
weights = jnp.array([1.5, -1.0, 0.0])
scores = features @ weights
described = simulate.comparisons(law, scores, pairs, key=jax.random.key(4))


class Explained(eqx.Module):
    """Scores around a linear function of the features."""

    linear: eqx.nn.Linear
    log_std: jax.Array

    def scores(self, rows):
        """The optimum with the prior that the network gives."""
        mean = jax.vmap(self.linear)(features)[:, 0]
        model = gbt.Model(law, prior_std=jnp.exp(self.log_std), prior_mean=mean)
        return gbt.map_scores(model, rows)


def loss_of(explained, rows, others):
    """Held-out loss: the training comparisons predict the others."""
    return gbt.negative_log_posterior(
        gbt.Model(law, prior_std=jnp.inf), others, explained.scores(rows)
    )


explained = Explained(
    eqx.nn.Linear(3, 1, key=jax.random.key(5), dtype=jnp.float64), jnp.asarray(0.0)
)
train, held_out = (described.with_weights(part.weight) for part in (train, held_out))
optimiser = optax.adam(0.1)
state = optimiser.init(eqx.filter(explained, eqx.is_array))


@eqx.filter_jit
def learn(explained, state):
    """One step of the optimiser."""
    loss, slope = eqx.filter_value_and_grad(loss_of)(explained, train, held_out)
    updates, state = optimiser.update(slope, state)
    return eqx.apply_updates(explained, updates), state, loss


for _ in range(60):
    explained, state, loss = learn(explained, state)
print("learned weights:", explained.linear.weight[0], "true:", weights)
print("standard deviation around them: σ =", jnp.exp(explained.log_std))
