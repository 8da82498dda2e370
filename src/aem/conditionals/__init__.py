"""One dimension at a time: proposals, energies, normalisers, distribution functions."""
