"""Random numbers on the host, from the same keys."""

import jax
import numpy as np
from jaxtyping import PRNGKeyArray


def generator_of(key: PRNGKeyArray) -> np.random.Generator:
    """A NumPy generator seeded by the bits of a key: nothing is compiled for any shape."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))
