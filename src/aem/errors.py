"""Errors that users can cause, each with a one-sentence message."""

from typing import Any


class AemError(Exception):
    """Bad input: the message explains it, and the command line prints nothing else."""


class Interrupted(AemError):
    """The user stopped the work; the message says where, and how to continue.

    Parameters
    ----------
    message
        the sentence.
    state
        how far the work came, where it has such a state.
    """

    def __init__(self, message: str, state: Any = None) -> None:
        super().__init__(message)
        self.state = state


class AccuracyWarning(UserWarning):
    """A result with a larger error than asked for, or of limited meaning."""
