"""Fitting a model to rows."""

from aem.training.loop import fit

__all__ = ["fit"]
