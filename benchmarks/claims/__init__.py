"""What the documentation and the paper state, measured: trials, exactness, precision, seeds."""
