"""Measurements behind statements of the documentation: trials, exactness, precision, seeds."""
