"""Invertible maps of rows under which a density is easier to learn; `base` says how to write one."""
