"""Write the tables of docs/peers.md and README.md, and the plots, from `results/peers.csv`."""

import pathlib

import numpy as np
from peer_plots import draw
from peer_rows import NAMES, Row, of_work, read
from peer_work import COLD, EXTREME, FLOAT32, MEMORY, OURS, WORK, Work

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE, README = ROOT / "docs" / "peers.md", ROOT / "README.md"
YARDSTICKS = ("one gradient", "one copy")

PREAMBLE = """\
# Side by side with others

`python benchmarks/peers.py` measured every number on this page, on two cores without a GPU; the
tables come from `benchmarks/results/peers.csv`. Each contestant runs in a separate process. Runs
are interleaved and timed from prepared data to the answer: best of five turns after a first call
that may compile (jaxopt, optax and optimistix compile before it). In a turn a method is called
until 0.3 seconds have passed. "Times ours" is the time divided by that of the first line. Targets
are for the tightest settings. All answers are judged by the largest entry of the gradient of the
same loss, in float64.

Each library runs at its default and at its tightest setting. SciPy's *sparse Newton* and *dense
Newton* were written for this comparison: Newton's method for all users as one problem, with a
sparse Hessian and preconditioned conjugate gradients, and user by user with dense factorisations.
*torch L-BFGS* is the recipe of the paper's authors. kickscore is made for scores that change over
time; here its scores are constant, and it returns a posterior mean instead of the maximum.

![Error against time for each problem](images/peers.png)

Filled markers are tightest settings, open ones defaults; stars are gbt_jax.

¹ Measured on 200 of the users, and extrapolated.

## Missed targets

SciPy's sparse Newton uses the same method: as many Newton steps and conjugate gradients, with
products in CSR form by compiled code. Only the cost of a pass over the rows and of a product with
the Hessian can differ.

- A product gathers two scores per row and adds to two items, which takes XLA 3 to 5 ns a row, one
  and a half to three times as long as SciPy's CSR (`python benchmarks/products.py`). Segments of
  each item's neighbours need only gathers, and are faster where items have many comparisons, but
  sorting rows into them costs more than it saves.
- Tournesol's six users need 52 Newton steps and 872 products (`python benchmarks/single.py`). A fit
  four times as fast as the sparse Newton would have 10 µs for each product; for the largest user
  XLA takes 29 µs, and SciPy's CSR 19. `fit` also pads groups to a few shapes, so that new data
  compile nothing.
- For a single problem, passes and products take 0.7 of a fit at A = 500, and 0.6 of Tournesol's
  (`python benchmarks/single.py`). The rest is vectors of conjugate gradients, and passes that
  bound rounding errors, which decide when a fit has converged. Estimates of these errors from sums
  per item were faster, but ended fits of small values too early.
- Products in float32 move half of the bytes, but up to 100,000 rows they take 0.8 to 1.04 of the
  time of those in float64 (`python benchmarks/products.py`): rows and items fit in a core's cache,
  so that indexing dominates. At a million rows it is 0.6. 32-bit inner solves would gain little
  where targets are missed.
- In a batch of ten thousand small users, conjugate gradients of a chunk run until its slowest user
  has converged: at most 0.73 of the rows in products are needed. Chunks contain users with similar
  numbers of comparisons. Chunks of users with similar numbers of steps would reach 0.97, but that
  number is known only afterwards (`python benchmarks/groups.py`).

"""

# Default tolerances leave large gradients in float64 as well.
SINGLE_PRECISION = """\
Values, scores and losses are in float32 where a library allows it. The table of this problem above
has the same methods in float64: a gradient that is large there too is not caused by float32.

"""


def write_report() -> None:
    rows = read()
    PAGE.write_text(page(rows), encoding="utf-8")
    replace_block(README, "peers", summary(rows))
    draw(rows)


