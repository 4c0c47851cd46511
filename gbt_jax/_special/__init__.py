"""Stable scalar functions whose derivatives, of every order, are stable too.

Each function here is elementwise, works in the dtype of its first argument, and carries its own
derivative rule: automatic differentiation of the usual formulas would subtract nearly equal
numbers (``1 - tanh(t)**2`` in the tail, ``coth(t) - 1/t`` at the origin) and lose every digit.
"""

from ._bessel import log_hyp0f1 as log_hyp0f1
from ._exact import difference_and_error as difference_and_error
from ._exact import exp_minus as exp_minus
from ._exact import product_and_error as product_and_error
from ._exact import quotient_and_error as quotient_and_error
from ._exact import squared_exponential as squared_exponential
from ._hyperbolic import cosh as cosh
from ._hyperbolic import cosh_minus_one as cosh_minus_one
from ._hyperbolic import log_cosh as log_cosh
from ._hyperbolic import log_cosh_ratio as log_cosh_ratio
from ._hyperbolic import magnitude as magnitude
from ._hyperbolic import one_minus_square as one_minus_square
from ._hyperbolic import sinh as sinh
from ._hyperbolic import tanh as tanh
from ._interpolation import MANY_POINTS as MANY_POINTS
from ._interpolation import interpolate as interpolate
from ._sinhc import log_sinhc as log_sinhc
from ._sinhc import log_sinhc_ratio as log_sinhc_ratio
from ._ties import log_tied_cosh as log_tied_cosh
