"""The Hessian of a fit as a value: factorised once, then solves and entries of its inverse.

With M = ∇²L(θ*) = diag(1/σ²) + Bᵀ diag(w Φ''(t)) B and N = M⁻¹, everything that is said about how
scores respond, and how sure they are, is read off N.
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
