"""Uncertainty of scores: Laplace, profile and likelihood intervals, bootstrap, posterior draws."""

from ._laplace import Intervals as Intervals
from ._laplace import covariance as covariance
from ._laplace import difference_std as difference_std
from ._laplace import intervals as intervals
from ._laplace import posterior_samples as posterior_samples
from ._laplace import prob_better as prob_better
from ._laplace import rank_intervals as rank_intervals
from ._laplace import std as std
from ._likelihood import likelihood_intervals as likelihood_intervals
from ._profile import profile_intervals as profile_intervals
from ._robust import bootstrap as bootstrap
from ._robust import robust_covariance as robust_covariance
from ._sampling import PosteriorSamples as PosteriorSamples
from ._sampling import log_posterior as log_posterior
from ._sampling import sample_posterior as sample_posterior
