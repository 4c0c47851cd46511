"""Options that several commands share: the table, the model and the output."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

_TABLE, _MODEL = "Table", "Model"


def _table(help: str, **settings: Any) -> Any:
    return typer.Option(help=help, rich_help_panel=_TABLE, show_default=False, **settings)


def _model(help: str, **settings: Any) -> Any:
    return typer.Option(help=help, rich_help_panel=_MODEL, **settings)


@dataclasses.dataclass
class TableOptions:
    """The file and its columns."""

    file: Annotated[
        str, typer.Argument(help="CSV, TSV, Parquet or JSON lines; - is standard input.")
    ]
    preset: Annotated[
        str | None,
        _table("arena, judge, crowd, tournesol, sports, pairs or chosen: see gbt presets."),
    ] = None
    a: Annotated[str | None, _table("Column of the first item.", metavar="COLUMN")] = None
    b: Annotated[str | None, _table("Column of the second item.", metavar="COLUMN")] = None
    value: Annotated[str | None, _table("Column of outcomes.", metavar="COLUMN")] = None
    value_b: Annotated[str | None, _table("Column of b's count.", metavar="COLUMN")] = None
    weight: Annotated[str | None, _table("Column of weights.", metavar="COLUMN")] = None
    date: Annotated[str | None, _table("Column of dates.", metavar="COLUMN")] = None
    judge: Annotated[str | None, _table("Column of judges.", metavar="COLUMN")] = None
    by: Annotated[
        str | None,
        _table("Group columns, separated by commas: one ranking per combination.", metavar="NAMES"),
    ] = None
    positive_favours: Annotated[str | None, _table("Side that positive grades favour: a or b.")] = (
        None
    )
    max_value: Annotated[float | None, _table("Largest grade; inf if grades are unbounded.")] = None
    ties: Annotated[
        str, _table("model: pass them to the law; half: half a win each; drop: leave them out.")
    ] = "model"
    half_life: Annotated[float | None, _table("Days after which a weight halves.")] = None
    encoding: Annotated[str, _table("Encoding of a text file, such as latin-1.")] = "utf-8"
    delimiter: Annotated[str | None, _table("Delimiter of a text file.")] = None

    def votes(self) -> Any:
        """Read the file."""
        from ..frames import read_votes

        options: Any = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("file", "preset", "by")
        }
        by = None if self.by is None else [part.strip() for part in self.by.split(",")]
        return read_votes(self.file, self.preset, by=by, **options)


@dataclasses.dataclass
class ModelOptions:
    """Law, prior and intervals."""

    law: Annotated[
        str | None,
        _model(
            "binary, davidson:1, knary:21, uniform, beta:2, gaussian:1, skellam:2.7 …",
            show_default="the preset's",
        ),
    ] = None
    prior_std: Annotated[
        float | None,
        _model("Standard deviation σ of the prior; inf for no prior.", show_default="the preset's"),
    ] = None
    level: Annotated[float, _model("Level of score and rank intervals.")] = 0.95
    seed: Annotated[int, _model("Random seed for rank intervals.")] = 0
    min_comparisons: Annotated[
        float, _model("Total weight of comparisons that an item needs for a rank.", min=0)
    ] = 0.0

    def ranking(self, votes: Any, *, intervals: bool = True) -> Any:
        """Fit the votes."""
        from ..frames import fit_table

        return fit_table(
            votes,
            law=self.law,
            prior_std=self.prior_std,
            level=self.level,
            seed=self.seed,
            min_comparisons=self.min_comparisons,
            intervals=intervals,
        )


@dataclasses.dataclass
class PrintOptions:
    """How much to print, and in which format."""

    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")] = False
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False


class InterruptionError(Exception):
    """Ctrl-C ended a command."""


def expand_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Replace the dataclass arguments of a command by their fields.

    A command declares `table: TableOptions` once instead of sixteen options.
    """
    own = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {n: kind for n, kind in own.items() if dataclasses.is_dataclass(kind)}
    given = inspect.signature(function).parameters
    # The fields of groups first: the file is the first argument of a command.
    hints: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for kind in groups.values():
        hints |= get_type_hints(kind, include_extras=True)
        for field in dataclasses.fields(kind):
            missing = field.default is dataclasses.MISSING
            defaults[field.name] = inspect.Parameter.empty if missing else field.default
    for name in given:
        if name not in groups:
            hints[name], defaults[name] = own[name], given[name].default
    hints.pop("return", None)

    def command(**values: Any) -> Any:
        made: dict[str, Any] = {}
        for name, kind in groups.items():
            made[name] = kind(**{f.name: values.pop(f.name) for f in dataclasses.fields(kind)})
        try:
            return function(**made, **values)
        except KeyboardInterrupt:  # which the parser would turn into an error of its own
            raise InterruptionError from None

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(name, keyword, default=defaults[name], annotation=hints[name])
        for name in hints
    ]
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    command.__annotations__ = hints
    return command
