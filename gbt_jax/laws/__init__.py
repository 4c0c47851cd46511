"""Root laws: the laws of comparisons between equally good alternatives.

A generalized Bradley-Terry model tilts a symmetric *root law* f by the score difference t:

    p(r | t) = f(r) exp(r t − Φ(t)),    Φ(t) = log E_f[exp(t r)],    E[r] = Φ'(t),  Var[r] = Φ''(t)

so a law is given by its cumulant generating function Φ. A value r > 0 favours the first
alternative.
"""

from ._base import AbstractRootLaw as AbstractRootLaw
from ._base import check as check
from ._bounded import Beta as Beta
from ._bounded import Uniform as Uniform
from ._combinators import Scaled as Scaled
from ._combinators import Sum as Sum
from ._density import Density as Density
from ._finite import AbstractFiniteLaw as AbstractFiniteLaw
from ._finite import Binary as Binary
from ._finite import Binomial as Binomial
from ._finite import BradleyTerry as BradleyTerry
from ._finite import Davidson as Davidson
from ._finite import Finite as Finite
from ._finite import KNary as KNary
from ._rows import table as table
from ._unbounded import Gaussian as Gaussian
from ._unbounded import Skellam as Skellam
from ._unbounded import SymmetrizedPoisson as SymmetrizedPoisson
