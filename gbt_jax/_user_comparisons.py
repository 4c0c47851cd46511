"""The comparisons of many users: flat columns in, each user's items numbered compactly."""

from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike


@final
class UserComparisons:
    """The comparisons of many users, sorted by user. Made by `UserComparisons.from_arrays`.

    Everything is NumPy, on the host. A *slot* is one item of one user, the unit of which scores
    there is one each.

    - `users`: the label of each user, ascending.
    - `items`: the label of the item of each slot; the slots of user i are
      `item_offsets[i]:item_offsets[i + 1]`, items ascending.
    - `a`, `b`, `value`, `weight`: one row per comparison, a and b numbered within the user; the
      rows of user i are `row_offsets[i]:row_offsets[i + 1]`.
    - `row`: where each row stood in the columns given, which had `num_given` rows.
    """

    def __init__(
        self,
        users: np.ndarray,
        items: np.ndarray,
        item_offsets: np.ndarray,
        row_offsets: np.ndarray,
        a: np.ndarray,
        b: np.ndarray,
        value: np.ndarray,
        weight: np.ndarray,
        row: np.ndarray,
        num_given: int | None = None,
    ):
        self.users, self.items = users, items
        self.item_offsets, self.row_offsets = item_offsets, row_offsets
        self.a, self.b, self.value, self.weight, self.row = a, b, value, weight, row
        self.num_given = row.size if num_given is None else num_given

    @classmethod
    def from_arrays(
        cls,
        user: ArrayLike,
        a: ArrayLike,
        b: ArrayLike,
        value: ArrayLike,
        weight: ArrayLike | None = None,
    ) -> "UserComparisons":
        """From columns with one row per comparison.

        Users and items are any integers or strings; items of different users have nothing to do
        with each other. `value > 0` says that a is better than b. A float32 column of values keeps
        its dtype. Rows that make no sense (a value that is not finite, a negative weight, an item
        compared with itself) spoil their user's fit and no other.
        """
        columns = {name: _labels(name, x) for name, x in (("user", user), ("a", a), ("b", b))}
        values = _numbers("value", value)
        weights = np.ones_like(values) if weight is None else _numbers("weight", weight)
        sizes = {name: column.size for name, column in columns.items()}
        sizes |= {"value": values.size, "weight": weights.size}
        if len(set(sizes.values())) > 1:
            listed = ", ".join(f"{name} has {size}" for name, size in sizes.items())
            raise ValueError(f"the columns have different lengths: {listed}")
        users, owner = _codes(columns["user"])
        if columns["a"].dtype.kind != columns["b"].dtype.kind:
            raise ValueError(
                f"a and b must both be integers or both strings, not {columns['a'].dtype} and "
                f"{columns['b'].dtype}"
            )
        labels, item = _codes(np.concatenate([columns["a"], columns["b"]]))
        order = _sorting(owner)
        owner = owner[order]
        first, second = item[: owner.size][order], item[owner.size :][order]
        # One sort of (user, item) numbers all slots.
        base = owner * np.int64(labels.size)
        pairs = np.concatenate([base + first, base + second])
        slots, position = _numbered(pairs, _sorting(pairs))
        slot_owner = slots // max(labels.size, 1)
        item_offsets = np.searchsorted(slot_owner, np.arange(users.size + 1))
        within = (position - np.tile(item_offsets[owner], 2)).astype(np.int32)
        return cls(
            users=users,
            items=labels[slots - slot_owner * labels.size],
            item_offsets=item_offsets,
            row_offsets=np.searchsorted(owner, np.arange(users.size + 1)),
            a=within[: owner.size],
            b=within[owner.size :],
            value=values[order],
            weight=weights[order].astype(values.dtype, copy=False),
            row=order,
            num_given=order.size,
        )

    def __len__(self) -> int:
        return self.users.size

    def __repr__(self) -> str:
        return (
            f"UserComparisons({len(self)} users, {self.items.size} scores, "
            f"{self.value.size} comparisons)"
        )

    def part(self, start: int, stop: int) -> "UserComparisons":
        """The comparisons of the users with these positions in `users`."""
        items, rows = self.item_offsets[start : stop + 1], self.row_offsets[start : stop + 1]
        chosen = slice(rows[0], rows[-1])
        columns = (x[chosen] for x in (self.a, self.b, self.value, self.weight, self.row))
        labels = self.users[start:stop], self.items[items[0] : items[-1]]
        offsets = items - items[0], rows - rows[0]
        return UserComparisons(*labels, *offsets, *columns, num_given=self.num_given)

    def number_of(self, user: Any) -> int:
        """The position of a user's label in `users`."""
        place = int(np.searchsorted(self.users, user)) if self._comparable(user) else len(self)
        if place == len(self) or self.users[place] != user:
            raise KeyError(user)
        return place

    def _comparable(self, user: Any) -> bool:
        is_text = self.users.dtype.kind in "US"
        return isinstance(user, str | bytes if is_text else int | np.integer)


