"""The options that every command has: `--threads`, `--quiet` and `--verbose`."""

import inspect
import time
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import torch
import typer

from aem.base.console import detail, set_verbosity
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
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print only results, warnings and errors.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Print details, too, on standard error.")
]
COMMON = {"threads": (Threads, None), "quiet": (Quiet, False), "verbose": (Verbose, False)}


def give_options(app: typer.Typer) -> None:
    """Give the common options to all commands of a program.

    A command may take the value of one by having a parameter of its name.

    Parameters
    ----------
    app
        the program; its groups of commands are included.
    """
    for command in app.registered_commands:
        assert command.callback is not None
        command.callback = _with_options(command.callback)
    for group in app.registered_groups:
        assert group.typer_instance is not None
        give_options(group.typer_instance)


def _with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(command).parameters
    wanted = [name for name in COMMON if name in parameters]

    @wraps(command)
    def with_options(
        *args: Any, threads: int | None, quiet: bool, verbose: bool, **kwargs: Any
    ) -> Any:
        set_verbosity(quiet=quiet, verbose=verbose)
        set_threads(threads)
        torch.set_num_threads(get_threads())  # for what PyTorch itself shares among threads
        values = {"threads": threads, "quiet": quiet, "verbose": verbose}
        started = time.monotonic()
        result = command(*args, **kwargs, **{name: values[name] for name in wanted})
        detail(f"took {time.monotonic() - started:.1f} s with {get_threads()} threads")
        return result

    own = [parameter for name, parameter in parameters.items() if name not in COMMON]
    common = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=option)
        for name, (option, default) in COMMON.items()
    ]
    with_options.__signature__ = inspect.Signature([*own, *common])  # type: ignore[attr-defined]
    options = {name: option for name, (option, _) in COMMON.items()}
    with_options.__annotations__ = {**command.__annotations__, **options}
    return with_options
