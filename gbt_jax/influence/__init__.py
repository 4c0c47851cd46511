"""Influence of comparisons on scores: derivatives, leave-one-out, counterfactuals, flip sets."""

from ._counterfactuals import FlipSet as FlipSet
from ._counterfactuals import RequiredChange as RequiredChange
from ._counterfactuals import flip_set as flip_set
from ._counterfactuals import required_change as required_change
from ._influence import WhatIf as WhatIf
from ._influence import leave_out as leave_out
from ._influence import what_if as what_if
from ._sensitivity import response_sensitivity as response_sensitivity
from ._sensitivity import sensitivity as sensitivity