def replace_block(path: pathlib.Path, name: str, text: str) -> None:
    """Replace the text between the markers of that name."""
    whole = path.read_text(encoding="utf-8")
    before, rest = whole.split(f"<!-- {name} -->\n")
    after = rest.split(f"<!-- end of {name} -->")[1]
    block = f"<!-- {name} -->\n{text}<!-- end of {name} -->"
    path.write_text(before + block + after, encoding="utf-8")


def table(header: list[str], lines: list[list[str]]) -> str:
    rows = [header, ["---"] * len(header), *lines]
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def name_of(row: Row) -> str:
    library = NAMES.get(row["contestant"], row["contestant"])
    return f"{library} {row['method']}".strip()


def short(value: float | None, unit: str = "") -> str:
    """Format with two or three digits."""
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}{unit}"
    return f"{value:.3g}{unit}" if value >= 1 else f"{value:.2g}{unit}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds >= 1:
        return short(seconds, " s")
    return short(1e3 * seconds, " ms") if seconds >= 1e-3 else short(1e6 * seconds, " µs")


def power(value: float | None) -> str:
    return "" if value is None else f"{value:.0e}"


def is_met(row: Row, ours: Row) -> bool:
    """Whether the speed target is met, with an error as small or below 1e-9."""
    error, best = row["error"], ours["error"]
    if row["ratio"] is None or error is None or best is None:
        return False
    return row["ratio"] >= row["target"] and best <= max(error, 1e-9)


def target(row: Row, ours: Row) -> str:
    if row["target"] is None or row["seconds"] is None:
        return ""
    return f"{row['target']:g} {'met' if is_met(row, ours) else '**missed**'}"


def contest_table(rows: list[Row], judged: str) -> str:
    error = {"jacobian": "residual", "std": "relative error"}.get(judged, "largest gradient")
    lines = []
    for row in rows:
        if row["method"] in YARDSTICKS:
            continue
        if row["seconds"] is None:
            lines.append([name_of(row), row["failed"], "", "", "", "", ""])
            continue
        lines.append(
            [
                name_of(row) + (" ¹" if (row["share"] or 1) > 1 else ""),
                duration(row["seconds"]),
                short(row["ratio"]),
                target(row, rows[0]),
                power(row["error"]),
                power(row["apart"]),
                duration(row["first_seconds"]),
            ]
        )
    header = ["", "time", "times ours", "target", error, "apart from ours", "first call"]
    return table(header, lines)


def yardsticks(rows: list[Row]) -> str:
    """The time of our fit in gradients and in copies of the data."""
    by_name = {row["method"]: row["seconds"] for row in rows if row["contestant"] == OURS}
    gradient, copy = (by_name.get(name) for name in YARDSTICKS)
    if not gradient or not copy:
        return ""
    fit = by_name["fit"]
    return (
        f"Our fit takes as long as {short(fit / gradient)} gradients of its loss, or "
        f"{short(fit / copy)} copies of its rows in memory.\n\n"
    )


def memory_table(rows: list[Row]) -> str:
    works = [work for work in WORK if work.name in MEMORY and of_work(rows, work.name)]
    names = dict.fromkeys(
        name_of(row) for work in works for row in of_work(rows, work.name) if row["peak_mb"]
    )
    lines = []
    for name in names:
        cells = [name]
        for work in works:
            found = [row for row in of_work(rows, work.name) if name_of(row) == name]
            cells.append(short(found[0]["peak_mb"]) if found else "")
        if name.removeprefix("gbt_jax ") not in YARDSTICKS:
            lines.append(cells)
    return table(["", *(work.name for work in works)], lines)


def trial_table(rows: list[Row], work: Work) -> str:
    lines = []
    for row in of_work(rows, work.name):
        if row["seconds"] is None:
            said = row["failed"]
        elif row["error"] is None:
            said = "scores that are not numbers"
        elif row["error"] > 1e-3:
            said = f"no error, and a gradient of {row['error']:.0e}"
        else:
            said = f"scores, gradient {row['error']:.0e}, apart from ours by {power(row['apart'])}"
            if row["apart"] is None:
                said = f"scores, gradient {row['error']:.0e}"
        lines.append([name_of(row), said.replace("|", "/")])
    return table(["", "outcome"], lines)


