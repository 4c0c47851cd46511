"""The Hessian of a fit, factorised once for solves and for entries of its inverse.

With M = ∇²L(θ*) = diag(1/σ²) + Bᵀ diag(w Φ''(t)) B and N = M⁻¹, sensitivities and
uncertainties of the scores are functions of N.
"""

from ._base import AbstractCurvature as AbstractCurvature
from ._blocks import BlockCurvature as BlockCurvature
from ._dense import DenseCurvature as DenseCurvature
from ._iterative import IterativeCurvature as IterativeCurvature
from ._iterative import Sample as Sample
from ._make import curvature as curvature
from ._make import curvature_of as curvature_of
from ._make import refuse_unfinished as refuse_unfinished
from ._make import regularised_draws as regularised_draws
from ._make import variances as variances
