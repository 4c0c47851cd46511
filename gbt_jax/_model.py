"""`Model`: a root law and a Gaussian prior on every score."""

from typing import final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from . import laws
from ._data._comparisons import Comparisons
from ._util._arrays import ArrayLike, floating, is_concrete
from .laws._rows import row_parameters


@final
class Model(eqx.Module):
    """Comparisons follow `law`, tilted by score differences; scores are independent normals.

    **Arguments:**

    - `law`: the root law. Its parameters are single numbers, or one per comparison in the order of
      the comparisons, such as the tie mass of each judge.
    - `prior_std`, `prior_mean`: σ and the mean of the prior, each a single number, one per item, or
      one per group. The prior adds (θ − mean)²/(2σ²) to the loss for each item. `prior_std=inf` is
      no prior: maximum likelihood, which determines differences only, with each connected component
      centred at mean zero.
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
            laws.check(law)  # user-defined: tests check the laws of this package
        self.law = law
        self.prior_std, self.prior_mean = floating(prior_std), floating(prior_mean)
        if is_concrete(self.prior_std):
            std = np.asarray(self.prior_std)
            if not (std > 0).all():
                bad = std[~(std > 0)].flat[0]
                raise ValueError(f"prior_std must be positive (inf for no prior), not {bad}")
        if is_concrete(self.prior_mean) and not np.isfinite(self.prior_mean).all():
            raise ValueError("prior_mean must be finite")

    def check_prior(self, comparisons: Comparisons) -> None:
        """Raise unless the prior is one number, or one per item (or group)."""
        allowed = {(): "one number", (comparisons.num_items,): f"item ({comparisons.num_items})"}
        if comparisons.num_groups is not None:
            allowed[(comparisons.num_groups,)] = f"group ({comparisons.num_groups})"
        for name in ("prior_std", "prior_mean"):
            shape = getattr(self, name).shape
            if shape not in allowed:
                per = " or one per ".join(allowed.values())
                raise ValueError(f"{name} must be {per}, but has shape {shape}")

    def check_rows(self, count: int) -> None:
        """Raise unless parameters of the law are one number, or one per each of `count` rows."""
        if self.law.num_rows in (None, count):
            return
        name, values = row_parameters(self.law)[0]
        raise ValueError(
            f"{name} of {type(self.law).__name__} has {values.size} numbers, and there are {count} "
            "comparisons: give one number for all, or one per comparison (of merged comparisons, "
            "one per merged row)"
        )

    def law_for_new_rows(
        self, law: laws.AbstractRootLaw | None, shape: tuple[int, ...], name: str = "law"
    ) -> laws.AbstractRootLaw:
        """The law of comparisons other than those of a fit: `law`, or by default the model's.

        A law with parameters per comparison cannot be the default.
        """
        if law is None:
            if self.law.num_rows is None:
                return self.law
            kind = type(self.law).__name__
            raise ValueError(
                f"{kind} has parameters for each of the fit's {self.law.num_rows} comparisons, "
                f"and none for new ones: give the law of the new ones, {name}={kind}(…)"
            )
        if not isinstance(law, laws.AbstractRootLaw):
            raise TypeError(f"{name} must be a root law, not {type(law).__name__}")
        if law.num_rows is not None and shape != (law.num_rows,):
            raise ValueError(
                f"{name} has parameters for {law.num_rows} comparisons, and the new ones have "
                f"shape {shape}"
            )
        return law

    def at_rows(self, index: ArrayLike) -> "Model":
        """The model of the given rows: the law's parameters per comparison are indexed."""
        law = self.law.at_rows(index)
        return self if law is self.law else eqx.tree_at(lambda model: model.law, self, law)

    def prior(self, comparisons: Comparisons, dtype) -> tuple[Array, Array]:
        """(mean, precision 1/σ²) of every item; precision 0 where there is no prior."""
        # The square of the inverse has derivative 0 at inf, not 0 times infinity.
        precision = jnp.square(1 / self.prior_std.astype(dtype))
        mean = self.prior_mean.astype(dtype)
        return per_item(mean, comparisons), per_item(precision, comparisons)


def precision_on_host(model: Model, comparisons: Comparisons, dtype) -> np.ndarray:
    """The precision of every item's prior, without compiling for its shape."""
    return np.square(1 / per_item_on_host(model.prior_std, comparisons, dtype))


def per_item_on_host(parameter: Array, comparisons: Comparisons, dtype) -> np.ndarray:
    """`per_item` with NumPy, which compiles nothing for each size."""
    values = np.asarray(parameter).astype(dtype)
    if values.shape == (comparisons.num_groups,) != (comparisons.num_items,):
        values = values[np.asarray(comparisons.group)]
    return np.broadcast_to(values, (comparisons.num_items,))


def per_item(parameter: Array, comparisons: Comparisons) -> Array:
    """Broadcast a parameter of the prior (one number, per item or per group) to the items."""
    by_group = comparisons.group is not None and parameter.shape == (comparisons.num_groups,)
    if by_group and parameter.shape != (comparisons.num_items,):
        return parameter[comparisons.group]
    return jnp.broadcast_to(parameter, (comparisons.num_items,))
