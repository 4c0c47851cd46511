"""How a fit ended, as a value: comparisons, names and messages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import random_comparisons

import gbt_jax as gbt
from gbt_jax import RESULTS, laws

MODEL = gbt.Model(laws.Uniform(), 2.0)
NAMES = (
    "successful",
    "max_steps_reached",
    "non_finite",
    "no_finite_optimum",
    "invalid_data",
    "precision_lost",
)


@pytest.fixture(scope="module")
def many():
    rows = gbt.Comparisons([0, 0, 0], [1, 1, 1], [0.5, 2.0, 0.1], num_items=2, group=[0, 1, 2])
    return gbt.fit(MODEL, rows)


def test_members_differ_and_say_what_to_do():
    members = [getattr(RESULTS, name) for name in NAMES]
    assert [member.name for member in members] == list(NAMES)
    assert [repr(member) for member in members] == [f"RESULTS.{name}" for name in NAMES]
    assert len({member.message for member in members}) == len({*members}) == len(NAMES)
    for i, one in enumerate(members):
        assert [bool(one == other) for other in members] == [i == j for j in range(len(NAMES))]
        assert [bool(one != other) for other in members] == [i != j for j in range(len(NAMES))]


def test_results_of_groups_are_compared_one_by_one(many):
    assert many.result.names.tolist() == ["successful", "invalid_data", "successful"]
    np.testing.assert_array_equal(many.result == RESULTS.successful, [True, False, True])
    np.testing.assert_array_equal(many.result != RESULTS.successful, [False, True, False])
    assert many.result[1] == RESULTS.invalid_data
    assert repr(many.result) == "RESULTS<1 invalid_data, 2 successful>"
    single = many[1].result
    assert single.name == "invalid_data"
    assert str(single.names) == "invalid_data"
    assert single.message == RESULTS.invalid_data.message


def test_comparisons_inside_jit():
    seen = []

    @jax.jit
    def scores_or_zero(rows):
        found = gbt.fit(MODEL, rows, throw=False)
        seen.append(repr(found.result))
        return jnp.where(found.result == RESULTS.successful, found.scores, 0)

    rows = random_comparisons(4, 9)
    np.testing.assert_allclose(scores_or_zero(rows), gbt.fit(MODEL, rows).scores, atol=1e-12)
    bad = rows._replace(value=rows.value.at[2].set(np.nan))
    np.testing.assert_array_equal(scores_or_zero(bad), 0)
    assert seen == ["RESULTS<traced>"]


def test_what_is_no_result_is_refused(many):
    for other in (0, "successful", None):
        with pytest.raises(TypeError, match="compare a result with a member of RESULTS"):
            many.result == other  # noqa: B015
