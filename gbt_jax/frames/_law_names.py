"""Laws by name, as one writes them on a command line: uniform, knary:21, skellam:2.7."""

from collections.abc import Callable
from typing import NamedTuple

from .. import laws
from ..laws import AbstractRootLaw


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
    """How each law is written."""
    return [f"{name}:PARAMETER" if law.parameter else name for name, law in _LAWS.items()]


def law_named(text: str | AbstractRootLaw) -> AbstractRootLaw:
    """The law that a text such as `knary:21` names; a law itself stays what it is.

    Rows of a table are dropped, merged and reordered on the way to a fit: a law with parameters
    per comparison is refused.
    """
    if isinstance(text, AbstractRootLaw):
        if text.num_rows is not None:
            raise ValueError(
                f"{type(text).__name__} has parameters for {text.num_rows} comparisons, and a "
                "table takes one law for all rows: use gbt_jax.fit with Comparisons"
            )
        return text
    name, colon, parameter = text.strip().lower().partition(":")
    if name not in _LAWS:
        raise ValueError(f"there is no law {text!r}; there are {', '.join(law_names())}")
    law = _LAWS[name]
    if law.parameter is None:
        if colon:
            raise ValueError(f"law {name!r} has no parameter: {text!r}")
        return law.make()
    try:
        number = law.parameter(parameter)
    except ValueError:
        wanted = f"{name}:PARAMETER ({law.meaning})"
        raise ValueError(f"law {text!r} must be written {wanted}") from None
    return law.make(number)


def name_of(law: AbstractRootLaw) -> str:
    """How a law is written, or its representation if it has no name here."""
    for name, known in _LAWS.items():
        if type(law) is known.make:
            fields = [float(x) for x in vars(law).values() if x is not None]
            return name if known.parameter is None else f"{name}:{fields[0]:g}"
    return str(law)
