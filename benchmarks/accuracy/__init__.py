"""How well tables are fitted, beside mixtures, kernel densities, flows and anomaly detectors."""
