"""Sizes at which another way becomes the faster one, each with the script that measured it."""

# Items up to which a fit factorises dense matrices instead of iterating (`benchmarks/single.py`).
DENSE_FIT_ITEMS = 48
# The first sizes that rows are padded to; up to the last, which is a power of 2, padding costs less
# than more programs would (`benchmarks/first_answers.py`).
LADDER_ROWS = (512, 4096)
# Comparisons of all groups up to which compiling takes longer than solving, so that programs are
# compiled quickly rather than run quickly (`benchmarks/single.py`, compilation).
QUICK_ROWS = 8192
# Items up to which N, a matrix, is made for a fit: 128 MB (`benchmarks/sensitivities.py`).
DENSE_CURVATURE_ITEMS = 4096
# Items up to which a factorisation takes no time beside everything else, and beyond which standard
# deviations and draws go by elimination (`benchmarks/uncertainty.py`).
SMALL_CURVATURE_ITEMS = 256
# Items from which on what elimination leaves may be too large a matrix (`uncertainty.py`).
ELIMINATION_ITEMS = 8192
# Rows that a product with the Hessian visits at a time, on a CPU, and up to how many rows that is
# faster: beyond, two cores compute what does not fit into the cache (`benchmarks/products.py`).
BLOCK_ROWS, BLOCKED_ROWS = 2048, 1 << 18
