"""The rows of `results/peers.csv`: one for each work and method."""

import csv
import pathlib
from typing import Any

import numpy as np

CSV = pathlib.Path(__file__).resolve().parent / "results" / "peers.csv"
FIELDS = (
    *("work", "contestant", "method", "seconds", "ratio", "target", "error", "apart"),
    *("first_seconds", "peak_mb", "runs", "share", "failed"),
)
NAMES = {
    "arena_rank": "arena-rank",
    "gbt_jax": "gbt_jax",
    "jax_optimisers": "",  # its methods are named after their libraries
    "scikit_learn": "scikit-learn",
    "scipy": "SciPy",
    "torch": "",
}

Row = dict[str, Any]


def keep(rows: list[Row]) -> None:
    """Replace the rows of one work."""
    kept = [row for row in read() if row["work"] != rows[0]["work"]]
    CSV.parent.mkdir(exist_ok=True)
    with open(CSV, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for row in kept + rows:
            writer.writerow({name: _written(row.get(name)) for name in FIELDS})


def _written(value: Any) -> Any:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    return f"{value:.4g}" if isinstance(value, float) else value


def read() -> list[Row]:
    """All rows, with None for empty numbers."""
    if not CSV.exists():
        return []
    with open(CSV, encoding="utf-8") as file:
        return [
            {
                name: text if name in ("work", "contestant", "method", "failed") else _number(text)
                for name, text in row.items()
            }
            for row in csv.DictReader(file)
        ]


def _number(text: str) -> float | None:
    return float(text) if text else None


def of_work(rows: list[Row], name: str) -> list[Row]:
    return [row for row in rows if row["work"] == name]
