"""Sizes at which another method becomes faster, each with the script that measures it."""

# Items up to which a fit factorises dense matrices instead of iterating (`benchmarks/single.py`).
DENSE_FIT_ITEMS = 48
# The first sizes to which rows are padded. Up to the last, a power of 2, padding costs less than
# compiling more programs (`benchmarks/first_answers.py`).
LADDER_ROWS = (512, 4096)
# Comparisons of all groups up to which compiling takes longer than solving: `quick_options` are
# used up to here (`benchmarks/single.py`, compilation).
QUICK_ROWS = 8192
# Items up to which N is formed as a dense matrix: 128 MB (`benchmarks/sensitivities.py`).
DENSE_CURVATURE_ITEMS = 4096
# Items up to which the time of a factorisation is negligible. Beyond, standard deviations and draws
# use elimination (`benchmarks/uncertainty.py`).
SMALL_CURVATURE_ITEMS = 256
# Items from which the matrix left by elimination may be too large (`benchmarks/uncertainty.py`).
ELIMINATION_ITEMS = 8192
# Block size of a product with the Hessian on a CPU, and the number of rows up to which blocks are
# faster: beyond, rows exceed the cache and XLA uses two cores (`benchmarks/products.py`).
BLOCK_ROWS, BLOCKED_ROWS = 2048, 1 << 18
