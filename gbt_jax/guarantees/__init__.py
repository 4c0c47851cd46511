"""What the theory promises of every fit, checked on a fit or on anybody's estimator."""

from ._checks import CheckResult as CheckResult
from ._checks import check_monotone as check_monotone
from ._checks import check_new_comparison as check_new_comparison
from ._checks import check_resilience as check_resilience
