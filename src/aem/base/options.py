"""Options that several commands understand."""

from typing import Any

import typer

from aem.base.settings import SEEDS


def seed_option(help_text: str) -> Any:
    """A seed of anything drawn at random."""
    return typer.Option(help=help_text, min=0, max=SEEDS - 1, metavar="<int>")
