"""Records of the watched ratios, one per line of `results/history.jsonl`.

`peers.py --watch` measures them again and reports those that have fallen by more than 20%.
"""

import datetime
import json
import pathlib
import platform
from typing import Any

import numpy as np
from peer_work import OURS

HISTORY = pathlib.Path(__file__).resolve().parent / "results" / "history.jsonl"
WATCHED = (
    (OURS, "fit"),
    ("scipy", "L-BFGS-B, tightest"),
    ("scipy", "sparse Newton, tightest"),
)
FALL = 0.2  # relative fall of a ratio that is reported


def read() -> list[dict[str, Any]]:
    if not HISTORY.exists():
        return []
    return [json.loads(line) for line in HISTORY.read_text(encoding="utf-8").splitlines()]


def write(ratios: dict[str, float]) -> None:
    import jax

    import gbt_jax

    line = {
        "date": datetime.date.today().isoformat(),
        "gbt_jax": gbt_jax.__version__,
        "jax": jax.__version__,
        "python": platform.python_version(),
        "ratios": ratios,
    }
    HISTORY.parent.mkdir(exist_ok=True)
    with open(HISTORY, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def show(ratios: dict[str, float]) -> int:
    """Print ratios and the last record; return 1 if one of them has fallen."""
    written = read()
    last = written[-1]["ratios"] if written else {}
    fallen = [name for name in ratios if ratios[name] < (1 - FALL) * last.get(name, 0)]
    for name, ratio in ratios.items():
        mark = "  fallen by more than a fifth" if name in fallen else ""
        print(f"{name:46} {ratio:8.2f} times ours, last {last.get(name, np.nan):8.2f}{mark}")
    return 1 if fallen else 0
