"""Fits that choose their own settings from a table's rows."""