def _labels(name: str, labels: ArrayLike) -> np.ndarray:
    array = np.asarray(labels)
    if array.dtype.kind == "O" and all(isinstance(label, str) for label in array.flat):
        array = array.astype(str)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iuUS":
        raise ValueError(
            f"{name} must be a vector of integers or strings, not {array.dtype} of shape "
            f"{array.shape}"
        )
    # Differences of narrower integers would overflow.
    return array.astype({"i": np.int64, "u": np.uint64}.get(array.dtype.kind, array.dtype))


def _numbers(name: str, numbers: ArrayLike) -> np.ndarray:
    array = np.asarray(numbers)
    if array.ndim != 1 or array.dtype.kind not in "fiub":
        raise ValueError(
            f"{name} must be a vector of numbers, not {array.dtype} of shape {array.shape}"
        )
    return array if array.dtype == np.float32 else array.astype(np.float64)


def _codes(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(distinct labels ascending, the number of each entry's label among them)."""
    if labels.dtype.kind in "US":
        return _text_codes(np.ascontiguousarray(labels))
    if labels.size and int(labels.max()) - int(labels.min()) < 4 * labels.size:
        # A moderate range is looked up in a table instead of sorted.
        low = labels.min()
        present = np.zeros(int(labels.max()) - int(low) + 1, bool)
        present[labels - low] = True
        distinct = np.flatnonzero(present).astype(labels.dtype) + low
        return distinct, (np.cumsum(present) - 1)[labels - low]
    return _numbered(labels, _sorting(labels))


def _text_codes(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same for text: a table of hashes finds for each entry an example of its label.

    Where labels meet in a place of the table one of them has it, and the others try again with
    other bits. Only the distinct labels are sorted, since comparing text is slow.
    """
    hashes, multiplier = _hashes(labels), np.uint64(0x9E3779B97F4A7C15)
    example, left = np.empty(labels.size, np.int64), np.arange(labels.size)
    bits = (2 * labels.size).bit_length()
    table = np.empty(2**bits, np.int64)
    while left.size:
        place = hashes[left] >> np.uint64(64 - bits)
        table[place] = left
        candidate = table[place]
        same = labels[candidate] == labels[left]
        example[left[same]] = candidate[same]
        left = left[~same]
        hashes *= multiplier
    is_example = np.zeros(labels.size, bool)
    is_example[example] = True
    found = labels[is_example]
    order = np.argsort(found)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return found[order], rank[(np.cumsum(is_example) - 1)[example]]


def _hashes(labels: np.ndarray) -> np.ndarray:
    """A number of 64 bits for each label, by FNV-1a over its characters."""
    characters = labels.view(np.uint32 if labels.dtype.kind == "U" else np.uint8)
    hashes = np.full(labels.size, 0xCBF29CE484222325, np.uint64)
    for column in characters.reshape(labels.size, -1).T:
        hashes = (hashes ^ column) * np.uint64(0x100000001B3)
    return hashes * np.uint64(0x9E3779B97F4A7C15)  # into the upper bits too


def _numbered(keys: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(distinct keys ascending, the number of each entry's), of keys with their sorting order."""
    ascending = keys[order]
    is_new = np.append(True, ascending[1:] != ascending[:-1])[: keys.size]
    code = np.empty(keys.size, np.int64)
    code[order] = np.cumsum(is_new) - 1
    return ascending[is_new], code


def _sorting(keys: np.ndarray) -> np.ndarray:
    """The stable order of keys.

    Keys that leave room are sorted together with their positions, as plain numbers, several times
    faster than positions are sorted by keys.
    """
    if not keys.size:
        return np.zeros(0, np.int64)
    low, span = int(keys.min()), int(keys.max()) - int(keys.min()) + 1
    if span * keys.size >= 2**63:
        return np.argsort(keys, kind="stable")
    packed = (keys - keys.dtype.type(low)).astype(np.int64) * keys.size + np.arange(keys.size)
    packed.sort()
    return packed % keys.size
