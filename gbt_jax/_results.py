"""How a fit can end."""

import enum


class RESULTS(enum.Enum):
    """How a fit ended; the value is what a batch of fits reports for each of them."""

    successful = 0
    max_steps_reached = 1
    non_finite = 2
    no_finite_optimum = 3
    invalid_data = 4
    precision_lost = 5

    @property
    def message(self) -> str:
        """What it means and what to do."""
        return _MESSAGES[self]


_MESSAGES = {
    RESULTS.successful: "the optimum was found, and certified to rounding or to the tolerances",
    RESULTS.max_steps_reached: (
        "the iterations ended before the optimum was reached: raise max_steps, loosen rtol or "
        "atol, or give the scores a prior (a finite prior_std)"
    ),
    RESULTS.non_finite: (
        "the loss or its gradient overflows: look for extreme values, weights or initial scores, "
        "or compute in float64"
    ),
    RESULTS.no_finite_optimum: (
        "without a prior these data have no finite optimum: give a finite prior_std, or leave "
        "out the items that only win or only lose"
    ),
    RESULTS.invalid_data: (
        "a value is outside the law's support or not finite, a weight is negative or not finite, "
        "or an item is compared with itself"
    ),
    RESULTS.precision_lost: (
        "rounding hides the optimum: some scores are determined so weakly that this precision "
        "cannot locate them, or they have no finite optimum (values at the edge of the support, "
        "weights of very different sizes). Compute in float64, rescale the weights, or give a "
        "smaller prior_std"
    ),
}
