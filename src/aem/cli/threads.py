"""The option `--threads`, which every command has."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import torch
import typer

from aem.base.threads import VARIABLE, get_threads, set_threads

Threads = Annotated[
    int | None,
    typer.Option(
        help=f"Number of threads; {VARIABLE} sets it for all commands.",
        show_default="chosen",
        metavar="<int>",
        min=1,
    ),
]


def give_threads(app: typer.Typer) -> None:
    """Give the option `--threads` to all commands of a program.

    Parameters
    ----------
    app
        the program; its groups of commands are included.
    """
    for command in app.registered_commands:
        assert command.callback is not None
        command.callback = _with_threads(command.callback)
    for group in app.registered_groups:
        assert group.typer_instance is not None
        give_threads(group.typer_instance)


def _with_threads(command: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(command)
    def with_threads(*args: Any, threads: int | None = None, **kwargs: Any) -> Any:
        set_threads(threads)
        torch.set_num_threads(get_threads())  # for what PyTorch itself shares among threads
        return command(*args, **kwargs)

    signature = inspect.signature(command)
    own = inspect.Parameter(
        "threads", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Threads
    )
    parameters = [*signature.parameters.values(), own]
    with_threads.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_threads.__annotations__ = {**command.__annotations__, "threads": Threads}
    return with_threads
