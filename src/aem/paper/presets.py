"""The presets of experiments: TOML files in the package, one per task and preset."""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from aem.base.settings import merge, parse_assignment, read_toml
from aem.errors import AemError

PRESETS = ("fast", "paper", "best")


def preset_settings(task: str, preset: str) -> dict[str, Any]:
    """Return the settings of a shipped preset.

    Parameters
    ----------
    task
        name of the task or table.
    preset
        one of `PRESETS`.
    """
    if preset not in PRESETS:
        raise AemError(f"unknown preset '{preset}'; known: {', '.join(PRESETS)}")
    file = resources.files("aem.paper") / "experiments" / task / f"{preset}.toml"
    with resources.as_file(file) as path:
        if not path.is_file():
            raise AemError(f"task '{task}' has no preset '{preset}'")
        return read_toml(path)


def layered_settings(
    task: str, preset: str, file: Path | None = None, assignments: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the settings of a preset, overridden by a TOML file and by single settings.

    Parameters
    ----------
    task
        name of the task or table.
    preset
        one of `PRESETS`.
    file
        a TOML file whose settings are laid over the preset.
    assignments
        single settings laid over both, as `section.key=value`.
    """
    settings = preset_settings(task, preset)
    if file is not None:
        settings = merge(settings, read_toml(file))
    for text in assignments:
        settings = merge(settings, parse_assignment(text))
    return settings
