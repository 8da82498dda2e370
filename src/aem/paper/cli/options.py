"""Options that the paper's experiments share."""

from pathlib import Path
from typing import Annotated

import typer

Preset = Annotated[
    str, typer.Option(help="fast: two CPU cores; paper: the paper's settings; best: one GPU.")
]


Out = Annotated[Path, typer.Option(help="Folder for metrics, model, settings, figure.")]


Config = Annotated[Path | None, typer.Option(help="TOML file whose settings override the preset.")]


SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="One setting, e.g. --set train.steps=500; may be repeated."),
]


Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
