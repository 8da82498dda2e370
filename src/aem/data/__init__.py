"""Where rows come from: exact densities in the plane, and tables."""
