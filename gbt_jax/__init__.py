"""Scores from paired comparisons with generalized Bradley-Terry models, in JAX."""

import importlib.metadata as _metadata

from . import datasets as datasets
from . import laws as laws
from ._calibration import Calibration as Calibration
from ._calibration import calibration as calibration
from ._comparisons import Comparisons as Comparisons
from ._curvature import AbstractCurvature as AbstractCurvature
from ._curvature import BlockCurvature as BlockCurvature
from ._curvature import DenseCurvature as DenseCurvature
from ._curvature import IterativeCurvature as IterativeCurvature
from ._curvature import curvature as curvature
from ._fit import RESULTS as RESULTS
from ._fit import Fit as Fit
from ._fit import FitError as FitError
from ._fit import fit as fit
from ._fit import map_scores as map_scores
from ._guarantees import Report as Report
from ._guarantees import check_monotone as check_monotone
from ._guarantees import check_new_comparison as check_new_comparison
from ._guarantees import check_resilience as check_resilience
from ._influence import WhatIf as WhatIf
from ._influence import influence as influence
from ._influence import what_if as what_if
from ._likelihood_intervals import LikelihoodIntervals as LikelihoodIntervals
from ._likelihood_intervals import likelihood_intervals as likelihood_intervals
from ._model import Model as Model
from ._objective import negative_log_posterior as negative_log_posterior
from ._prediction import Prediction as Prediction
from ._prediction import predict as predict
from ._profile import profile_intervals as profile_intervals
from ._robust import bootstrap as bootstrap
from ._robust import robust_covariance as robust_covariance
from ._sampling import PosteriorSamples as PosteriorSamples
from ._sampling import log_posterior as log_posterior
from ._sampling import sample_posterior as sample_posterior
from ._sensitivity import response_sensitivity as response_sensitivity
from ._sensitivity import sensitivity as sensitivity
from ._solvers import LBFGS as LBFGS
from ._solvers import AbstractSolver as AbstractSolver
from ._solvers import NewtonCG as NewtonCG
from ._solvers import NewtonCholesky as NewtonCholesky
from ._uncertainty import Intervals as Intervals
from ._uncertainty import RankIntervals as RankIntervals
from ._uncertainty import covariance as covariance
from ._uncertainty import difference_std as difference_std
from ._uncertainty import intervals as intervals
from ._uncertainty import posterior_samples as posterior_samples
from ._uncertainty import prob_better as prob_better
from ._uncertainty import rank_intervals as rank_intervals
from ._uncertainty import std as std
from ._user_comparisons import UserComparisons as UserComparisons
from ._user_fits import UserFits as UserFits
from ._users import fit_users as fit_users
from ._users import map_user_scores as map_user_scores
from ._what_it_takes import FlipSet as FlipSet
from ._what_it_takes import RequiredChange as RequiredChange
from ._what_it_takes import flip_set as flip_set
from ._what_it_takes import required_change as required_change

__version__ = _metadata.version("gbt-jax")
