"""How well tables are fitted, compared with mixtures, kernel densities, flows and detectors."""
