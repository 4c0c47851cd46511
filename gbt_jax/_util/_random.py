"""Random numbers on the host, seeded by JAX keys."""

import jax
import numpy as np
from jaxtyping import PRNGKeyArray


def generator_of(key: PRNGKeyArray) -> np.random.Generator:
    """A NumPy generator seeded by the bits of a key: it compiles nothing."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))
