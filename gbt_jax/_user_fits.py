"""`UserFits`: what `fit_users` returns, flat arrays that are also a mapping from user to `Fit`."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, final

import jax.numpy as jnp
import numpy as np

from ._chunks import Chunk
from ._comparisons import Comparisons
from ._fit import RESULTS, Fit, Stats
from ._model import Model
from ._optimum import invalid_rows
from ._user_comparisons import UserComparisons


class Answer(NamedTuple):
    """What the solver says of a chunk: scores, and the rest per user. Arrays of JAX or NumPy."""

    scores: Any
    result_codes: Any
    error_bounds: Any
    gradient_norms: Any
    newton_steps: Any
    cg_steps: Any


@final
class UserFits(Mapping):
    """The fits of many users: a mapping from a user's label to its `Fit`.

    Flat arrays, on the host:

    - `scores`, with the label of their `user` and `item`: one per item of each user.
    - `users`, and for each of them `result_codes` (values of `RESULTS`), `error_bounds`,
      `gradient_norms`, `newton_steps` and `cg_steps`.

    The scores of a user whose fit failed for lack of an optimum or for bad data are NaN.
    """

    def __init__(self, model: Model, comparisons: UserComparisons, dtype: np.dtype):
        count = len(comparisons)
        self.model, self.comparisons = model, comparisons
        self.users, self.item = comparisons.users, comparisons.items
        self.scores = np.full(comparisons.items.size, np.nan, dtype)
        self.result_codes = np.zeros(count, np.int32)
        self.error_bounds = np.zeros(count, dtype)
        self.gradient_norms = np.zeros(count, dtype)
        self.newton_steps = np.zeros(count, np.int32)
        self.cg_steps = np.zeros(count, np.int32)

    @property
    def user(self) -> np.ndarray:
        """The label of the user of each score."""
        return np.repeat(self.users, np.diff(self.comparisons.item_offsets))

    def part(self, start: int, stop: int) -> "UserFits":
        """The fits of the users with these positions in `users`."""
        users = slice(start, stop)
        prior = (self.model.prior_std, self.model.prior_mean)
        model = Model(self.model.law, *(x if x.ndim == 0 else x[users] for x in prior))
        part = UserFits(model, self.comparisons.part(start, stop), self.scores.dtype)
        offsets = self.comparisons.item_offsets
        part.scores = self.scores[offsets[start] : offsets[stop]]
        for name in Answer._fields[1:]:
            setattr(part, name, getattr(self, name)[users])
        return part

    def failures(self) -> dict:
        """How the fits ended that were not successful, by user."""
        failed = np.flatnonzero(self.result_codes != RESULTS.successful.value)
        return {self.users[i].item(): RESULTS(int(self.result_codes[i])) for i in failed}

    def for_user(self, user: object) -> Fit:
        """An ordinary `Fit` of one user, its items in the order of their labels."""
        data, number = self.comparisons, self.comparisons.number_of(user)
        rows = slice(*data.row_offsets[number : number + 2])
        slots = slice(*data.item_offsets[number : number + 2])
        if self.result_codes[number] == RESULTS.invalid_data.value:
            raise ValueError(self._name_the_bad_row(user, rows, slots))
        return Fit(
            scores=jnp.asarray(self.scores[slots]),
            error_bound=jnp.asarray(self.error_bounds[number]),
            gradient_norm=jnp.asarray(self.gradient_norms[number]),
            result_code=jnp.asarray(self.result_codes[number]),
            stats=Stats(jnp.asarray(self.newton_steps[number]), jnp.asarray(self.cg_steps[number])),
            model=self._model_of(number).at_rows(data.row[rows]),
            comparisons=Comparisons(
                data.a[rows],
                data.b[rows],
                data.value[rows],
                data.weight[rows],
                num_items=slots.stop - slots.start,
            ),
        )

    def __getitem__(self, user: object) -> Fit:
        return self.for_user(user)

    def __iter__(self) -> Iterator:
        return iter(self.users.tolist())

    def __contains__(self, user: object) -> bool:
        try:
            self.comparisons.number_of(user)
        except KeyError:
            return False
        return True

    def __len__(self) -> int:
        return len(self.comparisons)

    def __repr__(self) -> str:
        failed = int(np.count_nonzero(self.result_codes))
        return f"UserFits({len(self)} users, {self.scores.size} scores, {failed} failed)"

    def put(self, chunk: Chunk, answer: Answer) -> None:
        """Take in what the solver says of a chunk."""
        self.scores[chunk.slots] = np.asarray(answer.scores)[chunk.items]
        for name in Answer._fields[1:]:
            getattr(self, name)[chunk.users] = np.asarray(getattr(answer, name))[: chunk.users.size]

    def _model_of(self, number: int) -> Model:
        prior = (self.model.prior_std, self.model.prior_mean)
        return Model(self.model.law, *(x if x.ndim == 0 else x[number] for x in prior))

    def _name_the_bad_row(self, user: object, rows: slice, slots: slice) -> str:
        data, items = self.comparisons, self.item[slots]
        columns = data.a[rows], data.b[rows], data.value[rows], data.weight[rows]
        law = self.model.law.at_rows(data.row[rows])
        is_invalid = invalid_rows(law, *map(jnp.asarray, columns), is_merged=False)
        bad = int(np.flatnonzero(is_invalid)[0])
        a, b, value, weight = (column[bad] for column in columns)
        return (
            f"user {user!r} has bad data: row {data.row[rows][bad]} compares {items[a].item()!r} "
            f"with {items[b].item()!r}, value {value:g}, weight {weight:g}; values must lie in the "
            f"support of {type(self.model.law).__name__}, weights must be finite and not "
            "negative, and no item is compared with itself"
        )


def check_one_fit(fit: object, function: str, more: str = "") -> None:
    """Raise for what is no `Fit`; for `UserFits` say how `function` is called for one user.

    `more` is what else to type, with `{user}` where the user's label stands.
    """
    if isinstance(fit, UserFits):
        user = repr(fit.users[0].item()) if len(fit) else "user"
        call = f"{function}(fits[{user}]{more.format(user=user)})"
        raise TypeError(f"{function} takes the fit of one user, not UserFits: {call}")
    if not isinstance(fit, Fit):
        raise TypeError(f"a Fit is needed, not {type(fit).__name__}")
