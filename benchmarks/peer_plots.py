"""Error against time, one panel for each problem: docs/images/peers.png."""

import pathlib

from peer_rows import NAMES, Row, of_work
from peer_work import OURS, WORK

PICTURE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "images" / "peers.png"
COLOURS = {
    "gbt_jax": "#c2410c",
    "solidago": "#7c3aed",
    "torch": "#be185d",
    "scipy": "#1d4ed8",
    "scikit_learn": "#0891b2",
    "jax_optimisers": "#15803d",
    "evalica": "#a16207",
    "arena_rank": "#475569",
    "choix": "#65a30d",
    "kickscore": "#9ca3af",
}


def draw(rows: list[Row]) -> None:
    """Error against time, one panel for each problem."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    works = [
        work
        for work in WORK
        if of_work(rows, work.name)
        and work.judged == "gradient"
        and not work.name.startswith("scaling")
    ]
    if not works:
        return
    height = -(-len(works) // 2)
    figure, grid = plt.subplots(height, 2, figsize=(11, 3.4 * height), squeeze=False)
    for axes, work in zip(grid.flat, works, strict=False):
        for row in of_work(rows, work.name):
            if row["seconds"] is None or not row["error"]:
                continue
            is_default = row["method"].find(",") < 0 and row["method"] != "fit"
            colour = COLOURS[row["contestant"]]
            axes.plot(
                row["seconds"],
                row["error"],
                marker="*" if row["contestant"] == OURS else "o",
                markersize=13 if row["contestant"] == OURS else 7,
                color=colour,
                markerfacecolor="white" if is_default else colour,
                linestyle="none",
            )
        axes.set(xscale="log", yscale="log", title=work.title)
        axes.title.set_fontsize(10)
        axes.grid(alpha=0.25)
        axes.set_ylabel("largest gradient")
    for axes in grid[-1]:
        axes.set_xlabel("seconds")
    for axes in grid.flat[len(works) :]:
        axes.set_visible(False)
    labels = {"jax_optimisers": "jaxopt, optax, optimistix"}
    handles = []
    for name, colour in COLOURS.items():
        label = labels.get(name) or NAMES.get(name) or name
        handles += grid[0, 0].plot([], [], "o", color=colour, label=label)
    figure.legend(handles=handles, loc="upper center", ncols=5, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.7 / (3.4 * height)))
    figure.savefig(PICTURE, dpi=90)
    plt.close(figure)