def trials(heading: str, note: str, works: tuple[Work, ...], rows: list[Row]) -> str:
    """A section with the outcome of each method; empty if none of the works has run."""
    parts = [
        f"{work.title[0].upper()}{work.title[1:]}:\n\n{trial_table(rows, work)}\n"
        for work in works
        if of_work(rows, work.name)
    ]
    return "".join([f"## {heading}\n\n{note}", *parts]) if parts else ""


def page(rows: list[Row]) -> str:
    """The text of docs/peers.md."""
    parts = [PREAMBLE]
    for work in WORK:
        own = of_work(rows, work.name)
        if own and not work.name.startswith("scaling"):
            parts.append(f"## {work.title[0].upper()}{work.title[1:]}\n\n")
            parts.append(yardsticks(own) + contest_table(own, work.judged) + "\n")
    parts.append("## How time grows\n\n" + scaling_table(rows) + "\n")
    cold = of_work(rows, "cold")
    if cold:
        parts.append(f"## Cold start\n\n{COLD.title}.\n\n" + cold_table(cold) + "\n")
    parts.append("## Peak memory\n\nMegabytes of a process that does nothing else, libraries and ")
    parts.append("compilation included.\n\n" + memory_table(rows) + "\n")
    parts.append(trials("Inputs without an answer", "", EXTREME, rows))
    parts.append(trials("Single precision", SINGLE_PRECISION, (FLOAT32,), rows))
    return "".join(parts).rstrip("\n") + "\n"


def scaling_table(rows: list[Row]) -> str:
    works = [work for work in WORK if work.name.startswith("scaling") and of_work(rows, work.name)]
    names = dict.fromkeys(name_of(row) for work in works for row in of_work(rows, work.name))
    lines = []
    for name in names:
        cells = [name]
        for work in works:
            (row,) = (row for row in of_work(rows, work.name) if name_of(row) == name)
            if row["seconds"] is None:
                cells.append(row["failed"])
            else:
                cells.append(f"{duration(row['seconds'])} ({power(row['error'])})")
        lines.append(cells)
    sizes = [f"{10 ** int(work.name[-1]):,} comparisons" for work in works]
    return table(["time (largest gradient)", *sizes], lines)


def cold_table(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        times = [duration(row["first_seconds"]), duration(row["seconds"]), power(row["error"])]
        lines.append(
            [name_of(row), *([row["failed"], "", ""] if row["seconds"] is None else times)]
        )
    return table(["", "first process", "later ones", "largest gradient"], lines)


def summary(rows: list[Row]) -> str:
    """The README's table: for each work the most accurate setting of each library."""
    lines = []
    for work in WORK:
        own = of_work(rows, work.name)
        if not own or work.judged not in ("gradient", "scores") or work.name.startswith("scaling"):
            continue
        best: dict[str, Row] = {}
        for row in own:
            library = NAMES.get(row["contestant"], row["contestant"]) or row["method"].split()[0]
            if row["contestant"] == OURS or row["seconds"] is None:
                continue
            if library not in best or (row["error"] or np.inf) < (best[library]["error"] or np.inf):
                best[library] = row
        others = ", ".join(
            f"{library} {short(row['ratio'])} ({power(row['error'])})"
            for library, row in sorted(best.items(), key=lambda pair: pair[1]["ratio"])
        )
        ours = f"{duration(own[0]['seconds'])} ({power(own[0]['error'])})"
        lines.append([work.title[0].upper() + work.title[1:], ours, others])
    return table(["work", "gbt_jax (largest gradient)", "times as long (largest gradient)"], lines)
