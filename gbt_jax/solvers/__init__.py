"""Solvers for `fit`, and the interface for writing one.

A solver is an `AbstractSolver`: it minimises a `Problem`, a set of functions independent of
comparisons, and returns a `Solution`.
"""

from ._newton import Point as Point
from ._newton import Problem as Problem
from ._newton import Projection as Projection
from ._newton import Refinement as Refinement
from ._newton import Solution as Solution
from ._solvers import LBFGS as LBFGS
from ._solvers import AbstractSolver as AbstractSolver
from ._solvers import NewtonCG as NewtonCG
from ._solvers import NewtonCholesky as NewtonCholesky
