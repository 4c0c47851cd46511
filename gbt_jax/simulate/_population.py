"""Many users who compare a few items each, and a few users who compare very many."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from .._data._comparisons import Comparisons
from .._model import Model
from .._util._arrays import positive, whole_number
from .._util._random import generator_of
from ._draws import distinct_numbers, number_between, popularity
from ._graphs import triangle
from ._outcomes import drawn_values, prior_of


class Population(NamedTuple):
    """The comparisons of users, and the scores they were drawn from.

    - `comparisons`: users are groups 0, 1, …; labels of items are numbers, the most popular is 0.
    - `scores`: the true scores, in the order of `Fit.scores`.
    - `common`: the component that the scores of all users share, one number per item.
    """

    comparisons: Comparisons
    scores: Float[np.ndarray, " items_of_users"]
    common: Float[np.ndarray, " items"]


def population(
    model: Model,
    num_users: int,
    *,
    num_items: int,
    median_comparisons: float = 10.0,
    log_std: float = 1.7,
    agreement: float = 0.0,
    exponent: float = 2.5,
    key: PRNGKeyArray,
) -> Population:
    """Users with heavy-tailed numbers of comparisons, of items of heavy-tailed popularity.

    **Arguments:**

    - `model`: the law of all comparisons, and the prior of scores; `prior_std` (finite) and
      `prior_mean` are one number, or one per user.
    - `num_users`: how many users.
    - `num_items`: how many items users can choose from.
    - `median_comparisons`, `log_std`: a user makes n = exp(N(log median, log_std²)) comparisons,
      rounded, at least one. This lognormal law spans several orders of magnitude, but has all
      moments, so that totals do not differ much between keys. Of 10,000 users with the defaults
      some thirty make more than 1,000 comparisons, the most active about 6,000; the mean is 42.
    - `agreement`: the correlation ρ of two users' scores of an item. User u scores item i
      mean_u + σ_u (√ρ c_i + √(1−ρ) z_ui), with c (`common`) and z standard normal, so scores of a
      user follow the prior for every ρ. 0 means independent users, 1 the same scores for all.
    - `exponent`: of the popularity of items, as in `power_law`.
    - `key`: a key of `jax.random`.

    **Returns:** a `Population`.

    A user draws 2 + n//2 items, or all of them, by popularity without replacement, and compares n
    different pairs of them, all sets of pairs equally likely: two comparisons per item, as the most
    active users of Tournesol make. The number of pairs limits the comparisons of a user. A user's
    rows are in random order, and so are a and b. An item that was drawn but is in no pair has no
    score.
    """
    num_users = whole_number("num_users", num_users, at_least=1)
    num_items = whole_number("num_items", num_items, at_least=2)
    agreement = number_between("agreement", agreement, 0, 1)
    for name in ("prior_std", "prior_mean"):
        shape = getattr(model, name).shape
        if shape not in ((), (num_users,)):
            raise ValueError(
                f"{name} must be one number or one per user ({num_users}), and has shape {shape}"
            )
    if model.law.num_rows is not None:
        raise ValueError(
            "the law of a population cannot have parameters per comparison, because the number of "
            "comparisons is random"
        )
    mean, std = prior_of(model)
    host_key, value_key = jax.random.split(key)
    generator = generator_of(host_key)
    median = float(positive("median_comparisons", median_comparisons))
    size = _sizes(generator, num_users, median, log_std, num_items * (num_items - 1) // 2)
    user, a, b = _columns(generator, size, popularity(num_items, exponent))
    data = Comparisons(a, b, np.zeros(user.size, mean.dtype), num_items=num_items, group=user)
    owner, item = np.asarray(data.group), data.item_labels
    common = generator.standard_normal(num_items, mean.dtype)
    individual = generator.standard_normal(owner.size, mean.dtype)
    standard = agreement**0.5 * common[item] + (1 - agreement) ** 0.5 * individual
    of_user = [np.broadcast_to(x, num_users)[owner] for x in (mean, std)]
    scores = of_user[0] + of_user[1] * standard
    difference = scores[np.asarray(data.a)] - scores[np.asarray(data.b)]
    value = drawn_values(model.law, difference, key=value_key)
    return Population(data.with_values(value), scores, common)


def _sizes(
    generator: np.random.Generator, num_users: int, median: float, log_std: float, most: int
) -> np.ndarray:
    """The number of comparisons of each user."""
    if not 0 <= log_std < np.inf:
        raise ValueError(f"log_std must be non-negative and finite, not {log_std!r}")
    logs = np.log(median) + log_std * generator.standard_normal(num_users)
    return np.rint(np.exp(np.clip(logs, 0, np.log(most)))).astype(np.int64)


def _columns(
    generator: np.random.Generator, size: np.ndarray, share: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """User (ascending), a and b of each comparison."""
    num_picked = np.minimum(2 + size // 2, share.size)
    _, item = distinct_numbers(generator, num_picked, np.full_like(size, share.size), share)
    user, pair = distinct_numbers(generator, size, num_picked * (num_picked - 1) // 2)
    # Rows are shuffled within users: the whole part of the keys is the user. With 24 bits of
    # fraction no sum is rounded up to the next user.
    pair = pair[np.argsort(user + generator.random(user.size, np.float32))]
    low, high = triangle(pair)
    start = (np.cumsum(num_picked) - num_picked)[user]
    low, high = item[start + low], item[start + high]
    is_low_first = generator.random(user.size) < 0.5
    return user, np.where(is_low_first, low, high), np.where(is_low_first, high, low)
