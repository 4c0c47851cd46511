"""Laws as text, for the command line: uniform, knary:21, skellam:2.7."""

from collections.abc import Callable
from typing import NamedTuple

from .. import laws
from ..laws import AbstractRootLaw
from ._suggestions import unknown_message


class _Named(NamedTuple):
    make: Callable[..., AbstractRootLaw]
    parameter: Callable[[str], float] | None = None
    meaning: str = ""


_LAWS = {
    "bradleyterry": _Named(laws.BradleyTerry),
    "binary": _Named(laws.Binary),
    "davidson": _Named(laws.Davidson, float, "tie mass, 1 for a tie as likely as a win"),
    "knary": _Named(laws.KNary, int, "number of levels, from 2"),
    "binomial": _Named(laws.Binomial, int, "number of rounds, from 1"),
    "uniform": _Named(laws.Uniform),
    "beta": _Named(laws.Beta, float, "β > 0"),
    "gaussian": _Named(laws.Gaussian, float, "standard deviation"),
    "skellam": _Named(laws.Skellam, float, "rate, the mean sum of both counts"),
    "symmetrizedpoisson": _Named(laws.SymmetrizedPoisson, float, "rate"),
}


def law_names() -> list[str]:
    """The text form of each law."""
    return [f"{name}:PARAMETER" if law.parameter else name for name, law in _LAWS.items()]


def law_named(text: str | AbstractRootLaw) -> AbstractRootLaw:
    """The law with a name such as `knary:21`.

    **Arguments:**

    - `text`: the name, or a law. A law with parameters per comparison raises an error, because rows
      of a table are dropped, merged and reordered before a fit.

    **Returns:** the law; a law is returned unchanged.
    """
    if isinstance(text, AbstractRootLaw):
        if text.num_rows is not None:
            raise ValueError(
                f"{type(text).__name__} has parameters for {text.num_rows} comparisons, but a "
                "table needs one law for all rows: use gbt_jax.fit with Comparisons"
            )
        return text
    name, colon, parameter = text.strip().lower().partition(":")
    if name not in _LAWS:
        raise ValueError(unknown_message("law", text, law_names()))
    law = _LAWS[name]
    if law.parameter is None:
        if colon:
            raise ValueError(f"law {name!r} takes no parameter, but {text!r} has one")
        return law.make()
    try:
        number = law.parameter(parameter)
    except ValueError:
        wanted = f"{name}:PARAMETER ({law.meaning})"
        raise ValueError(f"invalid law {text!r}: write {wanted}") from None
    return law.make(number)


def law_name(law: AbstractRootLaw) -> str:
    """The text form of a law, or its `str` if it has none."""
    for name, known in _LAWS.items():
        if type(law) is known.make:
            fields = [float(x) for x in vars(law).values() if x is not None]
            return name if known.parameter is None else f"{name}:{fields[0]:g}"
    return str(law)
