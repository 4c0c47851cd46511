"""From sliders to scores: simulate people comparing videos, fit, and see what was recovered.

python notebooks/quickstart.py
"""

import jax
import jax.numpy as jnp

import gbt_jax as gbt

NUM_VIDEOS, NUM_COMPARISONS = 8, 200


def main() -> None:
    """Draw true scores and sliders in [−1, 1], then estimate the scores from the sliders."""
    score_key, pair_key, shift_key, value_key = jax.random.split(jax.random.key(1), 4)
    truth = 2 * jax.random.normal(score_key, (NUM_VIDEOS,))
    a = jax.random.randint(pair_key, (NUM_COMPARISONS,), 0, NUM_VIDEOS)
    b = (a + jax.random.randint(shift_key, a.shape, 1, NUM_VIDEOS)) % NUM_VIDEOS

    law = gbt.laws.Uniform()
    value = law.sample(truth[a] - truth[b], key=value_key)  # > 0: a is better
    comparisons = gbt.Comparisons(a, b, value, num_items=NUM_VIDEOS)
    fit = gbt.fit(gbt.Model(law, prior_std=3.0), comparisons)

    print(f"{NUM_COMPARISONS} comparisons of {NUM_VIDEOS} videos, fit: {fit.result.name}")
    print("video  score  truth")
    for video in jnp.argsort(-fit.scores):
        print(f"{video:5d}  {fit.scores[video]:+5.2f}  {truth[video] - truth.mean():+5.2f}")


if __name__ == "__main__":
    main()
