"""All that `gbt_jax` offers by name, beside its rooms. Importing this file imports JAX."""

from ._curvature import curvature as curvature
from ._data._comparisons import Comparisons as Comparisons
from ._inference._fit import Fit as Fit
from ._inference._fit import FitError as FitError
from ._inference._maximise import fit as fit
from ._inference._maximise import map_scores as map_scores
from ._inference._objective import negative_log_posterior as negative_log_posterior
from ._inference._refit import refit as refit
from ._inference._results import RESULTS as RESULTS
from ._model import Model as Model
from .guarantees import check_monotone as check_monotone
from .guarantees import check_new_comparison as check_new_comparison
from .guarantees import check_resilience as check_resilience
from .influence import sensitivity as sensitivity
from .influence import what_if as what_if
from .prediction import calibration as calibration
from .prediction import predict as predict
from .uncertainty import intervals as intervals
from .uncertainty import prob_better as prob_better
from .uncertainty import rank_intervals as rank_intervals
from .uncertainty import std as std
