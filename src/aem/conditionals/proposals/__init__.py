"""Proposals, one kind per file; `base` says what a new one has to supply."""
