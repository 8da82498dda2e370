"""Neural networks and their kernels; densities are built from them in `aem.conditionals`."""
