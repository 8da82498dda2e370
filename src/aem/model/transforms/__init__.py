"""Invertible transforms of rows; `base` says how to write a new one."""
