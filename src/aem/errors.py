"""Errors that users can cause, each with a one-sentence message."""


class AemError(Exception):
    """Bad input: the message explains it, and the command line prints nothing else."""


class Interrupted(AemError):
    """The user stopped the work; the message says where, and how to continue."""


class AccuracyWarning(UserWarning):
    """A result with a larger error than asked for, or of limited meaning."""
