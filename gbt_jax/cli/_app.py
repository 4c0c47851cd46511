"""The command-line application: all commands, each from its own file."""

import typer

from ._audit import audit
from ._check import check
from ._demo import demo
from ._fit import fit
from ._options import expand_options
from ._presets import presets
from ._report import report
from ._simulate import simulate

app = typer.Typer(
    help="Scores from paired comparisons, with generalized Bradley-Terry models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (fit, check, audit, simulate, report, demo, presets):
    app.command(command.__name__)(expand_options(command))


def _version(value: bool) -> None:
    if value:
        from .. import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """Scores from paired comparisons, with generalized Bradley-Terry models."""
