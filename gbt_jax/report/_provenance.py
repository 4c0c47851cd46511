"""Provenance: versions, model and data, so that the ranking can be reproduced."""

import hashlib
import importlib.metadata
import json
import os
import platform
from datetime import datetime
from pathlib import Path

from .. import __version__
from ..frames import Ranking, Votes
from ..frames._files import STANDARD_INPUT
from ..frames._law_names import law_name
from ._html import compact, text


def data_name(votes: Votes) -> str:
    """The name of the file without its folder, or the name of another source."""
    if votes.columns.native is not None:
        return votes.name
    return "standard input" if votes.name == STANDARD_INPUT else Path(votes.name).name


def data_hash(votes: Votes) -> tuple[str, str]:
    """(what was hashed, its SHA-256): the bytes of the file, or the rows that were read."""
    if votes.columns.native is None and votes.name != STANDARD_INPUT:
        try:
            with open(os.fspath(votes.name), "rb") as stream:
                return "the file", hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError:  # the file was removed since
            pass
    return "the rows read", _rows_hash(votes)


def _rows_hash(votes: Votes) -> str:
    """The hash of one line of JSON per comparison: [group labels …, a, b, value, weight]."""
    groups = list(zip(*(labels.to_pylist() for labels in votes.group_labels.values()), strict=True))
    items = votes.items.to_pylist()
    digest = hashlib.sha256()
    columns = (x.tolist() for x in (votes.group, votes.a, votes.b, votes.value, votes.weight))
    for group, a, b, value, weight in zip(*columns, strict=True):
        line = [*(groups[group] if groups else ()), items[a], items[b], value, weight]
        digest.update(json.dumps(line).encode() + b"\n")
    return digest.hexdigest()


def provenance(
    ranking: Ranking, *, preset: str | None, seed: int | None, made: datetime | None
) -> str:
    """A list of names and values."""
    votes, model = ranking.votes, ranking.fit.model
    hashed, digest = data_hash(votes)
    versions = {name: importlib.metadata.version(name) for name in ("jax", "numpy", "pyarrow")}
    facts = {
        "Data": text(data_name(votes)),
        f"SHA-256 of {hashed}": f"<code>{digest}</code>",
        "Columns": text(_columns(votes)),
        "Preset": None if preset is None else text(preset),
        "Law": text(law_name(model.law)),
        "Prior": f"σ = {compact(float(model.prior_std))}",
        "Level": f"{compact(100 * ranking.level)}%",
        "Seed of rank intervals": None if seed is None else str(seed),
        "Precision": text(ranking.fit.scores.dtype),
        "Software": text(
            f"gbt_jax {__version__}, Python {platform.python_version()}, "
            + ", ".join(f"{name} {version}" for name, version in versions.items())
        ),
        "Created": None if made is None else _moment(made),
    }
    lines = (f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts.items() if value)
    return f"<dl>{''.join(lines)}</dl>"


def _columns(votes: Votes) -> str:
    settings = votes.preset
    roles = ("a", "b", "value", "value_b", "weight", "judge")
    named = [f"{role} = {getattr(settings, role)}" for role in roles if getattr(settings, role)]
    return ", ".join(named + [f"group = {name}" for name in votes.group_labels])


def _moment(made: datetime) -> str:
    shown = made.strftime("%Y-%m-%d %H:%M %Z").strip()
    return f'<time datetime="{text(made.isoformat(timespec="seconds"))}">{text(shown)}</time>'
