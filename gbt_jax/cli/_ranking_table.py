"""Print a ranking as a table that fits the terminal."""

from typing import Any

from ._session import console

_ROWS_SHOWN = 40


def show_ranking(ranking: Any, *, rows: int = _ROWS_SHOWN, digits: int = 2) -> None:
    """Print the first rows of a ranking."""
    from rich.table import Table

    groups = list(ranking.votes.group_labels)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in groups:
        table.add_column(name, overflow="ellipsis", no_wrap=True, ratio=2)
    table.add_column("rank", justify="right", no_wrap=True)
    table.add_column("item", overflow="ellipsis", no_wrap=True, min_width=8, ratio=4)
    numbers = ("score", "std", f"{100 * ranking.level:g}% interval", "ranks", "n")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    shown = ranking.arrow.slice(0, rows).to_pylist()
    for row in shown:
        table.add_row(*(_text(row[name]) for name in groups), *_cells(row, digits))
    terminal = console()
    terminal.print(table)
    left = ranking.arrow.num_rows - len(shown)
    if left > 0:
        terminal.print(f"… and {left:,} more: write all with -o FILE, or pipe the output")


def _cells(row: dict[str, Any], digits: int) -> list[str]:
    if row["score"] is None:
        return ["–", _text(row["item"]), "–", "–", "–", "–", str(row["comparisons"])]
    interval = f"{_number(row['lower'], digits)} to {_number(row['upper'], digits)}"
    ranks = "–" if row["rank_lower"] is None else f"{row['rank_lower']}–{row['rank_upper']}"
    return [
        "–" if row["rank"] is None else str(row["rank"]),
        _text(row["item"]),
        _number(row["score"], digits),
        _number(row["std"], digits),
        interval,
        ranks,
        str(row["comparisons"]),
    ]


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}".replace("-", "−")


def _text(value: Any) -> Any:
    from rich.text import Text

    return Text(str(value))  # brackets in a label are not markup
