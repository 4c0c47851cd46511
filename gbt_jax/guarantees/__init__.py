"""Checks of the theorems on a fit or on any estimator."""

from ._checks import CheckResult as CheckResult
from ._checks import check_monotone as check_monotone
from ._checks import check_new_comparison as check_new_comparison
from ._checks import check_resilience as check_resilience
