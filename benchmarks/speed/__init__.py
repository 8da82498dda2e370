"""Speed of training, scoring and sampling, alone and beside busy processes."""
