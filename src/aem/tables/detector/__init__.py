"""The outlier detector: a robust fit, three looks at a row, a threshold."""
