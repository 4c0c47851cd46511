"""The model: a root law, and a Gaussian prior on every score."""

from typing import final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import ArrayLike, Float

from . import laws
from ._arrays import floating, is_concrete


@final
class Model(eqx.Module):
    """Comparisons follow `law`, tilted by score differences; scores are independent normals.

    `prior_std` (σ) and `prior_mean` are single numbers or one per item: the prior adds
    (θ − mean)²/(2σ²) to the loss for each item. `prior_std=inf` is no prior: maximum likelihood,
    where only differences are known and each connected component is centred at zero mean.
    """

    law: laws.AbstractRootLaw
    prior_std: Float[Array, "..."]
    prior_mean: Float[Array, "..."]

    def __init__(
        self,
        law: laws.AbstractRootLaw,
        prior_std: ArrayLike = 1.0,
        prior_mean: ArrayLike = 0.0,
    ):
        own = not type(law).__module__.startswith(laws.__name__ + ".")
        if own and is_concrete(law):
            laws.check(law)  # someone's own: the laws of this package are right by their tests
        self.law = law
        self.prior_std, self.prior_mean = floating(prior_std), floating(prior_mean)
        if is_concrete(self.prior_std):
            std = np.asarray(self.prior_std)
            if not (std > 0).all():
                bad = std[~(std > 0)].flat[0]
                raise ValueError(f"prior_std must be positive (inf for no prior), not {bad}")
        if is_concrete(self.prior_mean) and not np.isfinite(self.prior_mean).all():
            raise ValueError("prior_mean must be finite")

    def check_prior(self, count: int, per: str) -> None:
        """Refuse a prior that is neither one number nor one per item (or user), of so many."""
        for name in ("prior_std", "prior_mean"):
            shape = getattr(self, name).shape
            if shape not in ((), (count,)):
                raise ValueError(
                    f"{name} must be one number or one per {per} ({count}), and has shape {shape}"
                )

    def prior(self, num_items: int, dtype) -> tuple[Array, Array]:
        """(mean, precision 1/σ²) of every item; precision 0 where there is no prior."""
        # The square of the inverse: its derivative is 0 at inf, not 0 times infinity.
        precision = jnp.square(1 / self.prior_std.astype(dtype))
        mean = self.prior_mean.astype(dtype)
        shape = (num_items,)
        return jnp.broadcast_to(mean, shape), jnp.broadcast_to(precision, shape)
