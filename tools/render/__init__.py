"""The tables of README and docs, from results/: `python -m tools.render [--check]`."""
