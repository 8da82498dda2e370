"""Errors a user can cause, told in one sentence that names the culprit."""


class AemError(Exception):
    """Bad input: the message is the whole explanation and the command line prints nothing else."""


class Interrupted(AemError):
    """The user stopped the work; the message says where, and how to go on."""


class AccuracyWarning(UserWarning):
    """A number is returned with an error larger than asked for, or means less than it seems."""
