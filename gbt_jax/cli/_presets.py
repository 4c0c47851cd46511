"""`gbt presets`: the named table layouts."""

from ._session import console


def presets() -> int:
    """List the values of --preset with their columns, law and prior."""
    from rich.table import Table

    from ..frames import PRESETS

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 1, 0))
    for name in ("preset", "columns", "law", "σ"):
        table.add_column(name, vertical="top")
    for name, preset in PRESETS.items():
        columns = [preset.a, preset.b, preset.value, preset.value_b]
        optional = [preset.weight, preset.judge, preset.date]
        listed = ", ".join(column for column in columns if column)
        listed += "".join(f" [{column}]" for column in optional if column)
        listed += f"; one ranking per {' and '.join(preset.by)}" if preset.by else ""
        about = f"{preset.about}\n{listed}".replace("[", r"\[")
        table.add_row(name, about, preset.law, f"{preset.prior_std:g}")
    console().print(table)
    return 0
